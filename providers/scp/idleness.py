"""Judge whether nodes of SCP are idle, by their scheduler and by Lens, from repeated looks.

Neither source has a history, so `gpuform expire` records its looks. Nodes are idle when no look of
the declared time, none further from the next than `MAX_LOOK_GAP_S`, has found a job on a node or a
GPU at work, and each look has the proof for every GPU (`providers/lens/inventory.py`). Time counts
by the slower clock, this machine's or Lens's: a clock that jumps makes nothing idle.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from gpuform.providers.context import ProviderContext, get_run_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import STOP_IDLE_NODES, Observation, find_gaps
from gpuform.providers.lens.client import LensClient, get_client
from gpuform.providers.lens.inventory import fetch_answers, find_missing_proof
from gpuform.providers.lifetime import (
    IDLENESS_CAUSE,
    IdlenessVerdict,
    format_moment,
    format_remaining_time,
    is_idleness_cause,
)
from gpuform.providers.operations import Observed, Settings
from gpuform.providers.permissions import Permission
from gpuform.providers.records import IdleStop, IdleStops, QuietPeriod, QuietPeriods
from gpuform.providers.scp.nodes.draining import NodeDrainer
from gpuform.schemas.policies.lifetime import Idleness, read_idleness
from gpuform.schemas.scp.outputs import (
    GPUS_PER_SERVER,
    GpuNodeOutputs,
    NodeOutputs,
    NodePoolOutputs,
    to_unix_time,
)

MAX_LOOK_GAP_S: Final = 900.0
"""The longest time from one look to the next, in seconds: in between somebody may use the nodes."""

Outputs = TypeVar("Outputs", NodePoolOutputs, GpuNodeOutputs)


def judge_idleness(
    context: ProviderContext,
    settings: Settings,
    id_: str,
    drainer: NodeDrainer,
    nodes: Sequence[NodeOutputs],
    idleness: Idleness,
) -> IdlenessVerdict:
    """Judge whether all nodes were idle for the declared time, by this look and recorded ones.

    `nodes` are the nodes as stored; scheduler and Lens are asked. Records the look. A sign of use,
    or a source that cannot be asked, deletes the recorded looks. The idle time begins again after a
    gap of over `MAX_LOOK_GAP_S` between two looks, and for other nodes or another limit.

    Raises:
        GpuformError: the scheduler or Lens cannot be asked.
    """
    looks, now, client = (
        QuietPeriods.from_intents(context.intents),
        context.clock.now(),
        get_client(settings),
    )
    gaps: list[str] = []
    try:
        for observation in _observe_activity(client, drainer, nodes, idleness, now):
            gaps = find_gaps(STOP_IDLE_NODES, observation)
            if gaps:  # one is enough: the others need not be asked
                break
    # Without an answer nobody knows what happened meanwhile: the quiet time begins again.
    except GpuformError:
        looks.forget(id_)
        raise
    if gaps:
        looks.forget(id_)
        return IdlenessVerdict(is_idle=False, because=gaps[0])
    # Other nodes, or another limit, begin a new quiet time.
    subject = ",".join(sorted(node.id for node in nodes)) + f" below {idleness.below:g}%"
    # An emulator's clock is the clock of all.
    clock_ahead = 0.0 if context.clock.is_platforms else client.clock_ahead
    look = QuietPeriod(id_, subject, now, now).continue_from(
        looks.find(id_), clock_ahead, MAX_LOOK_GAP_S
    )
    looks.record(look)
    quiet_s = look.lasted
    if quiet_s < idleness.lasting:
        due_at = format_moment(now + idleness.lasting - quiet_s)
        reason = f"idle for {format_remaining_time(quiet_s)}: the stop may be due at {due_at}"
        return IdlenessVerdict(
            is_idle=False,
            because=f"{reason}; gpuform must check at least every "
            f"{format_remaining_time(MAX_LOOK_GAP_S)}",
        )
    reason = f"no job, and each GPU used {idleness.text}, at {format_moment(now)}"
    return IdlenessVerdict(is_idle=True, because=reason)


def record_stop(context: ProviderContext, id_: str, declared: Mapping[str, Any]) -> None:
    """Record a stop for idleness if nodes with `idle` are declared STOPPED; else forget the record.

    An earlier record stays as it is. Called before the request. Only `gpuform expire` declares
    nodes with `idle` as STOPPED.
    """
    stops, idleness = IdleStops.from_intents(context.intents), read_idleness(declared)
    if idleness is not None and declared.get("state") == "STOPPED":
        now = context.clock.now()
        reason = f"{IDLENESS_CAUSE}, each GPU used {idleness.text} up to {format_moment(now)}"
        if stops.find(id_) is None:
            stops.record(IdleStop(id_, now, reason))
    else:
        stops.forget(id_)


def forget_idleness(context: ProviderContext, id_: str) -> None:
    """Delete the recorded observations of nodes, and the record of a stop for idleness.

    The caller has deleted the nodes.
    """
    IdleStops.from_intents(context.intents).forget(id_)
    QuietPeriods.from_intents(context.intents).forget(id_)


def should_stay_stopped(old_outputs: Mapping[str, Any], declared: Mapping[str, Any]) -> bool:
    """Return True if `gpuform expire` stopped the nodes for idleness, and `idle` is declared.

    False with the permission `start-terminated`.
    """
    is_idle = declared.get("idle") is not None and is_idleness_cause(old_outputs.get("stopped_by"))
    return is_idle and Permission.START_TERMINATED not in get_run_context().permissions


def add_idle_stop(
    context: ProviderContext, id_: str, observed: Observed[Outputs], *, is_off: bool
) -> Observed[Outputs]:
    """Return the observed nodes with the reason of a stop by `gpuform expire` in `stopped_by`.

    The reason is None if `is_off` is False, or if somebody else has stopped the nodes.
    """
    stop = IdleStops.from_intents(context.intents).find(id_) if is_off else None
    stored_reason = context.stored_properties.get("stopped_by") if is_off else None
    stopped_by = (
        stop.because
        if stop is not None
        else stored_reason
        if is_idleness_cause(stored_reason)
        else None
    )
    return replace(observed, outputs=observed.outputs.model_copy(update={"stopped_by": stopped_by}))


def _observe_activity(
    client: LensClient,
    drainer: NodeDrainer,
    nodes: Sequence[NodeOutputs],
    idleness: Idleness,
    now: float,
) -> Iterator[Observation]:
    """Yield the reasons against idleness from SCP, the scheduler and Lens, one by one.

    Each source is asked only when its observation is taken. Raises GpuformError without an answer.
    """
    # SCP first: its nodes are known already and need no request.
    yield Observation("SCP", list(_find_activity_of_nodes(nodes, idleness.lasting, now)))
    yield Observation("the scheduler", list(_find_activity_by_scheduler(drainer, nodes)))
    names = {node.gpu_node_name for node in nodes}
    answers = fetch_answers(client)
    missing = find_missing_proof(answers, names, GPUS_PER_SERVER, idleness.below)
    yield Observation("Lens", list(missing))


def _find_activity_of_nodes(
    nodes: Sequence[NodeOutputs], lasting: float, now: float
) -> Iterator[str]:
    """Yield reasons from SCP why the nodes may not have been idle for `lasting` seconds.

    That there are no nodes is a reason, too.
    """
    if not nodes:
        yield "no nodes exist"
    for node in nodes:
        yield from _find_activity_of_node(node, lasting, now)


def _find_activity_of_node(node: NodeOutputs, lasting: float, now: float) -> Iterator[str]:
    """Yield why one node may not have been idle: not RUNNING, locked, or changed lately.

    Lately is: created or changed within the last `lasting` seconds, or at an unreadable time. `now`
    is in Unix seconds.
    """
    name = node.gpu_node_name
    if node.state != "RUNNING":
        yield f"{name} is {node.state or 'of unknown state'}"
    # Stopping a locked node needs a permission, which `expire` does not take for granted.
    if node.lock_enabled:
        yield f"{name} is locked"
    # A node that is younger than the declared time has not been idle for that long.
    for event, timestamp in {"created": node.created_at, "changed": node.modified_at}.items():
        event_time = to_unix_time(timestamp)
        if timestamp is not None and event_time is None:
            yield f"the time when {name} was {event} is unreadable: {timestamp}"
        elif event_time is not None and now - event_time < lasting:
            yield f"{name} was {event} at {format_moment(event_time)}"


def _find_activity_by_scheduler(
    drainer: NodeDrainer, nodes: Sequence[NodeOutputs]
) -> Iterator[str]:
    """Yield reasons from the scheduler why nodes may not be idle.

    That is: jobs, a node unknown or unusable to the scheduler, or no declared scheduler. A
    scheduler that cannot be asked counts as not declared in a run with `--allow evict-jobs`.

    Raises:
        GpuformError: the scheduler cannot be asked, and the run may not end jobs.
    """
    workers = drainer.observe_workers(nodes)
    if workers is None:
        yield "no scheduler is declared (drain.kubernetes or drain.slurm)"
    for worker in workers or ():
        # A node unknown to its scheduler may run anything.
        if worker.scheduled_node is None:
            yield f"its scheduler does not have {worker.name}"
        elif worker.scheduled_node.is_failed:
            yield f"its scheduler cannot use {worker.name}"
        elif worker.jobs:
            yield f"{worker.name} runs {', '.join(str(job) for job in worker.jobs[:3])}"
