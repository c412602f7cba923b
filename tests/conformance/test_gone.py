"""Test that an object is gone only by the platform's own uncontradicted answer."""

from collections.abc import Mapping

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import CREATED_KINDS, FAST_KIND, for_each
from conformance.lens_kinds import HEALTH_GATE
from conformance.operations import Refused
from conformance.proxies import CONTRADICTIONS, HARMLESS, STRANGERS, Proxy, put_proxy_before
from conformance.stacks import EmbeddedStack, Result, Stack, declare_one

pytestmark = pytest.mark.sampled(15)
slow = pytest.mark.slow


def parametrize_proxies(proxies: Mapping[str, Proxy]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("proxy", [pytest.param(p, id=n) for n, p in proxies.items()])


def create_object(description: KindDescription, stack: Stack) -> str:
    """Return the id of the one object of a new stack."""
    result = stack.apply(declare_one(description))
    assert result.ok, result.errors
    assert stack.id is not None
    return stack.id


def refresh(stack: Stack) -> Result:
    """Refresh; the Pulumi engine fails, too, and keeps unreadable resources."""
    try:
        return stack.refresh()
    except Refused as error:
        return Result(False, [], [str(error)])


def assert_is_kept(
    stack: Stack, id_: str, description: KindDescription, platform: Platform
) -> None:
    """Assert that exactly one object exists, and the stack knows the object."""
    assert stack.id == id_
    assert platform.list_ids(description) == {id_}


def assert_recovers_without_proxy(
    stack: Stack, description: KindDescription, platform: Platform
) -> None:
    """Assert that the proxies have no later effect."""
    platform.advance(7200)
    assert refresh(stack).operations == []
    plan = stack.plan(declare_one(description))
    assert (plan.operations, plan.errors) == ([], [])
    assert stack.destroy().ok
    assert platform.list_ids(description) == set()


@slow
@parametrize_proxies(STRANGERS)
def test_answers_of_strangers_make_no_object_gone(
    description: KindDescription, stack: Stack, platform: Platform, proxy: Proxy
) -> None:
    id_ = create_object(description, stack)
    with put_proxy_before(platform, proxy):
        for result in (refresh(stack), stack.destroy()):
            assert not result.ok
            assert result.errors
            assert_is_kept(stack, id_, description, platform)
    assert_recovers_without_proxy(stack, description, platform)


@slow
@parametrize_proxies(CONTRADICTIONS)
def test_a_contradicted_404_makes_no_object_gone(
    description: KindDescription, stack: Stack, platform: Platform, proxy: Proxy
) -> None:
    id_ = create_object(description, stack)
    with put_proxy_before(platform, proxy, api=description.api):
        result = refresh(stack)
        assert "delete" not in result.operations
        assert_is_kept(stack, id_, description, platform)
        assert not stack.destroy().ok
        assert_is_kept(stack, id_, description, platform)
    assert_recovers_without_proxy(stack, description, platform)


@pytest.mark.sampled(12)
@slow
@parametrize_proxies(HARMLESS)
def test_an_empty_list_alone_makes_no_object_gone(
    description: KindDescription, stack: Stack, platform: Platform, proxy: Proxy
) -> None:
    id_ = create_object(description, stack)
    with put_proxy_before(platform, proxy, api=description.api):
        assert refresh(stack).ok
        assert_is_kept(stack, id_, description, platform)
    assert_recovers_without_proxy(stack, description, platform)


@slow
@for_each(CREATED_KINDS)
@parametrize_proxies({**STRANGERS, **CONTRADICTIONS})
def test_no_run_with_refresh_recreates_an_object_denied_by_strangers(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform, proxy: Proxy
) -> None:
    """Run `preview --refresh`, `up --refresh` and `destroy --refresh`."""
    id_ = create_object(description, embedded)
    platform.forget_requests()
    with put_proxy_before(
        platform, proxy, api=description.api if proxy in CONTRADICTIONS.values() else ""
    ):
        for preview in (True, False):
            result = embedded.run("update", declare_one(description), preview=preview, refresh=True)
            assert not {"create", "delete", "replace"} & {*result.operations}
            assert_is_kept(embedded, id_, description, platform)
        assert not embedded.run("destroy", refresh=True).ok
        assert_is_kept(embedded, id_, description, platform)
    create = description.create
    assert create is not None
    assert platform.list_requests(create.method, path=create.pattern) == []
    assert_recovers_without_proxy(embedded, description, platform)


@pytest.mark.slow
@for_each([FAST_KIND])
@parametrize_proxies(STRANGERS)
def test_the_error_about_a_stranger_names_the_request_and_the_base_url(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform, proxy: Proxy
) -> None:
    create_object(description, embedded)
    with put_proxy_before(platform, proxy):
        (message,) = embedded.refresh().errors
    assert "together: GET /compute/clusters/storage/volumes/" in message
    assert "410" in message or "base URL" in message


@for_each([HEALTH_GATE])
@parametrize_proxies(STRANGERS)
def test_answers_of_strangers_open_no_health_gate(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform, proxy: Proxy
) -> None:
    with put_proxy_before(platform, proxy):
        assert not embedded.apply(declare_one(description)).ok
    assert embedded.apply(declare_one(description)).ok
