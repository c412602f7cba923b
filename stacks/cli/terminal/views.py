"""Show the runs of a command: as text for people, or as Pulumi's JSON."""

import os
from collections.abc import Callable, Iterator
from typing import Protocol

from gpuform.providers.context import get_clock
from gpuform.schemas.resource_facts import NoticeKind
from gpuform.stacks.cli.terminal.progress import EndedProgress, LineProgress, ProgressView
from gpuform.stacks.cli.terminal.screen import DisplayOptions, Screen
from gpuform.stacks.engine.deployment import EventLog, Outcome, PreviewDigest
from gpuform.stacks.engine.planning import Diagnostic, Event, Listener, SkippedCheck, Summary
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.runs.callbacks import RunEnded, RunStarted
from gpuform.stacks.operations.runs.run_log import Stopwatch
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.summary_text import format_elapsed, format_notice, render_resource_counts
from gpuform.stacks.review.text.history_text import render_diagnostics
from gpuform.stacks.review.text.plan_text import (
    format_dangers,
    render_changes,
    render_plan,
    render_unchecked,
)
from gpuform.stacks.review.value_text import format_stack_name, render_outputs
from gpuform.stacks.schedule.noticing import list_entry_notices


class View(Protocol):
    """Shows the runs of a command, one after the other."""

    def begin(self, title: RunStarted) -> Listener:
        """Begin a run and return the listener for its events."""

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        """Show the outcome of a run, which is closed by now."""

    def show_notice(self, text: str) -> None:
        """Show a text at once; called from any thread."""

    def close(self) -> None:
        """Close the display of a run that ended, with an outcome or an exception."""


class _ScreenView:
    """The common part of all views."""

    def __init__(self, screen: Screen) -> None:
        self.screen = screen
        self.title = RunStarted("update", True, "", "")

    def show_notice(self, text: str) -> None:
        self.screen.warn(text)

    def close(self) -> None:
        """Do nothing: no display is open."""


def _list_warnings(ended: RunEnded, outcome: Outcome) -> Iterator[Diagnostic | SkippedCheck]:
    """Yield the dangers, notices and missing checks of a preview's plan that no event has shown."""
    if not (ended.started.preview and outcome.succeeded):
        return
    plan = ended.plan
    messages = [*format_dangers(Review([StackFacts(plan)])), *map(format_notice, plan.notices)]
    yield from (Diagnostic("warning", text) for text in messages)
    yield from (SkippedCheck(text) for text in plan.unchecked if text not in ended.record.unchecked)


class PreviewJson(_ScreenView):
    """`preview --json`: one object on stdout, at the end."""

    def begin(self, title: RunStarted) -> Listener:
        self.title, self._digest = title, PreviewDigest()
        return self._digest

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        for event in _list_warnings(ended, outcome):
            self._digest(event)
        self.screen.print_parts(self._digest.parts())


