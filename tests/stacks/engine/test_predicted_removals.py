"""Test that a plan counts the GPUs of the nodes that the platform would remove."""

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
        ("idle", (8, 0), (0, 24)),  # the state has fewer nodes than declared, the platform more
        ("idle", (0, 8), (0, 24)),
        ("resized", (0, 0), (0, 24)),
        ("deleted", (0, 8), (16, 24)),  # nodes that are exchanged by their names
        ("deleted", (0, 24), (0, 24)),
        ("replaced", (8, 0), (8, 0)),
        ("stopped", (0, 8), (0, 0)),
        (None, (0, 8), (0, 0)),
    ],
)
def test_an_update_removes_the_gpus_of_the_nodes_on_the_platform(
    because: str | None, planned: tuple[int, int], counts: tuple[int, int]
):
    names = ("w7", "w8", "w9") if because else ()
    nodes = tuple(RemovedNode(name=name, because=str(because), gpus=8) for name in names)
    removed_nodes = RemovedNodes(scheduler="Kubernetes", on_busy="wait", nodes=nodes)
    host = SimpleNamespace(predict_removed_nodes=lambda *_: removed_nodes)
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
