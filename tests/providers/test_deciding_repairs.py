"""Which broken nodes a run repairs: pure decisions."""

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
    parse_faults,
    parse_repair_policy,
)
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.policies.repair import NodeFault, RepairInputs

NODES = tuple(f"node-{number}" for number in range(8))
MODES = ("REPLACE", "REBOOT", "CYCLE")


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, REPAIR_VARIABLE, REVIEWED_VARIABLE):
        monkeypatch.delenv(name, raising=False)


def fault(node: int, cause: str = "platform", **fields: Any) -> NodeFault:
    said = {"because": "it is hot", "instance": f"i-{node}", **fields}
    return NodeFault(node=NODES[node], cause=cause, **said)


def fleet(**fields: Any) -> Fleet:
    return Fleet(
        **{
            "node_names": NODES,
            "allowed_modes": MODES,
            "all_modes": MODES,
            "create_only_modes": ("CYCLE",),
            **fields,
        }
    )


def declared(**fields: Any) -> RepairInputs:
    return RepairInputs.model_validate({"approve": "automatic", **fields})


def repaired(decision: RepairDecision) -> dict[str, str]:
    return {each.node: each.mode for each in decision.due_repairs}


def why(decision: RepairDecision) -> str:
    return "; ".join(each.reason for each in decision.unrepaired)


def test_nothing_is_repaired_that_nobody_declares() -> None:
    decision = choose_repairs(None, [fault(1)], fleet())
    assert not decision.due_repairs
    assert why(decision) == "no `repair` is declared"


def test_a_proposal_is_approved_as_it_is_where_its_mode_may_be() -> None:
    faults = [fault(1, mode="REBOOT", id="r1"), fault(2, mode="EVICT", id="r2"), fault(3)]
    assert repaired(choose_repairs(declared(max_unhealthy=8), faults, fleet())) == {
        "node-1": "REBOOT",
        "node-2": "REPLACE",
        "node-3": "REPLACE",
    }


def test_what_an_approval_cannot_say_is_not_chosen_for_a_proposal() -> None:
    only = fleet(allowed_modes=("CYCLE",))
    faults = [fault(1, mode="REBOOT", id="r1"), fault(2)]
    decision = choose_repairs(declared(max_unhealthy=8), faults, only)
    assert repaired(decision) == {"node-2": "CYCLE"}
    assert why(decision) == "repair.modes does not list REBOOT"


def test_a_cause_that_does_not_count_is_told() -> None:
    assert (
        why(choose_repairs(declared(), [fault(1, "not_ready")], fleet()))
        == "repair.on has no not_ready"
    )


def test_above_max_unhealthy_nothing_is_repaired() -> None:
    decision = choose_repairs(declared(), [fault(1)], fleet(unhealthy_names=NODES[2:4]))
    assert not decision.due_repairs
    assert "3 of 8 nodes are unhealthy, more than repair.max_unhealthy (25%)" in why(decision)
    assert repaired(choose_repairs(declared(), [fault(1)], fleet(unhealthy_names=NODES[2:3]))) == {
        "node-1": "REPLACE"
    }


def test_what_is_repaired_already_counts_and_is_not_repaired_again() -> None:
    faults = [fault(1), fault(2)]
    going = fleet(repairing_names=[NODES[1]])
    decision = choose_repairs(declared(max_unhealthy=2, max_parallel=2), faults, going)
    assert repaired(decision) == {"node-2": "REPLACE"}
    assert not choose_repairs(declared(max_unhealthy=1, max_parallel=2), faults, going).due_repairs
    assert why(choose_repairs(declared(max_unhealthy=2), faults, going)) == (
        "1 repairs are running, and repair.max_parallel is 1"
    )


def test_of_one_node_the_platforms_word_goes_first() -> None:
    policy = declared(on=["platform", "not_ready"])
    (one,) = choose_repairs(
        policy, [fault(1, "not_ready"), fault(1, id="r", mode="REBOOT")], fleet()
    ).due_repairs
    assert (one.cause, one.id, one.mode) == ("platform", "r", "REBOOT")


