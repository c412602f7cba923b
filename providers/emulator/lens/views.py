"""The nodes in numbers: allotted GPUs, the overview and the heatmap."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuform.providers.emulator.lens.settings import Consumer
from gpuform.providers.emulator.lens.sources import Node

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
