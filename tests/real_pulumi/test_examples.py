"""Test every example in every form under the Pulumi CLI: create, no change, update, destroy."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from processes.commands import PASSPHRASE, SALT, Result, pulumi, run_new_process

from gpuform.providers.emulator.server import environment, serve
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

EXAMPLES: Final = sorted(
    file.parent for file in (Path(__file__).parents[2] / "examples").glob("[0-9]*/Pulumi.yaml")
)
FORMS: Final = {"topology": "", "python": "python", "yaml": "pulumi-yaml"}
PROJECTS: Final = [
    pytest.param(
        example / folder,
        form,
        id=f"{example.name}-{form}",
        marks=pytest.mark.language_host("yaml") if form == "yaml" else (),
    )
    for example in EXAMPLES
    for form, folder in FORMS.items()
    if (example / folder).is_dir()
]

SECRETS: Final = {"password": "Only4Tests!", "wandb_key": "only-4-tests"}
"""What a form has no default for; all examples are given both."""

CHANGED: Final[Mapping[str, Mapping[str, Any]]] = {
    "01-together-training": {"gpus": 24},
    "02-scp-fabric": {"nodes": 8},
    "03-tensorone-dev": {"gpus": 4},
    "05-health-gated": {"gpus": 24, "healthy_nodes": 3},
    "06-slurm-scale-down": {"gpus": 16},
    "08-modules": {"gpus": 24},
    "09-certified-cluster": {"gpus": 24},
    "11-rehearsed-change": {"driver": "CUDA_12_6_560"},
}
"""The configuration of the change."""

EDITED: Final = {
    "04-aios-registry": ("Serves vision models.", "Serves vision models and more."),
    "07-kubernetes-volumes": ("10Gi", "1Ti"),
}
"""The change of the program, where it is one."""


@pytest.fixture(scope="module")
def pulumi_home(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a PULUMI_HOME with the provider plugin, which Pulumi YAML programs require."""
    folder = tmp_path_factory.mktemp("home")
    done = run_new_process(folder, "plugin", "install", PULUMI_HOME=str(folder))
    assert done.code == 0, done.stderr
    return str(folder)


@dataclass(frozen=True)
class Project:
    """A copy of an example's project, and where its commands run."""

    directory: Path
    name: str
    environ: Mapping[str, str]

    def run(self, *arguments: str) -> Result:
        return pulumi(self.directory, *arguments, "--non-interactive", **self.environ)

    def count_changes(self, *arguments: str) -> Mapping[str, int]:
        """Run a command and return the changes, counted by operation."""
        log = self.directory / "events.jsonl"
        done = self.run(*arguments, "--event-log", str(log))
        assert done.code == 0, done.stdout + done.stderr
        events = [json.loads(line) for line in log.read_text().splitlines()]
        (summary,) = [event["summaryEvent"] for event in events if "summaryEvent" in event]
        counts: Mapping[str, int] = summary["resourceChanges"]
        return {op: count for op, count in counts.items() if count and op != "same"}

    def configure(self, **config: Any) -> None:
        crypter = PassphraseCrypter(PASSPHRASE, SALT)
        secrets = {key: {"secure": crypter.encrypt(value)} for key, value in SECRETS.items()}
        values = {f"{self.name}:{key}": value for key, value in {**config, **secrets}.items()}
        document = {"encryptionsalt": SALT, "config": values}
        (self.directory / "Pulumi.dev.yaml").write_text(yaml.safe_dump(document))

    def replace_text(self, before: str, after: str) -> None:
        for path in self.directory.glob("*.*"):
            if path.is_file() and before in path.read_text():
                path.write_text(path.read_text().replace(before, after))


@pytest.fixture
def project(source: Path, tmp_path: Path, pulumi_home: str) -> Iterator[Project]:
    ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml", "python", "pulumi-yaml")
    directory = shutil.copytree(source, tmp_path / "project", ignore=ignored)
    name = yaml.safe_load((directory / "Pulumi.yaml").read_text())["name"]
    with serve(seed="examples") as server:
        environ = {
            **environment(server.url),
            "PULUMI_DEBUG_COMMANDS": "1",
            "PULUMI_HOME": pulumi_home,
            "PULUMI_BACKEND_URL": f"file://{directory}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }
        yield Project(directory, name, environ)


UNCHANGED: Final = ("--expect-no-changes",)
AT_ONCE: Final = ("--yes", "--skip-preview")


@pytest.mark.parametrize(("source", "form"), PROJECTS)
def test_an_example_is_created_changed_and_destroyed(
    project: Project, source: Path, form: str
) -> None:
    del form
    example = next(example for example in EXAMPLES if source.is_relative_to(example))
    project.configure()
    assert project.run("stack", "init", "dev").code == 0
    assert set(project.count_changes("up", *AT_ONCE)) == {"create"}
    assert project.count_changes("refresh", *AT_ONCE, *UNCHANGED) == {}
    if example.name in EDITED:
        project.replace_text(*EDITED[example.name])
    else:
        project.configure(**CHANGED[example.name])
    assert project.count_changes("up", *AT_ONCE)
    assert project.count_changes("preview", "--refresh", *UNCHANGED) == {}
    assert set(project.count_changes("destroy", *AT_ONCE)) == {"delete"}
    state = json.loads((project.directory / f".pulumi/stacks/{project.name}/dev.json").read_text())
    assert not state["checkpoint"]["latest"].get("resources")
