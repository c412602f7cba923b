"""Whether Lens proves that GPUs of named nodes are idle; `providers/scp/idleness.py` asks.

Lens documents no list of GPUs: its heatmap shows the five highest of each metric (Lens reference,
'Get GPU Heatmap'). So a GPU is known to Lens only if one of the three metrics names it, and its use
is known if `utilization` shows it, or is bounded by the lowest GPU that `utilization` shows. A node
that no metric names may belong to a cluster that this Lens does not watch: its absence proves
nothing. Five of each metric are at most 15 GPUs, so a Lens that shows no more of them cannot prove
the idleness of two servers of eight.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.providers.http import Retry
from gpuform.providers.lens.client import LensClient
from gpuform.schemas.lens.contradictions import find_overview_contradictions
from gpuform.schemas.lens.inputs import ConditionInputs
from gpuform.schemas.lens.wire import Consumer, GpuHeatmap, Heatmap, Overview

_TOP: Final = 5
"""How many GPUs of each metric the heatmap shows (Lens reference, 'Get GPU Heatmap')."""
_TOLERANCE: Final = 5.0
"""Percent by which answers may differ that were measured one after another."""
_ON_NODES: Final = ConditionInputs.model_validate({"utilization": {"at_most": 1}})

Gpu = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LensAnswers:
    """What one look at Lens shows, each answer asked for once."""

    heatmap: GpuHeatmap
    overview: Overview
    consumers: Sequence[Consumer]


def ask_lens(client: LensClient) -> LensAnswers:
    """Ask Lens for all that it documents. Raises GpuformError when one answer is missing."""
    return LensAnswers(
        client.heatmap(retry=Retry.NEVER),
        client.overview(retry=Retry.NEVER),
        client.consumers(retry=Retry.NEVER),
    )


def find_missing_proof(
    answers: LensAnswers, nodes: Collection[str], gpus_per_node: int, below: float
) -> Iterator[str]:
    """Yield what Lens does not prove of the use of these nodes' GPUs; nothing when all are idle.

    Args:
        answers: one look at Lens.
        nodes: the names of the nodes, as Lens has them.
        gpus_per_node: how many GPUs each of them has.
        below: the use in percent that each GPU has to be below.
    """
    unreadable = list(_find_unreadable(answers.heatmap))
    if unreadable:
        yield from unreadable
        return
    uses = _uses_of(answers.heatmap.utilization)
    named = _gpus_named(answers.heatmap)
    for node in sorted(nodes):
        yield from _find_unnamed(node, named, gpus_per_node)
        for (name, device), use in uses.items():
            if name == node and use >= below:
                yield f"GPU {node} {device} is used {use:g}%"
    yield from _find_unbounded(uses, {gpu for gpu in named if gpu[0] in nodes}, below)
    yield from _find_contradictions(answers, uses, {name for name, _ in named})


def _find_unreadable(heatmap: GpuHeatmap) -> Iterator[str]:
    """Yield what keeps the heatmap from being evidence at all."""
    use = heatmap.utilization
    if use.unit.strip() != "%" or (use.y_axis_min, use.y_axis_max) != (0, 100):
        yield "gpuHeatmap: utilization is not in percent from 0 to 100"
    if not use.data:
        yield "gpuHeatmap: utilization shows no GPU"
    for point in use.data:
        if point.value is None or not 0 <= point.value <= 100:
            yield f"gpuHeatmap: utilization of GPU {point.gpu} is not a number from 0 to 100"
    for metric, shown in _metrics(heatmap).items():
        gpus = [(each.node_name, each.device_id) for each in shown.data]
        if any(not node or device is None or device < 0 for node, device in gpus):
            yield f"gpuHeatmap: {metric} shows a GPU without its node or its number"
        elif len(set(gpus)) < len(gpus):
            yield f"gpuHeatmap: {metric} shows one GPU more than once"


def _find_unnamed(node: str, named: Collection[Gpu], gpus_per_node: int) -> Iterator[str]:
    number = sum(name == node for name, _ in named)
    if number == 0:
        yield f"no answer names {node}: Lens may not watch it"
    elif number < gpus_per_node:
        yield (
            f"it names {number} of the {gpus_per_node} GPUs of {node}; the heatmap shows the "
            "highest of each metric alone"
        )
    elif number > gpus_per_node:
        yield f"it names {number} GPUs of {node}, which has {gpus_per_node}"


def _find_unbounded(
    uses: Mapping[Gpu, float], gpus: Collection[Gpu], below: float
) -> Iterator[str]:
    """Yield why GPUs that `utilization` does not show may be used more than `below` percent.

    Only a list of the documented length is known to be the top of a ranking: a shorter one has all
    GPUs, and of a longer one nobody knows whether some were lost on the way.
    """
    hidden = sorted(f"{node} {device}" for node, device in gpus if (node, device) not in uses)
    bound = min(uses.values())
    if hidden and len(uses) != _TOP:
        yield f"gpuHeatmap: utilization shows {len(uses)} GPUs and leaves out {', '.join(hidden)}"
    elif hidden and bound >= below:
        yield (
            f"the {len(uses)} busiest GPUs are used {bound:g}% or more: how much less "
            f"{len(hidden)} GPUs of these nodes are used is not shown"
        )


def _find_contradictions(
    answers: LensAnswers, uses: Mapping[Gpu, float], nodes: Collection[str]
) -> Iterator[str]:
    """Yield where the overview or the workloads show more use, or fewer nodes, than the heatmap.

    A mean is never above the highest value.
    """
    overview, most = answers.overview, max(uses.values())
    yield from (f"overview: {text}" for text in find_overview_contradictions(_ON_NODES, overview))
    if overview.total_nodes is not None and overview.total_nodes < len(nodes):
        yield (f"overview: totalNodes is {overview.total_nodes}, and gpuHeatmap names {len(nodes)}")
    if overview.utilization is None:
        yield "overview: utilization is not told"
    elif overview.utilization * 100 > most + _TOLERANCE:
        yield (
            f"overview: utilization is {overview.utilization:.0%}, and no GPU of gpuHeatmap is "
            f"used more than {most:g}%"
        )
    for consumer in answers.consumers:
        use = consumer.stat.gpu_utilization
        if use is not None and use * 100 > most + _TOLERANCE:
            yield (
                f"consumers: {consumer.namespace}/{consumer.name} uses {use:.0%} of its GPUs, and "
                f"no GPU of gpuHeatmap is used more than {most:g}%"
            )


def _metrics(heatmap: GpuHeatmap) -> dict[str, Heatmap]:
    return {
        "power": heatmap.power,
        "temperature": heatmap.temperature,
        "utilization": heatmap.utilization,
    }


def _gpus_of(metric: Heatmap) -> set[Gpu]:
    return {(each.node_name, each.device_id) for each in metric.data if each.device_id is not None}


def _gpus_named(heatmap: GpuHeatmap) -> set[Gpu]:
    """Return the GPUs that any metric shows, a reading that is none left out.

    A monitor that has lost a GPU may go on to list it with -1 or 0; so only a value above 0 of its
    power or its temperature shows that it is watched.
    """
    alive = [
        (each.node_name, each.device_id)
        for metric in (heatmap.power, heatmap.temperature)
        for each in metric.data
        if each.device_id is not None and each.value is not None and each.value > 0
    ]
    return _gpus_of(heatmap.utilization) | set(alive)


def _uses_of(metric: Heatmap) -> dict[Gpu, float]:
    return {
        (each.node_name, each.device_id): each.value
        for each in metric.data
        if each.device_id is not None and each.value is not None
    }
