"""Every kind that is described, in the order of the catalogue."""

from conformance.described import Described
from conformance.stacks import Declared
from conformance.together_kinds import CLUSTER, SHARED_VOLUME

KINDS: tuple[Described, ...] = (CLUSTER, SHARED_VOLUME)

TOPOLOGY: tuple[Declared, ...] = (
    Declared("data", SHARED_VOLUME, SHARED_VOLUME.good),
    Declared("train", CLUSTER, {**CLUSTER.good, "volume_id": {"resource": "data"}}),
)
"""Resources that need each other."""
