"""Run commands on several stacks: one combined plan, one question, and the result of each stack.

Commands with --all call this module; it calls `operations/multi_stack/runner.py` and prints its
events.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from gpuform.providers.context import trace_run
from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.safe_text import escape_invisible, escape_invisible_lines, format_json
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.cli import multi_stack_worker
from gpuform.stacks.cli.failures import SUCCESS
from gpuform.stacks.cli.flags import MultiStackFlags, RunArguments, build_lock_timeout
from gpuform.stacks.cli.opening import select_stack
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.stack_runs import choose_exit_code, create_rehearsal_progress
from gpuform.stacks.cli.stack_selection import order_stacks
from gpuform.stacks.cli.terminal.prompts import confirm_all_plans, require_answerable
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.signals import INTERRUPTED_MESSAGE, Signals, raise_on_signals
from gpuform.stacks.multi_stack import StackOrder, sort_stacks
from gpuform.stacks.operations.multi_stack.applied_parts import find_apply_order
from gpuform.stacks.operations.multi_stack.runner import (
    MultiStackCallbacks,
    MultiStackOptions,
    MultiStackResult,
    run_multi_stack,
)
from gpuform.stacks.operations.multi_stack.schedule import NOT_STARTED
from gpuform.stacks.operations.multi_stack.stack_process import Form, OutputLine, TaskResult
from gpuform.stacks.operations.runs.options import ExitReason, RunOptions
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.plan_text import render_review
from gpuform.stacks.review.summary_text import format_gate
from gpuform.stacks.review.value_text import counted

if TYPE_CHECKING:
    from gpuform.stacks.rehearsing import PlannedStack

_SINGLE_STACK_OPTIONS: Final = (
    *("target", "exclude", "replace", "target_replace", "config", "adopt", "create_anew"),
    *("skip_preview", "remove", "event_log", "profile"),
)
"""Options about one stack's resources, settings or files, which --all does not accept."""


def run_command(
    arguments: RunArguments, multi_stack_flags: MultiStackFlags, session: Session
) -> int:
    """Run the command on all chosen stacks and return the exit code; success if none is chosen.

    Raises:
        UsageError: a flag is about one stack alone.
        EngineError: the run cannot begin; nothing was changed.
    """
    options = arguments.options
    # Ignoring such a flag would change more than was asked for.
    for name in _SINGLE_STACK_OPTIONS:
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} is for one stack: it cannot be combined with --all")
    require_answerable(arguments, session.screen)
    runs_programs = options.operation == "update"
    order, names = order_stacks(
        session,
        multi_stack_flags.filters,
        runs_programs=runs_programs,
        applies_plan=options.plan is not None and not options.preview_only,
    )
    # A filter by a git diff may match nothing: a CI job succeeds then.
    if not names:
        session.screen.print("No stack is affected: nothing to do.")
        return SUCCESS
    printer = MultiStackPrinter(session.screen, arguments, options.save_plan or options.plan)
    run_options = MultiStackOptions(
        options,
        names,
        multi_stack_worker.__name__,
        multi_stack_flags.jobs,
        _choose_form(arguments),
        session.screen.paint.color,
        asdict(arguments.display),
        build_lock_timeout(session.screen).seconds,
        session.verbose,
        is_part=bool(multi_stack_flags.filters) or session.stack is not None,
        rehearses=arguments.rehearse,
    )
    callbacks = create_multi_stack_callbacks(printer, session, yes=arguments.yes)
    if arguments.rehearse:
        callbacks = replace(
            callbacks, rehearse=partial(_rehearse_together, session, order, options)
        )
    with raise_on_signals(), trace_multi_stack_run(arguments.command, session) as traceparent:
        result = run_multi_stack(order, replace(run_options, traceparent=traceparent), callbacks)
    printer.print_result(result)
    has_changes = result.plan is not None and result.plan.has_changes
    return choose_exit_code(arguments, result.reason, has_changes=has_changes)


