"""Evaluate the condition of a health gate against reports of Lens, and count free capacity.

Called by the lifecycle of health gates, the lookups and the repair of overheated nodes. A number
that Lens does not report, or reports in unknown words or units, satisfies no bound; neither does an
impossible number: one below 0, or a rate above 1.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Self

from pydantic import Field
from pydantic.alias_generators import to_camel

from gpuform.schemas.lens.inputs import ConditionInputs, RateBoundsInputs
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Heatmap, Overview
from gpuform.schemas.models import WireModel

HEATMAP_BOUNDS: Final = frozenset({"max_temperature", "max_power"})
"""Bounds on numbers of the heatmap. All other bounds are on the overview."""

_TERABYTES_BY_UNIT: Final[Mapping[str, float]] = {
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
"""Units are case-sensitive: Tb are bits, an eighth of TB."""
_GIGABITS_BY_UNIT: Final[Mapping[str, float]] = {"Mbps": 1e-3, "Gbps": 1.0, "Tbps": 1e3}
"""Units are case-sensitive: GBps are bytes, eight times Gbps."""
_CELSIUS_UNITS: Final = ("℃", "°C", "C")
_NUMBER_WITH_UNIT: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)", re.ASCII)
_RATES: Final = frozenset(
    name
    for name, field in ConditionInputs.model_fields.items()
    if field.annotation == RateBoundsInputs | None
)

Numbers = Mapping[str, float | None]


def needs_heatmap(condition: ConditionInputs) -> bool:
    """Return True if a condition has a bound on single GPUs, which only the heatmap reports."""
    return bool(HEATMAP_BOUNDS & set(condition.dump_declared()))


def parse_terabytes(text: str) -> float | None:
    """Return a size (`450TB`) in TB, or None for other text."""
    return _parse_quantity(text, _TERABYTES_BY_UNIT)


def collect_numbers(
    overview: Overview, heatmap: GpuHeatmap | None = None
) -> dict[str, float | None]:
    """Return the cluster's numbers that a condition can bound, by the condition's field names.

    None is a number that Lens does not report.
    """
    ports, nodes, storage = overview.rdma_cluster_stat, overview.model_dump(), overview.storage_stat
    # without a heatmap its numbers are not reported
    gpu_heatmap = heatmap or GpuHeatmap()
    overview_numbers = {name: nodes[name] for name in ConditionInputs.model_fields if name in nodes}
    return {
        **overview_numbers,
        "active_ports": ports.active_ports,
        "total_ports": ports.total_ports,
        # Lens reports counts; rates are computed, None without a total
        "healthy_node_rate": _compute_rate(overview.healthy_nodes, overview.total_nodes),
        "active_port_rate": _compute_rate(ports.active_ports, ports.total_ports),
        "storage_utilization_rate": storage.utilization_rate,
        "storage_total_tb": parse_terabytes(storage.total_capacity),
        "storage_used_tb": parse_terabytes(storage.used_capacity),
        "storage_available_tb": parse_terabytes(storage.available_capacity),
        "rdma_bandwidth_gbps": _parse_quantity(ports.bandwidth, _GIGABITS_BY_UNIT),
        "max_temperature": _find_highest(gpu_heatmap.temperature, *_CELSIUS_UNITS),
        "max_power": _find_highest(gpu_heatmap.power, "W"),
    }


def is_possible(name: str, value: float | None) -> bool:
    """Return True if Lens reports the number, not below 0, and not above 1 for a rate."""
    return value is not None and value >= 0 and (value <= 1 or name not in _RATES)


def describe_violations(
    condition: ConditionInputs, overview: Overview, heatmap: GpuHeatmap | None = None
) -> str:
    """Return one text with each number outside of the condition's bounds, and the bounds.

    Empty if the condition holds. A number that Lens does not report violates its bounds.
    """
    numbers = collect_numbers(overview, heatmap)
    return ", ".join(_find_violations(condition.dump_declared(), numbers, heatmap or GpuHeatmap()))


def _find_violations(
    condition: Mapping[str, Any], numbers: Numbers, heatmap: GpuHeatmap
) -> Iterator[str]:
    """Yield a text for each number outside of the condition's bounds, missing or impossible."""
    for name, bounds in condition.items():
        value = numbers[name]
        minimum, maximum = bounds.get("at_least"), bounds.get("at_most")
        bounds_text = f"at least {minimum:g}" if minimum is not None else ""
        if maximum is not None:
            bounds_text += (" and " if bounds_text else "") + f"at most {maximum:g}"
        # a missing number must not open a gate
        if value is None:
            yield f"{to_camel(name)} is not reported (wanted: {bounds_text})"
        elif not is_possible(name, value):  # below 0, or a rate of more than 1
            yield f"{to_camel(name)}={value:g} is impossible (wanted: {bounds_text})"
        elif (minimum is not None and value < minimum) or (maximum is not None and value > maximum):
            gpu = _describe_gpu(name, value, heatmap)
            yield f"{to_camel(name)}={value:g}{gpu} (wanted: {bounds_text})"


