"""Evaluate the condition of a health gate against what Lens reports, and count free capacity.

What is not told, or is told in words or units that gpuform does not read, satisfies nothing; nor
does a number that cannot be: one below 0, or a rate of more than 1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from pydantic import Field
from pydantic.alias_generators import to_camel

from gpuform.schemas.lens.inputs import ConditionInputs, RateBoundsInputs
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Heatmap, Overview
from gpuform.schemas.models import WireModel

HEATMAP: Final = frozenset({"max_temperature", "max_power"})
"""Bounds of what the heatmap tells; all others are of the overview."""

_TERABYTES: Final[Mapping[str, float]] = {
    "B": 1e-12,
    "kB": 1e-9,
    "KB": 1e-9,
    "MB": 1e-6,
    "GB": 1e-3,
    "TB": 1.0,
    "PB": 1e3,
    "EB": 1e6,
    "KiB": 2**10 / 1e12,
    "MiB": 2**20 / 1e12,
    "GiB": 2**30 / 1e12,
    "TiB": 2**40 / 1e12,
    "PiB": 2**50 / 1e12,
}
"""Spelled exactly: Tb are bits, an eighth of TB."""
_GIGABITS: Final[Mapping[str, float]] = {"Mbps": 1e-3, "Gbps": 1.0, "Tbps": 1e3}
"""Spelled exactly: GBps are bytes, eight times Gbps."""
_DEGREES: Final = ("℃", "°C", "C")
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", re.ASCII)
_RATES: Final = frozenset(
    name
    for name, field in ConditionInputs.model_fields.items()
    if field.annotation == RateBoundsInputs | None
)

Numbers = Mapping[str, float | None]


def asks_heatmap(condition: ConditionInputs) -> bool:
    """Whether a condition is about single GPUs."""
    return bool(HEATMAP & set(condition.dump_declared()))


def terabytes(text: str) -> float | None:
    """A size such as `450TB` in TB; None for what is no size."""
    return _measured(text, _TERABYTES)


def numbers_of(overview: Overview, heatmap: GpuHeatmap | None = None) -> dict[str, float | None]:
    """The numbers that conditions are about, by their names; None is not told."""
    ports, nodes, storage = overview.rdma_cluster_stat, overview.model_dump(), overview.storage_stat
    seen = heatmap or GpuHeatmap()
    plain = {name: nodes[name] for name in ConditionInputs.model_fields if name in nodes}
    return {
        **plain,
        "active_ports": ports.active_ports,
        "total_ports": ports.total_ports,
        "healthy_node_rate": _rate(overview.healthy_nodes, overview.total_nodes),
        "active_port_rate": _rate(ports.active_ports, ports.total_ports),
        "storage_utilization_rate": storage.utilization_rate,
        "storage_total_tb": terabytes(storage.total_capacity),
        "storage_used_tb": terabytes(storage.used_capacity),
        "storage_available_tb": terabytes(storage.available_capacity),
        "rdma_bandwidth_gbps": _measured(ports.bandwidth, _GIGABITS),
        "max_temperature": _highest(seen.temperature, *_DEGREES),
        "max_power": _highest(seen.power, "W"),
    }


def can_be(name: str, value: float | None) -> bool:
    """Whether a number of this name is told, and is possible."""
    return value is not None and value >= 0 and (value <= 1 or name not in _RATES)


def amiss(condition: ConditionInputs, overview: Overview, heatmap: GpuHeatmap | None = None) -> str:
    """Each number that is out of its bounds, with the bounds; empty when the condition holds."""
    numbers = numbers_of(overview, heatmap)
    return ", ".join(_amiss(condition.dump_declared(), numbers, heatmap or GpuHeatmap()))


def _amiss(condition: Mapping[str, Any], numbers: Numbers, heatmap: GpuHeatmap) -> Iterator[str]:
    for name, bounds in condition.items():
        value = numbers[name]
        least, most = bounds.get("at_least"), bounds.get("at_most")
        wanted = f"at least {least:g}" if least is not None else ""
        if most is not None:
            wanted += (" and " if wanted else "") + f"at most {most:g}"
        if value is None:
            yield f"{to_camel(name)} is not told (wanted: {wanted})"
        elif not can_be(name, value):  # below 0, or a rate of more than 1
            yield f"{to_camel(name)}={value:g} cannot be (wanted: {wanted})"
        elif (least is not None and value < least) or (most is not None and value > most):
            yield f"{to_camel(name)}={value:g}{_where(name, value, heatmap)} (wanted: {wanted})"


def _where(name: str, value: float, heatmap: GpuHeatmap) -> str:
    """The GPU with the value."""
    if name not in HEATMAP:
        return ""
    points = heatmap.power.data if name == "max_power" else heatmap.temperature.data
    point = next(each for each in points if each.value == value)
    return f" on {point.gpu}"


def degrees_of(value: float | None, unit: str) -> float | None:
    """A value of the heatmap of temperatures in °C; None where it is not told in that unit."""
    return value if unit.strip() in _DEGREES else None


def _highest(heatmap: Heatmap, *units: str) -> float | None:
    """The highest value; None without any, with one that is not told, and in another unit."""
    told = [each.value for each in heatmap.data if each.value is not None]
    is_whole = len(told) == len(heatmap.data)
    return max(told, default=None) if is_whole and heatmap.unit.strip() in units else None


def _measured(text: str, units: Mapping[str, float]) -> float | None:
    match = _SIZE.fullmatch(text.strip())
    factor = units.get(match[2]) if match else None
    return float(match[1]) * factor if match and factor is not None else None


def _rate(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


IDLE_USE = 0.05
"""A workload that uses no more of its GPUs than this leaves them idle."""

_OF: Final = {
    "nodes": "total_nodes",
    "free_nodes": "fully_idle_nodes",
    "partly_free_nodes": "partially_idle_nodes",
    "busy_nodes": "busy_nodes",
    "faulty_nodes": "faulty_nodes",
    "allocation_rate": "allocation_rate",
    "utilization": "utilization",
    "storage_total_tb": "storage_total_tb",
    "storage_available_tb": "storage_available_tb",
}
"""The overview's name of each number."""


