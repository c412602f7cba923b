"""`require_healthy`: a cluster is ready only while the checks that it names are healthy."""

from typing import Any

import pytest

Json = dict[str, Any]


@pytest.fixture
def wanted(inputs: Json) -> Json:
    return {**inputs, "require_healthy": ["gpu", "network"]}


def checks(world: Any, id_: str, **words: Any) -> None:
    found = {f"{name}_health": word for name, word in words.items()}
    body = {"shown": {"status_details": {"health_checks": found}}}
    world.control("POST", f"tensorone/clusters/{id_}", body)


def test_healthy_ones_are_not_waited_for_and_nothing_is_sent(world: Any, wanted: Json) -> None:
    made = world.create(wanted)
    assert made.outs["ready"] is True
    ((_, body),) = world.writes()
    assert "require_healthy" not in body
    assert world.plan(world.refresh(made)) == {}


def test_a_create_waits_until_they_are_healthy(world: Any, wanted: Json) -> None:
    told: list[str] = []

    def on_progress(text: str) -> None:
        told.append(text)
        (cluster,) = world.objects()
        is_seen = "gpu_health is degraded" in text
        checks(world, cluster["id"], gpu="healthy" if is_seen else "degraded")

    made = world.create(wanted, on_progress=on_progress)
    assert made.outs["ready"] is True, made.outs["not_ready_reason"]
    assert any(text.startswith("running; gpu_health is degraded (require_") for text in told)


def test_one_that_stays_bad_is_named_when_the_time_is_over(world: Any, wanted: Json) -> None:
    made = world.create(wanted)
    checks(world, made.id, network="unreachable", docker="degraded", gpu=None)
    bad = world.update(made, {**wanted, "tags": {"a": "b"}}, timeout=600.0)
    assert bad.outs["ready"] is False
    reason = bad.outs["not_ready_reason"]
    assert reason.startswith("cluster train: not done after 10m")
    assert reason.endswith(
        "last seen: running; gpu_health is not reported, network_health is unreachable "
        "(require_healthy)"
    )
    assert list(world.plan(bad)) == ["ready"]
    checks(world, made.id)
    assert world.plan(world.update(bad)) == {}


def test_a_refresh_sees_one_that_has_become_bad(world: Any, wanted: Json, inputs: Json) -> None:
    made, other = world.create(wanted), world.create({**inputs, "name": "other"}, "other")
    for each in (made, other):
        checks(world, each.id, gpu="degraded")
    seen = world.refresh(made)
    assert seen.outs["not_ready_reason"] == "gpu_health is degraded (require_healthy)"
    assert world.refresh(other).outs["ready"] is True


def test_a_stopped_cluster_has_no_checks(world: Any, wanted: Json) -> None:
    made = world.create({**wanted, "state": "stopped"})
    assert made.outs["ready"] is True
    assert world.plan(world.refresh(made)) == {}


def test_a_change_of_it_alone_sends_nothing(world: Any, inputs: Json, wanted: Json) -> None:
    made = world.create(inputs)
    world.writes()
    plan = world.plan(made, wanted)
    assert list(plan) == ["require_healthy"]
    changed = world.update(made, wanted)
    assert world.writes() == []
    assert world.plan(changed) == {}
    assert world.plan(changed, {**wanted, "require_healthy": ["network", "gpu"]}) == {}


@pytest.mark.parametrize("bad", [["gpus"], "gpu", [1], {"gpu": True}])
def test_what_is_no_check_is_refused(world: Any, inputs: Json, bad: Any) -> None:
    found = world.problems({**inputs, "require_healthy": bad})
    assert any(name.startswith("require_healthy") for name in found), found


@pytest.mark.parametrize("bad", [None, 1, {"a": 1}, "Ok"])
def test_odd_words_spoil_no_refresh(world: Any, wanted: Json, bad: Any) -> None:
    made = world.create(wanted)
    checks(world, made.id, gpu=bad)
    assert world.refresh(made).outs["ready"] is False
