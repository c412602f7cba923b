"""Test which broken nodes a run repairs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import (
    REPAIR_VARIABLE,
    REVIEWED_VARIABLE,
    VARIABLE,
    compute_repair_key,
)
from gpuform.providers.repairing import (
    Fleet,
    RepairDecision,
    choose_repairs,
    describe_repair,
    parse_faults,
    parse_repair_policy,
)
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.policies.repair import NodeFault, NodeRepair, RepairInputs

NODES = tuple(f"node-{number}" for number in range(8))
MODES = ("REPLACE", "REBOOT", "CYCLE")


@pytest.fixture(autouse=True)
def _without_requested_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, REPAIR_VARIABLE, REVIEWED_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def build_fault(node: int, cause: str = "platform", **fields: Any) -> NodeFault:
    defaults = {"because": "it is hot", "instance": f"i-{node}", **fields}
    return NodeFault(node=NODES[node], cause=cause, **defaults)


def build_fleet(**fields: Any) -> Fleet:
    return Fleet(
        **{
            "node_names": NODES,
            "allowed_modes": MODES,
            "all_modes": MODES,
            "create_only_modes": ("CYCLE",),
            **fields,
        }
    )


def build_policy(**fields: Any) -> RepairInputs:
    return RepairInputs.model_validate({"approve": "automatic", **fields})


def list_repaired_nodes(decision: RepairDecision) -> dict[str, str]:
    return {due_repair.node: due_repair.mode for due_repair in decision.due_repairs}


def list_reasons(decision: RepairDecision) -> str:
    return "; ".join(problem.reason for problem in decision.unrepaired)


def test_without_a_policy_nothing_is_repaired() -> None:
    decision = choose_repairs(None, [build_fault(1)], build_fleet())
    assert not decision.due_repairs
    assert list_reasons(decision) == "no `repair` is declared"


def test_a_proposal_with_an_allowed_mode_is_approved_unchanged() -> None:
    faults = [
        build_fault(1, mode="REBOOT", id="r1"),
        build_fault(2, mode="EVICT", id="r2"),
        build_fault(3),
    ]
    assert list_repaired_nodes(
        choose_repairs(build_policy(max_unhealthy=8), faults, build_fleet())
    ) == {
        "node-1": "REBOOT",
        "node-2": "REPLACE",
        "node-3": "REPLACE",
    }


def test_a_mode_that_cannot_be_approved_is_not_chosen_for_a_proposal() -> None:
    only = build_fleet(allowed_modes=("CYCLE",))
    faults = [build_fault(1, mode="REBOOT", id="r1"), build_fault(2)]
    decision = choose_repairs(build_policy(max_unhealthy=8), faults, only)
    assert list_repaired_nodes(decision) == {"node-2": "CYCLE"}
    assert list_reasons(decision) == "repair.modes does not list REBOOT"


def test_an_undeclared_cause_is_reported() -> None:
    assert (
        list_reasons(choose_repairs(build_policy(), [build_fault(1, "not_ready")], build_fleet()))
        == "repair.on has no not_ready"
    )


def test_above_max_unhealthy_nothing_is_repaired() -> None:
    decision = choose_repairs(
        build_policy(), [build_fault(1)], build_fleet(unhealthy_names=NODES[2:4])
    )
    assert not decision.due_repairs
    assert "3 of 8 nodes are unhealthy, more than repair.max_unhealthy (25%)" in list_reasons(
        decision
    )
    assert list_repaired_nodes(
        choose_repairs(build_policy(), [build_fault(1)], build_fleet(unhealthy_names=NODES[2:3]))
    ) == {"node-1": "REPLACE"}


def test_running_repairs_count_and_are_not_repeated() -> None:
    faults = [build_fault(1), build_fault(2)]
    going = build_fleet(repairing_names=[NODES[1]])
    decision = choose_repairs(build_policy(max_unhealthy=2, max_parallel=2), faults, going)
    assert list_repaired_nodes(decision) == {"node-2": "REPLACE"}
    assert not choose_repairs(
        build_policy(max_unhealthy=1, max_parallel=2), faults, going
    ).due_repairs
    assert list_reasons(choose_repairs(build_policy(max_unhealthy=2), faults, going)) == (
        "1 repairs are running, and repair.max_parallel is 1"
    )


def test_the_platforms_fault_of_a_node_takes_precedence() -> None:
    policy = build_policy(on=["platform", "not_ready"])
    (repair,) = choose_repairs(
        policy, [build_fault(1, "not_ready"), build_fault(1, id="r", mode="REBOOT")], build_fleet()
    ).due_repairs
    assert (repair.cause, repair.id, repair.mode) == ("platform", "r", "REBOOT")


def test_an_undeclared_cause_does_not_hide_a_declared_one() -> None:
    proposal = build_fault(1, id="r", mode="REBOOT")
    (repair,) = choose_repairs(
        build_policy(on=["not_ready"]), [proposal, build_fault(1, "not_ready")], build_fleet()
    ).due_repairs
    assert (repair.cause, repair.id, repair.mode, repair.proposed) == (
        "not_ready",
        "r",
        "REBOOT",
        "REBOOT",
    )


@pytest.mark.parametrize(
    ("advised", "mode", "rule"), [("REPLACE", "REPLACE", "Xid 1: X"), ("NONE", "REBOOT", "")]
)
def test_the_advice_for_a_proposal_reaches_the_declared_cause(
    advised: str, mode: str, rule: str
) -> None:
    proposal = build_fault(1, id="r", mode="REBOOT", advised=advised, rule="Xid 1: X")
    (repair,) = choose_repairs(
        build_policy(on=["not_ready"]), [proposal, build_fault(1, "not_ready")], build_fleet()
    ).due_repairs
    assert (repair.cause, repair.id, repair.mode, repair.rule) == ("not_ready", "r", mode, rule)


def test_a_review_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, broken = build_policy(approve="reviewed"), build_fault(1)
    assert (
        list_reasons(choose_repairs(policy, [broken], build_fleet()))
        == "the repair needs a review of the plan"
    )
    monkeypatch.setenv(REVIEWED_VARIABLE, compute_repair_key(build_fault(1, id="another")))
    assert not choose_repairs(policy, [broken], build_fleet()).due_repairs
    monkeypatch.setenv(REVIEWED_VARIABLE, compute_repair_key(broken))
    assert list_repaired_nodes(choose_repairs(policy, [broken], build_fleet())) == {
        "node-1": "REPLACE"
    }
    monkeypatch.setenv(REVIEWED_VARIABLE, "")
    monkeypatch.setenv(VARIABLE, "repair")
    assert list_repaired_nodes(choose_repairs(policy, [broken], build_fleet())) == {
        "node-1": "REPLACE"
    }


def test_a_requested_node_is_repaired_despite_the_policy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(REPAIR_VARIABLE, "node-3=CYCLE, node-1,elsewhere")
    decision = choose_repairs(
        None, [build_fault(1), build_fault(2)], build_fleet(instance_ids={"node-3": "i-3"})
    )
    assert list_repaired_nodes(decision) == {"node-3": "CYCLE", "node-1": "REPLACE"}
    assert [due_repair.instance for due_repair in decision.due_repairs] == ["i-3", "i-1"]
    assert [due_repair.fault.node for due_repair in decision.unrepaired] == ["node-2"]


def test_an_unknown_mode_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPAIR_VARIABLE, "node-3=PRAY")
    with pytest.raises(GpuformError, match="the platform has no repair PRAY"):
        choose_repairs(None, [], build_fleet())
    monkeypatch.setenv(REPAIR_VARIABLE, "node-3=CYCLE")
    with pytest.raises(GpuformError, match="cannot be changed to CYCLE"):
        choose_repairs(None, [build_fault(3, id="r", mode="REBOOT")], build_fleet())


def test_an_ended_repair_is_described_as_such_where_a_plan_cannot_show_it() -> None:
    repair = NodeRepair(node="n", mode="REJECT", cause="asked", because="hot", proposed="REBOOT")
    assert describe_repair(repair) == "ends the repair of node n by REBOOT (REJECT): hot"


def test_outputs_of_older_versions_and_odd_ones_have_no_faults() -> None:
    assert parse_faults({}) == []
    assert parse_faults({"faults": [{"node": 1}]}) == []
    assert parse_faults({"faults": "none"}) == []
    assert parse_repair_policy({"repair": None}, RepairInputs) is None


@pytest.mark.parametrize(
    ("values", "path"),
    [
        ({"on": ["overheated"]}, "max_temperature"),
        ({"on": ["platform"], "max_temperature": 90}, "on"),
        ({"on": []}, "on"),
        ({"max_parallel": 0}, "max_parallel"),
        ({"max_unhealthy": "0%"}, "max_unhealthy"),
        ({"not_ready_for": "soon"}, "not_ready_for"),
        ({"approve": "yes"}, "approve"),
    ],
)
def test_invalid_policies_are_reported_at_their_path(values: dict[str, Any], path: str) -> None:
    _, problems = validate_inputs(RepairInputs, values)
    assert [problem.path for problem in problems] == [path]


@given(
    broken=st.sets(st.sampled_from(range(8))),
    unhealthy=st.sets(st.sampled_from(NODES)),
    under_way=st.sets(st.sampled_from(NODES)),
    limit=st.one_of(st.integers(1, 8), st.integers(1, 100).map(lambda share: f"{share}%")),
    on=st.lists(st.sampled_from(["platform", "not_ready"]), min_size=1, unique=True),
)
def test_repairs_respect_max_unhealthy_and_are_unique_by_node(
    broken: set[int], unhealthy: set[str], under_way: set[str], limit: str | int, on: list[str]
) -> None:
    policy = build_policy(max_unhealthy=limit, on=on)
    faults = [
        build_fault(item, cause) for item in sorted(broken) for cause in ("platform", "not_ready")
    ]
    decision = choose_repairs(
        policy, faults, build_fleet(unhealthy_names=unhealthy, repairing_names=under_way)
    )
    names = [item.node for item in decision.due_repairs]
    away = {*unhealthy, *under_way, *(NODES[item] for item in broken)}
    assert len(names) == len({*names})
    assert not {*names} & under_way
    assert not names or len(away) <= policy.compute_max_unhealthy(8)
    reported_nodes = {*names, *(item.fault.node for item in decision.unrepaired)}
    assert reported_nodes == {NODES[item] for item in broken} - under_way
