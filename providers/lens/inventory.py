"""Look up what Lens reports, for programs, for repairs of overheated nodes and for idle stops.

The address is that of the environment (`LENS_URL`, with `LENS_TOKEN` where a token is required),
else of the running program's configuration (`lens:url`, `lens:token`). Every function raises
GpuformError if Lens does not answer, or answers with an error, which has Lens's traceId.

Whether the GPUs of named nodes are idle takes a proof. Lens documents no list of GPUs: its heatmap
shows the five highest of each metric (Lens reference, 'Get GPU Heatmap'). So Lens knows a GPU only
if one of the three metrics names it. The use of a GPU is known if `utilization` shows it, or is
bounded by the lowest GPU that `utilization` shows. A node that no metric names may belong to a
cluster that this Lens does not watch: its absence proves nothing. Five of each metric are at most
15 GPUs, so a Lens that shows no more of them cannot prove the idleness of two servers of eight.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.providers.catalog import ExistingObject
from gpuform.providers.http import Retry
from gpuform.providers.lens.client import PAGE_SIZE, LensClient, get_client
from gpuform.providers.operations import Settings, get_lookup_settings
from gpuform.schemas.lens.conditions import Capacity, find_overview_contradictions, to_celsius
from gpuform.schemas.lens.inputs import ConditionInputs
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Heatmap, Overview


def list_existing_objects(_settings: Settings) -> list[ExistingObject]:
    """Return no objects, without a request: Lens has none to import."""
    return []


def capacity() -> Capacity:
    """Return free and idle nodes, requested GPUs, allocation, use and storage, as of now.

    Lens has no history, so there is no trend.
    """
    client = _get_client()
    return Capacity.from_overview(client.get_overview(), client.list_consumers())


def get_overview() -> Overview:
    """Return nodes, GPUs, storage and RDMA ports in numbers; rates are from 0 to 1."""
    return _get_client().get_overview()


def get_consumers(page_size: int = PAGE_SIZE) -> Sequence[Consumer]:
    """Return all workloads on GPUs, fetched in pages of `page_size`.

    Raises:
        NotEnoughEvidence: the pages contradict each other at each of four reads.
    """
    return _get_client().list_consumers(page_size)


def get_heatmap() -> GpuHeatmap:
    """Return the GPUs with the most power (W), heat (℃) and use (percent)."""
    return _get_client().get_heatmap()


def _get_client() -> LensClient:
    """Return the process's client of Lens, with the settings of look-ups in programs."""
    return get_client(get_lookup_settings())


def describe_overheated_nodes(
    settings: Settings, node_names: Collection[str], max_celsius: float
) -> Mapping[str, str]:
    """Return a message for each node in `node_names` with a GPU above `max_celsius`.

    Lens's heatmap shows the hottest GPUs only (Lens reference, 'GPU Heatmap'), so further hot nodes
    may have no message. A value in another unit, or without a node's name, is ignored.

    Raises:
        GpuformError: Lens cannot be asked.
    """
    heatmap = get_client(settings).get_heatmap(retry=Retry.NEVER).temperature
    hottest_by_node: dict[str, tuple[float, str]] = {}
    for point in heatmap.data:
        degrees = to_celsius(point.value, heatmap.unit)
        # The same GPU may be listed more than once: its highest value counts.
        if degrees is not None and degrees > max_celsius and point.node_name in node_names:
            hottest_by_node[point.node_name] = max(
                hottest_by_node.get(point.node_name, (0.0, "")), (degrees, point.gpu)
            )
    return {
        node: f"GPU {gpu} has {degrees:g} °C, above {max_celsius:g} °C (Lens)"
        for node, (degrees, gpu) in hottest_by_node.items()
    }


_HEATMAP_LENGTH: Final = 5
"""How many GPUs of each metric the heatmap shows (Lens reference, 'Get GPU Heatmap')."""
_TOLERANCE_PERCENT: Final = 5.0
"""Percent by which answers may differ that were measured one after another."""
_UTILIZATION_CONDITION: Final = ConditionInputs.model_validate({"utilization": {"at_most": 1}})

