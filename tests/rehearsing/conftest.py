"""Bring up the stacks of `planted_hazards.yaml` on an emulator, and plan their change."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.emulator.server import environment, serve
from gpuform.schemas.plan import Plan
from gpuform.stacks.operations import SelectedStack, create_stack
from gpuform.stacks.operations.automation import preview, up
from gpuform.stacks.operations.runs.options import RunOptions

MAIN = 'from gpuform.stacks import run\n\nrun("topology.yaml")\n'


@dataclass(frozen=True)
class PlannedStack:
    """A stack on its emulator, and the plan of its change."""

    stack: SelectedStack
    plan: Plan


BringUp = Callable[..., list[PlannedStack]]


@pytest.fixture
def bring_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[BringUp]:
    """Return a function that creates stacks on one emulator and plans a change of each.

    The arguments are the topologies by project, the changed configuration by project, and the
    permissions of the plan.
    """
    for name in ("TOGETHER_API_KEY", "TENSORONE_API_KEY", "PULUMI_BACKEND_URL", "GPUFORM_ALLOW"):
        monkeypatch.delenv(name, raising=False)
    with serve(seed="rehearsing") as server:
        variables = list_variables(server.url, tmp_path)

        def create_and_plan(
            topologies: dict[str, str],
            changes: dict[str, dict[str, Any]],
            allow: tuple[str, ...] = (),
        ) -> list[PlannedStack]:
            stacks = {
                project: create_project_stack(tmp_path, project, topology, variables)
                for project, topology in topologies.items()
            }
            for project, stack in stacks.items():
                result = up(stack)
                assert result.succeeded, (project, [item.message for item in result.diagnostics])
            return [
                PlannedStack(stack, plan_change(stack, changes.get(project, {}), allow))
                for project, stack in stacks.items()
            ]

        yield create_and_plan


def list_variables(url: str, folder: Path) -> dict[str, str]:
    """Return the variables of users of the emulator at `url`."""
    home = {"PULUMI_HOME": str(folder / "home"), "PULUMI_CONFIG_PASSPHRASE": ""}
    return {**environment(url), **home}


def create_project_stack(
    tmp_path: Path, project: str, topology: str, variables: dict[str, str]
) -> SelectedStack:
    """Write a project with a topology, and create its stack `dev`."""
    folder = tmp_path / project
    folder.mkdir()
    (tmp_path / "state").mkdir(exist_ok=True)
    project_text = f"name: {project}\nruntime: python\nbackend:\n  url: file://{tmp_path}/state\n"
    (folder / "Pulumi.yaml").write_text(project_text)
    (folder / "__main__.py").write_text(MAIN)
    (folder / "topology.yaml").write_text(topology)
    return create_stack("dev", work_dir=folder, env_vars=variables)


def plan_change(stack: SelectedStack, change: dict[str, Any], allow: tuple[str, ...]) -> Plan:
    """Plan the stack with the changed configuration, which is written to its settings."""
    texts = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in change.items()
    }
    result = preview(stack, RunOptions(config=tuple(texts.items()), allow=allow))
    assert result.succeeded, result.diagnostics
    assert result.plan is not None
    return result.plan
