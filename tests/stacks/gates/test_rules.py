"""Gates over hand-made plans: what each rule finds, and what it makes of the unknown."""

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import (
    Amount,
    Plan,
    PlanAction,
    PlanCost,
    PlanReason,
    ResourceChange,
    StackCost,
)
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes
from gpuform.schemas.resource_facts import Billing, Expense, ResourceUsage
from gpuform.stacks.gates.evaluating import GateEvaluator, list_blocking_gates
from gpuform.stacks.gates.file import read_gates
from gpuform.stacks.gates.rules import is_only_lowering
from gpuform.stacks.review.summary_text import format_gate, format_gate_verdict, render_plan_gates

TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"


def change(action: str, name: str = "train", **more: Any) -> ResourceChange:
    urn = f"urn:pulumi:dev::demo::{TYPE}::{name}"
    facts = {"gpus_added": 0, "gpus_removed": 0, "reason": PlanReason.CHANGED, **more}
    return ResourceChange(urn=urn, type=TYPE, name=name, action=PlanAction(action), **facts)


def create_cost(hourly: float, *unknown: str, currency: str = "USD") -> StackCost:
    amounts = (Amount(billing="on_demand", currency=currency, hourly=hourly),)
    return StackCost(amounts=amounts, unknown=unknown)


def evaluate_gate(tmp_path: Path, gate: str, *changes: ResourceChange, **plan: Any) -> list[str]:
    file = tmp_path / "gates.yaml"
    file.write_text(f"gates:\n  it: {gate}\n")
    planned = Plan.from_changes("demo", "dev", changes).model_copy(update=plan)
    (result,) = (
        GateEvaluator(read_gates(file, "gates.yaml"), (), tmp_path).evaluate(planned).gates or ()
    )
    return list(result.findings)


AUTOSCALED = RemovedNodes(nodes=(RemovedNode(name="w1", because="deleted", gpus=8),), max_gpus=64)
RUNS, PREPAID = ResourceUsage(running=True), ResourceUsage(reserved=True)
MADE = {"after": ResourceUsage(region="r1", gpu_types=("H100_SXM",), tags=("team",), expires=False)}
OPEN = {"after": ResourceUsage(tags=(), unknown=("region", "gpu_types", "tags", "expires"))}


@pytest.mark.parametrize(
    ("gate", "changes", "expected"),
    [
        ("{max_destroyed_gpus: 16}", [change("delete", gpus_removed=16)], []),
        (
            "{max_destroyed_gpus: 16}",
            [change("delete", gpus_removed=16), change("update", "b", gpus_removed=8)],
            ["the plan removes 24 GPUs (train, b): the limit is 16"],
        ),
        (
            "{max_destroyed_gpus: 16}",
            [change("replace", gpus_removed=None)],
            ["train: the number of removed GPUs is unknown, and the limit is 16"],
        ),
        (
            "{max_destroyed_gpus: 16}",
            [change("delete", gpus_removed=64, leaving=AUTOSCALED)],
            ["the plan removes up to 64 GPUs (train): the limit is 16"],
        ),
        ("{max_destroyed_gpus: 0}", [change("create", gpus_removed=None)], []),
        (
            "{max_destroyed_gpus: 0, resources: ['serve*']}",
            [change("delete", gpus_removed=8)],
            [],
        ),
        (
            "{not_replaced: [running, reserved]}",
            [change("replace", before=RUNS), change("replace", "b", before=PREPAID)],
            ["train is running, and would be replaced", "b is reserved, and would be replaced"],
        ),
        ("{not_replaced: [reserved]}", [change("replace", before=RUNS)], []),
        ("{allowed_regions: [r1]}", [change("create", **MADE)], []),
        (
            "{allowed_regions: [r2]}",
            [change("update", **MADE), change("delete", "b", before=MADE["after"])],
            ["train would be in r1: allowed are r2"],
        ),
        (
            "{allowed_regions: [r2]}",
            [change("create", **OPEN)],
            ["train: region: known only after apply"],
        ),
        (
            "{allowed_gpu_types: [B200_SXM]}",
            [change("create", **MADE)],
            ["train would have the GPU type H100_SXM: allowed are B200_SXM"],
        ),
        (
            "{allowed_gpu_types: [B200_SXM]}",
            [change("create", **OPEN)],
            ["train: type of GPU: known only after apply"],
        ),
        ("{required_tags: [team, cost]}", [change("create", **MADE)], ["train has no tag cost"]),
        ("{required_tags: [team]}", [change("create", after=ResourceUsage())], []),
        (
            "{required_tags: [team]}",
            [change("create", **OPEN)],
            ["train: tags: known only after apply"],
        ),
        (
            "{protected: ['tr*', b]}",
            [change("delete"), change("replace", "b"), change("update", "try")],
            ["train would be deleted, and is protected", "b would be replaced, and is protected"],
        ),
        (
            "{expiry_required: true}",
            [change("create", **MADE), change("create", "volume", after=ResourceUsage())],
            ["train never expires"],
        ),
        (
            "{not_busy: {}}",
            [change("delete", gpus_removed=8)],
            ["only a plan of `gpuform preview` shows whether resources are in use"],
        ),
        (
            "{no_open_ports: {}}",
            [change("update")],
            ["open ports are checked only in a plan of `gpuform preview`"],
        ),
        (
            "{certified: true}",
            [change("update")],
            ["certifications are checked only in a plan of `gpuform preview`"],
        ),
    ],
)
def test_a_rule(tmp_path: Path, gate: str, changes: Any, expected: list[str]) -> None:
    assert evaluate_gate(tmp_path, gate, *changes) == expected


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (create_cost(10), create_cost(20), []),
        (create_cost(10), create_cost(20.01), ["the plan costs 20.01 USD/h: the limit is 20.00"]),
        (create_cost(90), create_cost(50), []),
        (
            create_cost(0),
            create_cost(5, "data: 5 TiB: no price"),
            ["the cost is unknown: data: 5 TiB: no price"],
        ),
        (create_cost(1, "data: unknown"), create_cost(1, "data: unknown"), []),
        (create_cost(1, "data"), create_cost(2, "data"), ["the cost is unknown: data"]),
        (
            create_cost(0),
            create_cost(5, currency="KRW"),
            ["5.00 KRW/h cannot be compared with USD"],
        ),
    ],
)
def test_the_cost_of_an_hour(
    tmp_path: Path, before: StackCost, after: StackCost, expected: list[str]
) -> None:
    gate = "{max_hourly_cost: {amount: 20, currency: USD}}"
    assert evaluate_gate(tmp_path, gate, cost=PlanCost(before=before, after=after)) == expected


