"""A project with a stack that lives on an emulator, for operations in this process."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from automated import MAIN, TOPOLOGY, World

from gpuform.providers.emulator.server import environment, serve
from gpuform.stacks.operations import create_stack

_VARIABLES = ("PULUMI_", "TOGETHER_", "TENSORONE_", "GPUFORM_")


@pytest.fixture
def world(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[World]:
    """The stack's variables are its own: the environment of the process has none of them.

    No operation prints, nor changes anything that others in this process go by.
    """
    for name in [each for each in os.environ if each.startswith(_VARIABLES)]:
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
        before = _process()
        yield World(create_stack("dev", work_dir=folder, env_vars=variables), folder, server.url)
        assert _process() == before
        assert capfd.readouterr() == ("", "")


def _process() -> Any:
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    environ = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    return Path.cwd(), environ, handlers, list(sys.path), list(sys.argv)
