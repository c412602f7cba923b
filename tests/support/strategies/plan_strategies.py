"""Hypothesis strategies of plans with odd names, values and numbers."""

from typing import Any

from hypothesis import strategies as st

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import (
    Amount,
    Basis,
    GateLevel,
    GateResult,
    OutputChange,
    Plan,
    PlanAction,
    PlanCost,
    PlanReason,
    PropertyChange,
    ResourceChange,
    StackCost,
)
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes, RunningJob
from gpuform.schemas.resource_facts import Billing, Expense, ResourceUsage

ODD_TEXTS = (
    *("", " ", "`", "``` ```", "|", "<script>alert(1)</script>", "</details>", "<!--", "-->"),
    *("@everyone", "#1", "[a](javascript:alert(1))", "![](https://x.example)", "a\nb\n\n# c"),
    *("\r\n/close", "\x1b[31m", "\u202egnp", "\ud800", "\x00", "{{ 7 * 7 }}", "{% raw %}"),
    *("https://evil.example/x", "www.evil.example", "0123456789abcdef", "~~~", "    code", "- a"),
    *("# h", "> q", "1. one", "***", "\\", "&amp;", "[secret]", "[unknown]", "x" * 5000),
)

texts = st.sampled_from(ODD_TEXTS) | st.text(max_size=20)
types = texts | st.sampled_from(
    [
        "pulumi-python:dynamic/gpuform.together:Cluster",
        "pulumi-python:dynamic/gpuform.together:SharedVolume",
        "pulumi-python:dynamic/gpuform.aios:Cluster",
        "gpuform:scp:NodePool",
        "pulumi:pulumi:Stack",
    ]
)
paths = texts | st.sampled_from(["add_ons", 'add_ons["a"].config', "num_gpus", "nodes.node_data"])
scalars = st.none() | st.booleans() | st.integers() | st.floats() | texts
_items = st.fixed_dictionaries({"name": texts}, optional={"id": texts, "n": scalars})
json_values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(texts, inner, max_size=3)
        | st.lists(_items, max_size=3)
    ),
    max_leaves=8,
)
urns = texts | st.sampled_from([f"urn:pulumi:s::p::t::{n}" for n in "abc"])
gpus = st.none() | st.integers(0, 10**6)


def _draw_change_fields(**others: Any) -> dict[str, Any]:
    return {
        "action": st.sampled_from(Action),
        "before": json_values,
        "after": json_values,
        "unknown": st.booleans(),
        "secret": st.booleans(),
        **others,
    }


property_changes = st.builds(
    PropertyChange,
    path=paths,
    **_draw_change_fields(forces_replacement=st.booleans(), because=texts),
)
output_changes = st.builds(OutputChange, name=texts, **_draw_change_fields())
hourly = st.none() | st.floats(0, 1e9)
expenses = st.builds(
    Expense,
    what=st.sampled_from(["gpus", "storage", "whole"]),
    amount=st.none() | st.floats(0, 1e9),
    unit=texts,
    platform=texts,
    gpu_type=texts,
    region=texts,
    billing=st.sampled_from(Billing),
    hourly=hourly,
    currency=texts,
    source=texts,
    because=texts,
)
resource_usages = st.none() | st.builds(
    ResourceUsage, region=texts, expenses=st.lists(expenses, max_size=3).map(tuple)
)
jobs = st.builds(RunningJob, id=texts, name=texts, user=texts)
removed_node = st.builds(
    RemovedNode, name=texts, because=texts, jobs=st.lists(jobs, max_size=2).map(tuple)
)
removed_nodes = st.none() | st.builds(
    RemovedNodes,
    scheduler=texts,
    on_busy=st.sampled_from(["wait", "fail", "evict"]),
    wait_minutes=st.integers(0, 100),
    nodes=st.lists(removed_node, max_size=2).map(tuple),
)
amounts = st.builds(
    Amount, billing=st.sampled_from(Billing), currency=texts, hourly=st.floats(0, 1e9)
)
stack_costs = st.builds(
    StackCost,
    amounts=st.lists(amounts, max_size=3).map(tuple),
    unknown=st.lists(texts, max_size=2).map(tuple),
)
gate_results = st.builds(
    GateResult,
    name=texts,
    rule=texts,
    level=st.sampled_from(GateLevel),
    findings=st.lists(texts, max_size=2).map(tuple),
    allowed=st.booleans(),
    reason=texts,
    permission=texts,
    source=texts,
)
resource_changes = st.builds(
    ResourceChange,
    urn=urns,
    type=types,
    name=texts,
    action=st.sampled_from(PlanAction),
    reason=st.sampled_from(PlanReason),
    replace_paths=st.lists(paths, max_size=2).map(tuple),
    changes=st.lists(property_changes, max_size=4).map(tuple),
    gpus_added=gpus,
    gpus_removed=gpus,
    parent=urns,
    dependencies=st.lists(urns, max_size=2).map(tuple),
    before=resource_usages,
    after=resource_usages,
    leaving=removed_nodes,
    others=st.lists(texts, max_size=2).map(tuple),
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Draw a plan with the engine's counts."""
    changes = draw(st.lists(resource_changes, max_size=5))
    unchecked = draw(st.lists(texts, max_size=2))
    plan = Plan.from_changes(draw(texts), draw(texts), changes, unchecked=unchecked)
    basis = Basis(state={}, config={}, program={}) if draw(st.booleans()) else None
    return plan.model_copy(
        update={
            "operation": draw(st.sampled_from(["update", "refresh", "destroy"])),
            "made_at": draw(texts),
            "made_by": draw(texts),
            "basis": basis,
            "cost": draw(st.none() | st.builds(PlanCost, before=stack_costs, after=stack_costs)),
            "gates": draw(st.none() | st.lists(gate_results, max_size=2).map(tuple)),
            "outputs": tuple(draw(st.lists(output_changes, max_size=2))),
        }
    )
