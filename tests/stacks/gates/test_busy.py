"""What the scheduler of a shrinking cluster told goes before what Lens would say of all."""

from gpuform.providers.actions import Settings
from gpuform.schemas.drain import Leaving, LeavingNode, RunningJob
from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.stacks.gates.busy import Monitoring

TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"


def findings(*nodes: LeavingNode) -> list[str]:
    leaving = Leaving(scheduler="Kubernetes", on_busy="wait", nodes=nodes)
    change = ResourceChange(
        urn=f"urn:pulumi:dev::demo::{TYPE}::train",
        type=TYPE,
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.CHANGED,
        gpus_added=0,
        gpus_removed=8,
        leaving=leaving,
    )
    nobody = Settings(environ={})
    return list(Monitoring(nobody, {change.urn: "c1"}).findings([change], {}))


def test_idle_nodes_may_go() -> None:
    assert findings(LeavingNode(name="w1", because="idle")) == []


def test_jobs_are_named_with_their_nodes() -> None:
    job = RunningJob(id="ml/train-0", name="train")
    busy = LeavingNode(name="w1", because="newest", jobs=(job,))
    assert findings(busy) == ["train: ml/train-0 on w1, which goes"]
    many = LeavingNode(name="w1", because="newest", jobs=(job,) * 12)
    assert findings(many)[0].endswith("ml/train-0 and 2 more on w1, which goes")
