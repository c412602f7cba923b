"""Report to people what an operation has found and done, by the rules of the project.

`reporting` calls this module after an operation. A problem is a warning and fails no operation.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpuform.providers.context import get_run_context
from gpuform.providers.errors import GpuformError, OutOfCapacity
from gpuform.providers.records import EphemeralRecords
from gpuform.providers.values import Redactor, collect_secret_texts
from gpuform.schemas.notify import TITLES, NotifyEvent
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.stacks.engine.ci_job import find_ci_job
from gpuform.stacks.engine.dynamic_providers import ProviderError
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.engine.project import is_secure
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.store import get_user
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.notify import (
    STATE_EVENTS,
    Notifier,
    Occurrence,
    Rule,
    Sender,
    build_repair_occurrence,
    count_reported,
    describe_missing_address,
    list_state_occurrences,
    send_message,
)
from gpuform.stacks.operations.opening.selected_stack import (
    SelectedStack,
    is_recorded_emulated,
    read_config,
)
from gpuform.stacks.operations.runs.options import (
    ExitReason,
    FinalState,
    ReportSubject,
    RunOptions,
    RunResult,
)
from gpuform.stacks.operations.status_reading import DriftResult
from gpuform.stacks.schedule.noticing import list_entry_notices

_FAILURES: Final[Mapping[ExitReason, str]] = {
    ExitReason.FAILED: "failed",
    ExitReason.CANCELLED: "was interrupted",
    ExitReason.POLICY_VIOLATION: "was stopped by a gate",
    ExitReason.UNCHECKED: "was stopped: a required check could not be made",
    ExitReason.UNEXPECTED_CHANGES: "made changes where none were expected",
    ExitReason.OUT_OF_CREDIT: "failed: no credit is left",
    ExitReason.END_UNKNOWN: "does not know when a resource ends",
}
_SHOWN_ERRORS: Final = 3


@dataclass(frozen=True, slots=True)
class Findings:
    """The occurrences that an operation has found, to be reported.

    `checked_events` names the events of which every occurrence was found, each with the subject
    concerned, or with "" for all subjects: an earlier occurrence that is missing here has ended.
    """

    occurrences: Sequence[Occurrence] = ()
    checked_events: Mapping[NotifyEvent, str] = field(default_factory=dict)


def choose_subject(options: RunOptions) -> ReportSubject:
    """Return the default subject of a run's reports: "nothing" for a person's own preview."""
    if not options.preview_only:
        return "run"
    if options.save_plan is not None:
        return "approval"
    return "nothing" if options.operation == "update" else "findings"


def find_run_findings(result: RunResult, options: RunOptions, subject: ReportSubject) -> Findings:
    """Return the findings to report of a run which ended with a result."""
    command = options.command
    failure = _FAILURES.get(result.reason)
    occurrences: list[Occurrence] = []
    checked_events: dict[NotifyEvent, str] = {}
    if failure is not None:
        occurrences += [_build_failure(command, failure, result.diagnostics)]
        occurrences += _list_missing_capacity(result.diagnostics)
    if subject == "failure":
        return Findings(occurrences)
    plan = result.plan
    if subject == "approval" and failure is None and result.has_changes and plan is not None:
        message = f"a saved plan waits for approval: {_count_changes(plan)}"
        state = plan.model_dump_json(include={"changes", "outputs"})
        occurrences.append(
            Occurrence(NotifyEvent.WAITING_FOR_APPROVAL, options.operation, state, message)
        )
    if plan is not None and options.operation == "refresh":
        occurrences += find_drift_occurrences(plan)
    if subject == "run" and plan is not None and not result.preview:
        occurrences += _list_done(result, plan, command)
    if result.final_state is not None and (subject != "approval" or options.operation != "update"):
        occurrences += _list_state_occurrences(result.final_state)
    if failure is None and result.reason is not ExitReason.DECLINED and subject != "approval":
        checked_events |= _list_checked_events(options)
    return Findings(occurrences, checked_events)


def _list_checked_events(options: RunOptions) -> Mapping[NotifyEvent, str]:
    """Return the events of which a run finds every occurrence, each with its subject or ""."""
    is_partial = bool(options.target or options.exclude or options.repair_nodes)
    checked_events: dict[NotifyEvent, str] = {NotifyEvent.FAILED: options.command}
    if is_partial:
        return checked_events
    checked_events |= dict.fromkeys(STATE_EVENTS, "")
    if options.operation == "refresh":
        checked_events[NotifyEvent.DRIFT_FOUND] = ""
    if not options.preview_only:
        checked_events[NotifyEvent.OUT_OF_CAPACITY] = ""
        checked_events[NotifyEvent.WAITING_FOR_APPROVAL] = options.operation
    return checked_events


def find_drift_occurrences(plan: Plan) -> list[Occurrence]:
    """Return the drift of each resource in the plan of a refresh."""
    return [
        Occurrence(
            NotifyEvent.DRIFT_FOUND,
            change.urn,
            change.model_dump_json(include={"action", "changes"}),
            f"{change.name}: {change.action}"
            + (
                f" of {', '.join(field.path for field in change.changes)}" if change.changes else ""
            ),
        )
        for change in plan.changes
        if change.action.is_change
    ]


def find_drift_findings(result: DriftResult, *, is_complete: bool) -> Findings:
    """Return the findings to report of a check for drift; `is_complete` covers all resources."""
    occurrences = find_drift_occurrences(result.plan)
    if result.final_state is not None:
        occurrences += _list_state_occurrences(result.final_state)
    if not result.succeeded:
        return Findings([*occurrences, _build_failure("drift", "failed", result.diagnostics)])
    checked_events = {NotifyEvent.FAILED: "drift"}
    if is_complete:
        checked_events |= {**dict.fromkeys(STATE_EVENTS, ""), NotifyEvent.DRIFT_FOUND: ""}
    return Findings(occurrences, checked_events)


def find_error_findings(command: str, error: GpuformError) -> Findings:
    """Return the findings to report of an operation which ended with an error and no change."""
    diagnostic = Diagnostic("error", error.message, error=error)
    return Findings([_build_failure(command, "failed", [diagnostic])])


def _build_failure(command: str, failure: str, diagnostics: Iterable[Diagnostic]) -> Occurrence:
    """Return the failure of a command. Messages may have times and ids: only classes compare."""
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.severity == "error"]
    state = sorted(
        f"{diagnostic.urn} {type(_get_cause(diagnostic)).__name__}"
        if diagnostic.urn
        else diagnostic.message
        for diagnostic in errors
    )
    texts = [
        ": ".join(
            filter(None, [name_of(diagnostic.urn) if diagnostic.urn else "", diagnostic.message])
        )
        for diagnostic in errors
    ]
    reasons = "; ".join(texts[:_SHOWN_ERRORS])
    if len(texts) > _SHOWN_ERRORS:
        reasons += f"; and {len(texts) - _SHOWN_ERRORS} more errors"
    message = f"{command} {failure}" + (f": {reasons}" if reasons else "")
    return Occurrence(NotifyEvent.FAILED, command, "\n".join([failure, *state]), message)


def _get_cause(diagnostic: Diagnostic) -> GpuformError | None:
    """Return the error raised by a lifecycle, or else the error behind a message."""
    error = diagnostic.error
    return (error.cause or error) if isinstance(error, ProviderError) else error


def _list_missing_capacity(diagnostics: Iterable[Diagnostic]) -> Iterator[Occurrence]:
    """Yield the resources for which a platform has no GPUs."""
    for diagnostic in diagnostics:
        if isinstance(_get_cause(diagnostic), OutOfCapacity):
            message = f"{name_of(diagnostic.urn)}: {diagnostic.message}"
            yield Occurrence(NotifyEvent.OUT_OF_CAPACITY, diagnostic.urn, "", message)


def _list_done(result: RunResult, plan: Plan, command: str) -> Iterator[Occurrence]:
    """Yield an occurrence for finished changes, and for each repair of a node, in every run."""
    if result.succeeded and result.has_changes:
        message = f"{command} finished: {_count_changes(plan)}"
        yield Occurrence(NotifyEvent.FINISHED, command, None, message)
    for change in plan.changes:
        for repair in change.repairs:
            done = build_repair_occurrence(NotifyEvent.REPAIR_DONE, change.urn, repair)
            yield replace(done, state=None)


def _count_changes(plan: Plan) -> str:
    """Return the numbers of changes, such as `2 create, 1 update`, for messages."""
    counts = [
        f"{count} {action}" for action, count in plan.summary.items() if action != PlanAction.SAME
    ]
    return ", ".join(counts) or "no resource changes"


def _list_state_occurrences(final_state: FinalState) -> list[Occurrence]:
    """Return the occurrences in the resources' state at the end of an operation."""
    entries = [entry for entry in final_state.entries if not entry.delete]
    notices = list_entry_notices(
        entries, final_state.now, is_emulated=final_state.has_emulated_clock
    )
    return list_state_occurrences(entries, notices, final_state.now)


