"""Read the status of one or several stacks, and their drift: a refresh whose result is not kept."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuform.providers.catalog import Summary, summarize_resource
from gpuform.providers.context import CLOCK_VARIABLE, get_clock, synchronize_clock
from gpuform.providers.environment import Live
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.client import client_for, is_configured
from gpuform.providers.operations import Settings
from gpuform.providers.plugin.interrupted_creates import describe_leftover, find_leftover_intents
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.schemas.errors import UserError
from gpuform.schemas.plan import Plan
from gpuform.schemas.resource_facts import ResourceUsage
from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import Diagnostic, EventBus
from gpuform.stacks.engine.stack import Stack, StackNotFound, read_resources
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns
from gpuform.stacks.engine.store import strip_credentials
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, is_noise, name_of
from gpuform.stacks.multi_stack import Member
from gpuform.stacks.operations.opening.selecting import SelectedStack, at_work_on
from gpuform.stacks.operations.opening.worlds import config_of, lives_emulated, world_for
from gpuform.stacks.operations.plans.appraising import Appraiser
from gpuform.stacks.operations.plans.plan_masking import mask_plan
from gpuform.stacks.operations.plans.record import RunRecord
from gpuform.stacks.operations.runs.caller import Caller, Interrupted
from gpuform.stacks.operations.runs.saved_plans import made_now
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.costs import cost_of, priced
from gpuform.stacks.pricing.footprints import footprint_now
from gpuform.stacks.resource_rules import lifecycle_of
from gpuform.stacks.review.text.multi_stack_status_text import StackStatus
from gpuform.stacks.review.text.status_text import LensStatus, ResourceStatus, Status
from gpuform.stacks.review.value_text import short_type, shown
from gpuform.stacks.schedule.calendar import IdleWatch
from gpuform.stacks.schedule.noticing import notices_of_entries

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle


def read_status(
    selected: SelectedStack,
    *,
    refresh: bool = False,
    emulate: bool = False,
    root: Path | None = None,
) -> Status:
    """The stack as its state has it, or with `refresh` as the platforms show it now.

    Nothing is locked and nothing is changed. `root` is the folder of several stacks, whose emulator
    is that of a project without one.
    """
    with selected.environment():
        stack = selected.open()
        # The state alone can be shown without a word about its world.
        is_implied = not refresh and CLOCK_VARIABLE not in os.environ
        shows_state = not emulate and is_implied and lives_emulated(stack)
        with world_for(
            stack, emulate=emulate or shows_state, root=root, shows_state=shows_state
        ) as emulated:
            at_work = at_work_on(selected.workspace, stack.name)
            return status_of(stack, os.environ, refresh=refresh, emulated=emulated, at_work=at_work)


def status_of(
    stack: Stack,
    environ: Mapping[str, str],
    *,
    refresh: bool,
    emulated: bool,
    at_work: str,
    now: Callable[[], float] = time.time,
) -> Status:
    """The stack as its state has it, or with `refresh` as the platforms show it now."""
    config = config_of(stack)
    entries = [
        entry
        for entry in stack.snapshot.resources
        if not is_noise(entry.type)
        # An old object that waits for its deletion shows in a plan, not here.
        if not (entry.delete or entry.pending_replacement)
    ]
    book = PriceBook.read(stack.project.directory)
    seen = (
        _read_resources(stack, config, entries) if refresh else [_Seen(entry) for entry in entries]
    )
    settings = Settings(config=config.get, environ=environ)
    clock = synchronize_clock(get_clock(environ))
    measured = _measured(seen, settings) if refresh else {}
    watch = IdleWatch(settings, clock, Intents(EphemeralRecords(stack.intents().records)))
    found = [_status(each, book, measured.get(each.entry.urn)) for each in seen]
    if refresh:
        found = [_with_idleness(each, was, watch) for each, was in zip(found, seen, strict=True)]
    there = [each.entry for each in seen if each.entry.outputs]
    before = {entry.urn: entry.outputs for entry in entries} if refresh else {}
    notices = notices_of_entries(there, clock.now(), before, is_emulated=clock.is_platforms)
    cost = cost_of((each.name, each.footprint) for each in found)
    monitoring = _monitoring(settings) if is_configured(settings) else None
    is_told = book.prices is not None or cost.amounts
    age = max(0.0, now() - _moment(stack.snapshot.manifest.time))
    told = cost if is_told else None
    return Status(
        stack.name,
        found,
        monitoring,
        told,
        notices,
        age,
        is_live=refresh,
        running_change=at_work,
        emulated=emulated,
        unsettled=[] if at_work else _describe_unsettled(stack),
    )


def _describe_unsettled(stack: Stack) -> list[str]:
    """Return what interrupted creates may have left: `pulumi destroy` of a stack forgets it.

    An engine asks no provider about a stack that has no resource, so that nobody else reports it.
    """
    there = [(each.urn, each.id) for each in stack.snapshot.resources if each.id]
    return [
        describe_leftover(each) for each in find_leftover_intents(stack.intents().list_all(), there)
    ]


def _moment(text: str) -> float:
    """When a checkpoint was made, in Unix seconds; of what nobody can read, long ago."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0


