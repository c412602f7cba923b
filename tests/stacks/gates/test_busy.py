"""Test that the scheduler of a shrinking cluster counts more than Lens."""

import httpx
import pytest

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import mount_transport
from gpuform.providers.operations import Settings
from gpuform.schemas.plan import PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes, RunningJob
from gpuform.stacks.gates.facts import UsageMonitor

TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"


def create_reduction(leaving: RemovedNodes | None) -> ResourceChange:
    return ResourceChange(
        urn=f"urn:pulumi:dev::demo::{TYPE}::train",
        type=TYPE,
        name="train",
        action=PlanAction.UPDATE,
        reason=PlanReason.CHANGED,
        gpus_added=0,
        gpus_removed=8,
        leaving=leaving,
    )


def list_findings(*nodes: RemovedNode) -> list[str]:
    change = create_reduction(RemovedNodes(scheduler="Kubernetes", on_busy="wait", nodes=nodes))
    nobody = Settings(environ={})
    return list(UsageMonitor(nobody, {change.urn: "c1"}).find_usage([change], {}))


def test_idle_nodes_may_go() -> None:
    assert list_findings(RemovedNode(name="w1", because="idle")) == []


def test_jobs_are_named_with_their_nodes() -> None:
    job = RunningJob(id="ml/train-0", name="train")
    busy = RemovedNode(name="w1", because="newest", jobs=(job,))
    assert list_findings(busy) == ["train: ml/train-0 on w1, which the plan drains"]
    many = RemovedNode(name="w1", because="newest", jobs=(job,) * 12)
    assert list_findings(many)[0].endswith("ml/train-0 and 2 more on w1, which the plan drains")


URL = "http://lens-busy.test"
WORKLOAD = {"kind": "Job", "name": "t", "namespace": "ml", "uid": "1", "source": "k8s"}


@pytest.mark.parametrize(
    ("nodes", "page", "said"),
    [
        (2, {"data": [], "total": 0}, None),
        (2, {"data": None, "total": 0}, None),
        (0, {"data": [], "total": 0}, "no GPU nodes that they could run on"),
        (None, {"data": None, "total": 0}, "no GPU nodes that they could run on"),
        (2, {"data": [], "total": 5}, "shows 0 different workloads, but `total` is 5"),
        (2, {"data": None, "total": 5}, "shows 0 different workloads, but `total` is 5"),
        (2, {"data": [WORKLOAD], "total": 2}, "shows 1 different workloads, but `total` is 2"),
        (2, {"data": [WORKLOAD], "total": 1}, "may be in use by ml/t"),
    ],
)
def test_an_empty_list_counts_only_where_lens_shows_that_it_is_all(
    nodes: int | None, page: dict[str, object], said: str | None
) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        data = page if request.url.path.endswith("consumers") else {"totalNodes": nodes}
        return httpx.Response(200, json={"code": 0, "data": data})

    settings = Settings(environ={"LENS_URL": URL})
    with mount_transport(URL, httpx.MockTransport(answer)), use_context(ProviderContext()):
        lines = list(UsageMonitor(settings, {}).find_usage([create_reduction(None)], {}))
    assert (lines == []) if said is None else (said in lines[0])