def create_multi_stack_callbacks(
    printer: "MultiStackPrinter", session: Session, *, yes: bool = True
) -> MultiStackCallbacks:
    """Return callbacks which print the events of a run, and ask for confirmation without `yes`."""
    ask_person = session.screen.create_passphrase_prompt()
    return MultiStackCallbacks(
        printer.print_line,
        printer.print_stack_end,
        printer.print_plan,
        # Each stack's process shows only its own stack: the multi-stack run reports the signal
        # once.
        ReportedSignals(session.screen),
        None if yes else lambda plan: confirm_all_plans(session.screen, plan),
        None if ask_person is None else lambda name, prompt: ask_person(f"{name}: {prompt}"),
    )


def find_drift(
    multi_stack_flags: MultiStackFlags, session: Session, *, emulate: bool
) -> MultiStackResult:
    """Return the changes made outside of Pulumi to all chosen stacks, without printing them.

    A stack that could not be read is reported on stderr.
    """
    order, names = order_stacks(session, multi_stack_flags.filters, runs_programs=False)
    # Drift is what a refresh would find.
    options = RunOptions("refresh", preview_only=True, emulate=emulate)
    run_options = MultiStackOptions(
        options,
        names,
        multi_stack_worker.__name__,
        multi_stack_flags.jobs,
        debug=session.verbose,
        drift=True,
    )

    callbacks = _create_quiet_callbacks(session)
    with raise_on_signals(), trace_multi_stack_run("drift", session) as traceparent:
        return run_multi_stack(order, replace(run_options, traceparent=traceparent), callbacks)


def plan_all_stacks(
    order: StackOrder, names: set[str], session: Session, allow: tuple[str, ...], *, emulate: bool
) -> StacksPlan | None:
    """Return the plans of the stacks, each made with the planned outputs of stacks it reads.

    Nothing is printed but what fails, on stderr; None if the plan of a stack cannot be made.
    """
    options = RunOptions(preview_only=True, allow=allow, emulate=emulate)
    run_options = MultiStackOptions(
        options, names, multi_stack_worker.__name__, debug=session.verbose
    )
    with trace_multi_stack_run("rehearse", session) as traceparent:
        result = run_multi_stack(
            order, replace(run_options, traceparent=traceparent), _create_quiet_callbacks(session)
        )
    if result.plan is None or any(plan.errors for plan in result.plan.plans):
        return None
    return result.plan


def build_planned_stacks(
    order: StackOrder, plans: Mapping[str, Plan], session: Session
) -> "list[PlannedStack]":
    """Return the stacks whose plans have changes in the order of an apply, for a rehearsal.

    Each has the names of all stacks that come before it, also through stacks without changes.
    """
    from gpuform.stacks.rehearsing import PlannedStack  # noqa: PLC0415 - few runs need it

    apply_order = find_apply_order(order.workspace, plans)
    planned = []
    needed: dict[str, frozenset[str]] = {}
    for name in sort_stacks(apply_order):
        direct = frozenset(apply_order[name])
        needed[name] = direct.union(*(needed.get(other, frozenset()) for other in direct))
        if plans[name].has_changes:
            stack = order.workspace.stacks[name]
            selected = select_stack(session, stack.open_workspace(session.environ), stack.stack)
            planned.append(PlannedStack(selected, plans[name], needed[name]))
    return planned


def _rehearse_together(
    session: Session, order: StackOrder, options: RunOptions, plan: StacksPlan
) -> Rehearsal | None:
    """Return the rehearsal of the plans together; None for one stack, or with a warning."""
    from gpuform.stacks.rehearsing import (  # noqa: PLC0415 - few runs need it
        RehearsalError,
        RehearsalOptions,
        rehearse_together,
    )

    plans = {item.project_stack: item for item in plan.plans}
    planned = build_planned_stacks(order, plans, session)
    if len(planned) < 2:
        return None
    rehearsal_options = RehearsalOptions(
        jobs=os.cpu_count() or 1,
        allow=options.allow,
        run_options=options,
        on_progress=create_rehearsal_progress(session.screen),
    )
    try:
        return rehearse_together(planned, rehearsal_options)
    except RehearsalError as error:
        session.screen.warn(f"warning: the stacks were not rehearsed together: {error.message}")
        return None


