"""Every kind that is described, in the order of the catalogue."""

from conformance.described import Described
from conformance.scp_kinds import FABRIC, GPU_NODE, NODE_POOL
from conformance.stacks import Declared
from conformance.tensorone_kinds import CLUSTER as TENSORONE_CLUSTER
from conformance.together_kinds import CLUSTER, SHARED_VOLUME

KINDS: tuple[Described, ...] = (
    *(CLUSTER, SHARED_VOLUME),
    *(NODE_POOL, GPU_NODE, FABRIC),
    TENSORONE_CLUSTER,
)

MADE = tuple(kind for kind in KINDS if kind.create)
"""The kinds whose objects are made, rather than bound: for the others nothing is ever sent."""

FAST = SHARED_VOLUME
"""The kind for fast tests of what does not differ between kinds."""

TOPOLOGY: tuple[Declared, ...] = (
    Declared("data", SHARED_VOLUME, SHARED_VOLUME.good),
    Declared("train", CLUSTER, {**CLUSTER.good, "volume_id": {"resource": "data"}}),
)
"""Resources that need each other."""
