"""Test that foreign objects are never adopted, changed or deleted; creates name their owner."""

from pathlib import Path
from typing import Any

import pytest
from conformance.described import Described
from conformance.emulated import Platform
from conformance.kinds import MADE, for_each
from conformance.settling import assert_settled, assert_settles
from conformance.stacks import EmbeddedStack, Stack, thing

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter

pytestmark = pytest.mark.slow

SURELY_ANOTHERS = ("VolumeClaim",)
"""These objects say themselves that they are not ours."""


def create_foreign_object(platform: Platform, described: Described) -> dict[str, Any]:
    """Create an object as a person does by hand, and return it when it is ready."""
    assert described.create is not None
    platform.send(described, described.create)
    platform.advance(7200)
    (created_object,) = platform.objects(described)
    platform.forget_requests()
    return created_object


def assert_refused_and_untouched(
    stack: Stack,
    platform: Platform,
    described: Described,
    foreign: dict[str, Any],
    *,
    after_lost_create: bool = False,
) -> None:
    result = stack.up(thing(described))
    assert not result.ok
    messages = result.errors[0]
    asked_about = foreign["parts"] if after_lost_create else [foreign["id"]]
    assert all(id_ in messages for id_ in asked_about)
    if after_lost_create and described.kind not in SURELY_ANOTHERS:
        assert f"--adopt {asked_about[0]}" in messages
    else:
        assert "this project has no record of creating it" in messages
        assert f'import_="{foreign["id"]}"' in messages
    assert platform.writes() == []
    assert platform.objects(described) == [foreign]
    assert stack.id is None


def test_an_object_created_by_hand_is_not_adopted(
    described: Described, stack: Stack, platform: Platform
) -> None:
    foreign = create_foreign_object(platform, described)
    for _ in range(2):
        assert_refused_and_untouched(stack, platform, described, foreign)
    assert stack.destroy().ok
    assert platform.objects(described) == [foreign]


@pytest.fixture
def other_stack(platform: Platform, tmp_path: Path, crypter: PassphraseCrypter) -> EmbeddedStack:
    """Return a stack of another project."""
    directory = tmp_path / "other"
    directory.mkdir()
    return EmbeddedStack(directory, crypter)


def test_an_object_of_another_stack_is_not_adopted(
    described: Described, embedded: EmbeddedStack, other_stack: EmbeddedStack, platform: Platform
) -> None:
    assert other_stack.up(thing(described)).ok
    platform.forget_requests()
    (foreign,) = platform.objects(described)
    assert_refused_and_untouched(embedded, platform, described, foreign)
    assert embedded.destroy().ok
    assert_settled(other_stack, platform, thing(described))


@for_each(kind for kind in MADE if kind.tells_age)
def test_an_object_created_by_hand_long_after_a_lost_create_is_not_adopted(
    described: Described, embedded: EmbeddedStack, platform: Platform
) -> None:
    """The attempt left no object: a later object of the name is not ours."""
    platform.fault(described.create.method, described.create.path, drop="before")
    assert not embedded.up(thing(described)).ok
    assert embedded.intents
    platform.advance(7200)
    foreign = create_foreign_object(platform, described)
    assert_refused_and_untouched(embedded, platform, described, foreign, after_lost_create=True)


@for_each(kind for kind in MADE if not kind.names_are_unique)
def test_of_two_possible_objects_none_is_adopted(
    described: Described,
    embedded: EmbeddedStack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Our object was created and its id lost; a person creates another of the same name."""
    platform.fault("POST", described.create.path, drop="after")
    list_of = described.found_at or f"^{described.create.path}$"
    platform.fault("GET", list_of, status=503, skip=1, count=None)
    assert not embedded.up(thing(described)).ok
    platform.heal()
    platform.send(described, described.create)
    both = platform.ids(described)
    assert len(both) == 2
    platform.forget_requests()
    result = embedded.up(thing(described))
    if described.tells_age:  # theirs was made after the time of our request
        assert result.ok
        assert embedded.id == platform.objects(described)[0]["id"]
        return
    assert not result.ok
    assert all(found_object in result.errors[0] for found_object in both)
    assert platform.writes() == []
    # The person deletes theirs: nothing says when the other one was made.
    mine, theirs = (found_object["id"] for found_object in platform.objects(described))
    platform.send(described, described.delete_behind.of(theirs))
    platform.advance(7200)
    assert mine in embedded.up(thing(described)).errors[0]
    monkeypatch.setenv("GPUFORM_ADOPT", mine)
    assert_settles(embedded, platform, thing(described))
    assert embedded.id == mine


@for_each(kind for kind in MADE if kind.leaving)
def test_an_object_being_deleted_is_not_waited_for(
    described: Described, stack: Stack, platform: Platform
) -> None:
    foreign = create_foreign_object(platform, described)
    platform.send(described, described.delete_behind.of(foreign["id"], foreign["parts"]))
    result = stack.up(thing(described))
    assert result.ok, result.errors
    if not described.ids_come_again:
        assert not platform.parts(described) & set(foreign["parts"])
    assert platform.ids(described) == {stack.id}