def _create_quiet_callbacks(session: Session) -> MultiStackCallbacks:
    """Return callbacks which print nothing but failures, on stderr."""

    def warn_of_failure(name: str, result: TaskResult, _preview: bool) -> None:
        if result.code != 0:
            session.screen.warn(escape_invisible_lines(f"error: {name}: {result.summary}"))

    def print_line(name: str, line: OutputLine) -> None:
        session.screen.warn(f"{name}: {line.content}")

    ask_person = session.screen.create_passphrase_prompt()
    return MultiStackCallbacks(
        print_line,
        warn_of_failure,
        lambda _plan, _digest: None,
        ReportedSignals(session.screen),
        ask_passphrase=None
        if ask_person is None
        else lambda name, prompt: ask_person(f"{name}: {prompt}"),
    )


def trace_multi_stack_run(command: str, session: Session) -> AbstractContextManager[str]:
    """Trace a run of several stacks; yield the trace's context, for the processes of the stacks."""
    return trace_run(f"gpuform {command} --all", "", session.environ, session.screen.warn)


def _choose_form(arguments: RunArguments) -> Form:
    """Return `text`, or for --json `json` for a preview and `events` for another run."""
    if not arguments.json:
        return "text"
    return "json" if arguments.options.preview_only else "events"


class ReportedSignals(Signals):
    """The signals of this process; the first one is reported on stderr."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._reporting_screen = screen

    def register(
        self, cancel: Callable[[], None], terminate: Callable[[], None]
    ) -> AbstractContextManager[None]:
        """Report the first signal and call `cancel`, and call `terminate` at the second."""

        def report_and_cancel() -> None:
            self._reporting_screen.warn(INTERRUPTED_MESSAGE)
            cancel()

        return super().register(report_and_cancel, terminate)


@dataclass(slots=True)
class MultiStackPrinter:
    """Prints the events of a multi-stack run, as text with each stack's name, or as JSON."""

    screen: Screen
    arguments: RunArguments
    file: Path | None
    documents: dict[str, list[str]] = field(default_factory=dict)

    def print_line(self, name: str, line: OutputLine) -> None:
        """Print a line of a stack's output: as text, or in JSON as an object with the stack's name.

        The lines of a JSON preview are collected until `print_result`.
        """
        if line.stream == "err":
            self.screen.warn(f"{name}: {line.content}")
        elif not self.arguments.json:
            self.screen.print(f"{name}: {line.content}" if line.content else "")
        elif self.arguments.options.preview_only:
            self.documents.setdefault(name, []).append(line.content)
        elif line.content:
            # The lines of several event logs are mixed: each names its stack.
            self.screen.print(format_json({"stack": name, **json.loads(line.content)}))

    def print_stack_end(self, name: str, result: TaskResult, preview: bool) -> None:
        """Print the result of a stack: one line with the name and the summary.

        With `--json` only failures are printed, on stderr. A failed apply is not printed if its run
        has printed the reason, nor is a stack that was not started. `preview` is True for the pass
        that plans.
        """
        # stdout has JSON alone, and a failed stack has no document.
        if self.arguments.json and result.code != 0:
            self.screen.warn(f"error: {name}: {escape_invisible(result.summary)}")
        elif self.arguments.json:
            return
        elif result.code == 0:
            self.screen.print(f"{name}: {'planned' if preview else 'done'}: {result.summary}")
        elif preview:
            self.screen.print(
                self.screen.paint("error", f"{name}: {_get_first_line(result.summary)}")
            )
        elif (
            result.code != NOT_STARTED and not result.reason
        ):  # else its run has printed the reason
            self.screen.warn(
                self.screen.paint(
                    "error", f"error: {name}: {escape_invisible_lines(result.summary)}"
                )
            )

    def print_plan(self, plan: StacksPlan, digest: str) -> None:
        """Print the combined plan with the digest of the plan's file, unless the output is JSON."""
        if not self.arguments.json:
            review = Review.from_stacks_plan(
                plan, str(self.file or ""), digest, emulate=self.arguments.options.emulate
            )
            self.screen.print("\n" + render_review(review, self.screen.paint) + "\n")

    def print_result(self, result: MultiStackResult) -> None:
        """Print the result of the run, and the collected documents of a JSON preview."""
        options = self.arguments.options
        if self.arguments.json and options.preview_only:
            documents = {name: _parse_document(lines) for name, lines in self.documents.items()}
            document: dict[str, object] = {"stacks": documents}
            if self.arguments.rehearse:
                rehearsal = result.plan.rehearsal if result.plan is not None else None
                document["rehearsal"] = rehearsal.model_dump(mode="json") if rehearsal else None
            self.screen.print(format_json(document, indent=2))
        if not self.arguments.json and result.reason is not ExitReason.DECLINED:
            self._print_table(result)
        for reason in _list_reasons(result):
            self.screen.warn(reason)
        if result.reason is ExitReason.DECLINED:
            self.screen.print("Nothing was changed.")
        if options.save_plan is not None and result.reason is ExitReason.SUCCEEDED:
            command = "up" if options.operation == "update" else options.operation
            next_command = f"To apply it, run `gpuform {command} --all --plan {options.save_plan}`."
            # With JSON stdout has nothing but the JSON.
            print_message = self.screen.warn if self.arguments.json else self.screen.print
            print_message(f"Digest: {result.digest}")
            print_message(f"Saved the plan to {options.save_plan}. {next_command}")

    def _print_table(self, result: MultiStackResult) -> None:
        """Print a line for each stack of the apply; nothing for a preview or a failed plan."""
        is_planned = result.plan is not None and not result.plan.has_failed
        if not result.stacks or not is_planned or self.arguments.options.preview_only:
            return
        paint, width = self.screen.paint, max(map(len, result.stacks))
        self.screen.print("\n" + paint("bold", "Stacks:"))
        for name, task_result in result.stacks.items():
            description, style = _describe_end(task_result)
            self.screen.print(paint(style, f"    {name:<{width}}  {escape_invisible(description)}"))


