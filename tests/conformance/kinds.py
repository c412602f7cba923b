"""Select the kinds that a test runs for."""

from collections.abc import Iterable

import pytest
from conformance.catalogue import KINDS
from conformance.kind_descriptions import KindDescription
from conformance.stacks import DeclaredResource
from conformance.together_kinds import CLUSTER, SHARED_VOLUME

CREATED_KINDS = tuple(kind for kind in KINDS if kind.create)
"""The kinds with created objects; other kinds bind objects, and send nothing."""

FAST_KIND = SHARED_VOLUME
"""The kind for fast tests of what does not differ between kinds."""


def for_each(kinds: Iterable[KindDescription]) -> pytest.MarkDecorator:
    """Run a test for each of these kinds, with the kind's requirements."""
    return pytest.mark.parametrize("description", tuple(kinds), ids=str, indirect=True)


for_all = for_each(KINDS)
for_replaced = for_each(kind for kind in KINDS if kind.replacing.field)
for_waiting = for_each(kind for kind in KINDS if kind.pending_status)
for_failing = for_each(kind for kind in KINDS if kind.failed_status)
"""Also kinds that are bound, not made."""

for_made_waiting = for_each(kind for kind in CREATED_KINDS if kind.pending_status)
for_made_failing = for_each(kind for kind in CREATED_KINDS if kind.failed_status)

TOPOLOGY: tuple[DeclaredResource, ...] = (
    DeclaredResource("data", SHARED_VOLUME, SHARED_VOLUME.valid_inputs),
    DeclaredResource("train", CLUSTER, {**CLUSTER.valid_inputs, "volume_id": {"resource": "data"}}),
)
"""Resources that need each other."""
