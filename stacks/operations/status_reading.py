"""Read the status of stacks, and their drift: a refresh whose result is not stored.

`gpuform status`, `gpuform drift` and the Python API call this module. It locks nothing and writes
nothing.
"""

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuform.providers.catalog import Summary, summarize_resource
from gpuform.providers.context import CLOCK_VARIABLE, synchronize_clock
from gpuform.providers.environment import Live
from gpuform.providers.errors import GpuformError
from gpuform.providers.lens.client import get_client, is_configured
from gpuform.providers.operations import Settings
from gpuform.providers.records import (
    EphemeralRecords,
    Intents,
    describe_leftover,
    find_leftover_intents,
)
from gpuform.schemas.plan import Plan
from gpuform.schemas.resource_facts import NodeInventory, ResourceUsage
from gpuform.schemas.values import to_unix_time
from gpuform.stacks.engine.deployment import Deployment, Options
from gpuform.stacks.engine.planning import Diagnostic, EventBus
from gpuform.stacks.engine.stack import Stack, StackNotFound, read_resources
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns
from gpuform.stacks.engine.store import strip_credentials
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, is_noise, name_of
from gpuform.stacks.fleet_metrics import FleetFacts
from gpuform.stacks.multi_stack import WorkspaceStack
from gpuform.stacks.operations.opening.selected_stack import (
    SelectedStack,
    describe_lock_holder,
    enter_environment,
    is_recorded_emulated,
    read_config,
)
from gpuform.stacks.operations.runs.callbacks import Interrupted, OperationCallbacks
from gpuform.stacks.operations.runs.evaluator import PlanEvaluator, RunRecord
from gpuform.stacks.operations.runs.options import FinalState
from gpuform.stacks.operations.runs.plan_file import mask_plan
from gpuform.stacks.operations.runs.saved_plans import describe_creation
from gpuform.stacks.pricing import (
    PriceBook,
    compute_current_usage,
    list_entry_nodes,
    price_usage,
    sum_costs,
)
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.review.multi_stack_status_text import StackStatus
from gpuform.stacks.review.status_text import LensStatus, ResourceStatus, StatusReport
from gpuform.stacks.review.value_text import short_type, to_display_value
from gpuform.stacks.schedule.calendar import IdleWatch, list_agenda
from gpuform.stacks.schedule.noticing import list_entry_notices
from gpuform.stacks.topology_export.model import NoTopology

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle


def read_status(
    selected: SelectedStack,
    *,
    refresh: bool = False,
    emulate: bool = False,
    root: Path | None = None,
    measures: bool = False,
) -> StatusReport:
    """Return the stack's status by the state, or with `refresh` by the platforms.

    Nothing is locked and nothing is changed. The state of an emulated stack is shown without
    `emulate` too. `root` is the folder of a multi-stack workspace, whose emulator is used by
    projects without their own. With `measures` and `refresh`, each resource is also compared with
    the state, and the use of GPUs is measured, for metrics. Lens is asked wherever it is
    configured. A platform that cannot be asked is a problem in the status, not an error.

    Raises:
        EngineError: the stack cannot be opened, or belongs to the other environment.
    """
    with _open_for_reading(selected, refresh=refresh, emulate=emulate, root=root) as opened:
        stack, emulated = opened
        lock_holder = describe_lock_holder(selected.workspace, stack.name)
        return _build_status(
            stack,
            refresh=refresh,
            emulated=emulated,
            lock_holder=lock_holder,
            measures=measures and refresh,
        )


@contextlib.contextmanager
def _open_for_reading(
    selected: SelectedStack, *, refresh: bool, emulate: bool, root: Path | None = None
) -> Iterator[tuple[Stack, bool]]:
    """Yield the stack and True if emulated; the stored state is read without `emulate`, too.

    Raises:
        EngineError: the stack cannot be opened, or belongs to the other environment.
    """
    with selected.begin_operation() as begun:
        stack = begun.open()
        # The stored state alone is shown without --emulate: no platform is asked.
        is_implied = not refresh and CLOCK_VARIABLE not in stack.run_context.environ
        shows_state = not emulate and is_implied and is_recorded_emulated(stack)
        with enter_environment(
            stack, emulate=emulate or shows_state, root=root, shows_state=shows_state
        ) as emulated:
            yield stack, emulated


