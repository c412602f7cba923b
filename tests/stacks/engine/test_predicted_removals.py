"""Test that a plan does not count a growth as one if the platform would remove nodes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes
from gpuform.stacks.engine.executing.step_work import StepApplier
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState

URN = "urn:pulumi:dev::lab::together:Cluster::train"


@pytest.mark.parametrize(
    ("because", "planned", "counts"),
    [
        ("idle", (8, 0), (None, None)),
        ("idle", (0, 8), (0, 8)),
        ("replaced", (8, 0), (8, 0)),
        (None, (8, 0), (8, 0)),
    ],
)
def test_a_growth_that_removes_nodes_has_an_unknown_number_of_gpus(
    because: str | None, planned: tuple[int, int], counts: tuple[int | None, int | None]
):
    nodes = (RemovedNode(name="w8", because=because),) if because else ()
    removed_nodes = RemovedNodes(scheduler="Kubernetes", on_busy="wait", nodes=nodes)
    host = SimpleNamespace(predict_removed_nodes=lambda *_: removed_nodes if nodes else None)
    applier = StepApplier(*cast("Any", [host, *([None] * 6)]))
    old, new = (ResourceState(URN, True, "together:Cluster", id="c-1") for _ in range(2))
    change = ResourceChange(
        urn=URN,
        type="together:Cluster",
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.CHANGED,
        gpus_added=planned[0],
        gpus_removed=planned[1],
    )
    step = Step(Op.UPDATE, URN, old, new, change=change)
    applier.predict(step)
    assert step.change is not None
    assert (step.change.gpus_added, step.change.gpus_removed) == counts