@dataclass(frozen=True, slots=True)
class _Seen:
    """An entry with the outputs last seen, and why they could not be had now."""

    entry: ResourceState
    problem: str = ""
    is_gone: bool = False


def _read_resources(
    stack: Stack, config: Mapping[str, str], entries: list[ResourceState]
) -> list[_Seen]:
    """Each resource as its platform shows it; as stored, and why, where that cannot be had."""
    found = []
    objects = [entry for entry in entries if _is_on_a_platform(entry)]
    answers = iter(read_resources(stack, config, objects))
    for entry in entries:
        if not _is_on_a_platform(entry):
            found.append(_Seen(entry))
            continue
        seen = next(answers)
        if seen.problem:
            found.append(_Seen(entry, seen.problem))
        elif seen.outputs is None:
            found.append(
                _Seen(replace(entry, outputs={}), "it is gone from the platform", is_gone=True)
            )
        else:
            found.append(_Seen(replace(entry, outputs=seen.outputs)))
    return found


def _is_on_a_platform(entry: ResourceState) -> bool:
    """Of a component no platform knows, nor of what is read of another stack."""
    return entry.custom and entry.type != STACK_REFERENCE_TYPE


@dataclass(frozen=True, slots=True)
class _Measured:
    """What a platform measures of a resource now, or why it does not say."""

    live: Live | None
    problem: str = ""


def _measured(found: Iterable[_Seen], settings: Settings) -> Mapping[str, _Measured]:
    """By URN, kind by kind: a platform is asked for all of its objects at once.

    A platform that does not answer keeps nothing else from being told.
    """
    kinds: dict[type[Lifecycle[Any, Any]], dict[str, str]] = {}
    for each in found:
        lifecycle = lifecycle_of(each.entry.type)
        if lifecycle is not None and each.entry.custom and not (each.problem or each.is_gone):
            kinds.setdefault(lifecycle, {})[each.entry.urn] = each.entry.id
    measured: dict[str, _Measured] = {}
    for lifecycle, ids in kinds.items():
        try:
            live = lifecycle.read_live_metrics(settings, sorted(set(ids.values())))
        except GpuformError as error:
            measured |= dict.fromkeys(ids, _Measured(None, str(error)))
        else:
            measured |= {urn: _Measured(live.get(id_)) for urn, id_ in ids.items()}
    return measured


def _status(seen: _Seen, book: PriceBook, measured: _Measured | None) -> ResourceStatus:
    entry, outputs = seen.entry, seen.entry.outputs
    type_ = short_type(entry.type)
    platform, _, kind = type_.partition(":")
    summary = summarize_resource(platform, kind, shown(outputs)) if outputs else Summary()
    is_own = entry.custom and not entry.external
    footprint = footprint_now(entry) if outputs and is_own else ResourceUsage()
    name, priced_ = name_of(entry.urn), priced(footprint, book)
    return ResourceStatus(
        name,
        type_,
        entry.id,
        summary,
        seen.problem,
        priced_,
        is_gone=seen.is_gone,
        live=measured.live if measured else None,
        live_problem=measured.problem if measured else "",
    )


