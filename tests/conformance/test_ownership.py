"""What this stack did not make is never adopted, changed or deleted; a create says whose it is."""

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


def somebodys(platform: Platform, described: Described) -> dict[str, Any]:
    """An object that a person made by hand, ready."""
    assert described.create is not None
    platform.send(described, described.create)
    platform.advance(7200)
    (found,) = platform.objects(described)
    platform.forget_requests()
    return found


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
    told = result.errors[0]
    asked_about = foreign["parts"] if after_lost_create else [foreign["id"]]
    assert all(id_ in told for id_ in asked_about)
    if after_lost_create and described.kind not in SURELY_ANOTHERS:
        assert f"--adopt {asked_about[0]}" in told
    else:
        assert "this project has no record of creating it" in told
        assert f'import_="{foreign["id"]}"' in told
    assert platform.writes() == []
    assert platform.objects(described) == [foreign]
    assert stack.id is None


def test_what_a_person_made_is_not_taken(
    described: Described, stack: Stack, platform: Platform
) -> None:
    foreign = somebodys(platform, described)
    for _ in range(2):
        assert_refused_and_untouched(stack, platform, described, foreign)
    assert stack.destroy().ok
    assert platform.objects(described) == [foreign]


@pytest.fixture
def other(platform: Platform, tmp_path: Path, crypter: PassphraseCrypter) -> EmbeddedStack:
    """A stack of another project."""
    directory = tmp_path / "other"
    directory.mkdir()
    return EmbeddedStack(directory, crypter)


def test_what_another_stack_made_is_not_taken(
    described: Described, embedded: EmbeddedStack, other: EmbeddedStack, platform: Platform
) -> None:
    assert other.up(thing(described)).ok
    platform.forget_requests()
    (foreign,) = platform.objects(described)
    assert_refused_and_untouched(embedded, platform, described, foreign)
    assert embedded.destroy().ok
    assert_settled(other, platform, thing(described))


@for_each(kind for kind in MADE if kind.tells_age)
def test_after_a_lost_create_what_a_person_makes_much_later_is_not_taken(
    described: Described, embedded: EmbeddedStack, platform: Platform
) -> None:
    """The record of an attempt that left nothing: whatever has the name now came otherwise."""
    platform.fault(described.create.method, described.create.path, drop="before")
    assert not embedded.up(thing(described)).ok
    assert embedded.intents
    platform.advance(7200)
    foreign = somebodys(platform, described)
    assert_refused_and_untouched(embedded, platform, described, foreign, after_lost_create=True)


@for_each(kind for kind in MADE if not kind.names_are_unique)
def test_of_two_that_could_be_ours_none_is_taken(
    described: Described,
    embedded: EmbeddedStack,
    platform: Platform,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ours was made and its id lost; a person makes another of the same name."""
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
    assert all(each in result.errors[0] for each in both)
    assert platform.writes() == []
    # The person deletes theirs: nothing says when the other one was made.
    mine, theirs = (each["id"] for each in platform.objects(described))
    platform.send(described, described.delete_behind.of(theirs))
    platform.advance(7200)
    assert mine in embedded.up(thing(described)).errors[0]
    monkeypatch.setenv("GPUFORM_ADOPT", mine)
    assert_settles(embedded, platform, thing(described))
    assert embedded.id == mine


@for_each(kind for kind in MADE if kind.leaving)
def test_an_object_that_is_on_its_way_out_is_not_ours_to_wait_for(
    described: Described, stack: Stack, platform: Platform
) -> None:
    foreign = somebodys(platform, described)
    platform.send(described, described.delete_behind.of(foreign["id"], foreign["parts"]))
    result = stack.up(thing(described))
    assert result.ok, result.errors
    if not described.ids_come_again:
        assert not platform.parts(described) & set(foreign["parts"])
    assert platform.ids(described) == {stack.id}