Gpu = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LensAnswers:
    """The answers of Lens to one request for each endpoint."""

    heatmap: GpuHeatmap
    overview: Overview
    consumers: Sequence[Consumer]


def fetch_answers(client: LensClient) -> LensAnswers:
    """Request heatmap, overview and workloads from Lens, each without retries.

    Raises:
        GpuformError: a request fails, or the list of workloads is not proven complete.
    """
    return LensAnswers(
        # Each sent once: answers that are minutes apart do not belong together.
        client.get_heatmap(retry=Retry.NEVER),
        client.get_overview(retry=Retry.NEVER),
        client.list_consumers(retry=Retry.NEVER),
    )


def find_missing_proof(
    answers: LensAnswers, node_names: Collection[str], gpus_per_node: int, max_percent: float
) -> Iterator[str]:
    """Yield each reason why Lens does not prove the GPUs of the nodes idle; none if all are proven.

    Faults of the heatmap itself are the only reasons, if there are any.

    Args:
        answers: the answers of `fetch_answers`.
        node_names: the names of the nodes in Lens.
        gpus_per_node: how many GPUs each node has.
        max_percent: a GPU is idle if used less than this.
    """
    heatmap_faults = list(_find_heatmap_faults(answers.heatmap))
    # A heatmap that breaks its own rules proves nothing about single GPUs.
    if heatmap_faults:
        yield from heatmap_faults
        return
    use_by_gpu = _get_use_by_gpu(answers.heatmap.utilization)
    named_gpus = _find_named_gpus(answers.heatmap)
    for node in sorted(node_names):
        yield from _find_gpu_count_gaps(node, named_gpus, gpus_per_node)
        for (name, device), use in use_by_gpu.items():
            if name == node and use >= max_percent:
                yield f"GPU {node} {device} is used {use:g}%"
    yield from _find_unbounded_gpus(
        use_by_gpu, {gpu for gpu in named_gpus if gpu[0] in node_names}, max_percent
    )
    yield from _find_contradictions(answers, use_by_gpu, {name for name, _ in named_gpus})


def _find_heatmap_faults(heatmap: GpuHeatmap) -> Iterator[str]:
    """Yield the faults that make the heatmap useless.

    These are wrong units or values, no GPU at all, and unnamed or repeated GPUs.
    """
    use = heatmap.utilization
    # Every later comparison takes the values as percent.
    if use.unit.strip() != "%" or (use.y_axis_min, use.y_axis_max) != (0, 100):
        yield "gpuHeatmap: utilization is not a percentage"
    if not use.data:
        yield "gpuHeatmap: utilization shows no GPU"
    for point in use.data:
        if point.value is None or not 0 <= point.value <= 100:
            yield f"gpuHeatmap: utilization of GPU {point.gpu} is not a number from 0 to 100"
    for metric, ranking in _get_metrics(heatmap).items():
        gpus = [(point.node_name, point.device_id) for point in ranking.data]
        # A GPU without its number cannot be counted among the GPUs of its node.
        if any(not node or device is None or device < 0 for node, device in gpus):
            yield f"gpuHeatmap: {metric} shows a GPU without its node or its number"
        elif len(set(gpus)) < len(gpus):
            yield f"gpuHeatmap: {metric} shows one GPU more than once"


def _find_gpu_count_gaps(
    node: str, named_gpus: Collection[Gpu], gpus_per_node: int
) -> Iterator[str]:
    """Yield a gap if Lens names more or fewer than `gpus_per_node` GPUs of the node."""
    gpu_count = sum(name == node for name, _ in named_gpus)
    if gpu_count == 0:
        yield f"no answer names {node}: Lens may not monitor the node"
    elif gpu_count < gpus_per_node:
        yield (
            f"it reports {gpu_count} of the {gpus_per_node} GPUs of {node}; the heatmap "
            "shows only the highest values of each metric"
        )
    # Then the declared number of GPUs is wrong, and the rest of the proof with it.
    elif gpu_count > gpus_per_node:
        yield f"it reports {gpu_count} GPUs of {node}, which has {gpus_per_node}"


