"""Test manual edits of a state: effects, refusals, and a valid state after each edit."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies.snapshot_strategies import PROVIDER, STACK, build_urn, valid_snapshots

from gpuform.providers.values import PropertyMap, ResourceReference
from gpuform.stacks.engine.state import (
    PendingOperation,
    ResourceState,
    Snapshot,
    edits,
    get_entries,
    get_live_entry,
    get_object_entry,
    graph,
)
from gpuform.stacks.engine.state.edits import EditRefused, verify
from gpuform.stacks.engine.state.graph import NoSuchResource

TYPE = "pulumi-python:dynamic/lab:Machine"


def build_machine(name: str, *, parent: str = STACK, **fields: object) -> ResourceState:
    made = ResourceState(
        f"urn:pulumi:dev::demo::{TYPE}::{name}",
        True,
        TYPE,
        id=f"m-{name}",
        parent=parent,
        provider=f"{PROVIDER}::p-1",
    )
    return replace(made, **fields)


A, B, C = (build_machine(name).urn for name in "abc")


@pytest.fixture
def snapshot() -> Snapshot:
    """Return a snapshot in which b depends on a in every possible way, and c is a child of a."""
    child = f"urn:pulumi:dev::demo::{TYPE}${TYPE}::c"
    return Snapshot(
        "organization/demo/dev",
        [
            ResourceState(STACK, False, "pulumi:pulumi:Stack"),
            ResourceState(PROVIDER, True, "pulumi:providers:pulumi-python", id="p-1"),
            build_machine("a"),
            build_machine(
                "b",
                dependencies=[A],
                property_dependencies={"to": [A], "size": []},
                deleted_with=A,
                replace_with=[A],
            ),
            build_machine("c", parent=A, urn=child),
        ],
        [PendingOperation(build_machine("d", id="", dependencies=[A]), "creating")],
    )


def list_names(snapshot: Snapshot) -> list[str]:
    return [entry.urn.rpartition("::")[2] for entry in snapshot.resources[2:]]


class TestDelete:
    def test_deleting_a_resource_with_dependents_is_refused(self, snapshot: Snapshot) -> None:
        a = snapshot.resources[2]
        with pytest.raises(EditRefused) as caught:
            edits.delete(snapshot, a, force=False, target_dependents=False)
        assert snapshot.resources[3].urn in str(caught.value)
        assert snapshot.resources[4].urn in str(caught.value)
        assert "--target-dependents" in caught.value.hint
        after, gone = edits.delete(snapshot, a, force=False, target_dependents=True)
        assert list_names(after) == []
        assert len(gone) == 3

    def test_deleting_a_protected_resource_is_refused_without_force(
        self, snapshot: Snapshot
    ) -> None:
        snapshot = edits.set_protect(snapshot, [B], True)
        a, b = snapshot.resources[2:4]
        for doomed, dependents in ((b, False), (a, True)):
            with pytest.raises(EditRefused, match="protected") as caught:
                edits.delete(snapshot, doomed, force=False, target_dependents=dependents)
            assert "--force" in caught.value.hint
        after, _ = edits.delete(snapshot, b, force=True, target_dependents=False)
        assert list_names(after) == ["a", "c"]

    def test_deleting_all_resources_keeps_none(self, snapshot: Snapshot) -> None:
        after, gone = edits.delete_all(snapshot, force=False)
        assert after.resources == []
        assert len(gone) == 5
        with pytest.raises(EditRefused):
            edits.delete_all(edits.set_protect(snapshot, [B], True), force=False)

    def test_an_entry_pending_deletion_can_be_deleted_despite_dependents(
        self, snapshot: Snapshot
    ) -> None:
        old = replace(snapshot.resources[2], id="m-old", delete=True)
        snapshot.resources.append(old)
        after, gone = edits.delete(snapshot, old, force=False, target_dependents=False)
        assert gone == [old]
        assert list_names(after) == ["a", "b", "c"]

    @settings(max_examples=50)
    @given(valid_snapshots(), st.data())
    def test_any_deletion_leaves_a_valid_state(
        self, snapshot: Snapshot, data: st.DataObject
    ) -> None:
        doomed = data.draw(st.sampled_from(snapshot.resources))
        after, gone = edits.delete(snapshot, doomed, force=True, target_dependents=True)
        assert len(after.resources) + len(gone) == len(snapshot.resources)
        if not doomed.delete:
            twins = [e for e in after.resources if e.urn == doomed.urn]
            needed = {urn for entry in after.resources for urn in graph.find_dependency_urns(entry)}
            assert doomed.urn not in needed or twins
        if all(entry.urn != doomed.urn for entry in after.resources):
            assert verify(after) == []


class TestFlags:
    def test_protect_and_taint_set_the_flags_of_the_entry(self, snapshot: Snapshot) -> None:
        after = edits.set_taint(edits.set_protect(snapshot, [A, B], True), [B], True)
        assert [(e.protect, e.taint) for e in after.resources[2:]] == [
            (True, False),
            (True, True),
            (False, False),
        ]
        back = edits.set_protect(edits.set_taint(after, [B], False), [A, B], False)
        assert back.resources == snapshot.resources

    def test_entries_pending_deletion_keep_their_flags(self, snapshot: Snapshot) -> None:
        snapshot.resources.append(replace(snapshot.resources[2], delete=True))
        after = edits.set_protect(snapshot, [A], True)
        assert [e.protect for e in after.resources if e.urn == A] == [True, False]

    def test_only_resources_of_the_program_are_selected_by_all(self, snapshot: Snapshot) -> None:
        assert edits.list_program_resource_urns(snapshot) == [e.urn for e in snapshot.resources[2:]]


class TestRename:
    def test_a_rename_changes_all_references(self, snapshot: Snapshot) -> None:
        after, new = edits.rename(snapshot, A, "z")
        assert new == A[:-1] + "z"
        a, b, c = after.resources[2:]
        assert a.urn == b.deleted_with == c.parent == new
        assert b.dependencies == b.replace_with == [new]
        assert b.property_dependencies == {"to": [new], "size": []}
        assert c.urn == snapshot.resources[4].urn
        assert after.pending_operations[0].resource.dependencies == [new]
        assert verify(after) == []

    def test_renaming_a_provider_changes_all_provider_references(self, snapshot: Snapshot) -> None:
        after, new = edits.rename(snapshot, PROVIDER, "other")
        assert {e.provider for e in after.resources[2:]} == {f"{new}::p-1"}
        assert verify(after) == []

    def test_invalid_renames_are_refused(self, snapshot: Snapshot) -> None:
        with pytest.raises(EditRefused, match="already"):
            edits.rename(snapshot, A, "b")
        with pytest.raises(EditRefused, match="empty"):
            edits.rename(snapshot, A, "")
        with pytest.raises(EditRefused) as caught:
            edits.rename(snapshot, STACK, "x")
        assert "gpuform stack rename" in caught.value.hint
        snapshot.resources.append(replace(snapshot.resources[2], delete=True))
        with pytest.raises(EditRefused, match="2 objects"):
            edits.rename(snapshot, A, "z")

    def test_renaming_to_a_malformed_urn_is_refused(self, snapshot: Snapshot) -> None:
        snapshot.resources.append(build_machine("x", urn="train"))
        with pytest.raises(EditRefused, match="'train' in the state is not a URN"):
            edits.rename(snapshot, "train", "z")
        with pytest.raises(EditRefused, match="not a URN"):
            edits.rename_stack(snapshot, "organization/demo/prod")

    @pytest.mark.slow
    @settings(max_examples=50)
    @given(valid_snapshots(), st.data())
    def test_renaming_there_and_back_restores_the_state(
        self, snapshot: Snapshot, data: st.DataObject
    ) -> None:
        urns = [e.urn for e in snapshot.resources]
        old = data.draw(st.sampled_from([u for u in urns[1:] if urns.count(u) == 1]))
        after, new = edits.rename(snapshot, old, "another")
        assert verify(after) == []
        assert old not in {
            u for e in after.resources for u in {e.urn, *graph.find_dependency_urns(e)}
        }
        back, _ = edits.rename(after, new, old.rpartition("::")[2])
        assert back == snapshot

    @pytest.mark.slow
    @settings(max_examples=50)
    @given(valid_snapshots())
    def test_renaming_the_stack_changes_all_urns(self, snapshot: Snapshot) -> None:
        after = edits.rename_stack(snapshot, "organization/train/prod")
        assert verify(after) == []
        every = {u for e in after.resources for u in {e.urn, *graph.find_dependency_urns(e)}}
        assert all(u.startswith("urn:pulumi:prod::train::") for u in every)
        assert after.resources[0].urn.endswith("::train-prod")
        assert edits.rename_stack(after, "organization/demo/dev") == snapshot

    def test_renaming_the_stack_changes_urns_inside_of_properties(self, snapshot: Snapshot) -> None:
        other = "urn:pulumi:dev::other::x:y:Z::a"
        uses: PropertyMap = {
            "own": [{"cluster": ResourceReference(A, "a-1")}],
            "another": ResourceReference(other, "z-1"),
            "text": A,
        }
        snapshot.resources.append(build_machine("x", inputs=uses))
        after = edits.rename_stack(snapshot, "organization/train/prod")
        new = A.replace("dev::demo", "prod::train")
        assert after.resources[-1].inputs == {
            "own": [{"cluster": ResourceReference(new, "a-1")}],
            "another": ResourceReference(other, "z-1"),
            "text": A,
        }


class TestLookup:
    def test_a_resource_is_found_by_urn_and_by_name(self, snapshot: Snapshot) -> None:
        entries = snapshot.resources
        for name in (A, "a", "**::a"):
            assert get_live_entry(entries, name) is entries[2]
        assert get_entries(entries, "demo-dev") == [entries[0]]

    def test_an_unknown_name_is_an_error_that_suggests_similar_names(
        self, snapshot: Snapshot
    ) -> None:
        entries = [*snapshot.resources, build_machine("training")]
        with pytest.raises(NoSuchResource, match="no resource 'trainnig'") as caught:
            get_entries(entries, "trainnig")
        assert entries[-1].urn in caught.value.hint
        with pytest.raises(NoSuchResource) as caught:
            get_entries(entries, entries[-1].urn.replace("lab", "lap"))
        assert entries[-1].urn in caught.value.hint
        with pytest.raises(NoSuchResource) as caught:
            get_entries(entries, "entirely different")
        assert "gpuform state list" in caught.value.hint

    def test_an_ambiguous_name_is_an_error_that_lists_the_urns(self, snapshot: Snapshot) -> None:
        entries = [
            *snapshot.resources,
            build_machine("a", urn=snapshot.resources[4].urn[:-1] + "a"),
        ]
        with pytest.raises(NoSuchResource, match="2 resources match") as caught:
            get_entries(entries, "a")
        assert A in str(caught.value)
        assert entries[-1].urn in str(caught.value)

    def test_several_entries_of_one_urn_are_an_error_that_lists_the_ids(
        self, snapshot: Snapshot
    ) -> None:
        entries = [*snapshot.resources, build_machine("a", id="m-old", delete=True)]
        assert get_live_entry(entries, "a").id == "m-a"
        assert get_object_entry(entries, "a", "m-old") is entries[-1]
        with pytest.raises(NoSuchResource, match="2 objects") as caught:
            get_object_entry(entries, "a", None)
        assert "m-old (waits for deletion)" in str(caught.value)
        assert "--id" in caught.value.hint
        with pytest.raises(NoSuchResource, match="no object 'x'"):
            get_object_entry(entries, "a", "x")
        del entries[2]
        with pytest.raises(NoSuchResource, match="is pending deletion"):
            get_live_entry(entries, "a")


@settings(max_examples=20)
@given(valid_snapshots())
def test_each_live_entry_is_found_by_its_name(snapshot: Snapshot) -> None:
    for entry in snapshot.resources[2:]:
        number = int(entry.urn.rpartition("::r")[2])
        assert entry in get_entries(snapshot.resources, f"r{number}")
        assert get_live_entry(snapshot.resources, build_urn(number)).urn == entry.urn
