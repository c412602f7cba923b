"""Evaluate the condition of a health gate against reports of Lens, or find them contradictory.

Called by the lifecycle of health gates, the lookups and the repair of overheated nodes. A number
that Lens does not report, or reports in unknown words or units, satisfies no bound; neither does an
impossible number: one below 0, or a rate above 1.

A contradictory answer is no evidence: a monitor that has lost its data shows -1, 0 or old figures
beside new ones. Each text names the field by its path in the answer. Only the parts that a
condition is about count: a Lens without figures of storage can still report nodes.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from math import fsum
from typing import Any, Final, Self

from pydantic import Field
from pydantic.alias_generators import to_camel

from gpuform.schemas.lens.inputs import ConditionInputs, RateBoundsInputs
from gpuform.schemas.lens.wire import (
    Consumer,
    GpuHeatmap,
    Heatmap,
    Overview,
    RdmaClusterStat,
    StorageStat,
)
from gpuform.schemas.models import WireModel, optional_field

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


def parse_terabytes(size: str) -> float | None:
    """Return a size (`450TB`) in TB, or None for other text."""
    return _parse_quantity(size, _TERABYTES_BY_UNIT)


def collect_numbers(
    overview: Overview, heatmap: GpuHeatmap | None = None
) -> dict[str, float | None]:
    """Return the cluster's numbers for conditions, by the names of the condition's fields.

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
    """Return ` on NODE GPU` for the maximum `value` of a heatmap; empty for other numbers."""
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


def _parse_quantity(quantity: str, units: Mapping[str, float]) -> float | None:
    """Return a number with a unit (`1.5 PB`) times the unit's factor; None for other text."""
    match = _NUMBER_WITH_UNIT.fullmatch(quantity.strip())
    factor = units.get(match[2]) if match else None
    return float(match[1]) * factor if match and factor is not None else None


def _compute_rate(part: float | None, total: float | None) -> float | None:
    """Return `part / total`; None if a number is not reported or the total is 0."""
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

    nodes: int | None = optional_field("GPU nodes.")
    free_nodes: int | None = optional_field("Nodes without any GPU in use.")
    partly_free_nodes: int | None = optional_field("Nodes with some GPUs in use.")
    busy_nodes: int | None = optional_field("Nodes with all GPUs in use.")
    faulty_nodes: int | None = optional_field("Nodes with faults.")
    workloads: int = Field(default=0, description="Workloads that request GPUs.")
    requested_gpus: int | None = optional_field("GPUs that workloads request.")
    idle_gpus: int | None = optional_field(
        "Requested GPUs of workloads that use at most 5% of their GPUs."
    )
    allocation_rate: float | None = optional_field("GPUs allotted, from 0 to 1.")
    utilization: float | None = optional_field("Utilization of the allotted GPUs, from 0 to 1.")
    storage_total_tb: float | None = optional_field("Storage, in TB.")
    storage_available_tb: float | None = optional_field("Free storage, in TB.")

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
    """Return the number of GPUs requested by a workload; 0 if Lens reports none."""
    return consumer.stat.gpu_request or 0


def _is_idle(consumer: Consumer) -> bool:
    """Return True if a workload's reported GPU utilization is at most `IDLE_UTILIZATION`."""
    utilization = consumer.stat.gpu_utilization
    return utilization is not None and 0 <= utilization <= IDLE_UTILIZATION


_ROUNDING: Final = 0.01
"""Sizes are rounded texts: used and free storage may add up to one percent more than the total."""
_RATE_ROUNDING: Final = 0.1

_PORTS: Final = frozenset({"active_ports", "total_ports", "active_port_rate"})
_SIZES: Final = frozenset({"storage_used_tb", "storage_available_tb", "storage_total_tb"})
_STORAGE: Final = _SIZES | {"storage_utilization_rate"}
_NODES: Final = (
    frozenset(ConditionInputs.model_fields)
    - _PORTS
    - _STORAGE
    - HEATMAP_BOUNDS
    - {"rdma_bandwidth_gbps"}
)


def find_overview_contradictions(condition: ConditionInputs, overview: Overview) -> list[str]:
    """Return a text for each gap or contradiction in the overview's numbers for `condition`."""
    bounds = set(condition.dump_declared())
    contradictions: list[str] = []
    if bounds & _NODES:
        contradictions += _find_node_contradictions(overview, is_zero_meant="total_nodes" in bounds)
    if bounds & _PORTS:
        contradictions += _find_port_contradictions(
            overview.rdma_cluster_stat, is_zero_meant="total_ports" in bounds
        )
    if bounds & _STORAGE:
        is_zero_meant = "storage_total_tb" in bounds
        # a rate alone can be judged without the sizes
        needs_total = bool(bounds & _SIZES)
        contradictions += _find_storage_contradictions(
            overview.storage_stat, needs_total=needs_total, is_zero_meant=is_zero_meant
        )
    return contradictions


def find_heatmap_contradictions(condition: ConditionInputs, heatmap: GpuHeatmap) -> list[str]:
    """Return a text for each impossible value and repeated GPU in the metrics of `condition`."""
    bounds = set(condition.dump_declared())
    contradictions: list[str] = []
    if "max_temperature" in bounds:
        contradictions += _find_metric_contradictions("temperature", heatmap.temperature)
    if "max_power" in bounds:
        contradictions += _find_metric_contradictions("power", heatmap.power)
    return contradictions