def _build_status(
    stack: Stack, *, refresh: bool, emulated: bool, lock_holder: str, measures: bool
) -> StatusReport:
    """Build the status of an open stack; `lock_holder` is who holds the lock, empty if nobody."""
    config = read_config(stack)
    resources = _observe_resources(stack, config, refresh=refresh, finds_drift=measures)
    settings = Settings(config=config.get, environ=stack.run_context.environ)
    clock = synchronize_clock(stack.run_context.clock)
    book = PriceBook.read(stack.project.directory)
    live_metrics = _read_live_metrics(resources, settings) if refresh else {}
    # Idle times are not recorded here: looking at a status must not count as a check of `expire`.
    records = EphemeralRecords(stack.get_intents().records)
    watch = IdleWatch(settings, clock, Intents(records)) if refresh else None
    statuses = [
        _build_resource_status(
            resource, book, live_metrics.get(resource.entry.urn, _LiveMetrics()), watch
        )
        for resource in resources
    ]
    # A resource that is gone has no outputs, and no notices either.
    existing_entries = [resource.entry for resource in resources if resource.entry.outputs]
    # What differs from the state alone is a notice only where the platforms were asked.
    stored_outputs = {entry.urn: entry.outputs for entry in _list_shown_entries(stack)}
    notices = list_entry_notices(
        existing_entries,
        clock.now(),
        stored_outputs if refresh else {},
        is_emulated=clock.is_platforms,
    )
    cost = sum_costs((status.name, status.footprint) for status in statuses)
    monitoring = _read_monitoring(settings) if is_configured(settings) else None
    return StatusReport(
        stack.name,
        statuses,
        monitoring,
        cost if book.prices is not None or cost.amounts else None,
        notices,
        # The clock of the machine that wrote the state may be ahead.
        age=max(0.0, time.time() - (to_unix_time(stack.snapshot.manifest.time) or 0.0)),
        is_live=refresh,
        running_change=lock_holder,
        emulated=emulated,
        # A run in progress has creates of its own, which are not left behind.
        unsettled=[] if lock_holder else _describe_leftovers(stack),
        fleet=FleetFacts(
            stack,
            [resource.entry for resource in resources],
            notices,
            clock.now(),
            emulated=emulated,
            has_emulated_clock=clock.is_platforms,
            drift=_count_drift(resources) if measures else None,
            usage=_measure_usage(resources, settings) if measures else {},
            unread={resource.entry.urn for resource in resources if resource.problem},
            monitored_nodes=monitoring.node_counts if monitoring else {},
        ),
        agenda=list_agenda(
            existing_entries,
            clock.now(),
            is_emulated=clock.is_platforms,
            stack=f"{stack.project.name}/{stack.name}",
        ),
    )


def _count_drift(resources: Sequence["_ObservedResource"]) -> int | None:
    """Return the number of resources with drift; None if a resource could not be read."""
    if any(resource.is_unread for resource in resources):
        return None
    return sum(resource.has_drifted for resource in resources)


def _measure_usage(
    resources: Iterable["_ObservedResource"], settings: Settings
) -> Mapping[str, float]:
    """Return the measured share of use of each resource's GPUs, by URN, where known."""
    usage = {}
    for resource in resources:
        entry, lifecycle = resource.entry, resource.lifecycle
        if lifecycle is None:
            continue
        with contextlib.suppress(GpuformError):
            share = lifecycle.hooks.measure_gpu_usage(settings, entry.id)
            if share is not None:
                usage[entry.urn] = share
    return usage


