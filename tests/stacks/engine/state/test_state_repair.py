"""Test the repair of a state: which faults are repaired, and that each change is reported."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies.snapshot_strategies import PROVIDER, STACK, build_urn, valid_snapshots

from gpuform.stacks.engine.state import ResourceState, Snapshot, repair
from gpuform.stacks.engine.state.edits import NotRepairable, verify

PART = "urn:pulumi:dev::demo::lab:index:Rack$lab:index:Unit$pulumi-python:dynamic:Resource::r3"


def build_resource(number: int, **fields: object) -> ResourceState:
    made = ResourceState(
        build_urn(number),
        True,
        "pulumi-python:dynamic:Resource",
        id=f"i-{number}",
        parent=STACK,
        provider=f"{PROVIDER}::p-1",
    )
    return replace(made, **fields)


def build_snapshot(*entries: ResourceState) -> Snapshot:
    return Snapshot(
        "organization/demo/dev",
        [
            ResourceState(STACK, False, "pulumi:pulumi:Stack"),
            ResourceState(PROVIDER, True, "pulumi:providers:pulumi-python", id="p-1"),
            *entries,
        ],
    )


@pytest.mark.slow
@settings(max_examples=50)
@given(valid_snapshots())
def test_a_valid_state_is_not_changed(snapshot: Snapshot) -> None:
    result = repair(snapshot)
    assert result.done == []
    assert result.snapshot.resources == snapshot.resources


@pytest.mark.slow
@settings(max_examples=50)
@given(valid_snapshots(), st.data())
def test_resources_in_any_order_are_sorted_behind_their_dependencies(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    # Of an old object's references nobody can say whether they mean new or old ones.
    sound = replace(snapshot, resources=[e for e in snapshot.resources if not e.delete])
    shuffled = replace(sound, resources=data.draw(st.permutations(sound.resources)))
    result = repair(shuffled)
    assert verify(result.snapshot) == []
    by_urn = {entry.urn: entry for entry in result.snapshot.resources}
    assert by_urn == {entry.urn: entry for entry in sound.resources}
    assert bool(result.done) == bool(verify(shuffled))


@pytest.mark.slow
@settings(max_examples=50)
@given(valid_snapshots(), st.data())
def test_repair_after_a_missing_entry_keeps_all_other_objects(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(snapshot.resources[2:]))
    remaining_entries = [entry for entry in snapshot.resources if entry.urn != gone.urn]
    result = repair(replace(snapshot, resources=remaining_entries))
    assert verify(result.snapshot) == []
    assert [e.id for e in result.snapshot.resources] == [e.id for e in remaining_entries]


def test_each_repair_is_reported() -> None:
    broken = build_snapshot(
        build_resource(
            1,
            dependencies=[build_urn(2), build_urn(9)],
            property_dependencies={"to": [build_urn(9)]},
        ),
        build_resource(2, deleted_with=build_urn(9), replace_with=[build_urn(9)]),
    )
    broken.manifest.magic = "0" * 64
    result = repair(broken)
    assert [e.urn for e in result.snapshot.resources[2:]] == [build_urn(2), build_urn(1)]
    assert result.snapshot.resources[3].dependencies == [build_urn(2)]
    assert result.done == [
        "the manifest's magic is recomputed",
        f"{build_urn(1)}: moved after its dependencies",
        f"dropped: {build_urn(2)}: replaceWith {build_urn(9)}, which does not exist",
        f"dropped: {build_urn(2)}: deletedWith {build_urn(9)}, which does not exist",
        f"dropped: {build_urn(1)}: dependency {build_urn(9)}, which does not exist",
        (
            f"dropped: {build_urn(1)}: dependency of property 'to' {build_urn(9)}, which does not"
            " exist"
        ),
    ]
    assert verify(result.snapshot) == []


def test_children_of_a_missing_parent_get_new_urns() -> None:
    unit = "urn:pulumi:dev::demo::lab:index:Rack$lab:index:Unit::u"
    rack = "urn:pulumi:dev::demo::lab:index:Rack::r"
    result = repair(
        build_snapshot(
            ResourceState(unit, False, "lab:index:Unit", parent=rack),
            build_resource(3, urn=PART, parent=unit),
            build_resource(4, dependencies=[PART]),
        )
    )
    alone, part, user = result.snapshot.resources[2:]
    assert (alone.urn, alone.parent) == ("urn:pulumi:dev::demo::lab:index:Unit::u", "")
    assert part.parent == alone.urn
    assert part.urn == PART.replace("lab:index:Rack$", "")
    assert user.dependencies == [part.urn]
    assert f"dropped: {unit}: parent {rack}, which does not exist" in result.done
    assert f"{PART} becomes {part.urn}" in result.done


@pytest.mark.parametrize(
    ("entries", "expected_message"),
    [
        ([build_resource(1), build_resource(1, id="i-2")], "occurs twice"),
        ([build_resource(1, provider=f"{PROVIDER}::p-9")], "unknown provider"),
        ([build_resource(1, custom=False)], "not a custom resource, but has an id"),
        (
            [
                build_resource(1, dependencies=[build_urn(2)]),
                build_resource(2, parent=build_urn(1)),
            ],
            "in a cycle",
        ),
    ],
)
def test_a_fault_that_cannot_be_repaired_is_an_error(
    entries: list[ResourceState], expected_message: str
) -> None:
    with pytest.raises(NotRepairable, match=expected_message) as caught:
        repair(build_snapshot(*entries))
    assert "--from-backup" in caught.value.hint


def test_a_dependency_on_itself_is_dropped() -> None:
    result = repair(build_snapshot(build_resource(1, dependencies=[build_urn(1)])))
    assert result.snapshot.resources[2].dependencies == []
    assert result.done == [
        f"dropped: {build_urn(1)}: dependency {build_urn(1)}, which is the resource itself"
    ]


@pytest.mark.slow
def test_a_chain_of_3000_dependencies_is_repaired() -> None:
    chain = [build_resource(n, dependencies=[build_urn(n + 1)]) for n in range(3000)] + [
        build_resource(3000)
    ]
    result = repair(build_snapshot(*chain))
    assert verify(result.snapshot) == []
    assert len(result.snapshot.resources) == 3003
