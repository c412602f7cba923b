"""A project directory and an emulated Together, used through the command line as a person would."""

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
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def text(self) -> str:
        return self.out + self.err


@dataclass
class Project:
    """A stack `dev` of a Pulumi project, worked on through the command line."""

    directory: Path
    emulator: Server
    environ: dict[str, str]

    def declare(
        self, cluster: dict[str, Any] | None = None, volume: dict[str, Any] | None = None
    ) -> None:
        """A cluster, and the shared volume that it uses; None leaves one out."""
        lines = ["import pulumi", "from gpuform.providers.together import Cluster, SharedVolume"]
        if volume is not None:
            lines.append(f"data = SharedVolume('data', **{volume!r})")
        if cluster is not None:
            attach = ", volume_id=data.id" if volume is not None else ""
            lines += [f"train = Cluster('train', **{cluster!r}{attach})", OUTPUTS]
        self.program("\n".join(lines))

    def program(self, text: str) -> None:
        (self.directory / "__main__.py").write_text(dedent(text))

    def run(self, *arguments: str, **environ: str | None) -> Result:
        """`gpuform ARGUMENTS`; an environment variable given as None is not set."""
        with contextlib.chdir(self.directory):
            done = CliRunner().invoke(cli, arguments, env=self.environ | environ)
        return Result(done.exit_code, done.stdout, done.stderr)

    def run_process(self, *arguments: str) -> Result:
        """The same as a process of its own."""
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

    def ok(self, *arguments: str, **environ: str | None) -> Result:
        result = self.run(*arguments, **environ)
        assert result.code == 0, result.text
        return result

    def up(self) -> Result:
        return self.ok("up", "--yes", "--skip-preview")

    def plan(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        """The preview as JSON."""
        result = self.run("preview", "--json", *arguments)
        assert result.code == code, result.text
        return json.loads(result.out)

    def steps(self, *arguments: str) -> dict[str, dict[str, Any]]:
        """What a preview would change, by resource name."""
        steps = self.plan(*arguments)["steps"]
        return {s["urn"].rsplit("::", 1)[1]: s for s in steps if s["op"] != "same"}

    @property
    def state(self) -> dict[str, Any]:
        path = self.directory / ".pulumi/stacks/training/dev.json"
        return json.loads(path.read_text())["checkpoint"]["latest"]

    def resource(self, name: str) -> dict[str, Any]:
        (found,) = [r for r in self.state["resources"] if r["urn"].endswith(f"::{name}")]
        return found

    def admin(self, method: str, path: str, **options: Any) -> Any:
        url = f"{self.emulator.url}/_emulator/{path}"
        return httpx.request(method, url, trust_env=False, **options, verify=False).json()

    @property
    def objects(self) -> dict[str, list[dict[str, Any]]]:
        return self.admin("GET", "objects")["together"]

    def requests(self, *methods: str) -> list[tuple[str, str, Any]]:
        """The product requests since the log was last cleared."""
        log = self.admin("GET", "requests")
        return [(r["method"], r["path"], r["body"]) for r in log if r["method"] in methods]

    def forget_requests(self) -> None:
        self.admin("DELETE", "requests")


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
    made.admin("POST", "reset")
    made.ok("stack", "init", "dev")
    return made