def create_usage(*amounts: float | None, **more: Any) -> ResourceUsage:
    """Return the usage of these numbers of H100s, all with one payment model."""
    facts = {"what": "gpus", "platform": "together", "gpu_type": "H100_SXM", **more}
    return ResourceUsage(expenses=tuple(Expense(amount=amount, **facts) for amount in amounts))


STOPPED = {"billing": Billing.STOPPED}
STORED = {"what": "storage", "unit": "TiB", "gpu_type": ""}


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (create_usage(16), create_usage(8), True),
        (create_usage(8), create_usage(16), False),
        (create_usage(8), create_usage(8), False),
        (create_usage(8), create_usage(8, **STOPPED), True),
        (create_usage(8, **STOPPED), create_usage(8), False),
        (create_usage(8), create_usage(16, **STOPPED), False),
        (create_usage(16), create_usage(8, gpu_type="B200"), False),
        (create_usage(16), create_usage(8, region="elsewhere"), False),
        (create_usage(16), create_usage(8, billing=Billing.RESERVED), False),
        (create_usage(16), create_usage(None), False),
        (create_usage(16, None), create_usage(8, None), True),
        (create_usage(16), create_usage(8, None), False),
        (create_usage(5, **STORED), create_usage(6, **STORED), False),
        (create_usage(16), None, False),
        (None, create_usage(16), False),
    ],
)
@pytest.mark.parametrize("action", ["update", "replace"])
def test_what_only_lowers_what_is_paid_for(
    before: ResourceUsage | None, after: ResourceUsage | None, expected: bool, action: str
) -> None:
    assert is_only_lowering(change(action, before=before, after=after)) is expected


def test_a_gate_on_cost_is_about_growth_alone(tmp_path: Path) -> None:
    gate = "{max_hourly_cost: {amount: 20, currency: USD}}"
    fewer = change("update", before=create_usage(16), after=create_usage(8))
    unknown = "train: 8 H100_SXM GPUs, stopped: no price"
    costs = PlanCost(before=create_cost(30), after=create_cost(40, unknown))
    renamed = change("update", "other", before=create_usage(8), after=create_usage(8))
    assert evaluate_gate(tmp_path, gate, fewer, renamed, cost=costs) == []
    assert evaluate_gate(tmp_path, gate, fewer) == [], "also where nobody tells any cost"
    new = change("create", "new", after=create_usage(8))
    grown = PlanCost(
        before=create_cost(30), after=create_cost(40, unknown, "new: 8 H100_SXM GPUs: no price")
    )
    assert evaluate_gate(tmp_path, gate, fewer, new, cost=grown) == [
        "the cost is unknown: new: 8 H100_SXM GPUs: no price",
        "the plan costs 40.00 USD/h: the limit is 20.00",
    ]


