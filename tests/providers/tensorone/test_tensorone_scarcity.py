"""TensorOne without free GPUs: said at once, or searched for as declared, in Together's words."""

from typing import Any

import pytest

from gpuform.providers.errors import OutOfCapacity
from gpuform.providers.tensorone.cluster import ClusterLifecycle

Json = dict[str, Any]

HERE, THERE = "us-west-2", "us-east-1"
SEARCH = {"alternatives": [{"gpu_type": "H100"}, {"region": THERE}]}


def no_stock_here(world: Any) -> None:
    world.fault("POST", "clusters$", capacity=True, sent={"region": HERE}, count=None)


def tried(world: Any) -> list[tuple[str, str]]:
    made = [body for what, body in world.writes() if what == "POST"]
    return [(body["gpu_type"], body["region"]) for body in made]


class TestAlternatives:
    def test_they_are_tried_in_order_and_what_was_got_is_an_output(
        self, world: Any, inputs: Json
    ) -> None:
        no_stock_here(world)
        made = world.create({**inputs, "on_no_capacity": SEARCH})
        assert tried(world) == [("A100", HERE), ("H100", HERE), ("A100", THERE)]
        outs = made.outs
        assert (outs["region"], outs["gpu_type"]) == (HERE, "A100")
        assert (outs["placed_region"], outs["placed_gpu_type"]) == (THERE, "A100")
        assert outs["ready"] is True
        assert "took A100 in us-east-1; out of capacity: A100 in us-west-2, H100 in us-west-2" in (
            world.told
        )
        assert len(world.objects()) == 1

    def test_a_placement_is_no_drift_and_no_change(self, world: Any, inputs: Json) -> None:
        no_stock_here(world)
        made = world.create({**inputs, "on_no_capacity": SEARCH})
        seen = world.refresh(made)
        assert seen.outs == made.outs
        assert world.plan(seen) == {}
        assert world.plan(seen, inputs) == {}
        without = world.update(seen, {**inputs, "tags": {"a": "b"}})
        assert world.plan(world.refresh(without)) == {}

    def test_declaring_where_it_is_changes_the_state_alone(self, world: Any, inputs: Json) -> None:
        no_stock_here(world)
        made = world.create({**inputs, "on_no_capacity": SEARCH})
        settled = {**inputs, "region": THERE}
        because = "recorded: the platform has it already"
        assert world.plan(made, settled) == {"region": (HERE, THERE, because)}
        assert world.replaces(made, settled) == []
        assert world.replaces(made, {**inputs, "region": "eu-west-1"}) == ["region"]

    def test_nothing_anywhere_names_all_that_was_tried(self, world: Any, inputs: Json) -> None:
        world.settings(capacity={"A100": 2, "H100": 0})
        with pytest.raises(OutOfCapacity) as caught:
            world.create({**inputs, "on_no_capacity": SEARCH})
        assert caught.value.message == (
            "TensorOne is out of capacity: it has no 4 A100 GPUs free in us-west-2 and no 4 "
            "H100 GPUs free in us-west-2 and no 4 A100 GPUs free in us-east-1 now; nothing was "
            "created"
        )
        assert "on_no_capacity" not in str(caught.value.hint)
        assert (world.objects(), world.intents.records.names()) == ([], [])

    def test_another_refusal_ends_the_search(self, world: Any, inputs: Json) -> None:
        body = {"error": "VALIDATION_ERROR", "message": "no", "code": 422}
        world.fault("POST", "clusters$", status=422, body=body, count=None)
        with pytest.raises(Exception, match="answered 422"):
            world.create({**inputs, "on_no_capacity": SEARCH})
        assert len(tried(world)) == 1


class TestWaiting:
    def test_the_search_is_repeated_until_there_is_capacity(self, world: Any, inputs: Json) -> None:
        world.fault("POST", "clusters$", capacity=True, count=3)
        made = world.create({**inputs, "on_no_capacity": {"wait_minutes": 30}})
        assert made.outs["ready"] is True
        assert tried(world) == [("A100", HERE)] * 4
        assert world.told[0] == "out of capacity; trying again for 30m00s"

    def test_it_ends_at_its_limit(self, world: Any, inputs: Json) -> None:
        world.settings(capacity={"A100": 0})
        began = world.clock.now()
        with pytest.raises(OutOfCapacity, match="no 4 A100 GPUs free in us-west-2 now"):
            world.create({**inputs, "on_no_capacity": {"wait_minutes": 5}})
        assert world.clock.now() - began == 300

    def test_a_start_waits_too(self, world: Any, inputs: Json) -> None:
        patient = {**inputs, "on_no_capacity": {"wait_minutes": 30}}
        made = world.create({**patient, "state": "stopped"})
        world.fault("POST", "start$", capacity=True, count=3)
        started = world.update(made, patient)
        assert (started.outs["status"], started.outs["ready"]) == ("running", True)
        assert sum(what == "POST start" for what, _ in world.writes()) == 4

    def test_a_start_ends_at_the_limit_and_names_where_the_cluster_is(
        self, world: Any, inputs: Json
    ) -> None:
        made = world.create({**inputs, "state": "stopped"})
        world.fault("POST", "start$", capacity=True, count=None)
        began = world.clock.now()
        patient = {**inputs, "on_no_capacity": {"wait_minutes": 5}}
        left = world.update(made, patient)
        assert left.outs["ready"] is False
        assert (
            "no 4 A100 GPUs free in us-west-2 now; nothing was started"
            in (left.outs["not_ready_reason"])
        )
        assert 300 <= world.clock.now() - began <= 360


def test_a_state_without_placements_plans_nothing(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    for name in ("placed_region", "placed_gpu_type"):
        made.outs.pop(name)
    assert world.plan(made) == {}
    assert world.plan(world.refresh(made)) == {}


def test_prices_and_gates_see_where_it_is(world: Any, inputs: Json) -> None:
    no_stock_here(world)
    made = world.create({**inputs, "on_no_capacity": SEARCH})
    found = ClusterLifecycle.compute_resource_usage(made.inputs, made.outs)
    assert (found.region, found.gpu_types) == (THERE, ("A100",))
    assert found.expenses[0].what == "whole"


@pytest.mark.parametrize(
    ("search", "path", "reason"),
    [
        ({}, "on_no_capacity", "says nothing: declare alternatives"),
        ({"alternatives": []}, "on_no_capacity", "says nothing"),
        ({"wait_minutes": 0}, "on_no_capacity.wait_minutes", "1"),
        ({"alternatives": [{}]}, "on_no_capacity.alternatives[0]", "is what is declared anyway"),
        (
            {"alternatives": [{"gpu_type": "A100"}]},
            "on_no_capacity.alternatives[0]",
            "is what is declared anyway",
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
def test_what_is_wrong_is_said(
    world: Any, inputs: Json, search: Json, path: str, reason: str
) -> None:
    found = world.problems({**inputs, "on_no_capacity": search})
    assert list(found) == [path]
    assert reason in found[path]


def test_the_setting_is_not_sent(world: Any, inputs: Json) -> None:
    world.create({**inputs, "on_no_capacity": SEARCH})
    assert world.writes() == [("POST", inputs)]
