"""Test that an object is gone only by the platform's own uncontradicted answer."""

from collections.abc import Mapping

import pytest
from conformance.described import Described
from conformance.emulated import Platform
from conformance.hostile import CONTRADICTIONS, HARMLESS, STRANGERS, Proxy, behind
from conformance.kinds import FAST, MADE, for_each
from conformance.lens_kinds import HEALTH_GATE
from conformance.stacks import EmbeddedStack, Result, Stack, thing
from conformance.verbs import Refused

pytestmark = pytest.mark.sampled(15)
slow = pytest.mark.slow


def against(proxies: Mapping[str, Proxy]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("proxy", [pytest.param(p, id=n) for n, p in proxies.items()])


def create_object(described: Described, stack: Stack) -> str:
    """Return the id of the one object of a new stack."""
    result = stack.up(thing(described))
    assert result.ok, result.errors
    assert stack.id is not None
    return stack.id


def refresh(stack: Stack) -> Result:
    """Refresh; the Pulumi engine, too, keeps what it could not read, and fails."""
    try:
        return stack.refresh()
    except Refused as error:
        return Result(False, [], [str(error)])


def assert_is_kept(stack: Stack, id_: str, described: Described, platform: Platform) -> None:
    """Check that the object exists, is the only one, and is known."""
    assert stack.id == id_
    assert platform.ids(described) == {id_}


def assert_heals(stack: Stack, described: Described, platform: Platform) -> None:
    """Check that the proxies have left no trace."""
    platform.advance(7200)
    assert refresh(stack).operations == []
    plan = stack.plan(thing(described))
    assert (plan.operations, plan.errors) == ([], [])
    assert stack.destroy().ok
    assert platform.ids(described) == set()


@slow
@against(STRANGERS)
def test_a_stranger_forgets_nothing(
    described: Described, stack: Stack, platform: Platform, proxy: Proxy
) -> None:
    id_ = create_object(described, stack)
    with behind(platform, proxy):
        for result in (refresh(stack), stack.destroy()):
            assert not result.ok
            assert result.errors
            assert_is_kept(stack, id_, described, platform)
    assert_heals(stack, described, platform)


@slow
@against(CONTRADICTIONS)
def test_what_something_speaks_against_is_not_gone(
    described: Described, stack: Stack, platform: Platform, proxy: Proxy
) -> None:
    id_ = create_object(described, stack)
    with behind(platform, proxy, room=described.room):
        result = refresh(stack)
        assert "delete" not in result.operations
        assert_is_kept(stack, id_, described, platform)
        assert not stack.destroy().ok
        assert_is_kept(stack, id_, described, platform)
    assert_heals(stack, described, platform)


@slow
@against(HARMLESS)
def test_absence_from_a_list_alone_is_no_word_of_the_platform(
    described: Described, stack: Stack, platform: Platform, proxy: Proxy
) -> None:
    id_ = create_object(described, stack)
    with behind(platform, proxy, room=described.room):
        assert refresh(stack).ok
        assert_is_kept(stack, id_, described, platform)
    assert_heals(stack, described, platform)


@slow
@for_each(MADE)
@against({**STRANGERS, **CONTRADICTIONS})
def test_no_run_of_the_engine_makes_anything_anew(
    described: Described, embedded: EmbeddedStack, platform: Platform, proxy: Proxy
) -> None:
    """Run `preview --refresh`, `up --refresh` and `destroy --refresh`."""
    id_ = create_object(described, embedded)
    platform.forget_requests()
    with behind(platform, proxy, room=described.room if proxy in CONTRADICTIONS.values() else ""):
        for preview in (True, False):
            result = embedded.run("update", thing(described), preview=preview, refresh=True)
            assert not {"create", "delete", "replace"} & {*result.operations}
            assert_is_kept(embedded, id_, described, platform)
        assert not embedded.run("destroy", refresh=True).ok
        assert_is_kept(embedded, id_, described, platform)
    create = described.create
    assert create is not None
    assert platform.requests(create.method, path=create.pattern) == []
    assert_heals(embedded, described, platform)


@pytest.mark.slow
@for_each([FAST])
@against(STRANGERS)
def test_the_error_says_who_answered_and_what_to_check(
    described: Described, embedded: EmbeddedStack, platform: Platform, proxy: Proxy
) -> None:
    create_object(described, embedded)
    with behind(platform, proxy):
        (message,) = embedded.refresh().errors
    assert "together: GET /compute/clusters/storage/volumes/" in message
    assert "410" in message or "base URL" in message


@for_each([HEALTH_GATE])
@against(STRANGERS)
def test_no_gate_is_passed_on_the_word_of_a_stranger(
    described: Described, embedded: EmbeddedStack, platform: Platform, proxy: Proxy
) -> None:
    with behind(platform, proxy):
        assert not embedded.up(thing(described)).ok
    assert embedded.up(thing(described)).ok