def test_a_cost_that_nobody_reckoned_passes_no_limit(tmp_path: Path) -> None:
    gate = "{max_hourly_cost: {amount: 20, currency: USD}}"
    (finding,) = evaluate_gate(tmp_path, gate)
    assert finding.startswith("the plan has no cost: prices.yaml does not exist")


RULES = """\
def few(plan):
    print("for whoever looks")
    for change in plan.changes:
        yield f"{change.name}: not on Fridays"


def nothing(plan):
    return None


def broken(plan):
    return plan.chnges


def text(plan):
    return "no"
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("few", ["train: not on Fridays"]),
        ("nothing", []),
        ("broken", ["rules:broken failed: AttributeError: 'Plan' object has no attribute"]),
        ("text", ["rules:text failed: TypeError: a rule must yield strings, or return a list"]),
        ("absent", ["rules:absent failed: AttributeError: module 'rules' has no attribute"]),
    ],
)
def test_a_rule_in_python_that_fails_is_against_the_plan(
    tmp_path: Path, name: str, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    results = evaluate_gate(tmp_path, f'{{python: "rules:{name}"}}', change("create"))
    assert len(results) == len(expected)
    assert all(finding.startswith(start) for finding, start in zip(results, expected, strict=True))
    assert capsys.readouterr().out == "", "a preview's JSON stays JSON"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("gates: {a: {}}", "gates.yaml:1:12: gates.a: has no rule: declare one of max_destroyed"),
        (
            "gates:\n  a: {max_destroyed_gpus: 1, protected: [b]}",
            "gates.yaml:2:41: gates.a.protected: is a second rule beside max_destroyed_gpus",
        ),
        ("gates:\n  a: {max_destroyed_gpu: 1}", "gates.yaml:2:7: gates.a.max_destroyed_gpu: is"),
        ("gates:\n  A: {max_destroyed_gpus: 1}", "gates.yaml:2:3: gates.A: is not a valid name"),
        (
            "gates:\n  a: {max_destroyed_gpus: 1, level: hard}",
            "gates.yaml:2:37: gates.a.level: hard is not known: use one of mandatory, advisory",
        ),
        ("gates:\n  a: {allowed_regions: []}", "gates.a.allowed_regions: is too short"),
        ("gates:\n  a: {expiry_required: false}", "gates.a.expiry_required: must be true"),
        ("gates:\n  a: {python: rules.few}", "gates.a.python: must name a function as MODULE"),
        (
            "gates:\n  a: {python: 'r:f', resources: [b]}",
            "gates.a.resources: conflicts with python",
        ),
        ("{}", "gates: is required"),
    ],
)
def test_a_mistake_is_told_at_its_place(tmp_path: Path, text: str, problem: str) -> None:
    (tmp_path / "gates.yaml").write_text(text)
    with pytest.raises(EngineError) as refused:
        read_gates(tmp_path / "gates.yaml", "gates.yaml")
    assert problem in str(refused.value)


def test_levels_and_permissions(tmp_path: Path) -> None:
    rule = "protected: [train]"
    gates_yaml = (
        f"gates:\n  hard: {{{rule}, reason: it serves}}\n  soft: {{{rule}, level: advisory}}\n"
    )
    (tmp_path / "gates.yaml").write_text(gates_yaml)
    gates = read_gates(tmp_path / "gates.yaml", "gates.yaml")
    plan = Plan.from_changes("demo", "dev", [change("delete")])
    (stopping,) = list_blocking_gates(GateEvaluator(gates, (), tmp_path).evaluate(plan))
    assert (stopping.name, stopping.permission, stopping.reason) == (
        "hard",
        "gate:hard",
        "it serves",
    )
    assert stopping.source == "gates.yaml:2:3"
    assert list_blocking_gates(GateEvaluator(gates, ("gate:hard",), tmp_path).evaluate(plan)) == []
    with pytest.raises(EngineError, match="unknown gates: gate:hart") as refused:
        GateEvaluator(gates, ("gate:hart",), tmp_path)
    assert refused.value.hint == "the project's gates are gate:hard, gate:soft"


GROWTH = "{max_cost_increase: 10%}"


@pytest.mark.parametrize(
    ("before", "after", "findings"),
    [
        (create_cost(100), create_cost(110), []),
        (
            create_cost(100),
            create_cost(110.5),
            ["the plan raises the cost by 10.5 %, from 100.00 to 110.50 USD/h: the limit is 10%"],
        ),
        (create_cost(100), create_cost(50), []),
        (StackCost(), create_cost(50), []),
        (create_cost(10), create_cost(10, "b: no price"), ["the cost is unknown: b: no price"]),
    ],
)
def test_a_limit_on_growth_compares_with_the_cost_before(
    tmp_path: Path, before: StackCost, after: StackCost, findings: list[str]
) -> None:
    cost = PlanCost(before=before, after=after)
    assert evaluate_gate(tmp_path, GROWTH, change("create"), cost=cost) == findings


def test_a_limit_on_growth_stops_a_plan_without_costs(tmp_path: Path) -> None:
    (finding,) = evaluate_gate(tmp_path, GROWTH, change("create"))
    assert finding.startswith("the plan has no cost")
    assert evaluate_gate(tmp_path, GROWTH, change("same")) == []


def test_a_python_gate_reads_the_cost_of_an_hour(tmp_path: Path) -> None:
    rule = "def growing(plan):\n    yield f'{plan.cost.before.hourly} {plan.cost.after.hourly}'\n"
    (tmp_path / "hourly_rules.py").write_text(rule)
    cost = PlanCost(before=StackCost(), after=create_cost(2.5))
    gate = "{python: hourly_rules:growing}"
    assert evaluate_gate(tmp_path, gate, change("create"), cost=cost) == ["0.0 2.5"]
    both = (*create_cost(1).amounts, *create_cost(1, currency="EUR").amounts)
    cost = PlanCost(before=StackCost(), after=StackCost(amounts=both))
    (finding,) = evaluate_gate(tmp_path, gate, change("create"), cost=cost)
    assert "the cost is in EUR and USD" in finding


WAIVED = """
gates:
  hard: {protected: [train]}
