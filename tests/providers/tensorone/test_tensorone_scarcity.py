"""Test TensorOne without free GPUs: reported at once, or searched for as declared."""

from typing import Any

import pytest

from gpuform.providers.errors import OutOfCapacity
from gpuform.providers.tensorone.cluster import ClusterLifecycle

Json = dict[str, Any]

HERE, THERE = "us-west-2", "us-east-1"
SEARCH = {"alternatives": [{"gpu_type": "H100"}, {"region": THERE}]}


def exhaust_region(platform: Any) -> None:
    platform.add_fault("POST", "clusters$", capacity=True, sent={"region": HERE}, count=None)


def list_attempts(platform: Any) -> list[tuple[str, str]]:
    created_bodies = [body for operation, body in platform.take_writes() if operation == "POST"]
    return [(body["gpu_type"], body["region"]) for body in created_bodies]


class TestAlternatives:
    def test_alternatives_are_tried_in_order_and_the_placement_is_an_output(
        self, platform: Any, inputs: Json
    ) -> None:
        exhaust_region(platform)
        cluster = platform.create({**inputs, "on_no_capacity": SEARCH})
        assert list_attempts(platform) == [("A100", HERE), ("H100", HERE), ("A100", THERE)]
        outs = cluster.outs
        assert (outs["region"], outs["gpu_type"]) == (HERE, "A100")
        assert (outs["placed_region"], outs["placed_gpu_type"]) == (THERE, "A100")
        assert outs["ready"] is True
        assert "using A100 in us-east-1; out of capacity: A100 in us-west-2, H100 in us-west-2" in (
            platform.messages
        )
        assert len(platform.list_objects()) == 1

    def test_a_placement_is_no_drift_and_no_change(self, platform: Any, inputs: Json) -> None:
        exhaust_region(platform)
        cluster = platform.create({**inputs, "on_no_capacity": SEARCH})
        refreshed = platform.refresh(cluster)
        assert refreshed.outs == cluster.outs
        assert platform.plan(refreshed) == {}
        assert platform.plan(refreshed, inputs) == {}
        without = platform.update(refreshed, {**inputs, "tags": {"a": "b"}})
        assert platform.plan(platform.refresh(without)) == {}

    def test_declaring_the_placement_changes_only_the_state(
        self, platform: Any, inputs: Json
    ) -> None:
        exhaust_region(platform)
        cluster = platform.create({**inputs, "on_no_capacity": SEARCH})
        settled = {**inputs, "region": THERE}
        because = "recorded in the state: the platform already has the value"
        assert platform.plan(cluster, settled) == {"region": (HERE, THERE, because)}
        assert platform.list_replacing_fields(cluster, settled) == []
        assert platform.list_replacing_fields(cluster, {**inputs, "region": "eu-west-1"}) == [
            "region"
        ]

    def test_the_error_names_all_attempts(self, platform: Any, inputs: Json) -> None:
        platform.change_settings(capacity={"A100": 2, "H100": 0})
        with pytest.raises(OutOfCapacity) as caught:
            platform.create({**inputs, "on_no_capacity": SEARCH})
        assert caught.value.message == (
            "TensorOne is out of capacity: it has no 4 A100 GPUs free in us-west-2 and no 4 "
            "H100 GPUs free in us-west-2 and no 4 A100 GPUs free in us-east-1 now; nothing was "
            "created"
        )
        assert "on_no_capacity" not in str(caught.value.hint)
        assert (platform.list_objects(), platform.intents.records.names()) == ([], [])

    def test_another_refusal_ends_the_search(self, platform: Any, inputs: Json) -> None:
        body = {"error": "VALIDATION_ERROR", "message": "no", "code": 422}
        platform.add_fault("POST", "clusters$", status=422, body=body, count=None)
        with pytest.raises(Exception, match="answered 422"):
            platform.create({**inputs, "on_no_capacity": SEARCH})
        assert len(list_attempts(platform)) == 1


