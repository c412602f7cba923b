"""What is free, of answers that tell little or odd things."""

from lens_document import CONSUMERS, OVERVIEW

from gpuform.schemas.lens.conditions import Capacity
from gpuform.schemas.lens.wire import Consumer, Overview


def consumer(**stat: object) -> Consumer:
    return Consumer.model_validate({"name": "job", "stat": stat})


def test_the_document_s_answers() -> None:
    consumers = [Consumer.model_validate(each) for each in CONSUMERS["data"]["data"]]
    found = Capacity.from_overview(Overview.model_validate(OVERVIEW["data"]), consumers)
    assert found == Capacity(
        nodes=10,
        free_nodes=3,
        partly_free_nodes=4,
        busy_nodes=2,
        faulty_nodes=1,
        workloads=2,
        requested_gpus=12,
        idle_gpus=0,
        allocation_rate=0.75,
        utilization=0.62,
        storage_total_tb=1000,
        storage_available_tb=550,
    )


def test_workloads_without_reported_utilization_are_not_idle() -> None:
    found = Capacity.from_overview(
        Overview(),
        [
            consumer(gpuRequest=8, gpuUtilization=0.05),
            consumer(gpuRequest=4, gpuUtilization=0.06),
            consumer(gpuRequest=2),
            consumer(gpuRequest=2, gpuUtilization=None),
            consumer(gpuRequest=-5, gpuUtilization=0),
            consumer(),
        ],
    )
    assert (found.workloads, found.requested_gpus, found.idle_gpus) == (4, 16, 8)
    assert found.free_nodes is None
    assert found.storage_available_tb is None
