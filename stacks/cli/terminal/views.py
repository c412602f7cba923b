"""Show the runs of a command: as text for people, or as Pulumi's JSON.

`stack_runs` creates a view for a command, and calls it with the events of the operation; the text
comes from `stacks/review`.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from gpuform.providers.context import get_run_context
from gpuform.schemas.resource_facts import NoticeKind
from gpuform.stacks.cli.terminal.progress import EndedProgress, LineProgress, ProgressView
from gpuform.stacks.cli.terminal.screen import DisplayOptions, Screen
from gpuform.stacks.engine.deployment import EventLog, Outcome, PreviewDigest
from gpuform.stacks.engine.planning import Diagnostic, Event, Listener, SkippedCheck, Summary
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.runs.callbacks import RunEnded, RunStarted
from gpuform.stacks.operations.runs.run_log import Stopwatch
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.history_text import render_diagnostics
from gpuform.stacks.review.plan_text import (
    format_dangers,
    render_changes,
    render_plan,
    render_unchecked,
)
from gpuform.stacks.review.summary_text import format_notice, render_resource_counts
from gpuform.stacks.review.value_text import format_elapsed, format_stack_name, render_outputs
from gpuform.stacks.schedule.noticing import list_entry_notices


class View(Protocol):
    """Shows the runs of a command, one after the other."""

    def begin(self, started: RunStarted) -> Listener:
        """Begin a run and return the listener for the run's events."""

    def end(self, run_ended: RunEnded, outcome: Outcome) -> None:
        """Show the outcome of a run whose display is closed by now."""

    def show_notice(self, message: str) -> None:
        """Show a message at once; called from any thread."""

    def close(self) -> None:
        """Close the display of a run which ended, with an outcome or an exception."""


class _ScreenView:
    """The common part of all views."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.started = RunStarted("update", True, "", "")

    def show_notice(self, message: str) -> None:
        """Show a message at once, as a warning."""
        self.screen.warn(message)

    def close(self) -> None:
        """Do nothing: no display is open."""


def _list_warnings(run_ended: RunEnded, outcome: Outcome) -> Iterator[Diagnostic | SkippedCheck]:
    """Yield dangers, notices and missing checks of a preview's plan not shown by an event yet.

    Nothing for a failed preview or for the run after the preview.
    """
    # Warnings belong to the plan: an update has shown them in its preview.
    if not (run_ended.started.preview and outcome.succeeded):
        return
    plan = run_ended.plan
    messages = [*format_dangers(Review([StackFacts(plan)])), *map(format_notice, plan.notices)]
    yield from (Diagnostic("warning", message) for message in messages)
    yield from (
        SkippedCheck(message)
        for message in plan.unchecked
        if message not in run_ended.record.unchecked
    )


class PreviewJson(_ScreenView):
    """`preview --json`: one object on stdout, at the end."""

    def begin(self, started: RunStarted) -> Listener:
        """Begin the document of a preview, and return the listener for the run's events."""
        self.started, self._digest = started, PreviewDigest()
        return self._digest

    def end(self, run_ended: RunEnded, outcome: Outcome) -> None:
        """Print the document of the preview, with the warnings of the plan."""
        # Only the complete plan has these: no event of the run has shown them.
        for event in _list_warnings(run_ended, outcome):
            self._digest(event)
        # In parts: the document of thousands of resources is large.
        self.screen.print_parts(self._digest.format_parts())


class EventLines(_ScreenView):
    """`up --json` and the like: the event log on stdout, that of the preview first."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._log = EventLog(screen.write)
        self._summary: Summary | None = None

    def begin(self, started: RunStarted) -> Listener:
        """Begin a run, and return the listener which writes each event to the log."""
        self.started = started
        return self._write_event

    def end(self, run_ended: RunEnded, outcome: Outcome) -> None:
        """Write the warnings of a preview, then the held-back summary as the log's last event."""
        for event in _list_warnings(run_ended, outcome):
            self._log(event)
        if self._summary is not None:
            self._log(self._summary)
            self._summary = None

    def _write_event(self, event: Event) -> None:
        """Write the event; the summary of a preview is held back until the end."""
        if isinstance(event, Summary) and event.preview:
            # Held back: the warnings of the plan come before the end of the log.
            self._summary = event
        else:
            self._log(event)


