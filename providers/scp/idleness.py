"""Whether nodes of SCP are idle: by their scheduler, and by Lens, look by look.

Neither has a history, so `gpuform expire` remembers its looks. Nodes are idle when no look of the
declared time, none further from the next than `GAP`, has found a job on one of them or a GPU at
work, and each has proven it of every GPU (`providers/lens/idle_gpus.py`). Time counts by the clock
that has gone less far, this machine's or Lens's: a clock that jumps makes nothing idle.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import STOP_IDLE_NODES
from gpuform.providers.lens.client import LensClient, client_for
from gpuform.providers.lens.idle_gpus import ask_lens, find_missing_proof
from gpuform.providers.lifetime import CAUSE, Verdict, is_for_idleness, left, written
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStop, IdleStops, Quiet, QuietLooks
from gpuform.providers.scp.nodes import NodeDrainer
from gpuform.schemas.policies.lifetime import Idleness, idleness_of
from gpuform.schemas.scp.outputs import GpuNodeOutputs, NodeOutputs, NodePoolOutputs
from gpuform.schemas.scp.statuses import GPUS_OF_A_SERVER, unix_time

GAP: Final = 900.0
"""Seconds from one look to the next at the most: in between somebody may have used it."""

Outputs = TypeVar("Outputs", NodePoolOutputs, GpuNodeOutputs)


def judged(
    context: ProviderContext,
    settings: Settings,
    id_: str,
    taking: NodeDrainer,
    nodes: Sequence[NodeOutputs],
    idleness: Idleness,
) -> Verdict:
    """One look at these nodes, now, added to those before. Raises GpuformError.

    Who cannot be asked ends the quiet time, too.
    """
    looks, now, client = (
        QuietLooks.beside(context.intents),
        context.clock.now(),
        client_for(settings),
    )
    gaps: list[str] = []
    try:
        for observation in _observe(client, taking, nodes, idleness, now):
            gaps = find_gaps(STOP_IDLE_NODES, observation)
            if gaps:  # one is enough: the others need not be asked
                break
    except GpuformError:
        looks.forget(id_)
        raise
    if gaps:
        looks.forget(id_)
        return Verdict(is_idle=False, because=gaps[0])
    of = ",".join(sorted(node.id for node in nodes)) + f" below {idleness.below:g}%"
    look = Quiet(id_, of, now, now).after(looks.find(id_), _ahead(context, client), GAP)
    looks.record(look)
    quiet = look.lasted
    if quiet < idleness.lasting:
        due = written(now + idleness.lasting - quiet)
        because = f"quiet for {left(quiet)}, so that it may be due at {due}"
        return Verdict(is_idle=False, because=f"{because}; a look is needed every {left(GAP)}")
    because = f"no job, and each GPU used {idleness.text}, at {written(now)}"
    return Verdict(is_idle=True, because=because)


def _ahead(context: ProviderContext, client: LensClient) -> float | None:
    """Return how many seconds this machine's clock is ahead of Lens's, None if nobody knows.

    An emulator's clock is the clock of all.
    """
    return 0.0 if context.clock.is_platforms else client.clock_ahead


def remember_stop(context: ProviderContext, id_: str, declared: Mapping[str, Any]) -> None:
    """Before nodes are stopped or started: what declares `idle` is stopped by `expire` alone."""
    stops, idleness = IdleStops.beside(context.intents), idleness_of(declared)
    if idleness is not None and declared.get("state") == "STOPPED":
        now = context.clock.now()
        because = f"{CAUSE}, each GPU used {idleness.text} up to {written(now)}"
        if stops.find(id_) is None:
            stops.record(IdleStop(id_, now, because))
    else:
        stops.forget(id_)


def forget_idleness(context: ProviderContext, id_: str) -> None:
    """The nodes are gone."""
    IdleStops.beside(context.intents).forget(id_)
    QuietLooks.beside(context.intents).forget(id_)


def stays_idle(old: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Whether what `expire` has stopped is not to be started by itself."""
    is_idle = declared.get("idle") is not None and is_for_idleness(old.get("stopped_by"))
    return is_idle and Permission.START_TERMINATED not in permissions.given()


def with_idle_stop(
    context: ProviderContext, id_: str, seen: Observed[Outputs], *, is_off: bool
) -> Observed[Outputs]:
    """What was seen of nodes, with why `expire` has stopped them, if it has."""
    stop = IdleStops.beside(context.intents).find(id_) if is_off else None
    said = context.stored_properties.get("stopped_by") if is_off else None
    by = stop.because if stop is not None else said if is_for_idleness(said) else None
    return replace(seen, outputs=seen.outputs.model_copy(update={"stopped_by": by}))


def _observe(
    client: LensClient,
    taking: NodeDrainer,
    nodes: Sequence[NodeOutputs],
    idleness: Idleness,
    now: float,
) -> Iterator[Observation]:
    """Yield what SCP, the scheduler and Lens show of the nodes, each asked in its turn."""
    yield Observation("SCP", list(_of_nodes(nodes, idleness.lasting, now)))
    yield Observation("the scheduler", list(_of_jobs(taking, nodes)))
    names = {node.gpu_node_name for node in nodes}
    answers = ask_lens(client)
    missing = find_missing_proof(answers, names, GPUS_OF_A_SERVER, idleness.below)
    yield Observation("Lens", list(missing))


def _of_nodes(nodes: Sequence[NodeOutputs], lasting: float, now: float) -> Iterator[str]:
    if not nodes:
        yield "there are no nodes"
    for node in nodes:
        yield from _of_node(node, lasting, now)


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


def _of_jobs(taking: NodeDrainer, nodes: Sequence[NodeOutputs]) -> Iterator[str]:
    workers = taking.observe_workers(nodes)
    if workers is None:
        yield "nobody is declared who tells its jobs (drain.kubernetes or drain.slurm)"
    for worker in workers or ():
        if worker.scheduled is None:
            yield f"its scheduler does not know {worker.name}"
        elif worker.scheduled.is_failed:
            yield f"its scheduler cannot use {worker.name}"
        elif worker.jobs:
            yield f"{worker.name} runs {', '.join(str(job) for job in worker.jobs[:3])}"
