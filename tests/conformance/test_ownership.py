"""Test that foreign objects are never adopted, changed or deleted; creates name their owner."""

from pathlib import Path
from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import CREATED_KINDS, for_each
from conformance.recovery_checks import assert_next_run_recovers, assert_nothing_to_do
from conformance.stacks import EmbeddedStack, Stack, declare_one

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

pytestmark = pytest.mark.slow

SURELY_ANOTHERS = ("VolumeClaim",)
"""These objects say themselves that they are not ours."""


def create_foreign_object(platform: Platform, description: KindDescription) -> dict[str, Any]:
    """Create an object by hand, without gpuform, and return the ready object."""
    assert description.create is not None
    platform.send(description, description.create)
    platform.advance(7200)
    (created_object,) = platform.list_objects(description)
    platform.forget_requests()
    return created_object


def assert_refused_and_untouched(
    stack: Stack,
    platform: Platform,
    description: KindDescription,
    foreign: dict[str, Any],
    *,
    after_lost_create: bool = False,
) -> None:
    result = stack.apply(declare_one(description))
    assert not result.ok
    messages = result.errors[0]
    asked_about = foreign["parts"] if after_lost_create else [foreign["id"]]
    assert all(id_ in messages for id_ in asked_about)
    if after_lost_create and description.kind not in SURELY_ANOTHERS:
        assert f"--adopt {asked_about[0]}" in messages
    else:
        assert "this project has no record of creating it" in messages
        assert f'import_="{foreign["id"]}"' in messages
    assert platform.list_writes() == []
    assert platform.list_objects(description) == [foreign]
    assert stack.id is None


def test_an_object_created_by_hand_is_not_adopted(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    foreign = create_foreign_object(platform, description)
    for _ in range(2):
        assert_refused_and_untouched(stack, platform, description, foreign)
    assert stack.destroy().ok
    assert platform.list_objects(description) == [foreign]


@pytest.fixture
def other_stack(platform: Platform, tmp_path: Path, crypter: PassphraseCrypter) -> EmbeddedStack:
    """Return a stack of another project."""
    directory = tmp_path / "other"
    directory.mkdir()
    return EmbeddedStack(directory, crypter)


def test_an_object_of_another_stack_is_not_adopted(
    description: KindDescription,
    embedded: EmbeddedStack,
    other_stack: EmbeddedStack,
    platform: Platform,
) -> None:
    assert other_stack.apply(declare_one(description)).ok
    platform.forget_requests()
    (foreign,) = platform.list_objects(description)
    assert_refused_and_untouched(embedded, platform, description, foreign)
    assert embedded.destroy().ok
    assert_nothing_to_do(other_stack, platform, declare_one(description))


@for_each(kind for kind in CREATED_KINDS if kind.reports_creation_time)
def test_an_object_created_by_hand_long_after_a_lost_create_is_not_adopted(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform
) -> None:
    """The attempt left no object, so a later object of the name belongs to somebody else."""
    platform.add_fault(description.create.method, description.create.path, drop="before")
    assert not embedded.apply(declare_one(description)).ok
    assert embedded.intents
    platform.advance(7200)
    foreign = create_foreign_object(platform, description)
    assert_refused_and_untouched(embedded, platform, description, foreign, after_lost_create=True)


@for_each(kind for kind in CREATED_KINDS if not kind.names_are_unique)
def test_of_two_possible_objects_none_is_adopted(
    description: KindDescription,
    embedded: EmbeddedStack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our object was created and its id lost; a person creates another of the same name."""
    platform.add_fault("POST", description.create.path, drop="after")
    list_of = description.list_path or f"^{description.create.path}$"
    platform.add_fault("GET", list_of, status=503, skip=1, count=None)
    assert not embedded.apply(declare_one(description)).ok
    platform.remove_faults()
    platform.send(description, description.create)
    both = platform.list_ids(description)
    assert len(both) == 2
    platform.forget_requests()
    result = embedded.apply(declare_one(description))
    if description.reports_creation_time:  # theirs was made after the time of our request
        assert result.ok
        assert embedded.id == platform.list_objects(description)[0]["id"]
        return
    assert not result.ok
    assert all(found_object in result.errors[0] for found_object in both)
    assert platform.list_writes() == []
    # The person deletes theirs: nothing says when the other one was made.
    mine, theirs = (found_object["id"] for found_object in platform.list_objects(description))
    platform.send(description, description.outside_delete.fill_ids(theirs))
    platform.advance(7200)
    assert mine in embedded.apply(declare_one(description)).errors[0]
    monkeypatch.setenv("GPUFORM_ADOPT", mine)
    assert_next_run_recovers(embedded, platform, declare_one(description))
    assert embedded.id == mine


@for_each(kind for kind in CREATED_KINDS if kind.deleting_statuses)
def test_an_object_being_deleted_is_not_waited_for(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    foreign = create_foreign_object(platform, description)
    platform.send(description, description.outside_delete.fill_ids(foreign["id"], foreign["parts"]))
    result = stack.apply(declare_one(description))
    assert result.ok, result.errors
    if not description.reuses_ids:
        assert not platform.list_parts(description) & set(foreign["parts"])
    assert platform.list_ids(description) == {stack.id}