def read_node_inventory(
    selected: SelectedStack, names: Sequence[str], *, refresh: bool, emulate: bool
) -> NodeInventory:
    """Return the GPU nodes of the stack, or of the named resources; by platform, then by id.

    Nothing is locked and nothing is changed. Platforms are only asked with `refresh`: a resource
    that cannot be read has the nodes of the state, and makes `success` False.

    Raises:
        NoTopology: the stack has no resource of a name.
        EngineError: the stack cannot be opened, or belongs to the other environment.
    """
    with _open_for_reading(selected, refresh=refresh, emulate=emulate) as (stack, _emulated):
        resources = _observe_resources(stack, read_config(stack), refresh=refresh)
    known_names = {name for resource in resources for name in resource.names}
    for name in names:
        if name not in known_names:
            raise NoTopology(
                f"stack '{stack.name}' has no resource {name!r}",
                hint="`gpuform status` lists the resources",
            )
    selected_resources = [
        resource for resource in resources if not names or resource.names & {*names}
    ]
    stack_name = f"{stack.project.name}/{stack.name}"
    records = [
        record.model_copy(update={"stack": stack_name})
        for resource in selected_resources
        for record in list_entry_nodes(resource.entry)
    ]
    return NodeInventory(
        success=not any(resource.is_unread for resource in selected_resources),
        nodes_checked=len(records),
        nodes=tuple(sorted(records, key=lambda record: (record.platform, record.node_id))),
        unknown=tuple(
            f"{name_of(resource.entry.urn)}: {resource.problem}"
            for resource in selected_resources
            if resource.problem
        ),
    )


def _list_shown_entries(stack: Stack) -> list[ResourceState]:
    """Return the entries of the stack's present resources."""
    return [
        entry
        for entry in stack.snapshot.resources
        if not is_noise(entry.type)
        # An old object that waits for its deletion shows in a plan, not here.
        if not (entry.delete or entry.pending_replacement)
    ]


def _observe_resources(
    stack: Stack, config: Mapping[str, str], *, refresh: bool, finds_drift: bool = False
) -> list["_ObservedResource"]:
    """Return the stack's resources from the state, or with `refresh` from the platforms.

    With `finds_drift` as well, each is compared with the state.
    """
    entries = _list_shown_entries(stack)
    if refresh:
        return _read_resources(stack, config, entries, finds_drift=finds_drift)
    return [_ObservedResource(entry) for entry in entries]


def _describe_leftovers(stack: Stack) -> list[str]:
    """Return a line for each object possibly left behind by an interrupted create.

    An engine asks no provider about a stack without resources, and `pulumi destroy` forgets these
    objects: no other command reports them.
    """
    known_objects = [(entry.urn, entry.id) for entry in stack.snapshot.resources if entry.id]
    return [
        describe_leftover(intent)
        for intent in find_leftover_intents(stack.get_intents().list_all(), known_objects)
    ]


@dataclass(frozen=True, slots=True)
class _ObservedResource:
    """A resource with its newest outputs. `problem` says why they could not be read now."""

    entry: ResourceState
    problem: str = ""
    is_gone: bool = False
    has_drifted: bool = False

    @property
    def names(self) -> set[str]:
        """Return the resource's URN and the name in the program."""
        return {self.entry.urn, name_of(self.entry.urn)}

    @property
    def is_unread(self) -> bool:
        """Return True if the platform could not be asked."""
        return bool(self.problem) and not self.is_gone

    @property
    def lifecycle(self) -> "type[Lifecycle[Any, Any]] | None":
        """Return the lifecycle of a read resource; None without a platform, and after a problem."""
        is_read = self.entry.custom and not self.problem
        return find_lifecycle(self.entry.type) if is_read else None


def _read_resources(
    stack: Stack, config: Mapping[str, str], entries: list[ResourceState], *, finds_drift: bool
) -> list[_ObservedResource]:
    """Ask the platforms for each resource; a resource is as stored where a request failed.

    A resource without an object on its platform has no outputs, and `is_gone`.
    """
    resources = []
    platform_entries = [entry for entry in entries if _has_platform_object(entry)]
    # Answers come in the order of these entries.
    answers = iter(read_resources(stack, config, platform_entries, finds_drift=finds_drift))
    for entry in entries:
        if not _has_platform_object(entry):
            resources.append(_ObservedResource(entry))
            continue
        answer = next(answers)
        if answer.problem:
            resources.append(_ObservedResource(entry, answer.problem))
        elif answer.outputs is None:
            resources.append(
                _ObservedResource(
                    replace(entry, outputs={}),
                    "it no longer exists on the platform",
                    is_gone=True,
                    has_drifted=True,
                )
            )
        else:
            new = replace(entry, outputs=answer.outputs)
            resources.append(_ObservedResource(new, has_drifted=answer.has_drifted))
    return resources