def _find_node_contradictions(overview: Overview, *, is_zero_meant: bool) -> Iterator[str]:
    """Yield a text for each impossible or contradictory count of nodes and rate of the overview.

    Also for a missing total. With `is_zero_meant`, a total of 0 nodes is a true number, and no sign
    of an empty monitor.
    """
    total = overview.total_nodes
    counts = {
        "healthyNodes": overview.healthy_nodes,
        "faultyNodes": overview.faulty_nodes,
        "fullyIdleNodes": overview.fully_idle_nodes,
        "partiallyIdleNodes": overview.partially_idle_nodes,
        "busyNodes": overview.busy_nodes,
    }
    yield from _find_total_contradictions("totalNodes", total, counts, is_zero_meant=is_zero_meant)
    yield from _find_rate_contradictions("allocationRate", overview.allocation_rate)
    yield from _find_rate_contradictions("utilization", overview.utilization)
    if total is None or total <= 0:
        return
    for names in (("healthyNodes", "faultyNodes"), tuple(counts)[2:]):
        number = sum(max(counts[name] or 0, 0) for name in names)
        if number > total and all((counts[name] or 0) <= total for name in names):
            yield f"{' and '.join(names)} are {number} together, more than totalNodes, {total}"
    # a monitor that has lost its data may show a rate of 0 beside old counts
    if overview.allocation_rate == 0 and (overview.busy_nodes or 0) > 0:
        yield f"allocationRate is 0, and busyNodes is {overview.busy_nodes}"
    if (overview.allocation_rate or 0) > 0 and overview.fully_idle_nodes == total:
        yield f"allocationRate is {overview.allocation_rate:g}, and all nodes are fullyIdleNodes"


def _find_port_contradictions(ports: RdmaClusterStat, *, is_zero_meant: bool) -> Iterator[str]:
    """Yield a text for each contradiction between total and active ports of the RDMA network."""
    counts = {"rdmaClusterStat.activePorts": ports.active_ports}
    name = "rdmaClusterStat.totalPorts"
    yield from _find_total_contradictions(
        name, ports.total_ports, counts, is_zero_meant=is_zero_meant
    )


def _find_storage_contradictions(
    storage: StorageStat, *, needs_total: bool, is_zero_meant: bool
) -> Iterator[str]:
    """Yield a text for each contradiction between the sizes and the rate of the storage.

    With `needs_total`, a missing total is one. With `is_zero_meant`, a total of 0 is none.
    """
    total = parse_terabytes(storage.total_capacity)
    used, free = parse_terabytes(storage.used_capacity), parse_terabytes(storage.available_capacity)
    rate = storage.utilization_rate
    yield from _find_rate_contradictions("storageStat.utilizationRate", rate)
    if total is None:
        if needs_total:
            yield "storageStat.totalCapacity is not reported"
        return
    if total == 0:
        if not is_zero_meant:
            yield "storageStat.totalCapacity is 0: Lens shows no storage"
        return
    # sizes are texts with few digits
    limit = total * (1 + _ROUNDING)
    parts = {"usedCapacity": used, "availableCapacity": free}
    oversized = {name: size for name, size in parts.items() if size is not None and size > limit}
    for name, size in oversized.items():
        yield f"storageStat.{name} is {size:g} TB, more than totalCapacity, {total:g} TB"
    used_and_free = fsum((used or 0, free or 0))
    if used_and_free > limit and not oversized:
        sizes = f"{used_and_free:g} TB of {total:g} TB"
        yield f"storageStat: usedCapacity and availableCapacity are {sizes}"
    if rate is not None and used is not None and abs(used / total - rate) > _RATE_ROUNDING:
        yield f"storageStat.utilizationRate is {rate:g}, and {used:g} of {total:g} TB are used"


def _find_total_contradictions(
    name: str, total: int | None, counts: dict[str, int | None], *, is_zero_meant: bool
) -> Iterator[str]:
    """Yield a text for a missing, zero or negative total, and each count below 0 or above `total`.

    A Lens that has just started reports a total of 0, too. So 0 proves nothing unless
    `is_zero_meant`: the condition has a bound on the total itself.
    """
    if total is None:
        yield f"{name} is not reported"
    elif total == 0 and not is_zero_meant:
        yield f"{name} is 0: Lens shows nothing that could be counted"
    elif total < 0:
        yield f"{name} is {total}, below 0"
    for part, count in counts.items():
        if count is not None and count < 0:
            yield f"{part} is {count}, below 0"
        elif count is not None and total is not None and 0 <= total < count:
            yield f"{part} is {count}, more than {name}, {total}"


def _find_rate_contradictions(name: str, rate: float | None) -> Iterator[str]:
    """Yield a text if a reported rate is not from 0 to 1."""
    if rate is not None and not 0 <= rate <= 1:
        yield f"{name} is {rate:g}, which is not from 0 to 1"


def _find_metric_contradictions(name: str, heatmap: Heatmap) -> Iterator[str]:
    """Yield a message for each impossible value of a heatmap, and each GPU listed twice.

    No running GPU has 0 °C or takes 0 W.
    """
    for point in heatmap.data:
        if point.value is not None and point.value <= 0:
            yield f"{name}: GPU {point.gpu} has {point.value:g}, an impossible value"
    yield from _find_repeated_gpus(name, heatmap)


def _find_repeated_gpus(name: str, heatmap: Heatmap) -> Iterator[str]:
    """Yield a message for each GPU listed more than once in a heatmap."""
    gpus: Sequence[str] = [point.gpu for point in heatmap.data if point.device_id is not None]
    repeated = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
    yield from (f"{name}: GPU {gpu} is shown more than once" for gpu in repeated)