def _find_unbounded_gpus(
    use_by_gpu: Mapping[Gpu, float], gpus: Collection[Gpu], max_percent: float
) -> Iterator[str]:
    """Yield a gap if GPUs in `gpus` but not in `use_by_gpu` may be used `max_percent` or more.

    Only a list of the documented length is known to be the top of a ranking, whose lowest use
    bounds the GPUs left out. A list of another length bounds nothing. `use_by_gpu` has at least one
    GPU.
    """
    hidden_gpus = sorted(
        f"{node} {device}" for node, device in gpus if (node, device) not in use_by_gpu
    )
    # The heatmap is a ranking: a GPU that it leaves out is used no more than the lowest one shown.
    lowest_shown = min(use_by_gpu.values())
    if hidden_gpus and len(use_by_gpu) != _HEATMAP_LENGTH:
        yield (
            f"gpuHeatmap: utilization shows {len(use_by_gpu)} GPUs and omits "
            f"{', '.join(hidden_gpus)}"
        )
    elif hidden_gpus and lowest_shown >= max_percent:
        yield (
            f"the {len(use_by_gpu)} busiest GPUs are used {lowest_shown:g}% or more: Lens "
            f"does not show the utilization of {len(hidden_gpus)} other GPUs of these nodes"
        )


def _find_contradictions(
    answers: LensAnswers, use_by_gpu: Mapping[Gpu, float], node_names: Collection[str]
) -> Iterator[str]:
    """Yield where the overview or the workloads show more use, or fewer nodes, than the heatmap.

    An overview without utilization counts, too. `node_names` are all nodes that the heatmap names.
    """
    overview, highest = answers.overview, max(use_by_gpu.values())
    yield from (
        f"overview: {problem}"
        for problem in find_overview_contradictions(_UTILIZATION_CONDITION, overview)
    )
    if overview.total_nodes is not None and overview.total_nodes < len(node_names):
        yield (
            f"overview: totalNodes is {overview.total_nodes}, but gpuHeatmap names "
            f"{len(node_names)} nodes"
        )
    if overview.utilization is None:
        yield "overview: utilization is not reported"
    # The overview's value is a mean, and a mean is never above the highest value.
    elif overview.utilization * 100 > highest + _TOLERANCE_PERCENT:
        yield (
            f"overview: utilization is {overview.utilization:.0%}, but no GPU of gpuHeatmap "
            f"is used more than {highest:g}%"
        )
    # A workload's value is a mean of its GPUs, too.
    for consumer in answers.consumers:
        use = consumer.stat.gpu_utilization
        if use is not None and use * 100 > highest + _TOLERANCE_PERCENT:
            yield (
                f"consumers: {consumer.namespace}/{consumer.name} uses {use:.0%} of its "
                f"GPUs, but no GPU of gpuHeatmap is used more than {highest:g}%"
            )


def _get_metrics(heatmap: GpuHeatmap) -> dict[str, Heatmap]:
    """Return the three metrics of the heatmap by name."""
    return {
        "power": heatmap.power,
        "temperature": heatmap.temperature,
        "utilization": heatmap.utilization,
    }


def _list_gpus(metric: Heatmap) -> set[Gpu]:
    """Return the GPUs of one metric, without entries which lack the GPU's number."""
    return {
        (point.node_name, point.device_id) for point in metric.data if point.device_id is not None
    }


def _find_named_gpus(heatmap: GpuHeatmap) -> set[Gpu]:
    """Return the GPUs with a real reading of any metric.

    A monitor that has lost a GPU may go on to list it with -1 or 0, so only a power or temperature
    above 0 shows that a GPU is watched.
    """
    watched = [
        (point.node_name, point.device_id)
        for metric in (heatmap.power, heatmap.temperature)
        for point in metric.data
        if point.device_id is not None and point.value is not None and point.value > 0
    ]
    return _list_gpus(heatmap.utilization) | set(watched)


def _get_use_by_gpu(metric: Heatmap) -> dict[Gpu, float]:
    """Return the value of each GPU of one metric, without entries which lack number or value."""
    return {
        (point.node_name, point.device_id): point.value
        for point in metric.data
        if point.device_id is not None and point.value is not None
    }
