"""Test that the passing of time alone causes no planned change."""

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription
from conformance.kinds import for_all
from conformance.stacks import EmbeddedStack, declare_one

LATER = (60.0, 3 * 3600.0, 9 * 86400.0)
"""Seconds in which the platforms' own figures move."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@for_all
def test_time_alone_plans_no_change(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform
) -> None:
    declared = declare_one(description)
    assert embedded.apply(declared).ok
    for seconds in LATER:
        platform.advance(seconds)
        platform.forget_requests()
        assert embedded.plan(declared).operations == []
        result = embedded.refresh()
        assert (result.operations, result.errors) == ([], [])
        assert embedded.plan(declared).operations == []
        assert platform.list_writes() == []
