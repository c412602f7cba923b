"""Repairing a state: what can be put right is, and nothing is lost silently."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sound_snapshots import PROVIDER, STACK, snapshots, urn

from gpuform.stacks.engine.state import ResourceState, Snapshot, repair
from gpuform.stacks.engine.state.edits import NotRepairable, verify

PART = "urn:pulumi:dev::demo::lab:index:Rack$lab:index:Unit$pulumi-python:dynamic:Resource::r3"


def resource(number: int, **fields: object) -> ResourceState:
    made = ResourceState(
        urn(number),
        True,
        "pulumi-python:dynamic:Resource",
        id=f"i-{number}",
        parent=STACK,
        provider=f"{PROVIDER}::p-1",
    )
    return replace(made, **fields)


def state(*entries: ResourceState) -> Snapshot:
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
@given(snapshots())
def test_a_sound_state_stays_as_it_is(snapshot: Snapshot) -> None:
    result = repair(snapshot)
    assert result.done == []
    assert result.snapshot.resources == snapshot.resources


@pytest.mark.slow
@settings(max_examples=50)
@given(snapshots(), st.data())
def test_any_order_is_put_right(snapshot: Snapshot, data: st.DataObject) -> None:
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
@given(snapshots(), st.data())
def test_whatever_is_missing_no_object_is_forgotten(
    snapshot: Snapshot, data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(snapshot.resources[2:]))
    left = [entry for entry in snapshot.resources if entry.urn != gone.urn]
    result = repair(replace(snapshot, resources=left))
    assert verify(result.snapshot) == []
    assert [e.id for e in result.snapshot.resources] == [e.id for e in left]


def test_what_was_done_is_told() -> None:
    broken = state(
        resource(1, dependencies=[urn(2), urn(9)], property_dependencies={"to": [urn(9)]}),
        resource(2, deleted_with=urn(9), replace_with=[urn(9)]),
    )
    broken.manifest.magic = "0" * 64
    result = repair(broken)
    assert [e.urn for e in result.snapshot.resources[2:]] == [urn(2), urn(1)]
    assert result.snapshot.resources[3].dependencies == [urn(2)]
    assert result.done == [
        "the manifest's magic is recomputed",
        f"{urn(1)}: moved behind its dependencies",
        f"dropped: {urn(2)}: replaceWith {urn(9)}, which does not exist",
        f"dropped: {urn(2)}: deletedWith {urn(9)}, which does not exist",
        f"dropped: {urn(1)}: dependency {urn(9)}, which does not exist",
        f"dropped: {urn(1)}: dependency of property 'to' {urn(9)}, which does not exist",
    ]
    assert verify(result.snapshot) == []


def test_children_of_what_is_missing_get_other_urns() -> None:
    unit = "urn:pulumi:dev::demo::lab:index:Rack$lab:index:Unit::u"
    rack = "urn:pulumi:dev::demo::lab:index:Rack::r"
    result = repair(
        state(
            ResourceState(unit, False, "lab:index:Unit", parent=rack),
            resource(3, urn=PART, parent=unit),
            resource(4, dependencies=[PART]),
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
    ("entries", "said"),
    [
        ([resource(1), resource(1, id="i-2")], "occurs twice"),
        ([resource(1, provider=f"{PROVIDER}::p-9")], "unknown provider"),
        ([resource(1, custom=False)], "not custom but has an id"),
        ([resource(1, dependencies=[urn(2)]), resource(2, parent=urn(1))], "in a cycle"),
    ],
)
def test_what_cannot_be_repaired_is_told(entries: list[ResourceState], said: str) -> None:
    with pytest.raises(NotRepairable, match=said) as caught:
        repair(state(*entries))
    assert "--from-backup" in caught.value.hint


def test_what_needs_itself_does_no_more() -> None:
    result = repair(state(resource(1, dependencies=[urn(1)])))
    assert result.snapshot.resources[2].dependencies == []
    assert result.done == [f"dropped: {urn(1)}: dependency {urn(1)}, which is the resource itself"]


@pytest.mark.slow
def test_a_long_chain_is_no_problem() -> None:
    chain = [resource(n, dependencies=[urn(n + 1)]) for n in range(3000)] + [resource(3000)]
    result = repair(state(*chain))
    assert verify(result.snapshot) == []
    assert len(result.snapshot.resources) == 3003
