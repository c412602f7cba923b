"""Whether nodes of SCP are idle: by their scheduler, and by Lens, look by look.

Neither has a history, so `gpuform expire` remembers its looks. Nodes are idle when no look of the
declared time, none further from the next than `GAP`, has found a job on one of them or a GPU at
work. Lens tells the five busiest GPUs alone (Lens reference, 'Get GPU Heatmap'): of the others it
proves that they are not busier than the last of these.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpuform.providers import permissions
from gpuform.providers.actions import Observed, Settings
from gpuform.providers.calls import Call
from gpuform.providers.errors import GpuformError
from gpuform.providers.http import Retry
from gpuform.providers.idleness import CAUSE, Verdict, is_for_idleness
from gpuform.providers.lens.client import client_for
from gpuform.providers.lifetime import left, written
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStop, IdleStops, Quiet, QuietLooks
from gpuform.providers.scp.nodes import NodeTaking
from gpuform.schemas.idleness import Idleness, idleness_of
from gpuform.schemas.lens.wire import Heatmap
from gpuform.schemas.scp.moments import unix_time
from gpuform.schemas.scp.outputs import GpuNodeOutputs, NodeOutputs, NodePoolOutputs

GAP: Final = 900.0
"""Seconds from one look to the next at the most: in between somebody may have used it."""

Outputs = TypeVar("Outputs", NodePoolOutputs, GpuNodeOutputs)


def judged(
    call: Call,
    settings: Settings,
    id_: str,
    taking: NodeTaking,
    nodes: Sequence[NodeOutputs],
    idleness: Idleness,
) -> Verdict:
    """One look at these nodes, now, added to those before. Raises GpuformError.

    Who cannot be asked ends the quiet time, too.
    """
    looks, now = QuietLooks.beside(call.intents), call.clock.now()
    try:
        doubt = next(_doubts(settings, taking, nodes, idleness, now), None)
    except GpuformError:
        looks.forget(id_)
        raise
    if doubt is not None:
        looks.forget(id_)
        return Verdict(is_idle=False, because=doubt)
    of = ",".join(sorted(node.id for node in nodes)) + f" below {idleness.below:g}%"
    last = looks.find(id_)
    goes_on = last is not None and last.of == of and 0 <= now - last.at <= GAP
    since = last.since if last is not None and goes_on else now
    looks.record(Quiet(id_, of, since, now))
    if now - since < idleness.lasting:
        due = written(since + idleness.lasting)
        because = f"quiet for {left(now - since)}, so that it may be due at {due}"
        return Verdict(is_idle=False, because=f"{because}; a look is needed every {left(GAP)}")
    because = f"no job, and each GPU used {idleness.text}, at {written(now)}"
    return Verdict(is_idle=True, because=because)


def remember_stop(call: Call, id_: str, declared: Mapping[str, Any]) -> None:
    """Before nodes are stopped or started: what declares `idle` is stopped by `expire` alone."""
    stops, idleness = IdleStops.beside(call.intents), idleness_of(declared)
    if idleness is not None and declared.get("state") == "STOPPED":
        now = call.clock.now()
        because = f"{CAUSE}, each GPU used {idleness.text} up to {written(now)}"
        if stops.find(id_) is None:
            stops.record(IdleStop(id_, now, because))
    else:
        stops.forget(id_)


def forget_idleness(call: Call, id_: str) -> None:
    """The nodes are gone."""
    IdleStops.beside(call.intents).forget(id_)
    QuietLooks.beside(call.intents).forget(id_)


def stays_idle(old: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Whether what `expire` has stopped is not to be started by itself."""
    is_idle = declared.get("idle") is not None and is_for_idleness(old.get("stopped_by"))
    return is_idle and Permission.START_TERMINATED not in permissions.given()


def with_idle_stop(
    call: Call, id_: str, seen: Observed[Outputs], *, is_off: bool
) -> Observed[Outputs]:
    """What was seen of nodes, with why `expire` has stopped them, if it has."""
    stop = IdleStops.beside(call.intents).find(id_) if is_off else None
    said = call.known.get("stopped_by") if is_off else None
    by = stop.because if stop is not None else said if is_for_idleness(said) else None
    return replace(seen, outputs=seen.outputs.model_copy(update={"stopped_by": by}))


def _doubts(
    settings: Settings,
    taking: NodeTaking,
    nodes: Sequence[NodeOutputs],
    idleness: Idleness,
    now: float,
) -> Iterator[str]:
    """Why they are not idle, or nobody knows; the first one is enough."""
    if not nodes:
        yield "there are no nodes"
    for node in nodes:
        yield from _of_node(node, idleness.lasting, now)
    yield from _of_jobs(taking, nodes)
    yield from _of_use(client_for(settings).heatmap(retry=Retry.NEVER).utilization, nodes, idleness)


def _of_node(node: NodeOutputs, lasting: float, now: float) -> Iterator[str]:
    name = node.gpu_node_name
    if node.state != "RUNNING":
        yield f"{name} is {node.state or 'of unknown state'}"
    if node.lock_enabled:
        yield f"{name} is locked"
    for what, text in {"made": node.created_at, "changed": node.modified_at}.items():
        at = unix_time(text)
        if text is not None and at is None:
            yield f"nobody can tell when {name} was {what}: {text}"
        elif at is not None and now - at < lasting:
            yield f"{name} was {what} at {written(at)}"


def _of_jobs(taking: NodeTaking, nodes: Sequence[NodeOutputs]) -> Iterator[str]:
    workers = taking.seen(nodes)
    if workers is None:
        yield "nobody is declared who tells its jobs (drain.kubernetes or drain.slurm)"
    for worker in workers or ():
        if worker.scheduled is None:
            yield f"its scheduler does not know {worker.name}"
        elif worker.scheduled.is_failed:
            yield f"its scheduler cannot use {worker.name}"
        elif worker.jobs:
            yield f"{worker.name} runs {', '.join(str(job) for job in worker.jobs[:3])}"


def _of_use(heatmap: Heatmap, nodes: Sequence[NodeOutputs], idleness: Idleness) -> Iterator[str]:
    """GPUs at work, and values that prove nothing."""
    values = [point.value for point in heatmap.data]
    known = [value for value in values if value is not None and 0 <= value <= 100]
    if heatmap.unit.strip() != "%" or not known or len(known) < len(values):
        yield "Lens tells the use of GPUs in no figures that can be read"
        return
    names = {node.gpu_node_name for node in nodes}
    for point in heatmap.data:
        if point.node_name in names and (point.value or 0.0) >= idleness.below:
            yield f"GPU {point.gpu} is used {point.value:g}% (Lens)"
    if min(known) >= idleness.below:
        yield (
            f"Lens tells the {len(known)} busiest GPUs alone, each used {min(known):g}% or more: "
            "of the others nobody knows"
        )
