"""Find values in an answer of Lens that are impossible or contradict the rest of the answer.

Called by the lifecycle of health gates. Such an answer is no evidence: a monitor that has lost its
data shows
-1, 0 or old figures beside new ones. Each text names the field by its path in the answer. Only the
parts that
a condition is about count: a Lens without figures of storage can still report nodes.
"""

from collections.abc import Iterator, Sequence
from math import fsum
from typing import Final

from gpuform.schemas.lens.conditions import HEATMAP_BOUNDS, parse_terabytes
from gpuform.schemas.lens.inputs import ConditionInputs
from gpuform.schemas.lens.wire import GpuHeatmap, Heatmap, Overview, RdmaClusterStat, StorageStat

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
    """Yield a text for each impossible value of a heatmap, and each GPU that is shown twice.

    No running GPU has 0 °C or takes 0 W.
    """
    for point in heatmap.data:
        if point.value is not None and point.value <= 0:
            yield f"{name}: GPU {point.gpu} has {point.value:g}, an impossible value"
    yield from _find_repeated_gpus(name, heatmap)


def _find_repeated_gpus(name: str, heatmap: Heatmap) -> Iterator[str]:
    """Yield a text for each GPU that a heatmap shows more than once."""
    gpus: Sequence[str] = [point.gpu for point in heatmap.data if point.device_id is not None]
    repeated = sorted({gpu for gpu in gpus if gpus.count(gpu) > 1})
    yield from (f"{name}: GPU {gpu} is shown more than once" for gpu in repeated)