class Capacity(WireModel):
    """Lens tells no number of GPUs but those that workloads request: free ones are told by nodes.

    What Lens does not tell is None.
    """

    nodes: int | None = Field(default=None, description="GPU nodes.")
    free_nodes: int | None = Field(default=None, description="Nodes without any GPU in use.")
    partly_free_nodes: int | None = Field(default=None, description="Nodes with some in use.")
    busy_nodes: int | None = Field(default=None, description="Nodes with all in use.")
    faulty_nodes: int | None = Field(default=None, description="Nodes with faults.")
    workloads: int = Field(default=0, description="Workloads that request GPUs.")
    requested_gpus: int | None = Field(default=None, description="GPUs that workloads request.")
    idle_gpus: int | None = Field(
        default=None, description="Of these, GPUs of workloads that use 5% of them or less."
    )
    allocation_rate: float | None = Field(default=None, description="GPUs allotted, from 0 to 1.")
    utilization: float | None = Field(default=None, description="Use of them, from 0 to 1.")
    storage_total_tb: float | None = Field(default=None, description="Storage, in TB.")
    storage_available_tb: float | None = Field(default=None, description="Free storage, in TB.")

    @classmethod
    def of(cls, overview: Overview, consumers: Sequence[Consumer]) -> Self:
        """A workload whose use is not told is not idle; what cannot be is not told."""
        numbers = numbers_of(overview)
        asking = [each for each in consumers if _is_asking(each)]
        requests = [each.stat.gpu_request for each in asking]
        return cls.model_validate(
            {
                **{own: numbers[name] for own, name in _OF.items() if can_be(name, numbers[name])},
                "workloads": len(asking),
                "requested_gpus": None if None in requests else sum(filter(None, requests)),
                "idle_gpus": sum(_asked(each) for each in asking if _is_idle(each)),
            }
        )


def _is_asking(consumer: Consumer) -> bool:
    """Also with a request that is no number."""
    is_odd = consumer.stat.gpu_request is None and "gpu_request" in consumer.stat.model_fields_set
    return is_odd or _asked(consumer) > 0


def _asked(consumer: Consumer) -> int:
    return consumer.stat.gpu_request or 0


def _is_idle(consumer: Consumer) -> bool:
    use = consumer.stat.gpu_utilization
    return use is not None and 0 <= use <= IDLE_USE
