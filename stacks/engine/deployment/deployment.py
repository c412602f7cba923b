"""Run one operation on one stack, from the last state to the next.

The program registers resources with the monitor of `language_host`, the step generator decides, the
step executor executes; when the program has ended well, resources that it no longer declares are
deleted. A failed run keeps everything that it did. `operations` creates and runs deployments.
"""

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

from gpuform.providers.context import ProviderContext, trace_span
from gpuform.providers.errors import Cancelled, GpuformError
from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.providers.values import PropertyMap
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.values import RemovalCount
from gpuform.stacks.engine.deployment.options import DeploymentTarget, Options, Outcome
from gpuform.stacks.engine.executing import (
    Calendar,
    DefaultProviders,
    DeletePhase,
    Refresher,
    StepExecutor,
    apply_due_changes,
    can_delete,
    find_due_changes,
    find_referenced_stacks,
    refresh_all,
    select_deletions,
)
from gpuform.stacks.engine.language_host import (
    Engine,
    Monitor,
    ProgramError,
    ProgramTarget,
    find_topology,
    print_to_events,
    run_program,
)
from gpuform.stacks.engine.planning import (
    Diagnostic,
    EventBus,
    Prelude,
    Progress,
    RunProgramOperation,
    SelectionNotes,
    SkippedCheck,
    StepDone,
    StepGenerator,
    Summary,
    build_same_step,
)
from gpuform.stacks.engine.project import PROCESS_USE, get_folder_and_entry, import_project_modules
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import (
    ResourceState,
    SelectedResources,
    Selection,
    Snapshot,
    SnapshotManager,
    UrnPatterns,
    find_deletable_urns,
)
from gpuform.stacks.engine.urn import STACK_REFERENCE_TYPE, STACK_TYPE, is_of_program


