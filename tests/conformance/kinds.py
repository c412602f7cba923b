"""Select the kinds that a test runs for."""

from collections.abc import Iterable

import pytest
from conformance.catalogue import KINDS
from conformance.described import Described
from conformance.stacks import Declared
from conformance.together_kinds import CLUSTER, SHARED_VOLUME

MADE = tuple(kind for kind in KINDS if kind.create)
"""The kinds whose objects are made, rather than bound: for the others nothing is ever sent."""

FAST = SHARED_VOLUME
"""The kind for fast tests of what does not differ between kinds."""


def for_each(kinds: Iterable[Described]) -> pytest.MarkDecorator:
    """Run a test for each of these kinds, with its requirements on the platform."""
    return pytest.mark.parametrize("described", tuple(kinds), ids=str, indirect=True)


for_all = for_each(KINDS)
for_replaced = for_each(kind for kind in KINDS if kind.replacing.field)
for_waiting = for_each(kind for kind in KINDS if kind.pending)
for_failing = for_each(kind for kind in KINDS if kind.failed)
"""Also kinds that are bound, not made."""

for_made_waiting = for_each(kind for kind in MADE if kind.pending)
for_made_failing = for_each(kind for kind in MADE if kind.failed)

TOPOLOGY: tuple[Declared, ...] = (
    Declared("data", SHARED_VOLUME, SHARED_VOLUME.good),
    Declared("train", CLUSTER, {**CLUSTER.good, "volume_id": {"resource": "data"}}),
)
"""Resources that need each other."""
