"""What TensorOne measures of its clusters now: compact lines, all of it as figures."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.operations import Settings
from gpuform.providers.tensorone.cluster import ClusterLifecycle

Json = dict[str, Any]


def live(world: Any, *things: Any) -> Any:
    with world.serving():
        return ClusterLifecycle.read_live_metrics(Settings(), [each.id for each in things])


def shows(world: Any, thing: Any, **instead: Any) -> None:
    world.control("POST", f"tensorone/clusters/{thing.id}", {"shown": instead})


def reads(world: Any) -> int:
    found = len(world.requests())
    world.control("DELETE", "requests")
    return found


def test_of_one_that_works(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.advance(2 * 3600)
    use, cost = live(world, made)[made.id].lines
    assert use.startswith("GPUs 87.3%, GPU memory 94.2%, 72.5 °C, 1250 W; up 2h")
    assert "; last accessed 2027-" in use
    assert " USD this session, " in cost
    assert cost.endswith(" USD per compute hour; utilization score 85.2")
    figures = live(world, made)[made.id].figures
    assert figures["metrics"]["current"]["network_rx_mbps"] == 125.3
    assert figures["cost"]["total_lifetime_cost"] > 0


def test_several_take_one_list(world: Any, inputs: Json) -> None:
    made = [world.create({**inputs, "name": name}, name) for name in ("one", "two", "three")]
    reads(world)
    assert sorted(live(world, *made)) == sorted(each.id for each in made)
    assert reads(world) == 1


def test_one_that_the_list_tells_nothing_of_is_looked_at_alone(world: Any, inputs: Json) -> None:
    made = [world.create({**inputs, "name": name}, name) for name in ("one", "two")]
    shows(world, made[0], metrics=None)
    reads(world)
    found = live(world, *made)
    assert reads(world) == 2
    assert "GPUs" not in found[made[0].id].lines[0]
    assert "GPUs 87.3%" in found[made[1].id].lines[0]


def test_one_that_is_gone_is_left_out(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.delete(made)
    assert live(world, made) == {}


def test_one_that_is_idle_and_one_that_is_stopped(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.idle(made)
    world.advance(720)
    assert ", idle 12m; " in live(world, made)[made.id].lines[0]
    stopped = world.update(made, {**inputs, "state": "stopped"})
    use, cost = live(world, stopped)[made.id].lines
    assert use.startswith("last accessed ")
    assert " in all; " in cost


@pytest.mark.parametrize("bad", [None, "many", {"a": 1}, [1]])
def test_what_is_no_figure_is_not_told(world: Any, inputs: Json, bad: Any) -> None:
    made = world.create(inputs)
    numbers = ("gpu_utilization", "temperature_celsius", "power_usage_watts")
    well = dict.fromkeys(("utilization_score", "cost_per_compute_hour"), bad)
    shows(
        world,
        made,
        metrics={"current": dict.fromkeys(numbers, bad), "historical": {"cost_efficiency": well}},
        cost={"total_lifetime_cost": bad},
        uptime_seconds=bad,
        last_accessed=None,
    )
    use, cost = live(world, made)[made.id].lines
    assert use == "GPU memory 94.2%"
    assert cost.endswith(" USD this session")


def test_no_answer_is_an_error(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.fault("GET", "clusters", status=403, count=None)
    with pytest.raises(GpuformError, match="403"):
        live(world, made)