@dataclass(frozen=True, slots=True)
class Announcer:
    """Reports the findings of operations on one stack by its rules."""

    selected: SelectedStack
    rules: Sequence[Rule]
    warn: Callable[[str], None]

    def announce(
        self,
        command: str,
        find_findings: Callable[[], Findings],
        final_state: FinalState | None = None,
        *,
        removed: bool = False,
    ) -> None:
        """Send the findings of `find_findings`, and store a digest, unless the stack was removed.

        Without a final state the stack is opened for its configuration, without a question for the
        passphrase. Any problem is a warning.
        """
        if get_run_context().is_read_only:
            return
        try:
            self._announce(command, find_findings(), final_state, removed=removed)
        except GpuformError as error:
            self.warn(f"warning: no notification was sent: {error.message}")
        # Also a mistake here: the operation has ended, and its result counts.
        except Exception as error:  # noqa: BLE001 - see above
            self.warn(f"warning: no notification was sent: internal error: {type(error).__name__}")

    def _announce(
        self, command: str, findings: Findings, final_state: FinalState | None, *, removed: bool
    ) -> None:
        """Send the findings, as `announce` does. Raises the errors that `announce` reports."""
        stack = final_state.stack if final_state else self._open_stack()
        entries = final_state.entries if final_state else stack.snapshot.resources
        secrets = set(stack.build_target().program.collect_secrets())
        for entry in entries:
            secrets.update(collect_secret_texts(entry.inputs))
            secrets.update(collect_secret_texts(entry.outputs))
        project = stack.project.name
        records = open_intents(stack.backend, project, stack.name).records
        emulated = final_state.emulated if final_state else is_recorded_emulated(stack)
        notifier = Notifier(
            self.rules,
            read_addresses(stack, self.rules),
            EphemeralRecords(records) if removed else records,
            build_sender(f"{project}/{stack.name}", command, emulated=emulated),
            Redactor(
                secrets, within=[occurrence.text for occurrence in findings.occurrences]
            ).redact,
            self.warn,
        )
        notifier.notify(findings.occurrences, findings.checked_events)

    def _open_stack(self) -> Stack:
        """Open the stack for the report of an operation which failed before the stack was open.

        Raises:
            EngineError: the stack cannot be opened without a question.
        """
        return replace(self.selected, ask_passphrase=None).open()


