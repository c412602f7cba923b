"""Test that stacks of `gpuform up --all` continue under the real CLI, one by one, and back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.commands import Result, pulumi
from support.stacks.workspace import STACK_NAMES, Workspace, create_workspace

from gpuform.providers.emulator.server import serve

RUN = 'from gpuform.stacks import run\n\nrun("topology.yaml")\n'


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="several") as server:
        made = create_workspace(tmp_path / "fleet", server.url, {}, {})
        for project in ("volumes", "training"):
            (made.root / project / "__main__.py").write_text(RUN)
        yield made


def run_pulumi(workspace: Workspace, name: str, *arguments: str) -> Result:
    folder, _, stack = name.partition("/")
    flags = ("--stack", stack, "--non-interactive")
    return pulumi(workspace.root / folder, *arguments, *flags, **workspace.variables)


def test_each_engine_continues_what_the_other_has_created(workspace: Workspace) -> None:
    workspace.run_successfully("up", "--all", "--yes")
    for name in STACK_NAMES:
        done = run_pulumi(workspace, name, "preview", "--expect-no-changes")
        assert done.code == 0, done.stdout + done.stderr
    workspace.edit("volumes/topology.yaml", "default: 5", "default: 6")
    done = run_pulumi(workspace, "volumes/dev", "up", "--yes", "--skip-preview")
    assert done.code == 0, done.stdout + done.stderr
    workspace.run_successfully("preview", "--all", "--expect-no-changes")
    workspace.run_successfully("up", "--all", "--yes")
    for name in STACK_NAMES:
        done = run_pulumi(workspace, name, "preview", "--expect-no-changes")
        assert done.code == 0, done.stdout + done.stderr
    workspace.run_successfully("destroy", "--all", "--yes")