waive:
  - {gate: hard, until: 2026-12-31, reason: a move, by: ana@example.com}
"""


@pytest.mark.parametrize(
    ("today", "blocking", "verdict"),
    [
        (date(2026, 12, 31), [], "waived until 2026-12-31"),
        (date(2027, 1, 1), ["hard"], "stops the plan"),
    ],
)
def test_a_waiver_lifts_a_gate_until_its_last_day(
    tmp_path: Path, today: date, blocking: list[str], verdict: str
) -> None:
    (tmp_path / "gates.yaml").write_text(WAIVED)
    gates = read_gates(tmp_path / "gates.yaml", "gates.yaml")
    plan = Plan.from_changes("demo", "dev", [change("delete")])

    evaluated = GateEvaluator(gates, (), tmp_path, today=today).evaluate(plan)

    assert [gate.name for gate in list_blocking_gates(evaluated)] == blocking
    (result,) = evaluated.gates or ()
    assert format_gate_verdict(result) == verdict
    assert "2026-12-31, by ana@example.com: a move" in format_gate(result)


def test_a_review_shows_the_waiver_of_a_gate_that_passes(tmp_path: Path) -> None:
    (tmp_path / "gates.yaml").write_text(WAIVED)
    gates = read_gates(tmp_path / "gates.yaml", "gates.yaml")
    plan = Plan.from_changes("demo", "dev", [change("create")])
    evaluated = GateEvaluator(gates, (), tmp_path, today=date(2026, 1, 1)).evaluate(plan)
    assert list(render_plan_gates(evaluated)) == [
        "Gates: 1 of 1 passed",
        "    hard passed: waived until 2026-12-31, by ana@example.com: a move",
    ]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("gate: hard", "gate: hart", "5:12: waive[0].gate: hart is not a gate of this file: did"),
        ("2026-12-31", "31.12.2026", "5:25: waive[0].until: must be a day, such as 2026-12-31"),
        ("2026-12-31", "2026-12-32", "5:25: waive[0].until: must be a day, such as 2026-12-31"),
        (", by: ana@example.com", "", "waive[0].by: is required"),
    ],
)
def test_a_wrong_waiver_is_a_problem_of_the_file(
    tmp_path: Path, old: str, new: str, problem: str
) -> None:
    (tmp_path / "gates.yaml").write_text(WAIVED.replace(old, new))
    with pytest.raises(EngineError) as refused:
        read_gates(tmp_path / "gates.yaml", "gates.yaml")
    assert problem in str(refused.value)
