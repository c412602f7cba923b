"""`pulumi import` through the plugin, for any kind: its code plans nothing afterwards."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from conformance.emulated import Platform, start_emulated_platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import KINDS
from conformance.together_kinds import SHARED_VOLUME
from processes.commands import PASSPHRASE, SALT, Cli, Result, pulumi

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext, get_clock, use_context
from gpuform.providers.emulator.server import environment
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

PASSWORD = "Planted#1pass"


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    with start_emulated_platform(seed="imported") as platform:
        for name, value in environment(platform.server.url).items():
            monkeypatch.setenv(name, value)
        yield platform


def create_outside(description: KindDescription) -> str:
    """Create an object of the kind outside of any stack, and return its id."""
    call = ProviderContext(clock=get_clock(os.environ), intents=Intents(EphemeralRecords()))
    with use_context(call):
        return str(description.lifecycle().create(dict(description.valid_inputs)).id)


class Project:
    def __init__(
        self, folder: Path, url: str, program: dict[str, Any], config: dict[str, Any]
    ) -> None:
        self.folder = folder / "project"
        self._environ = {
            **environment(url),
            "PULUMI_BACKEND_URL": f"file://{folder}/state",
            "PULUMI_HOME": str(folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
            permissions.VARIABLE: ",".join(permissions.Permission),
        }
        self._program = program
        self.folder.mkdir()
        (folder / "state").mkdir()
        self.write_program({})
        settings = {"encryptionsalt": SALT, "config": config}
        (self.folder / "Pulumi.dev.yaml").write_text(yaml.safe_dump(settings))
        assert self.run(pulumi, "stack", "init", "dev").code == 0

    def write_program(self, resources: dict[str, Any]) -> None:
        program = yaml.safe_dump({"name": "imports", **self._program, **resources})
        (self.folder / "Pulumi.yaml").write_text(program)

    def run(self, cli: Cli, *arguments: str) -> Result:
        return cli(self.folder, *arguments, "--non-interactive", **self._environ)

    def run_successfully(self, cli: Cli, *arguments: str) -> str:
        done = self.run(cli, *arguments)
        assert done.code == 0, done.stdout + done.stderr
        return done.stdout + done.stderr


@pytest.fixture
def in_yaml(platform: Platform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    monkeypatch.setenv("GPUFORM_OS_USER_PASSWORD", PASSWORD)
    secret = {"os_user_password": {"type": "string", "secret": True}}
    encrypted_password = {"secure": PassphraseCrypter(PASSPHRASE, SALT).encrypt(PASSWORD)}
    program = {"runtime": "yaml", "config": secret}
    return Project(
        tmp_path, platform.server.url, program, {"imports:os_user_password": encrypted_password}
    )


@pytest.mark.language_host("yaml")
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_an_imported_object_has_no_changes(
    kind: KindDescription, platform: Platform, in_yaml: Project
) -> None:
    description = platform.prepare(kind)
    id_ = create_outside(description) + kind.import_suffix
    type_ = f"gpuform:{kind.platform}:{kind.kind}"
    output = in_yaml.run_successfully(
        pulumi, "import", type_, "taken", id_, "--yes", "--out", "made.yaml"
    )
    assert "bug in" not in output
    assert PASSWORD not in output
    code = (in_yaml.folder / "made.yaml").read_text()
    assert PASSWORD not in code
    # The one thing that people have to write: which of their secrets it is.
    in_yaml.write_program(
        yaml.safe_load(
            code.replace('os_user_password: ""', "os_user_password: ${os_user_password}")
        )
    )
    in_yaml.run_successfully(pulumi, "preview", "--expect-no-changes")
    in_yaml.run_successfully(pulumi, "refresh", "--yes", "--skip-preview", "--expect-no-changes")
    in_yaml.run_successfully(pulumi, "up", "--yes", "--skip-preview", "--expect-no-changes")
    assert PASSWORD not in in_yaml.run_successfully(pulumi, "stack", "export")
    in_yaml.run_successfully(pulumi, "destroy", "--yes", "--skip-preview", "--exclude-protected")


@pytest.mark.parametrize(
    "form", [pytest.param("plugin", marks=pytest.mark.in_every_run), "dynamic"]
)
def test_after_the_option_import_neither_engine_plans_a_change(
    form: str, platform: Platform, tmp_path: Path, gpuform: Cli
) -> None:
    """The CLI imports in the plugin form only: its host of dynamic providers cannot import."""
    named = create_outside(SHARED_VOLUME) + SHARED_VOLUME.import_suffix
    project = Project(tmp_path, platform.server.url, {"runtime": "python"}, {"gpuform:form": form})
    (project.folder / "__main__.py").write_text(
        "import pulumi\nfrom gpuform.providers.together import SharedVolume\n"
        f"SharedVolume('taken', pulumi.ResourceOptions(import_={named!r}),"
        f" **{dict(SHARED_VOLUME.valid_inputs)!r})\n"
    )
    first = pulumi if form == "plugin" else gpuform
    project.run_successfully(first, "up", "--yes", "--skip-preview", "--stack", "dev")
    for cli in (pulumi, gpuform):
        project.run_successfully(cli, "preview", "--expect-no-changes", "--stack", "dev")
    assert len(platform.list_requests("POST")) == 1
