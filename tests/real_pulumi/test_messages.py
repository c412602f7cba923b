"""Test the messages of `pulumi up` about gpuform's resources, from the CLI's event stream."""

import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from processes.commands import PASSPHRASE, SALT, Result, pulumi

from gpuform.providers.emulator.server import environment, serve
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.urn import name_of, type_of

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
RESOURCES: Final = {
    "01-together-training": {"data", "train"},
    "02-scp-fabric": {"train", "serve"},
}
"""Examples of resources with progress messages."""


@dataclass(frozen=True)
class Project:
    """A copy of an example with a stack, and its environment."""

    directory: Path
    environ: Mapping[str, str]

    def run(self, *arguments: str) -> tuple[Result, list[dict[str, Any]]]:
        """Run the Pulumi CLI, and return its result and its diagnostic events."""
        log = self.directory / "events.jsonl"
        done = pulumi(
            self.directory,
            *arguments,
            *("--yes", "--skip-preview", "--non-interactive", "--event-log", str(log)),
            **self.environ,
        )
        events = [json.loads(line) for line in log.read_text().splitlines()]
        diagnostic_events = [
            event["diagnosticEvent"] for event in events if "diagnosticEvent" in event
        ]
        # Of a host that does not lie beside the CLI, the CLI itself warns.
        return done, [
            diagnostic_event
            for diagnostic_event in diagnostic_events
            if not diagnostic_event["message"].startswith("using pulumi-")
        ]


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Project]:
    ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml", "python", "pulumi-yaml", "tests")
    directory = shutil.copytree(EXAMPLES / request.param, tmp_path / "project", ignore=ignored)
    name = yaml.safe_load((directory / "Pulumi.yaml").read_text())["name"]
    password = {"secure": PassphraseCrypter(PASSPHRASE, SALT).encrypt("Only4Tests!")}
    settings = {"encryptionsalt": SALT, "config": {f"{name}:password": password}}
    (directory / "Pulumi.dev.yaml").write_text(yaml.safe_dump(settings))
    with serve(seed="messages") as server:
        environ = {
            **environment(server.url),
            "PULUMI_DEBUG_COMMANDS": "1",
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_BACKEND_URL": f"file://{directory}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }
        assert pulumi(directory, "stack", "init", "dev", **environ).code == 0
        yield Project(directory, environ)


@pytest.mark.in_every_run
@pytest.mark.parametrize("project", RESOURCES, indirect=True)
def test_progress_is_shown_at_its_resource_and_then_disappears(
    project: Project, request: pytest.FixtureRequest
) -> None:
    done, messages = project.run("up")
    assert done.code == 0, done.stdout + done.stderr
    matching_messages = [message for message in messages if message["severity"] != "debug"]
    ephemeral_messages = [event for event in matching_messages if event.get("ephemeral")]
    expected = RESOURCES[request.node.callspec.params["project"]]
    assert {name_of(event["urn"]) for event in ephemeral_messages} == expected
    assert [event["message"] for event in matching_messages if not event.get("ephemeral")] == []


@pytest.mark.in_every_run
@pytest.mark.parametrize("project", ["01-together-training"], indirect=True)
def test_an_error_is_shown_at_its_resource_without_a_traceback(project: Project) -> None:
    topology = project.directory / "topology.yaml"
    topology.write_text(topology.read_text().replace("us-central-8", "us-nowhere-1"))
    done, messages = project.run("up")
    assert done.code != 0
    errors = [message for message in messages if message["severity"] == "error"]
    of_resources = [
        error for error in errors if error.get("urn") and "Stack" not in type_of(error["urn"])
    ]
    assert of_resources
    assert any("us-nowhere-1" in of_resource["message"] for of_resource in of_resources)
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("project", ["01-together-training"], indirect=True)
def test_a_failed_import_names_the_commands_that_can_import(project: Project) -> None:
    """The message also appears under a CLI whose host fails before any code of gpuform runs."""
    (project.directory / "__main__.py").write_text(
        "import pulumi\n"
        "from gpuform.providers.together import SharedVolume\n"
        "SharedVolume('data', pulumi.ResourceOptions(import_='v-1'), volume_name='training-data', "
        "region='us-central-8', size_tib=5)\n"
    )
    done, messages = project.run("up")
    assert done.code != 0
    (warning,) = [message["message"] for message in messages if message["severity"] == "warning"]
    assert "import_ does not work in the dynamic form under the Pulumi CLI" in warning
    assert "`gpuform import`" in warning
