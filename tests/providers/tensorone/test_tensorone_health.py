"""Test `require_healthy`: a cluster is ready only while the named checks are healthy."""

from typing import Any

import pytest

Json = dict[str, Any]


@pytest.fixture
def healthy_inputs(inputs: Json) -> Json:
    return {**inputs, "require_healthy": ["gpu", "network"]}


def set_checks(platform: Any, id_: str, **words: Any) -> None:
    health_words = {f"{name}_health": word for name, word in words.items()}
    body = {"shown": {"status_details": {"health_checks": health_words}}}
    platform.send_control("POST", f"tensorone/clusters/{id_}", body)


def test_healthy_checks_need_no_wait_and_no_request(platform: Any, healthy_inputs: Json) -> None:
    cluster = platform.create(healthy_inputs)
    assert cluster.outs["ready"] is True
    ((_, body),) = platform.take_writes()
    assert "require_healthy" not in body
    assert platform.plan(platform.refresh(cluster)) == {}


def test_a_create_waits_until_the_checks_are_healthy(platform: Any, healthy_inputs: Json) -> None:
    messages: list[str] = []

    def on_progress(message: str) -> None:
        messages.append(message)
        (cluster,) = platform.list_objects()
        is_degraded = "gpu_health is degraded" in message
        set_checks(platform, cluster["id"], gpu="healthy" if is_degraded else "degraded")

    created = platform.create(healthy_inputs, on_progress=on_progress)
    assert created.outs["ready"] is True, created.outs["not_ready_reason"]
    assert any(
        message.startswith("running; gpu_health is degraded (require_") for message in messages
    )


def test_the_timeout_error_names_the_unhealthy_check(platform: Any, healthy_inputs: Json) -> None:
    cluster = platform.create(healthy_inputs)
    set_checks(platform, cluster.id, network="unreachable", docker="degraded", gpu=None)
    bad = platform.update(cluster, {**healthy_inputs, "tags": {"a": "b"}}, timeout=600.0)
    assert bad.outs["ready"] is False
    reason = bad.outs["not_ready_reason"]
    assert reason.startswith("cluster train: not done after 10m")
    assert reason.endswith(
        "last seen: running; gpu_health is not reported, network_health is unreachable "
        "(require_healthy)"
    )
    assert list(platform.plan(bad)) == ["ready"]
    set_checks(platform, cluster.id)
    assert platform.plan(platform.update(bad)) == {}


def test_a_refresh_reports_a_check_that_became_unhealthy(
    platform: Any, healthy_inputs: Json, inputs: Json
) -> None:
    created, other = (
        platform.create(healthy_inputs),
        platform.create({**inputs, "name": "other"}, "other"),
    )
    for cluster in (created, other):
        set_checks(platform, cluster.id, gpu="degraded")
    refreshed = platform.refresh(created)
    assert refreshed.outs["not_ready_reason"] == "gpu_health is degraded (require_healthy)"
    assert platform.refresh(other).outs["ready"] is True


def test_a_stopped_cluster_has_no_checks(platform: Any, healthy_inputs: Json) -> None:
    cluster = platform.create({**healthy_inputs, "state": "stopped"})
    assert cluster.outs["ready"] is True
    assert platform.plan(platform.refresh(cluster)) == {}


def test_a_change_of_require_healthy_sends_no_request(
    platform: Any, inputs: Json, healthy_inputs: Json
) -> None:
    cluster = platform.create(inputs)
    platform.take_writes()
    plan = platform.plan(cluster, healthy_inputs)
    assert list(plan) == ["require_healthy"]
    changed = platform.update(cluster, healthy_inputs)
    assert platform.take_writes() == []
    assert platform.plan(changed) == {}
    assert platform.plan(changed, {**healthy_inputs, "require_healthy": ["network", "gpu"]}) == {}


@pytest.mark.parametrize("bad", [["gpus"], "gpu", [1], {"gpu": True}])
def test_an_unknown_check_is_refused(platform: Any, inputs: Json, bad: Any) -> None:
    reasons = platform.find_problems({**inputs, "require_healthy": bad})
    assert any(name.startswith("require_healthy") for name in reasons), reasons


@pytest.mark.parametrize("bad", [None, 1, {"a": 1}, "Ok"])
def test_unknown_health_values_do_not_fail_a_refresh(
    platform: Any, healthy_inputs: Json, bad: Any
) -> None:
    cluster = platform.create(healthy_inputs)
    set_checks(platform, cluster.id, gpu=bad)
    assert platform.refresh(cluster).outs["ready"] is False
