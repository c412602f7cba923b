"""Some stacks of a saved plan are applied where others were: the histories of the stacks tell."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Basis, Plan
from gpuform.schemas.stacks_plan import StacksPlan, compute_stacks_digest
from gpuform.stacks.engine.stack import PLAN_SEAL
from gpuform.stacks.engine.store import Backend, HistoryEntry
from gpuform.stacks.multi_stack import MultiStackWorkspace, read_workspace
from gpuform.stacks.operations.multi_stack.applied_parts import (
    find_apply_order,
    list_applied_names,
    require_upstream_applied,
    select_planned_names,
)
from gpuform.stacks.operations.multi_stack.parts import build_apply_schedule
from gpuform.stacks.operations.runs.plan_file import (
    PlanRefused,
    PlanRun,
    find_plan_run,
    write_plan,
)

NAMES = ("network/dev", "training/dev", "report/dev")
PATH = Path("plan.json")


@pytest.fixture
def workspace(tmp_path: Path) -> MultiStackWorkspace:
    """Return a workspace of three stacks; the last one comes after the second by `after` alone."""
    for name in NAMES:
        folder = tmp_path / name.partition("/")[0]
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(f"name: {folder.name}\nruntime: python\n")
    (tmp_path / "state").mkdir()
    (tmp_path / "stacks.yaml").write_text(
        "stacks:\n"
        "  - {folder: network, stack: dev}\n"
        "  - {folder: training, stack: dev}\n"
        "  - {folder: report, stack: dev, after: [training/dev]}\n"
    )
    return read_workspace(tmp_path, {"PULUMI_BACKEND_URL": (tmp_path / "state").as_uri()})


def build_plan(operation: str = "update", seal: str = "seal-network/dev") -> StacksPlan:
    """Return a plan of the three stacks; the second is planned with the first one's `seal`."""
    plans = []
    for name in NAMES:
        project, _, stack = name.partition("/")
        is_reader = name == "training/dev"
        network = "organization/network/dev"
        plans.append(
            Plan.from_changes(project, stack, ()).model_copy(
                update={
                    "operation": operation,
                    "basis": Basis(state={}, config={}, program={}, seal=f"seal-{name}"),
                    "stack_references": (network,) if is_reader else (),
                    "stacks_digest": compute_stacks_digest("", NAMES),
                    "planned_with": {network: seal} if is_reader and operation == "update" else {},
                }
            )
        )
    return StacksPlan(plans=tuple(plans))


def record_run(
    workspace: MultiStackWorkspace, name: str, seal: str, result: str = "succeeded"
) -> None:
    """Record a run of a saved plan in the history of a stack."""
    project, _, stack = name.partition("/")
    history = Backend.open(workspace.stacks[name].backend).open_history(project, stack)
    entry = HistoryEntry("update", "in-progress", 1, 1, environment={PLAN_SEAL: seal})
    entry_name = history.begin(entry)
    if result != "in-progress":
        history.add(replace(entry, result=result), entry_name)


def find_run(workspace: MultiStackWorkspace, seal: str) -> PlanRun:
    backend = Backend.open(workspace.stacks["network/dev"].backend)
    return find_plan_run(backend.open_history("network", "dev"), seal)


def test_the_last_run_of_a_stack_decides_whether_a_plan_is_applied(
    workspace: MultiStackWorkspace,
) -> None:
    assert find_run(workspace, "a") is PlanRun.NONE
    record_run(workspace, "network/dev", "a", "in-progress")
    assert find_run(workspace, "a") is PlanRun.UNFINISHED
    record_run(workspace, "network/dev", "a", "failed")
    assert find_run(workspace, "a") is PlanRun.UNFINISHED
    record_run(workspace, "network/dev", "a")
    assert find_run(workspace, "a") is PlanRun.DONE
    assert find_run(workspace, "b") is PlanRun.NONE
    record_run(workspace, "network/dev", "")
    assert find_run(workspace, "a") is PlanRun.OVERTAKEN
    assert find_run(workspace, "") is PlanRun.NONE


def test_a_plan_without_a_seal_was_never_applied(workspace: MultiStackWorkspace) -> None:
    record_run(workspace, "network/dev", "")
    assert find_run(workspace, "") is PlanRun.NONE


@pytest.mark.parametrize(
    ("seals", "reason"),
    [
        ([], "is not selected, and no run has applied its plan"),
        (["other"], "is not selected, and no run has applied its plan"),
        (["seal-network/dev", "other"], "was changed by another run after its plan was applied"),
    ],
)
def test_a_part_waits_for_the_part_that_it_reads(
    workspace: MultiStackWorkspace, seals: list[str], reason: str
) -> None:
    for seal in seals:
        record_run(workspace, "network/dev", seal)
    message = (
        "the plan of training/dev uses the planned outputs of network/dev, but network/dev "
        + reason
    )
    with pytest.raises(PlanRefused, match=message):
        require_upstream_applied(PATH, build_plan(), workspace, ["training/dev"], {})


