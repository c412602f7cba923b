"""Test many objects that are gone at once: another account, project or address, or real deletions.

And what the platform shows as guarded, whatever the state says of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from conformance.aios_kinds import CLUSTER as AIOS_CLUSTER
from conformance.aios_kinds import GPU_NODE as AIOS_NODE
from conformance.emulated import Platform
from conformance.kinds import FAST
from conformance.stacks import Declared, EmbeddedStack, Result, thing
from conformance.together_kinds import CLUSTER, VOLUME_CLAIM
from hypothesis import given
from hypothesis import strategies as st

from gpuform.stacks.engine.executing.deleted_outside import (
    CONFIRMATION_THRESHOLD,
    OutsideDeletion,
    OutsideDeletions,
)
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState

pytestmark = [pytest.mark.slow, pytest.mark.sampled(6)]


def declare_volumes(number: int) -> list[Declared]:
    return [Declared(f"v{at}", FAST, FAST.numbered(at)) for at in range(number)]


def create_objects(stack: EmbeddedStack, declared: Sequence[Declared]) -> set[str]:
    result = stack.up(*declared)
    assert result.ok, result.errors
    return stack.ids


Run = Callable[[EmbeddedStack, Sequence[Declared]], Result]

RUNS: dict[str, Run] = {
    "refresh": lambda stack, _: stack.refresh(),
    "preview-refresh": lambda stack, declared: stack.run(
        "update", *declared, preview=True, refresh=True
    ),
    "up-refresh": lambda stack, declared: stack.run("update", *declared, refresh=True),
    "up-without-them": lambda stack, _: stack.up(),
    "destroy": lambda stack, _: stack.destroy(),
    "destroy-refresh": lambda stack, _: stack.run("destroy", refresh=True),
}

runs = pytest.mark.parametrize("run", [pytest.param(run, id=name) for name, run in RUNS.items()])


@runs
def test_three_that_are_gone_are_kept_and_told(
    run: Run, embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = declare_volumes(3)
    ids = create_objects(embedded, declared)
    platform.vanish(FAST)
    result = run(embedded, declared)
    assert not result.ok
    assert embedded.ids == ids
    (message,) = [error for error in result.errors if "no longer exist on their platforms" in error]
    for word in ("v0, v1, v2", "key of another account", "base URL", "--allow forget-many"):
        assert word in message
    assert platform.objects(FAST) == []


@runs
def test_they_are_forgotten_with_permission(
    run: Run, embedded: EmbeddedStack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = declare_volumes(3)
    ids = create_objects(embedded, declared)
    platform.vanish(FAST)
    monkeypatch.setenv("GPUFORM_ALLOW", "forget-many")
    result = run(embedded, declared)
    assert result.ok, result.errors
    assert embedded.ids == (ids if run is RUNS["preview-refresh"] else platform.ids(FAST))


@runs
def test_two_are_forgotten_as_ever(run: Run, embedded: EmbeddedStack, platform: Platform) -> None:
    declared = declare_volumes(2)
    ids = create_objects(embedded, declared)
    platform.vanish(FAST)
    assert run(embedded, declared).ok
    assert embedded.ids == (ids if run is RUNS["preview-refresh"] else platform.ids(FAST))


def test_a_destroy_deletes_what_is_there_and_keeps_what_is_gone(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = declare_volumes(5)
    create_objects(embedded, declared)
    existing_ids = {embedded.state("v0").id, embedded.state("v4").id}
    for id_ in embedded.ids - existing_ids:
        platform.send(FAST, FAST.delete_behind.of(id_))
    platform.advance(7200)
    result = embedded.destroy()
    assert not result.ok
    assert "v1, v2, v3" in result.errors[0]
    assert platform.ids(FAST) == set()
    assert len(embedded.resources) == 3
    assert not embedded.pending
    retained_urns = [
        resource.urn for resource in embedded.snapshot.resources if not resource.custom
    ]
    assert len(retained_urns) == 1  # the stack, whose resources they are
    assert not embedded.destroy().ok
    embedded.refresh()
    assert len(embedded.resources) == 3


def test_what_is_deleted_by_the_run_is_not_counted(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    create_objects(embedded, declare_volumes(6))
    assert embedded.destroy().ok
    assert platform.ids(FAST) == set()


def test_a_replacement_makes_no_third_one_anew(embedded: EmbeddedStack, platform: Platform) -> None:
    declared = declare_volumes(4)
    create_objects(embedded, declared)
    platform.vanish(FAST)
    moved = [
        Declared(error.name, FAST, {**error.inputs, "region": "us-east-2"}) for error in declared
    ]
    result = embedded.up(*moved)
    assert not result.ok
    assert any("--allow forget-many" in error for error in result.errors)
    assert len(platform.ids(FAST)) < CONFIRMATION_THRESHOLD
    assert len(embedded.resources) == 4


def test_claims_fall_with_their_cluster(embedded: EmbeddedStack, platform: Platform) -> None:
    """Five objects are gone, and one of them explains the others."""
    of = {**VOLUME_CLAIM.good, "cluster_id": {"resource": "train"}}
    claims = [Declared(f"c{at}", VOLUME_CLAIM, {**of, "name": f"c{at}"}) for at in range(4)]
    create_objects(embedded, [Declared("train", CLUSTER, CLUSTER.good), *claims])
    platform.vanish(CLUSTER)
    result = embedded.refresh()
    assert result.ok, result.errors
    assert embedded.resources == []


def test_claims_whose_cluster_stands_count_each(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    of = {**VOLUME_CLAIM.good, "cluster_id": {"resource": "train"}}
    claims = [Declared(f"c{at}", VOLUME_CLAIM, {**of, "name": f"c{at}"}) for at in range(3)]
    create_objects(embedded, [Declared("train", CLUSTER, CLUSTER.good), *claims])
    platform.vanish(VOLUME_CLAIM)
    assert not embedded.refresh().ok
    assert len(embedded.resources) == 4
    assert not embedded.destroy().ok
    assert len(embedded.resources) == 3
    assert platform.ids(CLUSTER) == set()


def test_nodes_fall_with_their_record(embedded: EmbeddedStack, platform: Platform) -> None:
    names = ("cluster_id", "region_id", "config", "tags", "cluster_metadata")
    empty = {name: AIOS_CLUSTER.good[name] for name in names}
    record = Declared("west", AIOS_CLUSTER, empty)
    of = {**AIOS_NODE.good, "cluster_id": {"resource": "west"}}
    nodes = [Declared(f"n{at}", AIOS_NODE, {**of, "node_id": f"n{at}"}) for at in range(4)]
    create_objects(embedded, [record, *nodes])
    platform.vanish(AIOS_CLUSTER)
    result = embedded.destroy()
    assert result.ok, result.errors
    assert embedded.resources == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_all_are_forgotten_or_none(result: list[tuple[int, int]]) -> None:
    """Each entry is its own cause, or was deleted with another one."""
    entries = OutsideDeletions()
    steps = []
    for number, cause in result:
        urn = f"urn:pulumi:dev::p::t::r{number}"
        entry = ResourceState(urn, True, "t", id=str(number))
        steps.append(Step(Op.DELETE, urn, entry))
        entries.add(OutsideDeletion(steps[-1], entry, str(cause), 0.0))
    assert all(entries.contains_step(step) for step in steps)
    taken, refusal = entries.take_all()
    assert [item.step for item in taken] == steps
    assert (refusal is not None) == (len({cause for _, cause in result}) >= CONFIRMATION_THRESHOLD)
    assert entries.take_all() == ([], None)


@pytest.fixture
def reserved(platform: Platform) -> Any:
    """Show every cluster as RESERVED."""

    def rewrite(_method: str, path: str, answer: Any) -> Any:
        for cluster in answer.get("clusters", [answer]) if "/compute/clusters" in path else ():
            if "billing_type" in cluster:
                cluster["billing_type"] = "RESERVED"
        return answer

    return lambda: platform.answering(rewrite)


def test_a_guard_is_the_platforms_word(
    embedded: EmbeddedStack,
    platform: Platform,
    reserved: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_objects(embedded, [thing(CLUSTER)])
    moved = thing(CLUSTER, CLUSTER.replacing.inputs)
    platform.forget_requests()
    with reserved():
        for run in (embedded.destroy, lambda: embedded.up(moved), embedded.up):
            result = run()
            assert not result.ok
            assert "the platform reports so" in result.errors[0]
            assert "--allow destroy-reserved" in result.errors[0]
        assert platform.requests("DELETE") == []
        assert platform.ids(CLUSTER) == embedded.ids
        monkeypatch.setenv("GPUFORM_ALLOW", "destroy-reserved")
        assert embedded.destroy().ok
    assert platform.ids(CLUSTER) == set()


def test_a_guard_that_cannot_be_looked_at_holds(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    create_objects(embedded, [thing(CLUSTER)])
    platform.forget_requests()
    platform.fault("GET", CLUSTER.own, status=500, count=None)
    assert not embedded.destroy().ok
    assert platform.requests("DELETE") == []
    platform.heal()
    assert embedded.destroy().ok
