"""Test moving resources between states: no object is lost, and both states stay valid."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies.snapshot_strategies import PROVIDER, STACK, valid_snapshots

from gpuform.providers.values import Secret
from gpuform.stacks.engine.state import Move, PendingOperation, ResourceState, Snapshot, move
from gpuform.stacks.engine.state.edits import EditRefused, verify

TYPE = "pulumi-python:dynamic/lab:Machine"
PROD = "organization/demo/prod"
PROD_PROVIDER = PROVIDER.replace(":dev::", ":prod::")
PROD_STACK = "urn:pulumi:prod::demo::pulumi:pulumi:Stack::demo-prod"


def build_machine(name: str, **fields: object) -> ResourceState:
    made = ResourceState(
        f"urn:pulumi:dev::demo::{TYPE}::{name}",
        True,
        TYPE,
        id=f"m-{name}",
        parent=STACK,
        provider=f"{PROVIDER}::p-1",
    )
    return replace(made, **fields)


A, B = build_machine("a").urn, build_machine("b").urn
CHILD = f"urn:pulumi:dev::demo::{TYPE}${TYPE}::c"


def build_provider(**fields: object) -> ResourceState:
    made = ResourceState(PROVIDER, True, "pulumi:providers:pulumi-python", id="p-1")
    return replace(made, **fields)


@pytest.fixture
def source() -> Snapshot:
    """Return a state in which b depends on a, and c is a child of a."""
    return Snapshot(
        "organization/demo/dev",
        [
            ResourceState(STACK, False, "pulumi:pulumi:Stack"),
            build_provider(inputs={"demo:token": Secret("hunter2"), "demo:size": "1"}),
            build_machine("a"),
            build_machine("b", dependencies=[A], property_dependencies={"to": [A], "size": []}),
            build_machine("c", urn=CHILD, parent=A),
        ],
    )


@pytest.fixture
def empty() -> Snapshot:
    return Snapshot(PROD)


def move_resource(
    source: Snapshot, dest: Snapshot, *urns: str, name: str = PROD, include_parents: bool = False
) -> Move:
    done = move(source, dest, name, urns, include_parents=include_parents)
    assert verify(done.source) == []
    assert verify(done.dest) == []
    return done


def test_children_and_providers_are_moved_along(source: Snapshot, empty: Snapshot) -> None:
    done = move_resource(source, empty, A)
    root, copied, a, c = done.dest.resources
    assert (root.urn, root.type) == (PROD_STACK, "pulumi:pulumi:Stack")
    assert (copied.urn, copied.id) == (PROD_PROVIDER, "p-1")
    assert copied.inputs == source.resources[1].inputs
    assert (a.urn, a.id, a.parent) == (A.replace("dev", "prod"), "m-a", PROD_STACK)
    assert (c.urn, c.parent) == (CHILD.replace("dev", "prod"), a.urn)
    assert a.provider == c.provider == f"{PROD_PROVIDER}::p-1"
    assert done.urns == {A: a.urn, CHILD: c.urn}
    assert [e.urn for e in done.source.resources] == [STACK, PROVIDER, B]
    assert done.source.resources[2].dependencies == []
    assert done.source.resources[2].property_dependencies == {"to": [], "size": []}
    assert [(d.entry, d.role, d.urn) for d in done.dropped_here] == [
        (B, "dependency", A),
        (B, "dependency of property 'to'", A),
    ]
    assert done.dropped_there == []
    assert [e.urn for e in source.resources] == [STACK, PROVIDER, A, B, CHILD]
    assert source.resources[3].dependencies == [A]


def test_a_move_that_was_killed_between_its_two_writes_is_completed(
    source: Snapshot, empty: Snapshot
) -> None:
    first = move_resource(source, empty, A)

    repeated = move_resource(source, first.dest, A)

    assert repeated.dest == first.dest
    assert repeated.source.resources == first.source.resources


def test_references_between_moved_and_remaining_resources_are_dropped(
    source: Snapshot, empty: Snapshot
) -> None:
    done = move_resource(source, empty, B, name="organization/other/prod")
    assert [d.urn for d in done.dropped_there] == [A, A]
    (b,) = (e for e in done.dest.resources if e.type == TYPE)
    assert b.urn == f"urn:pulumi:prod::other::{TYPE}::b"
    assert b.dependencies == []
    assert done.dest.resources[0].urn.endswith("::other-prod")


def test_parents_are_moved_with_include_parents(source: Snapshot, empty: Snapshot) -> None:
    alone = move_resource(source, empty, CHILD)
    assert [e.id for e in alone.dest.resources] == ["", "p-1", "m-c"]
    assert alone.dest.resources[-1].parent == PROD_STACK
    together = move_resource(source, empty, CHILD, include_parents=True)
    assert [e.id for e in together.dest.resources] == ["", "p-1", "m-a", "m-c"]


def test_moving_the_stack_resource_moves_all_resources(source: Snapshot, empty: Snapshot) -> None:
    done = move_resource(source, empty, STACK)
    assert [e.urn for e in done.source.resources] == [STACK, PROVIDER]
    assert len(done.dest.resources) == 5


class TestProviders:
    def dest(self, source: Snapshot, **fields: object) -> Snapshot:
        theirs = build_provider(**{"urn": PROD_PROVIDER, "id": "p-2", **fields})
        return Snapshot(PROD, [ResourceState(PROD_STACK, False, "pulumi:pulumi:Stack"), theirs])

    def test_a_provider_with_the_same_configuration_is_reused(self, source: Snapshot) -> None:
        inputs = {"demo:token": Secret("hunter2"), "demo:size": "1"}
        done = move_resource(source, self.dest(source, inputs=inputs), A)
        assert done.borrowed == []
        assert [e.id for e in done.dest.resources] == ["", "p-2", "m-a", "m-c"]
        assert done.dest.resources[2].provider == f"{PROD_PROVIDER}::p-2"

    def test_a_default_provider_is_copied_and_reported(self, source: Snapshot) -> None:
        done = move_resource(source, self.dest(source, inputs={"demo:size": "2"}), A)
        assert done.borrowed == [PROD_PROVIDER]
        assert done.dest.resources[2].provider == f"{PROD_PROVIDER}::p-2"

    def test_a_default_provider_with_another_configuration_is_refused(
        self, source: Snapshot
    ) -> None:
        aws = "pulumi:providers:aws"
        there = self.dest(source, type=aws, inputs={"region": "b"})
        source.resources[1] = replace(source.resources[1], type=aws, inputs={"region": "a"})
        with pytest.raises(EditRefused, match="another configuration"):
            move_resource(source, there, A)


class TestRefused:
    def test_moving_a_provider_is_refused(self, source: Snapshot, empty: Snapshot) -> None:
        with pytest.raises(EditRefused, match="is a provider"):
            move_resource(source, empty, PROVIDER)

    def test_moving_to_an_existing_urn_is_refused(self, source: Snapshot, empty: Snapshot) -> None:
        done = move_resource(source, empty, A)
        done.dest.resources[-1].id = "of another object"
        with pytest.raises(EditRefused, match="already") as caught:
            move_resource(source, done.dest, A)
        assert "gpuform state delete" in caught.value.hint

    def test_moving_with_pending_operations_is_refused(
        self, source: Snapshot, empty: Snapshot
    ) -> None:
        source.pending_operations.append(PendingOperation(build_machine("a", id=""), "creating"))
        with pytest.raises(EditRefused, match=r"was creating .*::a") as caught:
            move_resource(source, empty, A)
        assert "gpuform up" in caught.value.hint
        assert (
            move_resource(source, empty, B).source.pending_operations == source.pending_operations
        )

    def test_moving_with_unsupported_parts_of_the_checkpoint_is_refused(
        self, source: Snapshot, empty: Snapshot
    ) -> None:
        source.resources[2] = build_machine("a", snippet_id="s-1")
        with pytest.raises(EditRefused) as caught:
            move_resource(source, empty, A)
        assert "pulumi state move" in caught.value.hint


@pytest.mark.slow
@settings(max_examples=50)
@given(valid_snapshots(), st.data())
def test_any_move_keeps_all_objects_and_leaves_valid_states(
    source: Snapshot, data: st.DataObject
) -> None:
    urns = list(dict.fromkeys(e.urn for e in source.resources if e.urn != PROVIDER))
    chosen = data.draw(st.lists(st.sampled_from(urns), min_size=1, unique=True))
    include_parents = data.draw(st.booleans())
    done = move_resource(source, Snapshot(PROD), *chosen, include_parents=include_parents)
    gone = [e for e in source.resources if e.urn in done.urns]
    arrived = [e for e in done.dest.resources if e.urn not in (PROD_STACK, PROD_PROVIDER)]
    assert [(e.id, e.delete, e.custom) for e in arrived] == [
        (e.id, e.delete, e.custom) for e in gone
    ]
    assert len(done.source.resources) + len(arrived) == len(source.resources)
    # And back again: all that is different is what was dropped.
    back = move_resource(done.dest, done.source, *done.urns.values(), name="organization/demo/dev")
    assert sorted((e.urn, e.id, e.delete) for e in back.dest.resources) == sorted(
        (e.urn, e.id, e.delete) for e in source.resources
    )