def _describe_end(result: TaskResult) -> tuple[str, str]:
    """Return the table's text for a stack's end, and the name of the colour."""
    if result.code == 0:
        return f"done: {result.summary}", ""
    if result.code == NOT_STARTED:
        return result.summary, "warning"
    return f"failed: {_get_first_line(result.summary)}", "error"


def _get_first_line(message: str) -> str:
    """Return the first line of a message, without a colon at the end."""
    return message.strip().split("\n")[0].removesuffix(":")


def _parse_document(lines: list[str]) -> object:
    """Parse the JSON printed by a stack, or return None without any."""
    document_json = "\n".join(lines)
    # A stack that was not started has printed nothing.
    return json.loads(document_json) if document_json.strip() else None


def _list_reasons(result: MultiStackResult) -> list[str]:
    """Return why the run ended, where no other output says so."""
    lines = []
    plan = result.plan
    if result.reason is ExitReason.POLICY_VIOLATION and plan is not None:
        gates = [("", gate) for gate in plan.gates or ()]
        gates += [(f"{p.project}/{p.stack}: ", gate) for p in plan.plans for gate in p.gates or ()]
        lines += [
            f"error: {stack_prefix}{gate_result.source}: gate {format_gate(gate_result)}"
            for stack_prefix, gate_result in gates
            if gate_result.is_blocking
        ]
    if result.reason is ExitReason.UNCHECKED and plan is not None:
        lines += [
            f"error: {stack_plan.project}/{stack_plan.stack}: not checked: {check}"
            for stack_plan in plan.plans
            for check in stack_plan.unchecked
        ]
    if result.reason is ExitReason.UNEXPECTED_CHANGES:
        lines.append("error: no changes were expected")
    if result.reason is ExitReason.OUT_OF_CREDIT:
        lines.append("error: no credit is left: add credit to the account")
    if result.reason in (ExitReason.FAILED, ExitReason.CANCELLED):
        is_applied = plan is not None and not plan.has_failed
        failed_names = [
            name for name, task_result in result.stacks.items() if task_result.code != 0
        ]
        outcome = "was interrupted" if result.reason is ExitReason.CANCELLED else "failed"
        if is_applied:
            lines.append(
                f"error: the run {outcome}: {counted(len(failed_names), 'stack')} not done "
                f"({', '.join(failed_names)}). The states have all completed changes; the "
                "next run continues from there."
            )
        else:
            lines.append(f"error: the plan {outcome}: nothing was changed")
    return [escape_invisible(line) for line in lines]
