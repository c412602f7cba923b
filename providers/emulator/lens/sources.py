"""The GPU nodes of the other platforms, as somebody sees them who watches their machines.

A node that is being made, or is stopped, is not seen. Records of the registry are no machines.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from gpuform.providers.emulator.scp.catalogue import PRODUCTS
from gpuform.providers.emulator.scp.estate import Estate as ScpEstate
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.estate import Estate as TensorOneEstate
from gpuform.providers.emulator.together.nodes import GPUS_PER_WORKER
from gpuform.providers.emulator.together.operations import Operations

_SCP_GPUS = 8


@dataclass(frozen=True)
class Node:
    name: str
    gpu_model: str
    gpus: int
    is_healthy: bool = True


def nodes(store: Store, now: float) -> list[Node]:
    """In the order of their creation, platform by platform."""
    return [*_of_together(store, now), *_of_scp(store, now), *_of_tensorone(store, now)]


def _of_together(store: Store, now: float) -> Iterator[Node]:
    for cluster in Operations(store, now).list_clusters():
        for node in (*cluster.workers, *cluster.preemptible):
            if node.runs(now):
                yield Node(node.host_name, cluster.settings.gpu_type, GPUS_PER_WORKER)


def _of_scp(store: Store, now: float) -> Iterator[Node]:
    for node in ScpEstate(store, now).live_nodes():
        state = node.state(now)
        if state in ("RUNNING", "EDITING", "ERROR"):
            model = PRODUCTS[node.identity.product_type_id].gpu_model
            yield Node(node.name, model, _SCP_GPUS, is_healthy=state != "ERROR")


def _of_tensorone(store: Store, now: float) -> Iterator[Node]:
    for cluster in TensorOneEstate(store, now).clusters():
        status = cluster.status(now)
        if status in ("running", "error"):
            spec = cluster.spec
            yield Node(cluster.details.name, spec.gpu_type, spec.gpu_count, status == "running")
