"""Define the answers of Lens (Lens reference, 'Clusters API').

Used by the Lens client. Attributes are Lens's names in snake_case. Rates are from 0 to 1, except
for the heatmap's utilization, which is in percent, as its unit says. A number that is missing or no
number is None, and does not make the other fields unreadable.
"""

from collections.abc import Callable
from math import isfinite
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, WrapValidator
from pydantic.alias_generators import to_camel

from gpuform.schemas.models import WireList, WireModel


def repair_encoding(text: object) -> object:
    """Return a text with the UTF-8 repaired where read as Windows-1252: `℃` for `â„ƒ`.

    Any other text or value is returned unchanged.
    """
    if not isinstance(text, str):
        return text
    try:
        # the reference itself shows the broken unit of temperatures
        return text.encode("cp1252").decode("utf-8")
    except UnicodeError:
        return text


def _read_number(value: object) -> float | None:
    """Return a reported number; None for other types, NaN and infinity."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if isfinite(value) else None


def _read_count(value: object) -> int | None:
    """Return a reported whole number as int (10 for 10.0); None for anything else."""
    # 10.0 counts as 10, 10.5 as no count
    number = _read_number(value)
    return int(number) if number is not None and number == int(number) else None


def _read_text(value: object) -> str:
    """Return a text reported by Lens; empty for values of other types."""
    return value if isinstance(value, str) else ""


def _read_part(value: Any, read: Callable[[Any], Any]) -> Any:
    """Return a part of Lens's answer by `read`; an empty part if the value has another form."""
    try:
        return read(value)
    except ValidationError:
        return read({})


Number = Annotated[int | float | None, BeforeValidator(_read_number)]
Count = Annotated[int | None, BeforeValidator(_read_count)]
Text = Annotated[str, BeforeValidator(_read_text)]

LENIENT_PART: Final = WrapValidator(_read_part)
"""Makes an object that cannot be read an empty one."""


class LensModel(WireModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class Envelope(LensModel):
    """The object around every answer. `code` 0 is success; `data` is the requested value."""

    # Errors may come with HTTP 200: only code 0 is success.
    code: Annotated[int, Field(strict=True)]
    message: str = ""
    data: Any = None
    trace_id: str = ""


class StorageStat(LensModel):
    """Capacities are texts with units, such as 1000TB."""

    total_capacity: Text = ""
    used_capacity: Text = ""
    available_capacity: Text = ""
    utilization_rate: Number = None


class RdmaClusterStat(LensModel):
    total_ports: Count = None
    active_ports: Count = None
    bandwidth: Text = ""


class Overview(LensModel):
    """The overview of a cluster.

    Idle, partially idle and busy nodes need not add up to all nodes.
    """

    # healthy = total - faulty; idle, partially idle and busy come from another pass.
    total_nodes: Count = None
    healthy_nodes: Count = None
    faulty_nodes: Count = None
    fully_idle_nodes: Count = None
    partially_idle_nodes: Count = None
    busy_nodes: Count = None
    allocation_rate: Number = None
    utilization: Number = None
    # An unreadable part must not hide the nodes.
    storage_stat: Annotated[StorageStat, LENIENT_PART] = StorageStat()
    rdma_cluster_stat: Annotated[RdmaClusterStat, LENIENT_PART] = RdmaClusterStat()


class GpuStat(LensModel):
    gpu_request: Count = None
    gpu_utilization: Number = None


class Consumer(LensModel):
    """A workload that uses GPUs. Lists of workloads have no pods."""

    kind: Text = ""
    name: Text = ""
    namespace: Text = ""
    uid: Text = ""
    stat: Annotated[GpuStat, LENIENT_PART] = GpuStat()
    pods: Any = None
    source: Text = ""

    @property
    def use(self) -> str:
        """Return the requested GPUs and their utilization for people: `8 GPUs, 40% used`."""
        gpus, utilization = self.stat.gpu_request, self.stat.gpu_utilization
        gpus_text = "GPUs unknown" if gpus is None else f"{gpus} GPU{'' if gpus == 1 else 's'}"
        return f"{gpus_text}, {'use unknown' if utilization is None else f'{utilization:.0%} used'}"


class ConsumerPage(WireList, LensModel):
    """A page of workloads. `total` counts the workloads on all pages."""

    # Inside the envelope's own `data`.
    data: tuple[Consumer, ...]
    total: Count = None


class HeatmapPoint(LensModel):
    """The value of one GPU, in the heatmap's unit."""

    node_name: Text = ""
    device_id: Count = None
    value: Number = None
    gpu_model: Text = ""

    @property
    def gpu(self) -> str:
        """The GPU for messages: the node, and the GPU's number on the node if Lens reports one."""
        return self.node_name if self.device_id is None else f"{self.node_name} {self.device_id}"


class Heatmap(LensModel):
    """The GPUs with the highest values of one metric."""

    serial: Count = None
    unit: Annotated[Text, BeforeValidator(repair_encoding)] = ""
    y_axis_max: Number = None
    y_axis_min: Number = None
    # The five GPUs with the highest values (top 5 of each metric).
    data: tuple[Annotated[HeatmapPoint, LENIENT_PART], ...] = ()


class GpuHeatmap(LensModel):
    """The heatmaps of all metrics. `utilization` is in percent."""

    power: Annotated[Heatmap, LENIENT_PART] = Heatmap()
    temperature: Annotated[Heatmap, LENIENT_PART] = Heatmap()
    utilization: Annotated[Heatmap, LENIENT_PART] = Heatmap()
