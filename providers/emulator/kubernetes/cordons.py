"""Which workers their scheduler gives no more work: the platform takes them first."""

from gpuform.providers.emulator.kubernetes.kinds import NODE
from gpuform.providers.emulator.kubernetes.objects import Objects
from gpuform.providers.emulator.store import Store


def cordoned(store: Store, cluster_id: str, now: float) -> frozenset[str]:
    """The host names of a cluster's cordoned workers."""
    nodes = Objects(store, cluster_id, now).of(NODE)
    return frozenset(
        node["metadata"]["name"] for node in nodes if node.get("spec", {}).get("unschedulable")
    )
