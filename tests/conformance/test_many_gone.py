"""Test deletions of many objects by others, and clusters that are reported as reserved.

Many missing objects may be another account, project or address, or real deletions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from conformance.aios_kinds import CLUSTER as AIOS_CLUSTER
from conformance.aios_kinds import GPU_NODE as AIOS_NODE
from conformance.emulated import Platform
from conformance.kinds import FAST_KIND
from conformance.stacks import DeclaredResource, EmbeddedStack, Result, declare_one
from conformance.together_kinds import CLUSTER, VOLUME_CLAIM
from hypothesis import given
from hypothesis import strategies as st

from gpuform.providers.context import RunContext
from gpuform.stacks.engine.executing.step_executor import (
    CONFIRMATION_THRESHOLD,
    OutsideDeletion,
    OutsideDeletions,
)
from gpuform.stacks.engine.planning import Op, Step
from gpuform.stacks.engine.state import ResourceState

pytestmark = [pytest.mark.slow, pytest.mark.sampled(6)]


def declare_volumes(number: int) -> list[DeclaredResource]:
    return [
        DeclaredResource(f"v{at}", FAST_KIND, FAST_KIND.build_numbered_inputs(at))
        for at in range(number)
    ]


def create_objects(stack: EmbeddedStack, declared: Sequence[DeclaredResource]) -> set[str]:
    result = stack.apply(*declared)
    assert result.ok, result.errors
    return stack.ids


Run = Callable[[EmbeddedStack, Sequence[DeclaredResource]], Result]

RUNS: dict[str, Run] = {
    "refresh": lambda stack, _: stack.refresh(),
    "preview-refresh": lambda stack, declared: stack.run(
        "update", *declared, preview=True, refresh=True
    ),
    "up-refresh": lambda stack, declared: stack.run("update", *declared, refresh=True),
    "up-without-them": lambda stack, _: stack.apply(),
    "destroy": lambda stack, _: stack.destroy(),
    "destroy-refresh": lambda stack, _: stack.run("destroy", refresh=True),
}

runs = pytest.mark.parametrize("run", [pytest.param(run, id=name) for name, run in RUNS.items()])


@pytest.mark.sampled(5)
@runs
def test_three_deleted_objects_are_kept_in_the_state_and_reported(
    run: Run, embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = declare_volumes(3)
    ids = create_objects(embedded, declared)
    platform.delete_without_trace(FAST_KIND)
    result = run(embedded, declared)
    assert not result.ok
    assert embedded.ids == ids
    (message,) = [error for error in result.errors if "no longer exist on their platforms" in error]
    for word in ("v0, v1, v2", "key of another account", "base URL", "--allow forget-many"):
        assert word in message
    assert platform.list_objects(FAST_KIND) == []


@pytest.mark.sampled(5)
@runs
def test_three_deleted_objects_are_forgotten_with_permission(
    run: Run, embedded: EmbeddedStack, platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared = declare_volumes(3)
    ids = create_objects(embedded, declared)
    platform.delete_without_trace(FAST_KIND)
    monkeypatch.setenv("GPUFORM_ALLOW", "forget-many")
    result = run(embedded, declared)
    assert result.ok, result.errors
    assert embedded.ids == (ids if run is RUNS["preview-refresh"] else platform.list_ids(FAST_KIND))


@pytest.mark.sampled(3)
@runs
def test_two_deleted_objects_are_forgotten_without_permission(
    run: Run, embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = declare_volumes(2)
    ids = create_objects(embedded, declared)
    platform.delete_without_trace(FAST_KIND)
    assert run(embedded, declared).ok
    assert embedded.ids == (ids if run is RUNS["preview-refresh"] else platform.list_ids(FAST_KIND))


def test_a_destroy_deletes_existing_objects_and_keeps_missing_ones_in_the_state(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = declare_volumes(5)
    create_objects(embedded, declared)
    existing_ids = {embedded.get_state("v0").id, embedded.get_state("v4").id}
    for id_ in embedded.ids - existing_ids:
        platform.send(FAST_KIND, FAST_KIND.outside_delete.fill_ids(id_))
    platform.advance(7200)
    result = embedded.destroy()
    assert not result.ok
    assert "v1, v2, v3" in result.errors[0]
    assert platform.list_ids(FAST_KIND) == set()
    assert len(embedded.resources) == 3
    assert not embedded.pending_operations
    retained_urns = [
        resource.urn for resource in embedded.snapshot.resources if not resource.custom
    ]
    assert len(retained_urns) == 1  # the stack, whose resources they are
    assert not embedded.destroy().ok
    embedded.refresh()
    assert len(embedded.resources) == 3


def test_objects_deleted_by_the_run_itself_need_no_permission(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    create_objects(embedded, declare_volumes(6))
    assert embedded.destroy().ok
    assert platform.list_ids(FAST_KIND) == set()


def test_a_replacement_of_missing_objects_stops_before_the_third(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = declare_volumes(4)
    create_objects(embedded, declared)
    platform.delete_without_trace(FAST_KIND)
    moved = [
        DeclaredResource(error.name, FAST_KIND, {**error.inputs, "region": "us-east-2"})
        for error in declared
    ]
    result = embedded.apply(*moved)
    assert not result.ok
    assert any("--allow forget-many" in error for error in result.errors)
    assert len(platform.list_ids(FAST_KIND)) < CONFIRMATION_THRESHOLD
    assert len(embedded.resources) == 4


def test_claims_of_a_deleted_cluster_are_forgotten_with_it(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    """Five objects are gone, and one of them explains the others."""
    of = {**VOLUME_CLAIM.valid_inputs, "cluster_id": {"resource": "train"}}
    claims = [DeclaredResource(f"c{at}", VOLUME_CLAIM, {**of, "name": f"c{at}"}) for at in range(4)]
    create_objects(embedded, [DeclaredResource("train", CLUSTER, CLUSTER.valid_inputs), *claims])
    platform.delete_without_trace(CLUSTER)
    result = embedded.refresh()
    assert result.ok, result.errors
    assert embedded.resources == []


def test_deleted_claims_of_an_existing_cluster_need_permission(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    of = {**VOLUME_CLAIM.valid_inputs, "cluster_id": {"resource": "train"}}
    claims = [DeclaredResource(f"c{at}", VOLUME_CLAIM, {**of, "name": f"c{at}"}) for at in range(3)]
    create_objects(embedded, [DeclaredResource("train", CLUSTER, CLUSTER.valid_inputs), *claims])
    platform.delete_without_trace(VOLUME_CLAIM)
    assert not embedded.refresh().ok
    assert len(embedded.resources) == 4
    assert not embedded.destroy().ok
    assert len(embedded.resources) == 3
    assert platform.list_ids(CLUSTER) == set()


def test_nodes_of_a_deleted_record_are_forgotten_with_it(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    names = ("cluster_id", "region_id", "config", "tags", "cluster_metadata")
    empty = {name: AIOS_CLUSTER.valid_inputs[name] for name in names}
    record = DeclaredResource("west", AIOS_CLUSTER, empty)
    of = {**AIOS_NODE.valid_inputs, "cluster_id": {"resource": "west"}}
    nodes = [DeclaredResource(f"n{at}", AIOS_NODE, {**of, "node_id": f"n{at}"}) for at in range(4)]
    create_objects(embedded, [record, *nodes])
    platform.delete_without_trace(AIOS_CLUSTER)
    result = embedded.destroy()
    assert result.ok, result.errors
    assert embedded.resources == []


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9))))
def test_deleted_objects_are_forgotten_all_or_none(result: list[tuple[int, int]]) -> None:
    """Each entry is its own cause, or was deleted with another one."""
    entries = OutsideDeletions(RunContext({}))
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

    return lambda: platform.rewrite_answers(rewrite)


def test_a_cluster_reported_as_reserved_is_deleted_only_with_permission(
    embedded: EmbeddedStack,
    platform: Platform,
    reserved: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    create_objects(embedded, [declare_one(CLUSTER)])
    moved = declare_one(CLUSTER, CLUSTER.replacing.inputs)
    platform.forget_requests()
    with reserved():
        for run in (embedded.destroy, lambda: embedded.apply(moved), embedded.apply):
            result = run()
            assert not result.ok
            assert "the platform reports this" in result.errors[0]
            assert "--allow destroy-reserved" in result.errors[0]
        assert platform.list_requests("DELETE") == []
        assert platform.list_ids(CLUSTER) == embedded.ids
        monkeypatch.setenv("GPUFORM_ALLOW", "destroy-reserved")
        assert embedded.destroy().ok
    assert platform.list_ids(CLUSTER) == set()


def test_a_cluster_that_cannot_be_read_is_not_deleted(
    embedded: EmbeddedStack, platform: Platform
) -> None:
    create_objects(embedded, [declare_one(CLUSTER)])
    platform.forget_requests()
    platform.add_fault("GET", CLUSTER.object_path, status=500, count=None)
    assert not embedded.destroy().ok
    assert platform.list_requests("DELETE") == []
    platform.remove_faults()
    assert embedded.destroy().ok
