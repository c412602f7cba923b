"""What Lens sends (Lens reference, 'Clusters API').

Attributes are its names in snake_case. Rates are from 0 to 1, but for the heatmap's utilization,
which is in percent, as its unit says. An overview's number that is not told is None.
"""

from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict
from pydantic.alias_generators import to_camel

from gpuform.schemas.models import WireList, WireModel


def repaired(text: object) -> object:
    """A text whose UTF-8 was once read as Windows-1252, as it was: `℃` for `â„ƒ`."""
    if not isinstance(text, str):
        return text
    try:
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return text


class LensModel(WireModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Envelope(LensModel):
    """Around every answer: 0 is success, `data` what was asked for."""

    code: int
    message: str = ""
    data: Any = None
    trace_id: str = ""


class StorageStat(LensModel):
    """Capacities are texts with their units, such as 1000TB."""

    total_capacity: str = ""
    used_capacity: str = ""
    available_capacity: str = ""
    utilization_rate: float | None = None


class RdmaClusterStat(LensModel):
    total_ports: int | None = None
    active_ports: int | None = None
    bandwidth: str = ""


class Overview(LensModel):
    """Idle, partially idle and busy nodes need not add up to all of them."""

    total_nodes: int | None = None
    healthy_nodes: int | None = None
    faulty_nodes: int | None = None
    fully_idle_nodes: int | None = None
    partially_idle_nodes: int | None = None
    busy_nodes: int | None = None
    allocation_rate: float | None = None
    utilization: float | None = None
    storage_stat: StorageStat = StorageStat()
    rdma_cluster_stat: RdmaClusterStat = RdmaClusterStat()


class GpuStat(LensModel):
    gpu_request: int = 0
    gpu_utilization: float = 0.0


class Consumer(LensModel):
    """A workload that uses GPUs. Lists have no pods."""

    kind: str = ""
    name: str = ""
    namespace: str = ""
    uid: str = ""
    stat: GpuStat = GpuStat()
    pods: tuple[Any, ...] | None = None
    source: str = ""


class ConsumerPage(WireList, LensModel):
    """`total` counts those on all pages."""

    data: tuple[Consumer, ...]
    total: int = 0


class HeatmapPoint(LensModel):
    """One GPU; `value` is in the heatmap's unit."""

    node_name: str = ""
    device_id: int = 0
    value: float = 0.0
    gpu_model: str = ""


class Heatmap(LensModel):
    """The GPUs with the highest values."""

    serial: int = 0
    unit: Annotated[str, BeforeValidator(repaired)] = ""
    y_axis_max: int = 0
    y_axis_min: int = 0
    data: tuple[HeatmapPoint, ...] = ()


class GpuHeatmap(LensModel):
    """`utilization` is in percent."""

    power: Heatmap = Heatmap()
    temperature: Heatmap = Heatmap()
    utilization: Heatmap = Heatmap()