def _has_platform_object(entry: ResourceState) -> bool:
    """Return False for components and stack references, which no platform knows."""
    return entry.custom and entry.type != STACK_REFERENCE_TYPE


@dataclass(frozen=True, slots=True)
class _LiveMetrics:
    """The platform's live metrics of a resource, or the problem that kept them from being read."""

    live: Live | None = None
    problem: str = ""


def _read_live_metrics(
    resources: Iterable[_ObservedResource], settings: Settings
) -> Mapping[str, _LiveMetrics]:
    """Read live metrics by URN, with one request for all resources of a kind.

    A platform that does not answer affects its own resources only. Resources that are gone or could
    not be read are left out.
    """
    kinds: dict[type[Lifecycle[Any, Any]], dict[str, str]] = {}
    for resource in resources:
        if resource.lifecycle is not None:
            kinds.setdefault(resource.lifecycle, {})[resource.entry.urn] = resource.entry.id
    metrics_by_urn: dict[str, _LiveMetrics] = {}
    for lifecycle, ids in kinds.items():
        try:
            live = lifecycle.hooks.read_live_metrics(settings, sorted(set(ids.values())))
        except GpuformError as error:
            metrics_by_urn |= dict.fromkeys(ids, _LiveMetrics(problem=str(error)))
        else:
            metrics_by_urn |= {urn: _LiveMetrics(live.get(id_)) for urn, id_ in ids.items()}
    return metrics_by_urn


def _build_resource_status(
    resource: _ObservedResource,
    book: PriceBook,
    live_metrics: _LiveMetrics,
    watch: IdleWatch | None,
) -> ResourceStatus:
    """Build the status of a resource; usage and cost count only for objects of the stack.

    With `watch`, the live metrics have a line about whether `gpuform expire` would stop an idle
    resource.
    """
    entry, outputs = resource.entry, resource.entry.outputs
    type_ = short_type(entry.type)
    platform, _, kind = type_.partition(":")
    summary = (
        summarize_resource(platform, kind, to_display_value(outputs)) if outputs else Summary()
    )
    is_own = entry.custom and not entry.external
    footprint = compute_current_usage(entry) if outputs and is_own else ResourceUsage()
    live = live_metrics.live
    if watch and resource.lifecycle and (verdict := watch(entry)):
        effect = (
            "the next `gpuform expire` stops it: idle" if verdict.is_idle else "not stopped as idle"
        )
        live = live or Live((), {})
        live = replace(live, lines=(*live.lines, f"{effect}: {verdict.because}"))
    return ResourceStatus(
        name_of(entry.urn),
        type_,
        entry.id,
        summary,
        resource.problem,
        price_usage(footprint, book),
        is_gone=resource.is_gone,
        live=live,
        live_problem=live_metrics.problem,
        nodes=list_entry_nodes(entry),
    )


def _read_monitoring(settings: Settings) -> LensStatus:
    """Read overview, heatmap and consumers from Lens, or return the first error as the problem."""
    client = get_client(settings)
    try:
        overview = client.get_overview()
        heatmap = client.get_heatmap()
        consumers = client.list_consumers()
    except GpuformError as error:
        return LensStatus(problem=str(error))
    return LensStatus(overview, heatmap, consumers)


@dataclass(frozen=True, slots=True)
class StatusQuery:
    """The options of a status of several stacks.

    With `refresh` the platforms are asked. With `emulate` each stack is read on its emulator;
    projects without their own share the one of `root`. `ask_passphrase` receives the name of a
    stack and a prompt; it is None where nobody can answer. `measures` is as for `read_status`.
    """

    root: Path
    environ: Mapping[str, str]
    refresh: bool = False
    emulate: bool = False
    ask_passphrase: Callable[[str, str], str] | None = None
    measures: bool = False


