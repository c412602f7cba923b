"""Test the integrity rules: random valid snapshots pass, and each injected fault is reported."""

from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies.snapshot_strategies import PROVIDER, STACK, build_urn, valid_snapshots

from gpuform.stacks.engine.state import IntegrityError, Manifest, ResourceState, Snapshot
from gpuform.stacks.engine.state.edits import check, verify
from gpuform.stacks.engine.urn import type_of

pytestmark = pytest.mark.slow


@given(valid_snapshots())
def test_valid_snapshots_have_no_problems(snapshot: Snapshot) -> None:
    assert verify(snapshot) == []
    check(snapshot)


def _add_missing_parent(snapshot: Snapshot, state: ResourceState) -> None:
    state.parent = build_urn(99)


def _add_missing_dependency(snapshot: Snapshot, state: ResourceState) -> None:
    state.dependencies = [*state.dependencies, build_urn(99)]


def _add_missing_property_dependency(snapshot: Snapshot, state: ResourceState) -> None:
    state.property_dependencies = {"gpus": [build_urn(99)]}


def _add_missing_deleted_with(snapshot: Snapshot, state: ResourceState) -> None:
    state.deleted_with = build_urn(99)


def _add_missing_replace_with(snapshot: Snapshot, state: ResourceState) -> None:
    state.replace_with = [build_urn(99)]


def _add_dependency_on_itself(snapshot: Snapshot, state: ResourceState) -> None:
    first = next(s for s in snapshot.resources if s.urn == state.urn)
    first.dependencies = [first.urn]


def _duplicate_resource(snapshot: Snapshot, state: ResourceState) -> None:
    state.delete = False
    snapshot.resources.append(deepcopy(state))


def _change_provider_id(snapshot: Snapshot, state: ResourceState) -> None:
    state.provider, state.pending_replacement = f"{PROVIDER}::p-2", False


def _add_id_to_component(snapshot: Snapshot, state: ResourceState) -> None:
    state.custom, state.id = False, "i"


def _remove_urn(snapshot: Snapshot, state: ResourceState) -> None:
    snapshot.resources.append(ResourceState("", True, "t"))


def _remove_type(snapshot: Snapshot, state: ResourceState) -> None:
    state.type = ""


def _remove_id(snapshot: Snapshot, state: ResourceState) -> None:
    state.custom, state.id = True, ""


def _change_type(snapshot: Snapshot, state: ResourceState) -> None:
    state.type = "my:mod:Other"


def _remove_name(snapshot: Snapshot, state: ResourceState) -> None:
    state.urn = "r1"


def _change_manifest_magic(snapshot: Snapshot, state: ResourceState) -> None:
    snapshot.manifest.magic = "0" * 64


def _move_parent_behind_child(snapshot: Snapshot, state: ResourceState) -> None:
    snapshot.resources.append(snapshot.resources.pop(0))
    snapshot.resources[1].parent = STACK


FAULTS = {
    _add_missing_parent: r"parent .*::r99 is missing",
    _add_missing_dependency: r"dependency .*::r99 is missing",
    _add_missing_property_dependency: r"property 'gpus', .*::r99 is missing",
    _add_missing_deleted_with: r"deletedWith .*::r99 is missing",
    _add_missing_replace_with: r"replaceWith .*::r99 is missing",
    _add_dependency_on_itself: r"dependency .* comes after it",
    _duplicate_resource: r"occurs twice",
    _change_provider_id: r"unknown provider .*::p-2",
    _add_id_to_component: r"not a custom resource, but has an id",
    _remove_urn: r"has no urn",
    _remove_type: r"has no type",
    _remove_id: r"has no id",
    _change_type: r"type my:mod:Other, which differs from the type in its URN",
    _remove_name: r"r1 is not a URN",
    _change_manifest_magic: r"magic does not match",
    _move_parent_behind_child: r"parent .*Stack::demo-dev comes after it",
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__.strip("_"))
@settings(max_examples=25)
@given(snapshot=valid_snapshots(), data=st.data())
def test_each_injected_fault_is_reported(fault, snapshot: Snapshot, data) -> None:
    state = data.draw(st.sampled_from(snapshot.resources[2:]))
    fault(snapshot, state)
    with pytest.raises(IntegrityError, match=FAULTS[fault]) as caught:
        check(snapshot)
    assert ".bak" in caught.value.hint


@given(snapshot=valid_snapshots(), data=st.data())
def test_swapped_neighbours_are_reported_if_the_second_depends_on_the_first(
    snapshot: Snapshot, data
) -> None:
    resources = snapshot.resources
    at = data.draw(st.integers(1, len(resources) - 1))
    first, second = resources[at - 1], resources[at]
    needed = {second.parent, second.deleted_with, *second.dependencies, *second.replace_with}
    needed.update(*second.property_dependencies.values())
    uses_provider = second.provider == f"{first.urn}::{first.id}"
    needs = (first.urn in needed and first.urn != second.urn) or (
        uses_provider and not second.pending_replacement
    )
    resources[at - 1], resources[at] = second, first
    # An older copy of the same resource may stand before both and still satisfy the reference.
    still_there = first.urn in {state.urn for state in resources[: at - 1]} and not uses_provider
    assert bool(verify(snapshot)) == (needs and not still_there)


def test_several_faults_are_reported_together() -> None:
    type_ = type_of(build_urn(0))
    states = [
        ResourceState(build_urn(n), False, type_, id="i", parent=build_urn(99)) for n in range(3)
    ]
    assert len(verify(Snapshot("s", states))) == 6


def test_a_manifest_without_version_and_magic_is_valid() -> None:
    manifest = Manifest("2026-01-01T00:00:00Z", version="")
    assert manifest.magic == ""
    assert verify(Snapshot("s", manifest=manifest)) == []


def test_a_urn_may_have_only_entries_pending_deletion() -> None:
    old = ResourceState(build_urn(1), False, type_of(build_urn(1)), delete=True)
    assert verify(Snapshot("s", [old, deepcopy(old)])) == []