def test_a_cause_that_counts_is_not_hidden_by_one_that_does_not() -> None:
    proposal = fault(1, id="r", mode="REBOOT")
    (one,) = choose_repairs(
        declared(on=["not_ready"]), [proposal, fault(1, "not_ready")], fleet()
    ).due_repairs
    assert (one.cause, one.id, one.mode, one.proposed) == ("not_ready", "r", "REBOOT", "REBOOT")


def test_a_review_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, broken = declared(approve="reviewed"), fault(1)
    assert why(choose_repairs(policy, [broken], fleet())) == "the repair needs a review of the plan"
    monkeypatch.setenv(REVIEWED_VARIABLE, compute_repair_key(fault(1, id="another")))
    assert not choose_repairs(policy, [broken], fleet()).due_repairs
    monkeypatch.setenv(REVIEWED_VARIABLE, compute_repair_key(broken))
    assert repaired(choose_repairs(policy, [broken], fleet())) == {"node-1": "REPLACE"}
    monkeypatch.setenv(REVIEWED_VARIABLE, "")
    monkeypatch.setenv(VARIABLE, "repair")
    assert repaired(choose_repairs(policy, [broken], fleet())) == {"node-1": "REPLACE"}


def test_a_node_that_is_asked_for_is_repaired_whatever_is_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(REPAIR_VARIABLE, "node-3=CYCLE, node-1,elsewhere")
    decision = choose_repairs(None, [fault(1), fault(2)], fleet(instance_ids={"node-3": "i-3"}))
    assert repaired(decision) == {"node-3": "CYCLE", "node-1": "REPLACE"}
    assert [each.instance for each in decision.due_repairs] == ["i-3", "i-1"]
    assert [each.fault.node for each in decision.unrepaired] == ["node-2"]


def test_a_way_that_there_is_not_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REPAIR_VARIABLE, "node-3=PRAY")
    with pytest.raises(GpuformError, match="the platform has no repair PRAY"):
        choose_repairs(None, [], fleet())
    monkeypatch.setenv(REPAIR_VARIABLE, "node-3=CYCLE")
    with pytest.raises(GpuformError, match="cannot be changed to CYCLE"):
        choose_repairs(None, [fault(3, id="r", mode="REBOOT")], fleet())


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
def test_what_cannot_be_meant_is_told_by_its_path(values: dict[str, Any], path: str) -> None:
    _, problems = validate_inputs(RepairInputs, values)
    assert [each.path for each in problems] == [path]


@given(
    broken=st.sets(st.sampled_from(range(8))),
    unhealthy=st.sets(st.sampled_from(NODES)),
    under_way=st.sets(st.sampled_from(NODES)),
    limit=st.one_of(st.integers(1, 8), st.integers(1, 100).map(lambda share: f"{share}%")),
    on=st.lists(st.sampled_from(["platform", "not_ready"]), min_size=1, unique=True),
)
def test_never_more_than_max_unhealthy_and_never_one_node_twice(
    broken: set[int], unhealthy: set[str], under_way: set[str], limit: str | int, on: list[str]
) -> None:
    policy = declared(max_unhealthy=limit, on=on)
    faults = [fault(each, cause) for each in sorted(broken) for cause in ("platform", "not_ready")]
    decision = choose_repairs(
        policy, faults, fleet(unhealthy_names=unhealthy, repairing_names=under_way)
    )
    names = [each.node for each in decision.due_repairs]
    away = {*unhealthy, *under_way, *(NODES[each] for each in broken)}
    assert len(names) == len({*names})
    assert not {*names} & under_way
    assert not names or len(away) <= policy.compute_max_unhealthy(8)
    told = {*names, *(each.fault.node for each in decision.unrepaired)}
    assert told == {NODES[each] for each in broken} - under_way
