"""A broken cluster is restarted: when, under no work, and once."""

from typing import Any

import pytest

from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import REPAIR_VARIABLE, REVIEWED_VARIABLE, VARIABLE
from gpuform.providers.records import Repairs
from gpuform.providers.tensorone.client import TensorOneClient
from gpuform.providers.tensorone.cluster import ClusterLifecycle

Json = dict[str, Any]

ROW = 'repair["train"]'
UNKNOWN_USE = "TensorOne does not report the use of its GPUs"


class Killed(BaseException):
    """The process died here."""


@pytest.fixture(autouse=True)
def _no_wishes(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, REPAIR_VARIABLE, REVIEWED_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(world: Any, inputs: Json) -> Any:
    made = world.create({**inputs, "repair": {"approve": "automatic"}})
    world.idle(made)
    world.writes()
    return made


def show(world: Any, thing: Any, health: str | None, **metrics: Any) -> None:
    found: Json = {}
    if health is not None:
        found["status_details"] = {"health_checks": {"gpu_health": health}}
    if metrics:
        found["metrics"] = {"current": metrics}
    world.control("POST", f"tensorone/clusters/{thing.id}", {"shown": found})


def degraded(world: Any, thing: Any, **metrics: Any) -> Any:
    show(world, thing, "degraded", **metrics)
    return world.refresh(thing)


def fail(world: Any, thing: Any) -> Any:
    """It is started again by somebody, and does not come up."""
    world.send("POST", f"{thing.id}/stop", {})
    world.advance(3600)
    world.fault("POST", "/start$", failing="train")
    world.send("POST", f"{thing.id}/start", {})
    world.heal()
    world.advance(3600)
    world.writes()
    return world.refresh(thing)


def healing(world: Any, thing: Any) -> Any:
    """What tells of the restart, after which its GPUs are well."""

    def on_progress(text: str) -> None:
        world.told.append(text)
        if "to be restarted" in text:
            show(world, thing, None)

    return on_progress


def calls(world: Any) -> list[str]:
    return [call for call, _ in world.writes()]


def record(world: Any, thing: Any) -> Any:
    return Repairs.from_intents(world.intents).find(thing.id, "train")


def notices(thing: Any, inputs: Json | None = None) -> list[str]:
    told = ClusterLifecycle().list_notices(inputs or thing.inputs, thing.outs, 0.0)
    return [each.text for each in told if each.kind == "repair"]


def test_bad_gpus_are_a_row_then_a_restart_then_nothing(world: Any, cluster: Any) -> None:
    seen = degraded(world, cluster)
    (fault,) = seen.outs["faults"]
    assert (fault["because"], fault["instance"]) == (
        "the health of its GPUs is degraded",
        cluster.id,
    )
    assert world.plan(seen)[ROW][:2] == ("broken", "RESTART")
    mended = world.update(seen, on_progress=healing(world, cluster))
    assert calls(world) == ["POST stop", "POST start"]
    assert (mended.outs["ready"], mended.outs["faults"]) == (True, [])
    assert world.plan(mended) == {}
    assert world.plan(world.refresh(mended)) == {}
    assert record(world, cluster) is None


def test_one_in_error_is_restarted(world: Any, cluster: Any) -> None:
    seen = fail(world, cluster)
    assert seen.outs["status"] == "error"
    (fault,) = seen.outs["faults"]
    assert fault["because"].startswith("its status is error: The container did not start")
    assert fault["since"] == seen.outs["last_status_change"]
    show(world, cluster, None, gpu_utilization=0.0)
    seen = world.refresh(seen)
    mended = world.update(seen)
    assert calls(world) == ["POST stop", "POST start"]
    assert mended.outs["status"] == "running"
    assert world.plan(world.refresh(mended)) == {}


def test_one_that_cannot_be_stopped_says_what_to_do(world: Any, cluster: Any) -> None:
    seen = degraded(world, cluster)
    world.fault("POST", "/stop$", status=409, count=None)
    with pytest.raises(GpuformError, match="TensorOne does not stop cluster train") as caught:
        world.update(seen)
    assert "gpuform up --replace" in str(caught.value)
    assert record(world, cluster) is None


def test_nothing_is_done_that_nobody_declares(world: Any, inputs: Json) -> None:
    made = world.create(inputs)
    world.writes()
    seen = degraded(world, made)
    assert world.plan(seen) == {}
    assert notices(seen)[0].endswith("Not repaired: no `repair` is declared")
    world.update(seen)
    assert calls(world) == []


def test_who_declares_a_review_gets_nothing_done_without_one(world: Any, cluster: Any) -> None:
    seen = degraded(world, cluster)
    news = {**cluster.inputs, "repair": {}}
    assert ROW not in world.plan(seen, news)
    assert notices(seen, news)[0].endswith("the repair needs a review of the plan")


class TestItsWork:
    """GPUs that are used, or of whose use nobody tells, hold a restart."""

    @pytest.mark.parametrize(
        ("metrics", "why"),
        [
            ({"gpu_utilization": 5.0}, "a GPU may be used at 5 % or more"),
            ({"gpu_utilization": 1.25}, "a GPU may be used at 5 % or more"),
            ({"gpu_utilization": None}, UNKNOWN_USE),
            ({"gpu_utilization": "busy"}, UNKNOWN_USE),
            ({"gpu_utilization": 900}, UNKNOWN_USE),
            ({"gpu_utilization": -1.0}, UNKNOWN_USE),
            ({"timestamp": "2020-01-01T00:00:00Z"}, f"{UNKNOWN_USE} now"),
            ({"timestamp": None}, f"{UNKNOWN_USE} now"),
        ],
    )
    def test_holds_it(self, world: Any, cluster: Any, metrics: Json, why: str) -> None:
        seen = degraded(world, cluster, **metrics)
        assert ROW not in world.plan(seen)
        assert f"Not repaired: {why}; --allow evict-jobs" in notices(seen)[0]

    def test_as_little_as_that_does_not(self, world: Any, cluster: Any) -> None:
        assert ROW in world.plan(degraded(world, cluster, gpu_utilization=1.2))

    def test_that_began_after_the_plan_holds_it(self, world: Any, cluster: Any) -> None:
        seen = degraded(world, cluster)
        show(world, cluster, "degraded", gpu_utilization=60.0)
        with pytest.raises(GpuformError, match="cluster train: not restarted: a GPU may be"):
            world.update(seen)
        assert calls(world) == []

    def test_may_be_ended(self, world: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = degraded(world, cluster, gpu_utilization=60.0)
        monkeypatch.setenv(VARIABLE, "evict-jobs")
        assert ROW in world.plan(seen)
        world.update(seen, on_progress=healing(world, cluster))
        assert calls(world) == ["POST stop", "POST start"]


def test_one_that_is_well_again_is_left(world: Any, cluster: Any) -> None:
    seen = degraded(world, cluster)
    show(world, cluster, None)
    world.update(seen)
    assert calls(world) == []
    assert "cluster train is no longer broken: it stays as it is" in world.told


def test_an_answer_of_long_ago_is_no_fault(world: Any, cluster: Any) -> None:
    show(world, cluster, "degraded")
    world.settings(cache_seconds=7200)
    world.refresh(cluster)
    world.advance(3600)
    assert world.refresh(cluster).outs["faults"] == []


def test_a_restart_that_did_not_help_is_not_repeated(world: Any, cluster: Any) -> None:
    seen = degraded(world, cluster)
    done = world.update(seen)
    assert calls(world) == ["POST stop", "POST start"]
    for each in (done, world.refresh(done)):
        assert [fault["because"] for fault in each.outs["faults"]]
        assert world.plan(each) == {}
        assert "it was restarted at 20" in notices(each)[0]
        assert "without success" in notices(each)[0]
    world.update(world.refresh(done))
    assert calls(world) == []
    show(world, cluster, None)
    well = world.refresh(world.refresh(done))
    assert well.outs.get("restarted_at") is None
    world.idle(well)
    assert ROW in world.plan(degraded(world, well))


@pytest.mark.parametrize("last", ["stop", "start"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("is_asked", [False, True])
def test_a_killed_run_is_gone_on_with(
    world: Any,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
    last: str,
    after: bool,
    is_asked: bool,
) -> None:
    """Whether the request has had its effect or not."""
    seen = cluster
    if is_asked:
        monkeypatch.setenv(REPAIR_VARIABLE, "train")
    else:
        seen = degraded(world, cluster)
    real = getattr(TensorOneClient, last)

    def dies(*arguments: Any) -> None:
        if after:
            real(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(TensorOneClient, last, dies)
        with pytest.raises(Killed):
            world.update(seen, on_progress=healing(world, cluster))
    show(world, cluster, "degraded" if (last, after) == ("stop", False) else None)
    world.advance(900)
    seen = world.refresh(seen)
    mended = world.update(seen, on_progress=healing(world, cluster))
    assert calls(world) == ["POST stop", "POST start"]
    assert mended.outs["status"] == "running"
    monkeypatch.delenv(REPAIR_VARIABLE, raising=False)
    assert world.plan(world.refresh(mended)) == {}


def test_one_whose_restart_was_cut_off_is_broken(
    world: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that the hourly `gpuform repair` starts it, which does not look at `state`."""
    seen = degraded(world, cluster)
    with monkeypatch.context() as patched:
        patched.setattr(TensorOneClient, "start", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            world.update(seen)
    show(world, cluster, None)
    seen = world.refresh(seen)
    assert [each["because"] for each in seen.outs["faults"]] == ["its restart was interrupted"]
    assert ROW in world.plan(seen)
    assert world.update(seen).outs["status"] == "running"
    assert record(world, cluster) is None


def test_who_stops_it_later_is_not_a_cut_off_restart(
    world: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = world.create({**inputs, "repair": {"approve": "automatic"}})
    world.idle(made)
    monkeypatch.setenv(REPAIR_VARIABLE, "train")
    with monkeypatch.context() as patched:
        patched.setattr(Repairs, "record", _second_dies(Repairs.record))
        with pytest.raises(Killed):
            world.update(made)
    monkeypatch.delenv(REPAIR_VARIABLE)
    assert record(world, made).repair == "begun"
    world.advance(7200)
    world.send("POST", f"{made.id}/stop", {})
    world.advance(3600)
    assert world.refresh(made).outs["faults"] == []


def _second_dies(real: Any) -> Any:
    times = iter((False, True))

    def write(*arguments: Any) -> None:
        if next(times):
            raise Killed
        real(*arguments)

    return write


def test_a_stopped_one_is_well(world: Any, cluster: Any) -> None:
    seen = world.update(cluster, {**cluster.inputs, "state": "stopped"})
    assert degraded(world, seen).outs["faults"] == []


class TestAskedFor:
    @pytest.fixture(autouse=True)
    def _asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(REPAIR_VARIABLE, "train")

    def test_by_name(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.idle(made)
        world.writes()
        assert world.plan(made)[ROW][:2] == ("in use", "RESTART")
        mended = world.update(made)
        assert calls(world) == ["POST stop", "POST start"]
        world.idle(made)
        world.update(mended)
        assert calls(world) == ["POST stop", "POST start"], "asked for once more"

    def test_under_work_is_refused(self, world: Any, inputs: Json) -> None:
        made = world.create(inputs)
        world.writes()
        with pytest.raises(GpuformError, match="a GPU may be used at 5 % or more"):
            world.update(made)
        assert calls(world) == []


@pytest.mark.parametrize(
    ("repair", "path"),
    [
        ({"on": ["not_ready"]}, "repair.on"),
        ({"approve": "never"}, "repair.approve"),
        ({"max_parallel": 1}, "repair.max_parallel"),
    ],
)
def test_what_cannot_be_meant(world: Any, inputs: Json, repair: Json, path: str) -> None:
    (told,) = world.problems({**inputs, "repair": repair})
    assert told.startswith(path)