_CHECK_INTERVAL_S = 1.0
"""How often, in real seconds, a log without events is checked for running steps."""

_ACTIVITIES = {
    "update": "Updating",
    "refresh": "Refreshing",
    "destroy": "Destroying",
    "expire": "Expiring",
    "repair": "Repairing",
}


class HumanView(_ScreenView):
    """Plan, progress, outputs and summary as text on stdout."""

    def __init__(
        self,
        screen: Screen,
        display: DisplayOptions,
        create_stopwatch: Callable[[], Stopwatch] = lambda: Stopwatch(get_run_context().clock),
    ) -> None:
        super().__init__(screen)
        self._create_stopwatch = create_stopwatch
        self._stopwatch: Stopwatch
        self._display = display
        self._progress: ProgressView | None = None
        self._has_shown_plan = False

    def begin(self, started: RunStarted) -> Listener:
        """Print the title of the run, and return the progress display as listener of events."""
        if self._has_shown_plan:
            self.screen.print()
        self.started = started
        activity = (
            f"Previewing {started.operation}" if started.preview else _ACTIVITIES[started.operation]
        )
        self._print_title(
            f"{activity} ({format_stack_name(started.stack, emulated=started.emulated)})"
        )
        self._stopwatch = self._create_stopwatch()  # by the clock of the run's environment
        self._stopwatch.synchronize_clock()
        self._stopwatch.start(self)
        self._progress = self._create_progress()
        return self._progress

    def show_notice(self, message: str) -> None:
        """Print the notice, above the progress display if there is one."""
        if self._progress is None:
            self.screen.print(message)
        else:
            self._progress.print(message)

    def close(self) -> None:
        """End the progress display, if there is one, before the results."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None
            # Only an update is folded: a plan is what a reader of the log looks for.
            if self.screen.fold_marks is not None and not self.started.preview:
                self.screen.print_unescaped(self.screen.fold_marks.end())

    def end(self, run_ended: RunEnded, outcome: Outcome) -> None:
        """Print the plan of a preview, or the result of the operation."""
        format_blocks = self._format_preview if self.started.preview else self._format_result
        blocks = format_blocks(run_ended, outcome)
        texts = ["\n".join(block) for block in blocks]
        self.screen.print("\n" + "\n\n".join(block_text for block_text in texts if block_text))

    def _print_title(self, text: str) -> None:
        """Print the title of a run. CI systems fold the output of an update, never a plan."""
        folds = None if self.started.preview else self.screen.fold_marks
        if folds is None:
            self.screen.print(self.screen.paint("bold", f"{text}:"))
        else:
            self.screen.print_unescaped(folds.begin(text))

    def _create_progress(self) -> ProgressView:
        """Return the display: live rows on a terminal, lines elsewhere, or ended steps alone."""
        if not self._display.progress:
            return EndedProgress(self.screen, self._stopwatch)
        if not self.screen.interactive:
            return LineProgress(self.screen, self._stopwatch, interval_s=_CHECK_INTERVAL_S)
        from gpuform.stacks.cli.terminal.progress import LiveProgress  # noqa: PLC0415 - rich, for terminals

        return LiveProgress(self.screen, self._stopwatch)

    def _format_preview(self, run_ended: RunEnded, outcome: Outcome) -> Iterator[list[str]]:
        """Yield groups of lines after a preview: the plan, outputs, messages, or the failure.

        The outputs follow only where secrets are to be shown: the plan has them masked.
        """
        paint = self.screen.paint
        plan = run_ended.plan
        if outcome.succeeded:
            display = self._display
            shown_plan = plan if display.outputs else plan.model_copy(update={"outputs": ()})
            yield [
                render_plan(
                    shown_plan, details=display.urns, shows_unchanged=display.sames, paint=paint
                )
            ]
            self._has_shown_plan = True
            if self.started.operation == "update" and display.outputs and display.secrets:
                yield list(render_outputs(outcome.outputs, show_secrets=True, paint=paint))
        yield list(render_diagnostics(run_ended.record.diagnostics, paint=paint))
        if not outcome.succeeded:
            outcome_text = "was interrupted" if outcome.cancelled else "failed"
            yield [paint("error", f"The preview {outcome_text}; nothing was changed.")]

    def _format_result(self, run_ended: RunEnded, outcome: Outcome) -> Iterator[list[str]]:
        """Yield groups of lines after a run: messages, outputs, counts, and the next steps."""
        paint, record = self.screen.paint, run_ended.record
        yield list(render_diagnostics(record.diagnostics, paint=paint))
        display = self._display
        if self.started.operation == "update" and outcome.succeeded and display.outputs:
            show_secrets = display.secrets
            yield list(render_outputs(outcome.outputs, show_secrets=show_secrets, paint=paint))
        # Without a preview nobody has seen what the refresh found.
        if self.started.operation == "refresh" and not self._has_shown_plan:
            plan = run_ended.plan
            yield [
                render_changes(
                    plan, details=display.urns, shows_unchanged=display.sames, paint=paint
                )
            ]
        if record.unchecked and not self._has_shown_plan:
            yield list(render_unchecked(tuple(record.unchecked), paint))
        lines = render_resource_counts(
            record.counts, preview=False, errored=record.error_count, paint=paint
        )
        yield [*lines, self._format_duration(outcome)]
        if not outcome.succeeded:
            yield list(self._describe_next_steps(outcome))
        elif (
            self.started.operation == "destroy"
            and not outcome.snapshot.resources
            and not display.removes
        ):
            remove_command = f"gpuform stack rm {self.started.stack}"
            yield [f"The stack is empty. `{remove_command}` removes it and its settings."]
        elif self.started.operation == "repair":
            yield list(self._list_repair_commands(run_ended, outcome))

    def _list_repair_commands(self, run_ended: RunEnded, outcome: Outcome) -> Iterator[str]:
        """Yield the commands to repair the nodes which are still broken, or nothing."""
        entries = [entry for entry in outcome.snapshot.resources if not entry.delete]
        notices = list_entry_notices(entries, run_ended.evaluator.clock.now())
        if not any(notice.kind is NoticeKind.REPAIR for notice in notices):
            return
        on = f"--stack {self.started.stack}"
        yield self.screen.paint("bold", "Some broken nodes are not repaired. Next:")
        commands = {
            f"gpuform repair {on}": "shows the plan and asks",
            f"gpuform repair --dry-run --save-plan FILE {on}": "for a review; then "
            "`gpuform repair --plan FILE --yes`",
            f"gpuform repair NODE {on}": "repairs one node; needs no declared `repair`",
        }
        width = max(map(len, commands))
        for command, explanation in commands.items():
            yield f"    {command.ljust(width)}  # {explanation}"

    def _format_duration(self, outcome: Outcome) -> str:
        """Format the duration of the run; on an emulator by the platform's clock, too."""
        elapsed, here = self._stopwatch.get_elapsed(self), format_elapsed(outcome.seconds)
        if self._stopwatch.is_real or elapsed < 1:
            return f"Duration: {here}"
        return f"Duration: {format_elapsed(elapsed)} by the platform's clock, {here} here"

    def _describe_next_steps(self, outcome: Outcome) -> Iterator[str]:
        """Yield the lines after a failure: unready resources, and the next command."""
        how = "was interrupted" if outcome.cancelled else "failed"
        command = {"update": "up"}.get(self.started.operation, self.started.operation)
        yield self.screen.paint("error", f"The {self.started.operation} {how}.")
        yield "  The state has all completed changes; nothing else was changed."
        for resource in outcome.snapshot.resources:
            # Created, and the wait for readiness failed: the next run waits again.
            if resource.init_errors and not resource.delete:
                yield f"  {name_of(resource.urn)} exists and is in the state, but is not ready yet."
        do = "" if outcome.cancelled else "fix the cause and "
        yield f"  Next: {do}run `gpuform {command}` again; it continues from here."