class EventLines(_ScreenView):
    """`up --json` and the like: the event log on stdout, that of the preview first."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._log = EventLog(screen.write)
        self._summary: Summary | None = None

    def begin(self, title: RunStarted) -> Listener:
        self.title = title
        return self._write_event

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        """Write the warnings of a preview, then its summary, which ends the log."""
        for event in _list_warnings(ended, outcome):
            self._log(event)
        if self._summary is not None:
            self._log(self._summary)
            self._summary = None

    def _write_event(self, event: Event) -> None:
        if isinstance(event, Summary) and event.preview:
            self._summary = event
        else:
            self._log(event)


_BEAT = 1.0
"""How often, in real seconds, a log without events is checked for running steps."""

_DOING = {
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
        showing: DisplayOptions,
        make_watch: Callable[[], Stopwatch] = lambda: Stopwatch(get_clock(os.environ)),
    ) -> None:
        super().__init__(screen)
        self._make_watch = make_watch
        self._watch: Stopwatch
        self._showing = showing
        self._progress: ProgressView | None = None
        self._has_shown_plan = False

    def begin(self, title: RunStarted) -> Listener:
        if self._has_shown_plan:
            self.screen.print()
        self.title = title
        doing = f"Previewing {title.operation}" if title.preview else _DOING[title.operation]
        self._print_title(f"{doing} ({format_stack_name(title.stack, emulated=title.emulated)})")
        self._watch = self._make_watch()  # by the clock of the world that the run is in
        self._watch.synchronize_clock()
        self._watch.start(self)
        self._progress = self._create_progress()
        return self._progress

    def show_notice(self, text: str) -> None:
        if self._progress is None:
            self.screen.print(text)
        else:
            self._progress.print(text)

    def close(self) -> None:
        if self._progress is not None:
            self._progress.close()
            self._progress = None
            if self.screen.folds is not None and not self.title.preview:
                self.screen.mark(self.screen.folds.end())

    def end(self, ended: RunEnded, outcome: Outcome) -> None:
        show = self._format_preview if self.title.preview else self._format_result
        blocks = show(ended, outcome)
        texts = ["\n".join(block) for block in blocks]
        self.screen.print("\n" + "\n\n".join(text for text in texts if text))

    def _print_title(self, text: str) -> None:
        """Print the title of a run. CI systems fold the output of an update, never a plan."""
        folds = None if self.title.preview else self.screen.folds
        if folds is None:
            self.screen.print(self.screen.paint("bold", f"{text}:"))
        else:
            self.screen.mark(folds.begin(text))

    def _create_progress(self) -> ProgressView:
        if not self._showing.progress:
            return EndedProgress(self.screen, self._watch)
        if not self.screen.interactive:
            return LineProgress(self.screen, self._watch, beat=_BEAT)
        from gpuform.stacks.cli.terminal.progress import LiveProgress  # noqa: PLC0415 - rich, for terminals

        return LiveProgress(self.screen, self._watch)

    def _format_preview(self, ended: RunEnded, outcome: Outcome) -> Iterator[list[str]]:
        paint = self.screen.paint
        plan = ended.plan
        if outcome.succeeded:
            showing = self._showing
            shown_plan = plan if showing.outputs else plan.model_copy(update={"outputs": ()})
            yield [
                render_plan(
                    shown_plan, details=showing.urns, shows_unchanged=showing.sames, paint=paint
                )
            ]
            self._has_shown_plan = True
            if self.title.operation == "update" and showing.outputs and showing.secrets:
                yield list(render_outputs(outcome.outputs, show_secrets=True, paint=paint))
        yield list(render_diagnostics(ended.record.diagnostics, paint=paint))
        if not outcome.succeeded:
            how = "was interrupted" if outcome.cancelled else "failed"
            yield [paint("error", f"The preview {how}; nothing was changed.")]

    def _format_result(self, ended: RunEnded, outcome: Outcome) -> Iterator[list[str]]:
        paint, record = self.screen.paint, ended.record
        yield list(render_diagnostics(record.diagnostics, paint=paint))
        showing = self._showing
        if self.title.operation == "update" and outcome.succeeded and showing.outputs:
            show_secrets = showing.secrets
            yield list(render_outputs(outcome.outputs, show_secrets=show_secrets, paint=paint))
        if self.title.operation == "refresh" and not self._has_shown_plan:
            plan = ended.plan
            yield [
                render_changes(
                    plan, details=showing.urns, shows_unchanged=showing.sames, paint=paint
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
            self.title.operation == "destroy"
            and not outcome.snapshot.resources
            and not showing.removes
        ):
            forget = f"gpuform stack rm {self.title.stack}"
            yield [f"The stack is empty. `{forget}` forgets it and its settings."]
        elif self.title.operation == "repair":
            yield list(self._list_repair_commands(ended, outcome))

    def _list_repair_commands(self, ended: RunEnded, outcome: Outcome) -> Iterator[str]:
        """Yield the commands that repair the nodes that are still broken, if there are any."""
        entries = [entry for entry in outcome.snapshot.resources if not entry.delete]
        notices = list_entry_notices(entries, ended.evaluator.clock.now())
        if not any(notice.kind is NoticeKind.REPAIR for notice in notices):
            return
        on = f"--stack {self.title.stack}"
        yield self.screen.paint("bold", "Not everything that is broken is repaired. Next:")
        commands = {
            f"gpuform repair {on}": "shows the plan and asks",
            f"gpuform repair --dry-run --save-plan FILE {on}": "for a review; then "
            "`gpuform repair --plan FILE --yes`",
            f"gpuform repair NODE {on}": "one node, whatever is declared",
        }
        width = max(map(len, commands))
        for command, explanation in commands.items():
            yield f"    {command.ljust(width)}  # {explanation}"

    def _format_duration(self, outcome: Outcome) -> str:
        elapsed, here = self._watch.get_elapsed(self), format_elapsed(outcome.seconds)
        if self._watch.is_real or elapsed < 1:
            return f"Duration: {here}"
        return f"Duration: {format_elapsed(elapsed)} by the platform's clock, {here} here"

    def _describe_next_steps(self, outcome: Outcome) -> Iterator[str]:
        how = "was interrupted" if outcome.cancelled else "failed"
        command = {"update": "up"}.get(self.title.operation, self.title.operation)
        yield self.screen.paint("error", f"The {self.title.operation} {how}.")
        yield "  What was done is kept in the state; what was not begun is as before."
        for resource in outcome.snapshot.resources:
            if resource.init_errors and not resource.delete:
                yield f"  {name_of(resource.urn)} exists, is recorded, and is not ready yet."
        do = "" if outcome.cancelled else "remove the cause and "
        yield f"  Next: {do}run `gpuform {command}` again; it goes on from here."