def _with_idleness(status: ResourceStatus, seen: _Seen, watch: IdleWatch) -> ResourceStatus:
    """With what its platform says to its declared idleness, beside what is measured."""
    is_there = seen.entry.custom and not (seen.problem or seen.is_gone)
    verdict = watch(seen.entry) if is_there else None
    if verdict is None:
        return status
    live = status.live or Live((), {})
    said = "the next `gpuform expire` stops it: idle" if verdict.is_idle else "not stopped as idle"
    lines = (*live.lines, f"{said}: {verdict.because}")
    return replace(status, live=Live(lines, live.figures))


def _monitoring(settings: Settings) -> LensStatus:
    """What Lens tells; of what it does not tell, why."""
    client = client_for(settings)
    try:
        overview = client.get_overview()
        heatmap = client.get_heatmap()
        consumers = client.list_consumers()
    except GpuformError as error:
        return LensStatus(problem=str(error))
    return LensStatus(overview, heatmap, consumers)


@dataclass(frozen=True, slots=True)
class Looking:
    """How several stacks are looked at.

    With `refresh` the platforms are asked. With `emulate` each is looked at on its emulator; stacks
    whose folders have none share the one of `root`. `ask_passphrase` is given the name of a stack
    and a prompt; None where nobody can answer.
    """

    root: Path
    environ: Mapping[str, str]
    refresh: bool = False
    emulate: bool = False
    ask_passphrase: Callable[[str, str], str] | None = None


def read_several(members: Sequence[Member], looking: Looking) -> Iterator[StackStatus]:
    """Each stack in turn. What keeps one from being read is told, and holds no other."""
    for member in members:
        yield _read_member(member, looking)


def _read_member(member: Member, looking: Looking) -> StackStatus:
    ask = looking.ask_passphrase
    ask_own = None if ask is None else lambda prompt: ask(member.name, prompt)
    try:
        workspace = member.workspace(looking.environ)
        if member.stack not in workspace.stacks():
            where = strip_credentials(workspace.backend.url)
            problem = f"It does not exist in {where} yet."
            return StackStatus(member.name, None, problem, exists=False)
        selected = SelectedStack(workspace, member.stack, ask_passphrase=ask_own)
        status = read_status(
            selected, refresh=looking.refresh, emulate=looking.emulate, root=looking.root
        )
    except StackNotFound as error:  # it went meanwhile
        return StackStatus(member.name, None, str(error), exists=False)
    except UserError as error:
        return StackStatus(member.name, None, str(error))
    return StackStatus(member.name, status)


@dataclass(frozen=True, slots=True)
class DriftResult:
    """What has changed outside, as a plan. Where not every resource could be read (`succeeded`),
    `diagnostics` say why, and the plan has the others.
    """

    plan: Plan
    succeeded: bool
    diagnostics: Sequence[Diagnostic] = ()


def find_drift(
    selected: SelectedStack, targets: Sequence[str], caller: Caller, *, emulate: bool
) -> DriftResult:
    """Reads the resources, all or those of `targets`; nothing is locked and nothing written."""
    with contextlib.ExitStack() as held:
        held.enter_context(selected.environment())
        stack = selected.open()
        emulated = held.enter_context(world_for(stack, emulate=emulate))
        appraiser = Appraiser.of(stack, os.environ, ())
        record = RunRecord()
        selection = Selection(targets=UrnPatterns(targets))
        selection.require_matches(entry.urn for entry in stack.snapshot.resources)
        options = Options(operation="refresh", preview=True, selection=selection)
        subject = stack.subject()
        events = EventBus([record, caller.on_event], selected.debug)
        deployment = Deployment(subject, options, events)

        def cancel() -> None:
            deployment.cancel()
            caller.on_event(Interrupted())

        with caller.interruptions.around(cancel, lambda: None):
            outcome = deployment.run()
        made = made_now()  # by the emulator's clock, while it runs
        secrets = subject.program.secrets()
    plan = record.plan(stack.project.name, stack.name, outcome)
    plan = appraiser.appraised(plan, record.steps).model_copy(update={**made, "emulated": emulated})
    return DriftResult(mask_plan(plan, secrets), outcome.succeeded, record.diagnostics)