def read_addresses(stack: Stack, rules: Iterable[Rule]) -> dict[str, str]:
    """Return the address of each rule whose key is a secret of the configuration."""
    keys = {rule.name: rule.key for rule in rules if is_secure(stack.settings.config.get(rule.key))}
    values = read_config(stack) if keys else {}
    return {name: values[key] for name, key in keys.items() if values.get(key)}


def build_sender(stack: str, command: str, *, emulated: bool) -> Sender:
    """Return who runs the command here, and the address of the CI job, if any."""
    job = find_ci_job(get_run_context().environ)
    link = job.build_url if job and job.build_url.startswith(("https://", "http://")) else ""
    return Sender(stack, command, (job and job.user) or get_user(), link, emulated)


def send_test_messages(selected: SelectedStack, rules: Sequence[Rule]) -> dict[str, str]:
    """Send a test message by each rule; return the problem by rule, empty if sent.

    Raises:
        EngineError: the stack cannot be opened.
    """
    stack = selected.open()
    addresses = read_addresses(stack, rules)
    full_name = f"{stack.project.name}/{stack.name}"
    sender = build_sender(full_name, "notify --test", emulated=is_recorded_emulated(stack))
    problems = {}
    for rule in rules:
        events = ", ".join(TITLES[event] for event in sorted(rule.events))
        lines = [f"A test of the rule {rule.name}, which reports: {events}", *sender.list_origins()]
        address = addresses.get(rule.name)
        problems[rule.name] = (
            send_message(address, f"{full_name}: test", "\n".join(lines))
            if address
            else describe_missing_address(rule)
        )
    return problems


def describe_rules(stack: Stack, rules: Sequence[Rule]) -> Iterator[str]:
    """Yield a line for each rule: its events, and whether the stack has its address."""
    records = open_intents(stack.backend, stack.project.name, stack.name).records
    for rule in rules:
        has_address = is_secure(stack.settings.config.get(rule.key))
        address = "has an address" if has_address else f"no address: set {rule.key}"
        reported = count_reported(records, rule)
        yield f"{rule.name}: {', '.join(sorted(rule.events))} ({address}; reported now: {reported})"