@dataclass(slots=True)
class Deployment:
    """One run, from `run()` to its outcome; any thread may call `cancel()`."""

    target: DeploymentTarget
    options: Options
    events: EventBus
    _cancelled: threading.Event = field(default_factory=threading.Event)
    _executor: StepExecutor = field(init=False)
    _monitor: Monitor | None = None
    _providers: DefaultProviders = field(init=False)
    _intents: Intents = field(init=False)
    _unchecked: set[str] = field(default_factory=set)
    _declared: Collection[str] = ()
    _ids_before: Collection[tuple[str, str]] = ()
    _providers_before: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program, stored_intents = self.target.program, self.target.intents
        self._intents = (
            Intents(EphemeralRecords(stored_intents.records))
            if self.options.preview
            else stored_intents
        )
        host = ProviderHost(
            program.project, program.config, self._create_context, program.run_context
        )
        write = None if self.options.preview else self.target.write
        self._executor = StepExecutor(
            host=host,
            stack_references=replace(self.target.stack_references, warn=self._warn),
            snapshot=SnapshotManager(
                self.target.snapshot,
                self.target.crypter,
                write,
                None if self.options.preview else self.target.journal,
            ),
            events=self.events,
            preview=self.options.preview,
            parallel=self.options.parallel,
            continue_on_error=self.options.continue_on_error,
            constraint=None if self.options.preview else self.options.constraint,
            # An intent that is left after a failed create says that the object may exist.
            may_have_created=lambda urn: bool(self._intents.list_for_urn(urn)),
        )
        olds = {r.urn: r for r in self.target.snapshot.resources if not r.delete}
        self._providers = DefaultProviders(
            program.stack, program.project, self.target.provider_config, olds
        )
        # Ids are unique within one account: under another provider, an id means another object.
        self._providers_before = {entry.urn: entry.provider for entry in olds.values()}
        self._ids_before = {(entry.provider, entry.id) for entry in olds.values() if entry.id}
        # Refreshes and deletions without the program use the configuration that the state has.
        host.plugins.configure_from_state(self.target.snapshot.resources)

    def cancel(self) -> None:
        """Start no further step and end all waits now; requests in flight finish."""
        self._cancelled.set()
        self._executor.stop()

    def run(self) -> Outcome:
        """Run the operation and return the outcome, of a failed or cancelled run too.

        At the end other stacks may import objects again.

        Raises:
            EngineError: the state could not be written, or the program's folder does not exist.
        """
        try:
            return self._run()
        finally:
            if self.target.others is not None:
                # Other stacks may import again only now that the state names the imported objects.
                self.target.others.release()

    def _run(self) -> Outcome:
        """Run the operation between its first and last events, and return the outcome.

        After an unexpected error no step starts any more, the state is closed, and the error is
        raised.
        """
        began = time.monotonic()
        program, options = self.target.program, self.options
        # Before the first event: no message may show a secret.
        self.events.redact_secrets(program.collect_secrets())
        config = {
            key: value if isinstance(value, str) else MASK
            for key, value in self.target.provider_config.items()
        }
        self.events.emit(Prelude(options.operation, options.preview, config))
        self._warn_of_pending_operations()
        try:
            with (
                trace_span("run", "preview" if options.preview else options.operation),
                ExitStack() as uses,
            ):
                if self._use_process(uses):
                    self._run_operation()
        except BaseException:
            # Even after an unexpected error no step starts any more, and the state gets what was
            # done.
            self._executor.stop()
            self._executor.snapshot.close()
            raise
        return self._finish(began)

    def _use_process(self, uses: ExitStack) -> bool:
        """Use the process until `uses` ends; return False if the run was cancelled before.

        A run that executes a project's code uses all of it, runs of topologies in one folder use it
        at the same time. Text that is printed becomes events, of the first run if there are more.
        """
        program, is_cancelled = self.target.program, self._cancelled.is_set
        folder, _ = get_folder_and_entry(program.directory)
        is_topology = self.options.run_topology and find_topology(program.directory)
        code_entries = (e for e in self.target.snapshot.resources if is_of_program(e.type))
        try:
            if is_topology and not any(code_entries):
                if not uses.enter_context(PROCESS_USE.share(folder, is_cancelled)):
                    return True
            else:
                environ = program.run_context.environ
                own = import_project_modules(program.directory, environ, is_cancelled)
                uses.enter_context(own)
        except Cancelled:
            return False
        uses.enter_context(print_to_events(self.events))
        return True

    def _run_operation(self) -> None:
        """Refresh if the options say so, then run the operation, unless the refresh failed.

        A refresh or destroy with a name or pattern that matches no resource only reports an error.
        An `expire` or `repair` without a calendar changes nothing.
        """
        options = self.options
        base = list(self.target.snapshot.resources)
        known_urns = [entry.urn for entry in base]
        if options.operation in {"refresh", "destroy"} and self._report_unmatched(known_urns):
            return
        is_refresh, selected = options.operation == "refresh", SelectedResources(options.selection)
        # Resources that the program declares are read at their registration, all others below.
        if is_refresh and options.run_program:
            selected, base = self._refresh_declared(base)
        if options.refresh or (is_refresh and not self._executor.is_stopping):
            resumed = options.should_resume
            base = refresh_all(
                self._executor,
                base,
                count_changes=is_refresh,
                selected=selected,
                should_resume=resumed,
            )
        if self._executor.is_stopping:
            return
        if options.operation == "update":
            self._update(base)
        elif options.operation == "destroy":
            self._destroy(base)
        elif options.operation in {"expire", "repair"} and options.calendar is not None:
            self._apply_due_changes(base, options.calendar)

    def _apply_due_changes(self, base: Sequence[ResourceState], calendar: Calendar) -> None:
        """Apply the due changes of the remaining resources, then delete the expired ones.

        Nothing is changed or deleted if a rule forbids one of the deletions, or if an expired
        resource has a dependent and `target_dependents` is not set. The error is reported for the
        resource. A preview continues after an error about a dependent. `base` is the state before
        the run.
        """
        executor = self._executor
        due_changes = find_due_changes(base, calendar)
        ended = UrnPatterns(urn for urn, change in due_changes.items() if change.inputs is None)
        leftovers = executor.snapshot.list_unprocessed()
        to_delete: list[ResourceState] = []
        if ended:
            dependents = self.options.selection.target_dependents
            selection = Selection(targets=ended, target_dependents=dependents)
            to_delete = select_deletions(executor, leftovers, selection, base)
        if executor.is_stopping:
            return
        deleted_keys = _get_keys(to_delete)
        if can_delete(executor, to_delete, base, self.options.deletion_rules):
            kept_entries = [
                entry for entry in base if (entry.urn, entry.delete) not in deleted_keys
            ]
            apply_due_changes(executor, kept_entries, due_changes, self.options.should_resume)
            DeletePhase(executor, base).run(to_delete)

    def _report_unmatched(self, urns: Collection[str]) -> bool:
        """Report names and patterns without a match among `urns`; return True if there are any."""
        where = "the stack or its program" if self._monitor else "the stack"
        errors = list(self.options.selection.find_unmatched_errors(urns, where))
        for error in errors:
            self._executor.fail_resource("", error)
        return bool(errors)

    def _create_generator(
        self,
        base: Sequence[ResourceState],
        run_program_operation: RunProgramOperation | None = None,
    ) -> StepGenerator:
        """Create the step generator for the state `base`.

        `run_program_operation` names a refresh or destroy that runs the program; None for an
        update.
        """
        return StepGenerator(
            stack=self.target.program.stack,
            project=self.target.program.project,
            base=base,
            host=self._executor.host,
            preview=self.options.preview,
            events=self.events,
            report_error=self._executor.fail_resource,
            selection=self.options.selection,
            others=self.target.others,
            should_delete_first=self.options.should_delete_first,
            run_program_operation=run_program_operation,
        )

    def _refresh_declared(
        self, base: Sequence[ResourceState]
    ) -> tuple[SelectedResources, list[ResourceState]]:
        """Run the program, and refresh each resource when the program registers it.

        Returns the selected resources, and the entries of `base` that the program does not declare.
        If the program fails, no further step starts.
        """
        executor, generator = self._executor, self._create_generator(base, "refresh")
        keep = executor.snapshot.record_replacement
        # The generator puts a refresh step before the steps of each registration.
        executor.refresh_step = Refresher(executor, keep, count_changes=True).run_step
        monitor = self._create_monitor(generator)
        if not self._run_program(monitor):
            executor.stop()
        self._keep_stack_outputs(monitor)
        return generator.selected, [
            entry for entry in base if entry.urn not in generator.declared_urns
        ]

    def _destroy(self, base: Sequence[ResourceState]) -> None:
        """Delete the selected resources, after the program if the options say so.

        Nothing is deleted if the program fails or, without `continue_on_error`, one of its
        resources.
        """
        generator = self._create_generator(base, "destroy")
        if self.options.run_program:
            monitor = self._create_monitor(generator)
            finished = self._run_program(monitor)
            may_delete = self.options.continue_on_error or not self._executor.failed
            if finished and may_delete and not self._executor.is_stopping:
                if self.options.preview:
                    # A preview records nothing: only the goal states have the program's options.
                    base = [
                        entry if entry.delete else generator.destroy_goals.get(entry.urn, entry)
                        for entry in base
                    ]
                else:
                    base = self._executor.snapshot.rebuild()
                generator.base = base
                self._delete(base, base, generator)
            self._keep_stack_outputs(monitor)
        else:
            self._delete(base, base, generator)

    def _create_monitor(self, generator: StepGenerator) -> Monitor:
        """Create the monitor of the program, and store it for later failures.

        A refresh or destroy that runs the program checks no rules.
        """
        program = self.target.program
        self._monitor = Monitor(
            target=ProgramTarget(program.project, program.stack, str(program.root)),
            generator=generator,
            executor=self._executor,
            providers=self._providers,
            events=self.events,
            preview=self.options.preview,
            rules=() if generator.run_program_operation else self.options.rules,
            constraint=self._executor.constraint,
        )
        return self._monitor

    def _update(self, base: Sequence[ResourceState]) -> None:
        """Run the program, then delete the resources no longer declared.

        Nothing is deleted if the program fails, if a name or pattern of the selection matches no
        resource or, without `continue_on_error`, if one of the resources fails.
        """
        generator = self._create_generator(base)
        monitor = self._create_monitor(generator)
        finished = self._run_program(monitor)
        if finished:
            self._declared = generator.declared_urns
            finished = not self._report_unmatched([*(e.urn for e in base), *self._declared])
        # Only a program that has ended well may delete: after an exception, resources that it did
        # not come to register would be destroyed.
        may_delete = self.options.continue_on_error or not self._executor.failed
        if finished and may_delete and not self._executor.is_stopping:
            # A preview records no step: the generator predicts the entries that would remain.
            preview, snapshot = self.options.preview, self._executor.snapshot
            leftovers = (
                generator.list_remaining_entries() if preview else snapshot.list_unprocessed()
            )
            kept_urns = self._providers.registered_urns | generator.undeletable_urns
            to_delete = [entry for entry in leftovers if entry.delete or entry.urn not in kept_urns]
            self._delete(to_delete, leftovers, generator)
        self._keep_stack_outputs(monitor)

    def _run_program(self, monitor: Monitor) -> bool:
        """Run the program; return False if the program failed or the run is stopping.

        The failure is reported.
        """
        try:
            run_program(
                self.target.program,
                monitor,
                Engine(self.events),
                preview=self.options.preview,
                is_stopped=lambda: self._executor.is_stopping,
                run_topology=self.options.run_topology,
            )
        except ProgramError as error:
            self._executor.fail_resource(monitor.stack.urn if monitor.stack else "", error)
            return False
        finally:
            monitor.close()
        return not self._executor.is_stopping

    def _keep_stack_outputs(self, monitor: Monitor) -> None:
        """Record the outputs exported by the program; nothing if there are none.

        After a failure or an interruption, old outputs that were not exported again stay. A preview
        only shows the outputs.
        """
        step = monitor.stack
        if step is None or monitor.stack_outputs is None:
            return
        outputs = dict(monitor.stack_outputs)
        if self._executor.failed or self._executor.is_stopping:
            # Pulumi's rule for a failed run: the old outputs, overlaid with the new ones.
            outputs = {**self._get_outputs_before(), **outputs}
        snapshot = self._executor.snapshot
        if self.options.preview:
            step.state.outputs = outputs
        elif any(entry.type == STACK_TYPE for entry in snapshot.build_snapshot().resources):
            snapshot.record_outputs(step.state, outputs)
        self.events.emit(StepDone(step, self.options.preview))

    def _delete(
        self,
        to_delete: Sequence[ResourceState],
        leftovers: Sequence[ResourceState],
        generator: StepGenerator,
    ) -> None:
        """Delete the selected entries of `to_delete`, and record the other leftovers as unchanged.

        Leftovers that the program declares are recorded already. Nothing is deleted if a rule
        forbids one of the deletions or, in a real run, if a dependent of a target is not among the
        targets.
        """
        executor, selection = self._executor, self.options.selection
        if selection.targets:
            # The Pulumi CLI makes these diff calls before it deletes targets.
            generator.compare_dependents(find_deletable_urns(selection, generator.base))
        if selection.is_limited and not executor.is_stopping:
            to_delete = select_deletions(executor, to_delete, selection, generator.base)
        if executor.is_stopping:
            return
        declared = self._providers.registered_urns | generator.declared_urns
        deleted_keys = _get_keys(to_delete)
        for entry in leftovers:
            if (entry.urn, entry.delete) not in deleted_keys and entry.urn not in declared:
                executor.run_layer([build_same_step(entry)])
        if can_delete(executor, to_delete, generator.base, self.options.deletion_rules):
            DeletePhase(executor, generator.base).run(to_delete)

    def _finish(self, began: float) -> Outcome:
        """Close the state, send the summary, and return the outcome.

        Except in a preview, resolved intents are forgotten. The outcome succeeded if no resource
        failed and nobody cancelled.
        """
        executor = self._executor
        # The last checkpoint is written here, before any intent is forgotten.
        snapshot = executor.snapshot.close()
        succeeded = not executor.failed and not self._cancelled.is_set()
        if not self.options.preview:
            self._forget_resolved_intents(snapshot, succeeded=succeeded)
        seconds = time.monotonic() - began
        changes = Counter({str(op): count for op, count in executor.changes.items()})
        self.events.emit(
            Summary(self.options.preview, "succeeded" if succeeded else "failed", changes, seconds)
        )
        stack = self._monitor.stack if self._monitor else None
        kept_outputs = self._get_outputs_before() if self.options.operation == "update" else {}
        return Outcome(
            succeeded=succeeded,
            cancelled=self._cancelled.is_set(),
            changes=changes,
            planned=list(executor.planned_changes),
            outputs_before=self._get_outputs_before(),
            outputs=stack.state.outputs if stack else kept_outputs,
            snapshot=snapshot,
            seconds=seconds,
            effects=executor.effects,
            scope=tuple(self._format_selection_notes()),
            declared=self._monitor.declared if self._monitor else [],
            out_of_credit=executor.out_of_credit,
            stack_references=find_referenced_stacks(
                self._list_reference_inputs(), self.target.program.project
            ),
        )

    def _list_reference_inputs(self) -> Iterator[PropertyMap]:
        """Return the inputs of stack references in the program (update) or in the state."""
        declarations: Iterable[Registration | Read | ResourceState] = self.target.snapshot.resources
        if self.options.operation == "update" and self._monitor is not None:
            declarations = self._monitor.declared
        return (
            declaration.inputs
            for declaration in declarations
            if declaration.type == STACK_REFERENCE_TYPE
        )

    def _format_selection_notes(self) -> Iterator[str]:
        """Yield notes on resources affected by the user's selection without being named.

        Yields nothing without a selection, and for `expire` and `repair`, which select resources
        themselves.
        """
        options, touched = self.options, self._executor.effects
        selects_itself = options.operation in {"expire", "repair"}
        if options.selection.is_limited and not selects_itself:
            base = self.target.snapshot.resources
            notes = SelectionNotes(
                options.selection, options.operation, base, self._declared, touched
            )
            yield from notes.format_notes()

    def _get_outputs_before(self) -> PropertyMap:
        """Return the stack's outputs in the last state, empty without any."""
        for resource in self.target.snapshot.resources:
            if resource.type == STACK_TYPE:
                return resource.outputs
        return {}

    def _forget_resolved_intents(self, snapshot: Snapshot, *, succeeded: bool) -> None:
        """Remove the intents (records of creates) of objects stored in the state with all parts.

        After a success, intents with a recorded outcome are removed too. A failed removal is only a
        warning.
        """
        entry_by_id: dict[str | None, ResourceState] = {
            r.id: r for r in snapshot.resources if r.custom
        }
        intents = self._intents
        resolved = [
            intent
            for intent in intents.list_all()
            if (intent.outcome and succeeded)
            or (
                (entry := entry_by_id.get(intent.id))
                and intent.is_stored(self._executor.host.list_part_ids(entry))
            )
        ]
        try:
            intents.forget_all(resolved)
        except GpuformError as error:
            self._warn(f"the records of finished creates cannot be removed: {error}")

    def _create_context(self, urn: str, timeout: float | None) -> ProviderContext:
        """Create the context of a provider call for the resource; `timeout` is in seconds."""
        return ProviderContext(
            urn=urn,
            preview=self.options.preview,
            timeout=timeout,
            run=self.target.program.run_context,
            cancelled=self._cancelled,
            intents=self._intents,
            check_lock=self.target.check_lock,
            belongs_to_other_stack=self.target.belongs_to_other_stack,
            on_clock_skew=self.options.on_clock_skew,
            belongs_to_stack=lambda id_: (
                (self._providers_before.get(urn, ""), id_) in self._ids_before
            ),
            on_progress=lambda text: self.events.emit(Progress(urn, text)),
            on_warning=lambda text: self.events.emit(Diagnostic("warning", text, urn)),
            on_skipped_check=self._report_skipped_check,
            planned_removal=self.options.planned_removals.get(urn, RemovalCount()),
        )

    def _warn(self, message: str) -> None:
        """Emit a warning to the events of the run."""
        self.events.emit(Diagnostic("warning", message))

    def _report_skipped_check(self, check: str) -> None:
        """Send the event of a skipped check, once for each text."""
        if check not in self._unchecked:
            self._unchecked.add(check)
            self.events.emit(SkippedCheck(check))

    def _warn_of_pending_operations(self) -> None:
        """Warn of operations left pending by an interrupted run, or by a run still going on."""
        pending = [
            operation
            for operation in self.target.snapshot.pending_operations
            if not self._intents.was_refused(operation.resource.urn)
        ]
        if not pending:
            return
        names = "\n".join(f"  {o.type} {o.resource.urn}" for o in pending)
        operations = f"{len(pending)} {'operation' if len(pending) == 1 else 'operations'}"
        # A preview takes no lock, so that another run may be changing the stack.
        if self.options.concurrent_run:
            self._warn(
                f"another run is busy with {operations}, whose results are not in this "
                f"plan:\n{names}"
            )
            return
        self.events.emit(
            Diagnostic(
                "warning",
                f"the last run was interrupted during {operations}; the created objects may "
                f"exist on the platform:\n{names}",
            )
        )


def _get_keys(entries: Iterable[ResourceState]) -> set[tuple[str, bool]]:
    """Return URN and `delete` of each entry: a run chooses what it deletes by these two alone."""
    return {(entry.urn, entry.delete) for entry in entries}