class TestWaiting:
    def test_the_search_is_repeated_until_there_is_capacity(
        self, platform: Any, inputs: Json
    ) -> None:
        platform.add_fault("POST", "clusters$", capacity=True, count=3)
        cluster = platform.create({**inputs, "on_no_capacity": {"wait_minutes": 30}})
        assert cluster.outs["ready"] is True
        assert list_attempts(platform) == [("A100", HERE)] * 4
        assert platform.messages[0] == "out of capacity; trying again for 30m00s"

    @pytest.mark.exact_waits
    def test_the_search_ends_at_its_limit(self, platform: Any, inputs: Json) -> None:
        platform.change_settings(capacity={"A100": 0})
        began = platform.clock.now()
        with pytest.raises(OutOfCapacity, match="no 4 A100 GPUs free in us-west-2 now"):
            platform.create({**inputs, "on_no_capacity": {"wait_minutes": 5}})
        assert platform.clock.now() - began == 300

    def test_a_start_waits_for_capacity_too(self, platform: Any, inputs: Json) -> None:
        patient = {**inputs, "on_no_capacity": {"wait_minutes": 30}}
        cluster = platform.create({**patient, "state": "stopped"})
        platform.add_fault("POST", "start$", capacity=True, count=3)
        started = platform.update(cluster, patient)
        assert (started.outs["status"], started.outs["ready"]) == ("running", True)
        assert sum(operation == "POST start" for operation, _ in platform.take_writes()) == 4

    def test_a_start_ends_at_the_limit_and_names_the_placement(
        self, platform: Any, inputs: Json
    ) -> None:
        cluster = platform.create({**inputs, "state": "stopped"})
        platform.add_fault("POST", "start$", capacity=True, count=None)
        began = platform.clock.now()
        patient = {**inputs, "on_no_capacity": {"wait_minutes": 5}}
        updated = platform.update(cluster, patient)
        assert updated.outs["ready"] is False
        assert (
            "no 4 A100 GPUs free in us-west-2 now; nothing was started"
            in (updated.outs["not_ready_reason"])
        )
        assert 300 <= platform.clock.now() - began <= 360


def test_a_state_without_placements_plans_no_change(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    for name in ("placed_region", "placed_gpu_type"):
        cluster.outs.pop(name)
    assert platform.plan(cluster) == {}
    assert platform.plan(platform.refresh(cluster)) == {}


def test_prices_and_gates_use_the_placement(platform: Any, inputs: Json) -> None:
    exhaust_region(platform)
    cluster = platform.create({**inputs, "on_no_capacity": SEARCH})
    resource_usage = ClusterLifecycle.hooks.compute_resource_usage(cluster.inputs, cluster.outs)
    assert (resource_usage.region, resource_usage.gpu_types) == (THERE, ("A100",))
    assert resource_usage.expenses[0].what == "whole"


@pytest.mark.parametrize(
    ("search", "path", "reason"),
    [
        ({}, "on_no_capacity", "is empty: declare alternatives"),
        ({"alternatives": []}, "on_no_capacity", "is empty"),
        ({"wait_minutes": 0}, "on_no_capacity.wait_minutes", "1"),
        ({"alternatives": [{}]}, "on_no_capacity.alternatives[0]", "repeats the declared values"),
        (
            {"alternatives": [{"gpu_type": "A100"}]},
            "on_no_capacity.alternatives[0]",
            "repeats the declared values",
        ),
        (
            {"alternatives": [{"region": "mars"}]},
            "on_no_capacity.alternatives[0].region",
            "us-east-1",
        ),
        (
            {"wait_minutes": 5, "alternative": []},
            "on_no_capacity.alternative",
            "did you mean alternatives",
        ),
    ],
)
def test_invalid_searches_are_refused(
    platform: Any, inputs: Json, search: Json, path: str, reason: str
) -> None:
    reasons = platform.find_problems({**inputs, "on_no_capacity": search})
    assert list(reasons) == [path]
    assert reason in reasons[path]


def test_on_no_capacity_is_not_sent(platform: Any, inputs: Json) -> None:
    platform.create({**inputs, "on_no_capacity": SEARCH})
    assert platform.take_writes() == [("POST", inputs)]
