"""Provide commands run in this process, in a project of their own, on an emulator of their own."""

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject
from support.stacks.stack_copies import StackCopies

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.stacks.cli.app import cli
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

PROGRAM = """
import pulumi
from gpuform.providers.together import Cluster, SharedVolume

config = pulumi.Config()
region = "us-central-8"
data = SharedVolume("data", volume_name="training-data", region=region, size_tib=5)
train = Cluster(
    "train",
    cluster_name="training",
    region=region,
    gpu_type=config.get("type") or "H100_SXM",
    num_gpus=config.get_int("gpus") or 16,
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
    volume_id=data.id,
)
print("hello from the program")
pulumi.export("status", train.status)
pulumi.export("kubeconfig", train.kube_config)
pulumi.export("place", {"region": train.region, "token": pulumi.Output.secret("hunter2")})
"""


@dataclass
class CommandResult:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., CommandResult]


@pytest.fixture(scope="session")
def salt() -> str:
    """Return one salt for all stacks of the tests: deriving a key takes a third of a second."""
    return PassphraseCrypter.create_new("").salt_state


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, salt: str) -> Path:
    """Yield a project with the stack dev and a local state, without variables of the user."""
    kept_variable = "PULUMI_DISABLE_CI_DETECTION"
    prefixes = ("PULUMI_", "TOGETHER_", "GPUFORM_")
    for name in [n for n in os.environ if n.startswith(prefixes) and n != kept_variable]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "")
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "Pulumi.yaml").write_text(
        "name: demo\nruntime: python\nbackend:\n  url: file://.\n"
    )
    (directory / "__main__.py").write_text(PROGRAM)
    (directory / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {salt}\n")
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def run(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """Return a function which runs a command as the console script does.

    `answers` is what a person types.
    """

    def run_command(*args: str, answers: str = "") -> CommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(answers.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as exit_info:
            cli.main(args=list(args), prog_name="gpuform")
        out, err = capsys.readouterr()
        assert isinstance(exit_info.value.code, int)
        return CommandResult(exit_info.value.code, out, err)

    return run_command


@pytest.fixture
def dev(run: Run) -> Run:
    """Return `run` with the stack dev created."""
    assert run("stack", "init", "dev").code == 0
    return run


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have commands find a terminal."""
    monkeypatch.setattr("gpuform.stacks.cli.terminal.screen.is_tty", lambda stream: True)


@pytest.fixture
def planned_project(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PlannedProject]:
    with serve(seed="plans", smallest_wait=20.0) as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield PlannedProject(dev, project, server.url)


@pytest.fixture(scope="session")
def stack_copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StackCopies]:
    with closing(StackCopies(tmp_path_factory.mktemp("stacks"))) as copies:
        yield copies


@pytest.fixture
def applied_project(
    dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch, stack_copies: StackCopies
) -> Iterator[PlannedProject]:
    """Yield a project whose cluster and volume exist."""

    def set_variables(server: Server) -> None:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)

    def create_stack(server: Server) -> None:
        set_variables(server)
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.err

    with stack_copies.serve_copy("made", project, create_stack) as server:
        set_variables(server)
        yield PlannedProject(dev, project, server.url)
