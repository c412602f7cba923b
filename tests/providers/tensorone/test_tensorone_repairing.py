"""Test restarts of broken clusters: when they happen, and that each fault has only one."""

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
    """The process is killed here."""


@pytest.fixture(autouse=True)
def _without_requested_repairs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (VARIABLE, REPAIR_VARIABLE, REVIEWED_VARIABLE):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cluster(platform: Any, inputs: Json) -> Any:
    created = platform.create({**inputs, "repair": {"approve": "automatic"}})
    platform.make_idle(created)
    platform.take_writes()
    return created


def set_health(platform: Any, cluster: Any, health: str | None, **metrics: Any) -> None:
    metrics_by_name: Json = {}
    if health is not None:
        metrics_by_name["status_details"] = {"health_checks": {"gpu_health": health}}
    if metrics:
        metrics_by_name["metrics"] = {"current": metrics}
    platform.send_control("POST", f"tensorone/clusters/{cluster.id}", {"shown": metrics_by_name})


def degrade_cluster(platform: Any, degraded_cluster: Any, **metrics: Any) -> Any:
    set_health(platform, degraded_cluster, "degraded", **metrics)
    return platform.refresh(degraded_cluster)


def fail_cluster(platform: Any, cluster: Any) -> Any:
    """Start the cluster as somebody else, and let the start fail."""
    platform.send("POST", f"{cluster.id}/stop", {})
    platform.advance(3600)
    platform.add_fault("POST", "/start$", failing="train")
    platform.send("POST", f"{cluster.id}/start", {})
    platform.remove_faults()
    platform.advance(3600)
    platform.take_writes()
    return platform.refresh(cluster)


def heal_on_restart(platform: Any, cluster: Any) -> Any:
    """Return a progress callback that restores the GPUs when the restart is reported."""

    def on_progress(text: str) -> None:
        platform.messages.append(text)
        if "to be restarted" in text:
            set_health(platform, cluster, None)

    return on_progress


def list_writes(platform: Any) -> list[str]:
    return [call for call, _ in platform.take_writes()]


def read_record(platform: Any, cluster: Any) -> Any:
    return Repairs.from_intents(platform.intents).find(cluster.id, "train")


def list_repair_notices(cluster: Any, inputs: Json | None = None) -> list[str]:
    messages = ClusterLifecycle().hooks.list_notices(inputs or cluster.inputs, cluster.outs, 0.0)
    return [message.text for message in messages if message.kind == "repair"]


def test_unhealthy_gpus_are_planned_then_restarted_then_no_change(
    platform: Any, cluster: Any
) -> None:
    degraded_cluster = degrade_cluster(platform, cluster)
    (fault,) = degraded_cluster.outs["faults"]
    assert (fault["because"], fault["instance"]) == (
        "the health of its GPUs is degraded",
        cluster.id,
    )
    assert platform.plan(degraded_cluster)[ROW][:2] == ("broken", "RESTART")
    repaired = platform.update(degraded_cluster, on_progress=heal_on_restart(platform, cluster))
    assert list_writes(platform) == ["POST stop", "POST start"]
    assert (repaired.outs["ready"], repaired.outs["faults"]) == (True, [])
    assert platform.plan(repaired) == {}
    assert platform.plan(platform.refresh(repaired)) == {}
    assert read_record(platform, cluster) is None


def test_a_cluster_in_error_is_restarted(platform: Any, cluster: Any) -> None:
    refreshed = fail_cluster(platform, cluster)
    assert refreshed.outs["status"] == "error"
    (fault,) = refreshed.outs["faults"]
    assert fault["because"].startswith("its status is error: The container did not start")
    assert fault["since"] == refreshed.outs["last_status_change"]
    set_health(platform, cluster, None, gpu_utilization=0.0)
    refreshed = platform.refresh(refreshed)
    repaired = platform.update(refreshed)
    assert list_writes(platform) == ["POST stop", "POST start"]
    assert repaired.outs["status"] == "running"
    assert platform.plan(platform.refresh(repaired)) == {}


def test_a_cluster_that_cannot_be_stopped_has_a_hint(platform: Any, cluster: Any) -> None:
    degraded_cluster = degrade_cluster(platform, cluster)
    platform.add_fault("POST", "/stop$", status=409, count=None)
    with pytest.raises(GpuformError, match="TensorOne does not stop cluster train") as caught:
        platform.update(degraded_cluster)
    assert "gpuform up --replace" in str(caught.value)
    assert read_record(platform, cluster) is None


