"""Show the GPU nodes of the other emulated platforms in numbers: allotted GPUs, the overview and
the heatmap.

A node that is being made, or is stopped, is not seen. Records of the registry are no machines.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from gpuform.providers.emulator.routing import PlatformSettings as _Settings
from gpuform.providers.emulator.scp.catalogue import PRODUCTS
from gpuform.providers.emulator.scp.nodes import ScpInventory
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.clusters import Estate as TensorOneEstate
from gpuform.providers.emulator.together.nodes import GPUS_PER_WORKER
from gpuform.providers.emulator.together.operations import TogetherOperations

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
    for cluster in TogetherOperations(store, now).list_clusters():
        for node in (*cluster.workers, *cluster.preemptible):
            if node.is_running(now):
                yield Node(node.host_name, cluster.settings.gpu_type, GPUS_PER_WORKER)


def _of_scp(store: Store, now: float) -> Iterator[Node]:
    for node in ScpInventory(store, now).list_live_nodes():
        state = node.get_state(now)
        if state in ("RUNNING", "EDITING", "ERROR"):
            model = PRODUCTS[node.identity.product_type_id].gpu_model
            yield Node(node.name, model, _SCP_GPUS, is_healthy=state != "ERROR")


def _of_tensorone(store: Store, now: float) -> Iterator[Node]:
    for cluster in TensorOneEstate(store, now).clusters():
        status = cluster.status(now)
        if status in ("running", "error"):
            spec = cluster.spec
            yield Node(cluster.details.name, spec.gpu_type, spec.gpu_count, status == "running")


class Stat(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    gpuRequest: int = Field(ge=0)  # noqa: N815 - the document's name
    gpuUtilization: float = Field(ge=0, le=1)  # noqa: N815 - as above


class Consumer(BaseModel):
    """A workload, as the document shows it. Its GPUs are taken from the nodes in their order."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: str
    name: str
    namespace: str
    uid: str
    stat: Stat
    pods: None = None
    source: str


class Failure(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    code: int
    message: str


class Settings(_Settings):
    kind = "lens.settings"

    consumers: tuple[Consumer, ...] = ()
    """The workloads on the monitored nodes."""

    overview: Mapping[str, JsonValue] = {}
    """Fields of the overview, by the document's names, in the place of what is counted."""

    heatmap: dict[str, Any] | None = None
    """The whole heatmap, in the place of the computed one."""

    total: int | None = None
    """How many consumers the pages say that there are, instead of how many there are."""

    failure: Failure | None = None
    """What every answer carries, with status 200."""

    garbled: bool = False
    """Whether the unit of temperatures is sent as the document has it, â„ƒ."""


Json = dict[str, Any]

PORTS_PER_NODE = 8
TOP = 5
_IDLE_WATTS, _FULL_WATTS = 100.0, 750.0
_IDLE_DEGREES, _FULL_DEGREES = 35.0, 85.0


@dataclass(frozen=True)
class Gpu:
    """`use` is from 0 to 1, None where no workload has the GPU."""

    node: Node
    device: int
    use: float | None


def gpus_of(nodes: Sequence[Node], consumers: Sequence[Consumer]) -> list[Gpu]:
    """All GPUs; those of healthy nodes go to the workloads in turn, as long as there are any."""
    uses = iter(
        [each.stat.gpuUtilization for each in consumers for _ in range(each.stat.gpuRequest)]
    )
    return [
        Gpu(node, device, next(uses, None) if node.is_healthy else None)
        for node in nodes
        for device in range(node.gpus)
    ]


def overview(nodes: Sequence[Node], gpus: Sequence[Gpu], stored_tib: int) -> Json:
    """The document's overview. Faulty nodes are neither idle nor busy."""
    healthy = [node for node in nodes if node.is_healthy]
    used = [gpu for gpu in gpus if gpu.use is not None]
    counts = [(node, sum(gpu.node is node for gpu in used)) for node in healthy]
    idle = sum(count == 0 for _, count in counts)
    busy = sum(0 < node.gpus == count for node, count in counts)
    return {
        "totalNodes": len(nodes),
        "healthyNodes": len(healthy),
        "faultyNodes": len(nodes) - len(healthy),
        "fullyIdleNodes": idle,
        "partiallyIdleNodes": len(healthy) - idle - busy,
        "busyNodes": busy,
        "allocationRate": _rate(len(used), len(gpus)),
        "utilization": _rate(sum(gpu.use or 0.0 for gpu in used), len(used)),
        "storageStat": {
            "totalCapacity": f"{stored_tib}TB",
            "usedCapacity": "0TB",
            "availableCapacity": f"{stored_tib}TB",
            "utilizationRate": 0.0,
        },
        "rdmaClusterStat": {
            "totalPorts": PORTS_PER_NODE * len(nodes),
            "activePorts": PORTS_PER_NODE * len(healthy),
            "bandwidth": "400Gbps",
        },
    }


def heatmap(gpus: Sequence[Gpu], unit: str) -> Json:
    """The document's heatmap: the highest values of each kind. Utilization is in percent."""
    return {
        "power": _hottest(gpus, (_IDLE_WATTS, _FULL_WATTS), 2, "W", (850, 0)),
        "temperature": _hottest(gpus, (_IDLE_DEGREES, _FULL_DEGREES), 3, unit, (110, 20)),
        "utilization": _hottest(gpus, (0.0, 100.0), 1, "%", (100, 0)),
    }


def _hottest(
    gpus: Sequence[Gpu], span: tuple[float, float], serial: int, unit: str, axis: tuple[int, int]
) -> Json:
    low, high = span
    points = [
        {
            "nodeName": gpu.node.name,
            "deviceId": gpu.device,
            "value": round(low + (high - low) * (gpu.use or 0.0), 1),
            "gpuModel": gpu.node.gpu_model,
        }
        for gpu in gpus
    ]
    top = sorted(points, key=lambda point: -float(str(point["value"])))[:TOP]
    return {"serial": serial, "unit": unit, "yAxisMax": axis[0], "yAxisMin": axis[1], "data": top}


def _rate(part: float, whole: int) -> float:
    return round(part / whole, 4) if whole else 0.0
