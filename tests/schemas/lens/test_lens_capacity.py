"""Test the capacity computed from Lens's answers, also incomplete and contradictory ones."""

from support.platforms.lens_document import CONSUMERS, OVERVIEW

from gpuform.schemas.lens.conditions import Capacity
from gpuform.schemas.lens.wire import Consumer, Overview


def build_consumer(**stat: object) -> Consumer:
    return Consumer.model_validate({"name": "job", "stat": stat})


def test_the_documented_answers_give_the_documented_capacity() -> None:
    consumers = [Consumer.model_validate(row) for row in CONSUMERS["data"]["data"]]
    overview = Capacity.from_overview(Overview.model_validate(OVERVIEW["data"]), consumers)
    assert overview == Capacity(
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
    overview = Capacity.from_overview(
        Overview(),
        [
            build_consumer(gpuRequest=8, gpuUtilization=0.05),
            build_consumer(gpuRequest=4, gpuUtilization=0.06),
            build_consumer(gpuRequest=2),
            build_consumer(gpuRequest=2, gpuUtilization=None),
            build_consumer(gpuRequest=-5, gpuUtilization=0),
            build_consumer(),
        ],
    )
    assert (overview.workloads, overview.requested_gpus, overview.idle_gpus) == (4, 16, 8)
    assert overview.free_nodes is None
    assert overview.storage_available_tb is None
