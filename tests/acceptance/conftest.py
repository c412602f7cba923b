"""Provide a project and an emulated Together to tests that use the command line as people do."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from processes.limits import LAST_RESORT

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.stacks.cli.app import cli

OUTPUTS = "pulumi.export('status', train.status)\npulumi.export('kubeconfig', train.kube_config)\n"


@dataclass(frozen=True)
class Result:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Project:
    """A stack `dev` of a Pulumi project, used through the command line."""

    directory: Path
    emulator: Server
    environ: dict[str, str]

    def declare(
        self, cluster: dict[str, Any] | None = None, volume: dict[str, Any] | None = None
    ) -> None:
        """Write a program with a cluster and a shared volume, or without one of them (None)."""
        lines = ["import pulumi", "from gpuform.providers.together import Cluster, SharedVolume"]
        if volume is not None:
            lines.append(f"data = SharedVolume('data', **{volume!r})")
        if cluster is not None:
            attach = ", volume_id=data.id" if volume is not None else ""
            lines += [f"train = Cluster('train', **{cluster!r}{attach})", OUTPUTS]
        self.write_program("\n".join(lines))

    def write_program(self, program: str) -> None:
        (self.directory / "__main__.py").write_text(dedent(program))

    def run(self, *arguments: str, **environ: str | None) -> Result:
        """Run `gpuform ARGUMENTS` in this process; an environment variable of None is not set."""
        with contextlib.chdir(self.directory):
            done = CliRunner().invoke(cli, arguments, env=self.environ | environ)
        return Result(done.exit_code, done.stdout, done.stderr)

    def run_process(self, *arguments: str) -> Result:
        """Run `gpuform ARGUMENTS` in a new process."""
        done = subprocess.run(
            [sys.executable, "-m", "gpuform.stacks.cli", *arguments],
            cwd=self.directory,
            env=self.environ,
            capture_output=True,
            check=False,
            text=True,
            timeout=LAST_RESORT,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def run_ok(self, *arguments: str, **environ: str | None) -> Result:
        result = self.run(*arguments, **environ)
        assert result.code == 0, result.text
        return result

    def up(self) -> Result:
        return self.run_ok("up", "--yes", "--skip-preview")

    def read_plan(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """Return the preview as JSON."""
        result = self.run("preview", "--json", *arguments)
        assert result.code == code, result.text
        return json.loads(result.out)

    def list_changes(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """Return the changes of a preview, by resource name."""
        steps = self.read_plan(*arguments)["steps"]
        return {s["urn"].rsplit("::", 1)[1]: s for s in steps if s["op"] != "same"}

    @property
    def state(self) -> dict[str, Any]:
        path = self.directory / ".pulumi/stacks/training/dev.json"
        return json.loads(path.read_text())["checkpoint"]["latest"]

    def get_resource(self, name: str) -> dict[str, Any]:
        (resource,) = [r for r in self.state["resources"] if r["urn"].endswith(f"::{name}")]
        return resource

    def send_control_request(self, method: str, path: str, **options: Any) -> Any:
        url = f"{self.emulator.url}/_emulator/{path}"
        return httpx.request(method, url, trust_env=False, **options, verify=False).json()

    @property
    def objects(self) -> dict[str, list[dict[str, Any]]]:
        return self.send_control_request("GET", "objects")["together"]

    def list_requests(self, *methods: str) -> list[tuple[str, str, Any]]:
        """Return the logged requests to the platform with these methods."""
        log = self.send_control_request("GET", "requests")
        return [(r["method"], r["path"], r["body"]) for r in log if r["method"] in methods]

    def forget_requests(self) -> None:
        self.send_control_request("DELETE", "requests")


@pytest.fixture(scope="session")
def emulator() -> Iterator[Server]:
    with serve(0) as server:
        yield server


@pytest.fixture
def project(tmp_path: Path, emulator: Server) -> Project:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "Pulumi.yaml").write_text("name: training\nruntime: python\n")
    environ = {
        "HOME": str(tmp_path),
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": f"file://{directory}",
        "PULUMI_CONFIG_PASSPHRASE": "a passphrase that is only a test's",
        **environment(emulator.url),
    }
    made = Project(directory, emulator, environ)
    made.send_control_request("POST", "reset")
    made.run_ok("stack", "init", "dev")
    return made