@pytest.mark.parametrize("result", ["failed", "in-progress"])
def test_a_part_waits_for_a_run_that_has_not_succeeded(
    workspace: MultiStackWorkspace, result: str
) -> None:
    record_run(workspace, "network/dev", "seal-network/dev", result)
    with pytest.raises(PlanRefused, match="has failed, or still runs") as raised:
        require_upstream_applied(PATH, build_plan(), workspace, ["training/dev"], {})
    hint = "apply network/dev first: `gpuform up --all --plan plan.json --stack network/dev`"
    assert hint in (raised.value.hint or "")


def test_a_part_is_applied_once_what_it_reads_is_applied(workspace: MultiStackWorkspace) -> None:
    record_run(workspace, "network/dev", "seal-network/dev")
    require_upstream_applied(PATH, build_plan(), workspace, ["training/dev"], {})
    require_upstream_applied(PATH, build_plan(), workspace, ["network/dev"], {})
    assert list_applied_names(build_plan(), workspace, NAMES, {}) == ["network/dev"]


@pytest.mark.parametrize(
    ("operation", "waves"),
    [
        ("update", [["network/dev"], ["training/dev"], ["report/dev"]]),
        ("destroy", [["report/dev"], ["training/dev"], ["network/dev"]]),
    ],
)
def test_a_plan_is_applied_in_the_waves_of_its_operation(
    workspace: MultiStackWorkspace, tmp_path: Path, operation: str, waves: list[list[str]]
) -> None:
    path = tmp_path / "plan.json"
    write_plan(path, build_plan(operation))

    def list_waves(*names: str) -> list[list[str]]:
        schedule = build_apply_schedule(path, workspace, names, 8)
        return [[part.stacks for part in wave] for wave in schedule.waves]

    assert list_waves(*NAMES) == waves
    assert list_waves("report/dev") == [["report/dev"]]
    assert list_waves("other/dev") == []


def test_stacks_that_are_applied_together_need_no_history(workspace: MultiStackWorkspace) -> None:
    require_upstream_applied(PATH, build_plan(), workspace, NAMES, {})


def test_a_stack_waits_for_those_in_its_after(workspace: MultiStackWorkspace) -> None:
    message = "report/dev comes after training/dev in the plan, but training/dev is not selected"
    with pytest.raises(PlanRefused, match=message):
        require_upstream_applied(PATH, build_plan(), workspace, ["report/dev"], {})
    record_run(workspace, "training/dev", "seal-training/dev")
    require_upstream_applied(PATH, build_plan(), workspace, ["report/dev"], {})


def test_a_stack_is_destroyed_after_those_that_read_it(workspace: MultiStackWorkspace) -> None:
    plan = build_plan("destroy")
    with pytest.raises(PlanRefused, match="network/dev comes after training/dev in the plan"):
        require_upstream_applied(PATH, plan, workspace, ["network/dev"], {})
    with pytest.raises(PlanRefused, match="training/dev comes after report/dev in the plan"):
        require_upstream_applied(PATH, plan, workspace, ["training/dev"], {})
    require_upstream_applied(PATH, plan, workspace, ["report/dev"], {})


def test_a_refresh_waits_for_no_other_stack(workspace: MultiStackWorkspace) -> None:
    require_upstream_applied(PATH, build_plan("refresh"), workspace, ["training/dev"], {})


def test_a_part_planned_with_another_plan_is_refused(workspace: MultiStackWorkspace) -> None:
    record_run(workspace, "network/dev", "seal-network/dev")
    with pytest.raises(PlanRefused, match=r"is not in plan\.json, or was planned again"):
        require_upstream_applied(PATH, build_plan(seal="old"), workspace, NAMES, {})


def test_the_order_of_an_apply_is_that_of_references_and_after(
    workspace: MultiStackWorkspace,
) -> None:
    plans = {f"{plan.project}/{plan.stack}": plan for plan in build_plan().plans}
    assert find_apply_order(workspace, plans) == {
        "network/dev": set(),
        "training/dev": {"network/dev"},
        "report/dev": {"training/dev"},
    }
    del plans["training/dev"]
    assert find_apply_order(workspace, plans) == {"network/dev": set(), "report/dev": set()}


def test_a_plan_of_another_workspace_or_operation_is_refused(
    workspace: MultiStackWorkspace,
) -> None:
    selected = select_planned_names(PATH, build_plan(), workspace, "update", ["report/dev"])
    assert selected == ["report/dev"]
    with pytest.raises(EngineError, match="has a plan of none of the chosen stacks"):
        select_planned_names(PATH, build_plan(), workspace, "update", ["volumes/dev"])
    with pytest.raises(EngineError, match="is a plan of another operation: destroy"):
        select_planned_names(PATH, build_plan("destroy"), workspace, "refresh", NAMES)
    lone = MultiStackWorkspace(workspace.root, {"report/dev": workspace.stacks["report/dev"]})
    with pytest.raises(EngineError, match="do not belong to this workspace: network/dev"):
        select_planned_names(PATH, build_plan(), lone, "update", NAMES)