def _describe_gpu(name: str, value: float, heatmap: GpuHeatmap) -> str:
    """Return ` on NODE GPU` for a maximum of the heatmap, by its value; empty for other numbers."""
    if name not in HEATMAP_BOUNDS:
        return ""
    points = heatmap.power.data if name == "max_power" else heatmap.temperature.data
    point = next(candidate for candidate in points if candidate.value == value)
    return f" on {point.gpu}"


def to_celsius(value: float | None, unit: str) -> float | None:
    """Return a temperature of the heatmap in °C, or None if the heatmap has another unit."""
    # the reference shows ℃; other spellings are accepted
    return value if unit.strip() in _CELSIUS_UNITS else None


def _find_highest(heatmap: Heatmap, *units: str) -> float | None:
    """Return the highest value of a heatmap of GPUs.

    Returns None if the heatmap is empty, if a GPU has no value, or if the unit is not in `units`.
    """
    values = [point.value for point in heatmap.data if point.value is not None]
    # an unreported GPU may be the hottest one
    is_complete = len(values) == len(heatmap.data)
    return max(values, default=None) if is_complete and heatmap.unit.strip() in units else None


def _parse_quantity(text: str, units: Mapping[str, float]) -> float | None:
    """Return a number with a unit (`1.5 PB`) times the unit's factor; None for other text."""
    match = _NUMBER_WITH_UNIT.fullmatch(text.strip())
    factor = units.get(match[2]) if match else None
    return float(match[1]) * factor if match and factor is not None else None


def _compute_rate(part: float | None, total: float | None) -> float | None:
    """Return `part / total`; None if one of them is not reported or the total is 0."""
    return part / total if part is not None and total else None


IDLE_UTILIZATION = 0.05
"""A workload that uses its GPUs no more than this leaves them idle."""

_OVERVIEW_NAMES: Final = {
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
    """The free capacity of a cluster.

    Lens counts free nodes; it counts GPUs only as workloads request them.

    A number that Lens does not report is None.
    """

    nodes: int | None = Field(default=None, description="GPU nodes.")
    free_nodes: int | None = Field(default=None, description="Nodes without any GPU in use.")
    partly_free_nodes: int | None = Field(default=None, description="Nodes with some GPUs in use.")
    busy_nodes: int | None = Field(default=None, description="Nodes with all GPUs in use.")
    faulty_nodes: int | None = Field(default=None, description="Nodes with faults.")
    workloads: int = Field(default=0, description="Workloads that request GPUs.")
    requested_gpus: int | None = Field(default=None, description="GPUs that workloads request.")
    idle_gpus: int | None = Field(
        default=None, description="Requested GPUs of workloads that use at most 5% of their GPUs."
    )
    allocation_rate: float | None = Field(default=None, description="GPUs allotted, from 0 to 1.")
    utilization: float | None = Field(
        default=None, description="Utilization of the allotted GPUs, from 0 to 1."
    )
    storage_total_tb: float | None = Field(default=None, description="Storage, in TB.")
    storage_available_tb: float | None = Field(default=None, description="Free storage, in TB.")

    @classmethod
    def from_overview(cls, overview: Overview, consumers: Sequence[Consumer]) -> Self:
        """Return the capacity reported by an overview and the workloads.

        A workload without a reported utilization is not idle. An impossible number counts as not
        reported, and if one workload's request cannot be read, the number of requested GPUs does,
        too.
        """
        numbers = collect_numbers(overview)
        gpu_consumers = [consumer for consumer in consumers if _requests_gpus(consumer)]
        requests = [consumer.stat.gpu_request for consumer in gpu_consumers]
        return cls.model_validate(
            {
                **{
                    field: numbers[name]
                    for field, name in _OVERVIEW_NAMES.items()
                    if is_possible(name, numbers[name])
                },
                "workloads": len(gpu_consumers),
                "requested_gpus": None if None in requests else sum(filter(None, requests)),
                "idle_gpus": sum(
                    _get_requested_gpus(consumer)
                    for consumer in gpu_consumers
                    if _is_idle(consumer)
                ),
            }
        )


def _requests_gpus(consumer: Consumer) -> bool:
    """Return True if a workload requests GPUs, even by an invalid number."""
    is_unreadable = (
        consumer.stat.gpu_request is None and "gpu_request" in consumer.stat.model_fields_set
    )
    return is_unreadable or _get_requested_gpus(consumer) > 0


def _get_requested_gpus(consumer: Consumer) -> int:
    """Return the number of GPUs that a workload requests; 0 if Lens reports none."""
    return consumer.stat.gpu_request or 0


def _is_idle(consumer: Consumer) -> bool:
    """Return True if a workload's reported GPU utilization is at most `IDLE_UTILIZATION`."""
    utilization = consumer.stat.gpu_utilization
    return utilization is not None and 0 <= utilization <= IDLE_UTILIZATION
