"""Provide a project with a stack on an emulator, for operations in this process."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.stacks.automated_stack import MAIN, TOPOLOGY, AutomatedStack

from gpuform.providers.emulator.server import environment, serve
from gpuform.stacks.operations import create_stack

_VARIABLES = ("PULUMI_", "TOGETHER_", "TENSORONE_", "GPUFORM_")


@pytest.fixture
def automated_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[AutomatedStack]:
    """Yield a stack whose variables are not in the process's environment.

    Checks that no operation prints, nor changes anything of this process.
    """
    for name in [name for name in os.environ if name.startswith(_VARIABLES)]:
        monkeypatch.delenv(name)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\nbackend:\n  url: file://.\n")
    (folder / "__main__.py").write_text(MAIN)
    (folder / "topology.yaml").write_text(TOPOLOGY)
    with serve(seed="operations") as server:
        variables = {
            **environment(server.url),
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_CONFIG_PASSPHRASE": "",
        }
        before = _describe_process()
        yield AutomatedStack(
            create_stack("dev", work_dir=folder, env_vars=variables), folder, server.url
        )
        assert _describe_process() == before
        assert capfd.readouterr() == ("", "")


def _describe_process() -> Any:
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return Path.cwd(), environ, handlers, list(sys.path), list(sys.argv)
