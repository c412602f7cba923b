"""A folder for topologies, where they are planned, or run against an emulated Together."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from support.topologies.topology_planner import Topologies

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.stacks.cli.app import cli
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter


@pytest.fixture
def topologies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Topologies:
    monkeypatch.chdir(tmp_path)
    return Topologies(tmp_path)


@pytest.fixture(scope="session")
def emulator() -> Iterator[Server]:
    with serve(0) as server:
        yield server


@pytest.fixture(scope="session")
def salt() -> str:
    """Return the salt that all stacks of the tests share, because deriving a key takes 0.3 s."""
    return PassphraseCrypter.create_new("").salt_state


class Running:
    """The stack dev of a project, whose program is a topology or Python."""

    def __init__(self, folder: Path, emulator: Server, salt: str) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(
            "name: demo\nruntime: python\nbackend:\n  url: file://.\n"
        )
        (folder / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {salt}\n")
        self.environ = {
            "PULUMI_HOME": str(folder.parent / "home"),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_BACKEND_URL": None,
            **environment(emulator.url),
        }
        httpx.post(f"{emulator.url}/_emulator/reset", trust_env=False, verify=False)
        self("stack", "init", "dev")
        self.printed = ""

    def __call__(self, *command: str, code: int = 0) -> str:
        """Run a command and return the output."""
        with contextlib.chdir(self.folder):
            done = CliRunner().invoke(cli, command, env=self.environ)
        assert done.exit_code == code, (command, done.output)
        assert "Traceback" not in done.output
        return done.output

    def write_topology(self, text: str) -> None:
        (self.folder / "topology.yaml").write_text(text)

    def write_program(self, text: str) -> None:
        (self.folder / "__main__.py").write_text(text)

    def up(self, code: int = 0) -> str:
        return self("up", "--yes", "--skip-preview", code=code)

    def list_steps(self) -> list[tuple[str, str]]:
        """Return the operations of a preview, each with the name of the resource."""
        steps = json.loads(self("preview", "--json"))["steps"]
        done = [(step["op"], step["urn"].rpartition("::")[2]) for step in steps]
        return sorted(step for step in done if step[0] != "same")

    @property
    def state(self) -> Any:
        return json.loads(self("stack", "export", "--show-secrets"))

    @property
    def names(self) -> list[str]:
        """Return the names of the platforms' resources in the state."""
        resources = self.state["deployment"].get("resources", [])
        urns = [resource["urn"] for resource in resources if "dynamic/gpuform" in resource["urn"]]
        return sorted(urn.rpartition("::")[2] for urn in urns)

    def get_output(self, name: str) -> Any:
        return json.loads(self("stack", "output", "--json", "--show-secrets"))[name]

    def find_files_with(self, text: str) -> list[str]:
        """Return the files of the project with `text` inside, in upper or lower case."""
        pattern = re.compile(re.escape(text.encode()), re.IGNORECASE)
        files = (file for file in self.folder.rglob("*") if file.is_file())
        return [file.name for file in files if pattern.search(file.read_bytes())]


@pytest.fixture
def make_stack(tmp_path: Path, emulator: Server, salt: str) -> Callable[[str], Running]:
    return lambda name: Running(tmp_path / name, emulator, salt)


@pytest.fixture
def stack(make_stack: Callable[[str], Running]) -> Running:
    return make_stack("demo")