def test_without_a_declaration_nothing_is_repaired(platform: Any, inputs: Json) -> None:
    cluster = platform.create(inputs)
    platform.take_writes()
    degraded_cluster = degrade_cluster(platform, cluster)
    assert platform.plan(degraded_cluster) == {}
    assert list_repair_notices(degraded_cluster)[0].endswith(
        "Not repaired: no `repair` is declared"
    )
    platform.update(degraded_cluster)
    assert list_writes(platform) == []


def test_a_required_review_prevents_an_unreviewed_restart(platform: Any, cluster: Any) -> None:
    degraded_cluster = degrade_cluster(platform, cluster)
    news = {**cluster.inputs, "repair": {}}
    assert ROW not in platform.plan(degraded_cluster, news)
    assert list_repair_notices(degraded_cluster, news)[0].endswith(
        "the repair needs a review of the plan"
    )


class TestWorkOnTheCluster:
    """Busy GPUs, and GPUs of unknown use, prevent a restart."""

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
    def test_busy_or_unknown_use_prevents_a_restart(
        self, platform: Any, cluster: Any, metrics: Json, why: str
    ) -> None:
        degraded_cluster = degrade_cluster(platform, cluster, **metrics)
        assert ROW not in platform.plan(degraded_cluster)
        assert (
            f"Not repaired: {why}; --allow evict-jobs" in list_repair_notices(degraded_cluster)[0]
        )

    def test_negligible_use_does_not_prevent_a_restart(self, platform: Any, cluster: Any) -> None:
        assert ROW in platform.plan(degrade_cluster(platform, cluster, gpu_utilization=1.2))

    def test_work_that_began_after_the_plan_prevents_a_restart(
        self, platform: Any, cluster: Any
    ) -> None:
        degraded_cluster = degrade_cluster(platform, cluster)
        set_health(platform, cluster, "degraded", gpu_utilization=60.0)
        with pytest.raises(GpuformError, match="cluster train: not restarted: a GPU may be"):
            platform.update(degraded_cluster)
        assert list_writes(platform) == []

    def test_a_permission_allows_ending_the_work(
        self, platform: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        degraded_cluster = degrade_cluster(platform, cluster, gpu_utilization=60.0)
        monkeypatch.setenv(VARIABLE, "evict-jobs")
        assert ROW in platform.plan(degraded_cluster)
        platform.update(degraded_cluster, on_progress=heal_on_restart(platform, cluster))
        assert list_writes(platform) == ["POST stop", "POST start"]


def test_a_recovered_cluster_is_not_restarted(platform: Any, cluster: Any) -> None:
    degraded_cluster = degrade_cluster(platform, cluster)
    set_health(platform, cluster, None)
    platform.update(degraded_cluster)
    assert list_writes(platform) == []
    assert "cluster train is no longer broken: it stays as it is" in platform.messages


def test_an_old_answer_is_no_fault(platform: Any, cluster: Any) -> None:
    set_health(platform, cluster, "degraded")
    platform.change_settings(cache_seconds=7200)
    platform.refresh(cluster)
    platform.advance(3600)
    assert platform.refresh(cluster).outs["faults"] == []


def test_a_restart_that_did_not_help_is_not_repeated(platform: Any, cluster: Any) -> None:
    degraded_cluster = degrade_cluster(platform, cluster)
    updated = platform.update(degraded_cluster)
    assert list_writes(platform) == ["POST stop", "POST start"]
    for observed_cluster in (updated, platform.refresh(updated)):
        assert [fault["because"] for fault in observed_cluster.outs["faults"]]
        assert platform.plan(observed_cluster) == {}
        assert "the cluster was restarted at 20" in list_repair_notices(observed_cluster)[0]
        assert "without success" in list_repair_notices(observed_cluster)[0]
    platform.update(platform.refresh(updated))
    assert list_writes(platform) == []
    set_health(platform, cluster, None)
    well = platform.refresh(platform.refresh(updated))
    assert well.outs.get("restarted_at") is None
    platform.make_idle(well)
    assert ROW in platform.plan(degrade_cluster(platform, well))


@pytest.mark.parametrize("last", ["stop", "start"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("is_asked", [False, True])
def test_a_killed_restart_is_resumed(
    platform: Any,
    cluster: Any,
    monkeypatch: pytest.MonkeyPatch,
    last: str,
    after: bool,
    is_asked: bool,
) -> None:
    """The restart request of the killed run may or may not have taken effect."""
    refreshed = cluster
    if is_asked:
        monkeypatch.setenv(REPAIR_VARIABLE, "train")
    else:
        refreshed = degrade_cluster(platform, cluster)
    real = getattr(TensorOneClient, last)

    def dies(*arguments: Any) -> None:
        if after:
            real(*arguments)
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(TensorOneClient, last, dies)
        with pytest.raises(Killed):
            platform.update(refreshed, on_progress=heal_on_restart(platform, cluster))
    set_health(platform, cluster, "degraded" if (last, after) == ("stop", False) else None)
    platform.advance(900)
    refreshed = platform.refresh(refreshed)
    repaired = platform.update(refreshed, on_progress=heal_on_restart(platform, cluster))
    assert list_writes(platform) == ["POST stop", "POST start"]
    assert repaired.outs["status"] == "running"
    monkeypatch.delenv(REPAIR_VARIABLE, raising=False)
    assert platform.plan(platform.refresh(repaired)) == {}


def test_a_cluster_with_an_interrupted_restart_is_broken(
    platform: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hourly `gpuform repair` starts the cluster, although it ignores `state`."""
    refreshed = degrade_cluster(platform, cluster)
    with monkeypatch.context() as patched:
        patched.setattr(TensorOneClient, "start", lambda *_: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            platform.update(refreshed)
    set_health(platform, cluster, None)
    refreshed = platform.refresh(refreshed)
    assert [fault["because"] for fault in refreshed.outs["faults"]] == [
        "the restart was interrupted"
    ]
    assert ROW in platform.plan(refreshed)
    assert platform.update(refreshed).outs["status"] == "running"
    assert read_record(platform, cluster) is None


def test_a_later_manual_stop_is_no_interrupted_restart(
    platform: Any, inputs: Json, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = platform.create({**inputs, "repair": {"approve": "automatic"}})
    platform.make_idle(cluster)
    monkeypatch.setenv(REPAIR_VARIABLE, "train")
    with monkeypatch.context() as patched:
        patched.setattr(Repairs, "record", _die_at_second_call(Repairs.record))
        with pytest.raises(Killed):
            platform.update(cluster)
    monkeypatch.delenv(REPAIR_VARIABLE)
    assert read_record(platform, cluster).repair == "begun"
    platform.advance(7200)
    platform.send("POST", f"{cluster.id}/stop", {})
    platform.advance(3600)
    assert platform.refresh(cluster).outs["faults"] == []


def _die_at_second_call(real: Any) -> Any:
    times = iter((False, True))

    def write(*arguments: Any) -> None:
        if next(times):
            raise Killed
        real(*arguments)

    return write


def test_a_stopped_cluster_is_not_broken(platform: Any, cluster: Any) -> None:
    observed = platform.update(cluster, {**cluster.inputs, "state": "stopped"})
    assert degrade_cluster(platform, observed).outs["faults"] == []


class TestRequestedRepair:
    @pytest.fixture(autouse=True)
    def _request_repair(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(REPAIR_VARIABLE, "train")

    def test_a_requested_cluster_is_restarted(self, platform: Any, inputs: Json) -> None:
        cluster = platform.create(inputs)
        platform.make_idle(cluster)
        platform.take_writes()
        assert platform.plan(cluster)[ROW][:2] == ("in use", "RESTART")
        repaired = platform.update(cluster)
        assert list_writes(platform) == ["POST stop", "POST start"]
        platform.make_idle(cluster)
        platform.update(repaired)
        assert list_writes(platform) == ["POST stop", "POST start"], "asked for once more"

    def test_a_requested_restart_of_a_busy_cluster_is_refused(
        self, platform: Any, inputs: Json
    ) -> None:
        cluster = platform.create(inputs)
        platform.take_writes()
        with pytest.raises(GpuformError, match="a GPU may be used at 5 % or more"):
            platform.update(cluster)
        assert list_writes(platform) == []


@pytest.mark.parametrize(
    ("repair", "path"),
    [
        ({"on": ["not_ready"]}, "repair.on"),
        ({"approve": "never"}, "repair.approve"),
        ({"max_parallel": 1}, "repair.max_parallel"),
    ],
)
def test_invalid_repair_inputs_are_refused(
    platform: Any, inputs: Json, repair: Json, path: str
) -> None:
    (messages,) = platform.find_problems({**inputs, "repair": repair})
    assert messages.startswith(path)
