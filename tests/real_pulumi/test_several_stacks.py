"""Stacks that `gpuform up --all` has made go on under the real CLI, one by one, and back."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.commands import Result, pulumi
from support.stacks.workspace import STACK_NAMES, Workspace, create_workspace

from gpuform.providers.emulator.server import serve

RUN = 'from gpuform.stacks import run\n\nrun("topology.yaml")\n'


@pytest.fixture
def estate(tmp_path: Path) -> Iterator[Workspace]:
    with serve(seed="several") as server:
        made = create_workspace(tmp_path / "fleet", server.url, {}, {})
        for project in ("volumes", "training"):
            (made.root / project / "__main__.py").write_text(RUN)
        yield made


def by_the_cli(estate: Workspace, name: str, *arguments: str) -> Result:
    folder, _, stack = name.partition("/")
    flags = ("--stack", stack, "--non-interactive")
    return pulumi(estate.root / folder, *arguments, *flags, **estate.variables)


def test_each_engine_continues_what_the_other_has_created(estate: Workspace) -> None:
    estate.run_successfully("up", "--all", "--yes")
    for name in STACK_NAMES:
        done = by_the_cli(estate, name, "preview", "--expect-no-changes")
        assert done.code == 0, done.stdout + done.stderr
    estate.edit("volumes/topology.yaml", "default: 5", "default: 6")
    done = by_the_cli(estate, "volumes/dev", "up", "--yes", "--skip-preview")
    assert done.code == 0, done.stdout + done.stderr
    estate.run_successfully("preview", "--all", "--expect-no-changes")
    estate.run_successfully("up", "--all", "--yes")
    for name in STACK_NAMES:
        done = by_the_cli(estate, name, "preview", "--expect-no-changes")
        assert done.code == 0, done.stdout + done.stderr
    estate.run_successfully("destroy", "--all", "--yes")