def read_stack_statuses(
    stacks: Sequence[WorkspaceStack], query: StatusQuery
) -> Iterator[StackStatus]:
    """Yield the status of each stack in turn, or the problem of a stack which cannot be read."""
    for workspace_stack in stacks:
        yield _read_stack_status(workspace_stack, query)


def _read_stack_status(workspace_stack: WorkspaceStack, query: StatusQuery) -> StackStatus:
    """Return the status of the stack, or a problem; `exists` is False before the first run."""
    ask = query.ask_passphrase
    ask_passphrase = None if ask is None else lambda prompt: ask(workspace_stack.name, prompt)
    try:
        workspace = workspace_stack.open_workspace(query.environ)
        if workspace_stack.stack not in workspace.list_stacks():
            backend_url = strip_credentials(workspace.backend.url)
            # Not an error: before its first run a stack of the workspace does not exist.
            problem = f"The stack does not exist in {backend_url} yet."
            return StackStatus(workspace_stack.name, None, problem, exists=False)
        selected = SelectedStack(workspace, workspace_stack.stack, ask_passphrase=ask_passphrase)
        status = read_status(
            selected,
            refresh=query.refresh,
            emulate=query.emulate,
            root=query.root,
            measures=query.measures,
        )
    except StackNotFound as error:  # another command has removed it meanwhile
        return StackStatus(workspace_stack.name, None, str(error), exists=False)
    except GpuformError as error:
        return StackStatus(workspace_stack.name, None, str(error))
    return StackStatus(workspace_stack.name, status)


@dataclass(frozen=True, slots=True)
class DriftResult:
    """The changes that were made outside of Pulumi, as a plan.

    `succeeded` is False where a resource could not be read: `diagnostics` say why, and `plan` has
    the other resources.
    """

    plan: Plan
    succeeded: bool
    diagnostics: Sequence[Diagnostic] = ()
    final_state: FinalState | None = field(default=None, repr=False)


def find_drift(
    selected: SelectedStack, targets: Sequence[str], callbacks: OperationCallbacks, *, emulate: bool
) -> DriftResult:
    """Compare the stack's resources, or the resources of `targets`, with the platforms.

    Nothing is locked and nothing is written. A resource that cannot be read is in the result's
    diagnostics.

    Raises:
        EngineError: a target fits no resource, or the stack belongs to the other environment.
    """
    with contextlib.ExitStack() as resources:
        stack = resources.enter_context(selected.begin_operation()).open()
        emulated = resources.enter_context(enter_environment(stack, emulate=emulate))
        evaluator = PlanEvaluator.load(stack, ())
        record = RunRecord()
        selection = Selection(targets=UrnPatterns(targets))
        # A misspelt target would be no drift at all, and the command would succeed.
        selection.require_matches(entry.urn for entry in stack.snapshot.resources)
        options = Options(operation="refresh", preview=True, selection=selection)
        subject = stack.build_target()
        events = EventBus([record, callbacks.on_event], selected.debug)
        deployment = Deployment(subject, options, events)

        def cancel() -> None:
            deployment.cancel()
            callbacks.on_event(Interrupted())

        with callbacks.interruptions.register(cancel, lambda: None):
            outcome = deployment.run()
        clock = stack.run_context.clock
        final_state = FinalState(
            stack, outcome.snapshot.resources, clock.now(), clock.is_platforms, emulated
        )
        creation_facts = describe_creation()  # by the emulator's clock, while it runs
        secrets = subject.program.collect_secrets()
    plan = record.build_plan(stack.project.name, stack.name, outcome)
    plan = evaluator.evaluate(plan, record.steps).model_copy(
        update={**creation_facts, "emulated": emulated}
    )
    masked_plan = mask_plan(plan, secrets)
    return DriftResult(masked_plan, outcome.succeeded, record.diagnostics, final_state)
