"""What Lens sends (Lens reference, 'Clusters API').

Attributes are its names in snake_case. Rates are from 0 to 1, but for the heatmap's utilization,
which is in percent, as its unit says. A number that is not told is None, and so is what is told
instead of one: that spoils no other field.
"""

from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator
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


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isfinite(value) else None


def _count(value: object) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number == int(number) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _part(value: Any, read: Callable[[Any], Any]) -> Any:
    try:
        return read(value)
    except ValidationError:
        return read({})


Number = Annotated[int | float | None, BeforeValidator(_number)]
Count = Annotated[int | None, BeforeValidator(_count)]
Text = Annotated[str, BeforeValidator(_text)]

PART: Final = WrapValidator(_part)
"""An object that tells nothing where it cannot be read."""


class LensModel(WireModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Envelope(LensModel):
    """Around every answer: 0 is success, `data` what was asked for."""

    code: Annotated[int, Field(strict=True)]
    message: str = ""
    data: Any = None
    trace_id: str = ""


class StorageStat(LensModel):
    """Capacities are texts with their units, such as 1000TB."""

    total_capacity: Text = ""
    used_capacity: Text = ""
    available_capacity: Text = ""
    utilization_rate: Number = None


class RdmaClusterStat(LensModel):
    total_ports: Count = None
    active_ports: Count = None
    bandwidth: Text = ""


class Overview(LensModel):
    """Idle, partially idle and busy nodes need not add up to all of them."""

    total_nodes: Count = None
    healthy_nodes: Count = None
    faulty_nodes: Count = None
    fully_idle_nodes: Count = None
    partially_idle_nodes: Count = None
    busy_nodes: Count = None
    allocation_rate: Number = None
    utilization: Number = None
    storage_stat: Annotated[StorageStat, PART] = StorageStat()
    rdma_cluster_stat: Annotated[RdmaClusterStat, PART] = RdmaClusterStat()


class GpuStat(LensModel):
    gpu_request: Count = None
    gpu_utilization: Number = None


class Consumer(LensModel):
    """A workload that uses GPUs. Lists have no pods."""

    kind: Text = ""
    name: Text = ""
    namespace: Text = ""
    uid: Text = ""
    stat: Annotated[GpuStat, PART] = GpuStat()
    pods: Any = None
    source: Text = ""

    @property
    def use(self) -> str:
        """Its GPUs and their use, in words: `8 GPUs, 40% used`."""
        gpus, use = self.stat.gpu_request, self.stat.gpu_utilization
        asked = "GPUs not told" if gpus is None else f"{gpus} GPU{'' if gpus == 1 else 's'}"
        return f"{asked}, {'use not told' if use is None else f'{use:.0%} used'}"


class ConsumerPage(WireList, LensModel):
    """`total` counts those on all pages."""

    data: tuple[Consumer, ...]
    total: Count = None


class HeatmapPoint(LensModel):
    """One GPU; `value` is in the heatmap's unit."""

    node_name: Text = ""
    device_id: Count = None
    value: Number = None
    gpu_model: Text = ""

    @property
    def gpu(self) -> str:
        """Its node, and its number there where Lens tells it."""
        return self.node_name if self.device_id is None else f"{self.node_name} {self.device_id}"


class Heatmap(LensModel):
    """The GPUs with the highest values."""

    serial: Count = None
    unit: Annotated[Text, BeforeValidator(repaired)] = ""
    y_axis_max: Number = None
    y_axis_min: Number = None
    data: tuple[Annotated[HeatmapPoint, PART], ...] = ()


class GpuHeatmap(LensModel):
    """`utilization` is in percent."""

    power: Annotated[Heatmap, PART] = Heatmap()
    temperature: Annotated[Heatmap, PART] = Heatmap()
    utilization: Annotated[Heatmap, PART] = Heatmap()
