"""Commands on several stacks: one plan of all, one question, and how each of them ended."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final

import click

from gpuform.schemas.safe_text import escape_invisible, escape_invisible_lines, format_json
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.choosing import ordered
from gpuform.stacks.cli.failures import SUCCESS
from gpuform.stacks.cli.flags import Several, patience
from gpuform.stacks.cli.running import EXIT_CODES
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.asking import confirmed_all, refuse_what_nobody_can_answer
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.cli.terminal.stopping import FIRST, Signals, unwinding
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.results import ExitReason
from gpuform.stacks.operations.several.process import Ended, Form, Line
from gpuform.stacks.operations.several.running import (
    MultiStackCallbacks,
    MultiStackOptions,
    MultiStackResult,
    run_multi_stack,
)
from gpuform.stacks.operations.several.schedule import NOT_STARTED
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.summary_text import format_gate
from gpuform.stacks.review.text.plan_text import render_review
from gpuform.stacks.review.value_text import counted

_ONLY_ONE: Final = (
    *("target", "exclude", "replace", "target_replace", "config", "adopt", "create_anew"),
    *("skip_preview", "remove", "event_log", "profile", "digest"),
)
"""Options that are about one stack's resources, settings or files."""


def run(arguments: RunArguments, several: Several, session: Session) -> int:
    """Does the command on all stacks that it means; the exit code."""
    options = arguments.options
    for name in _ONLY_ONE:
        if getattr(options, name):
            flag = f"--{name.replace('_', '-')}"
            raise click.UsageError(f"{flag} is about one stack: it does not go with --all")
    if options.plan is not None and options.preview_only:
        raise click.UsageError("--plan is checked stack by stack: it does not go with --all here")
    refuse_what_nobody_can_answer(arguments, session.screen)
    runs_programs = options.operation == "update"
    order, names = ordered(session, several.filters, runs_programs=runs_programs)
    if not names:
        session.screen.print("No stack is touched: nothing is to be done.")
        return SUCCESS
    shown = _Shown(session.screen, arguments, options.save_plan or options.plan)
    asked = MultiStackOptions(
        options,
        names,
        several.jobs,
        _form(arguments),
        session.screen.paint.color,
        asdict(arguments.showing),
        patience(session.screen).seconds,
        session.verbose,
    )
    ask = session.screen.passphrase()
    caller = MultiStackCallbacks(
        shown.tell,
        shown.ended,
        shown.plan,
        _Told(session.screen),
        None if arguments.yes else lambda plan: confirmed_all(session.screen, plan),
        None if ask is None else lambda name, prompt: ask(f"{name}: {prompt}"),
    )
    with unwinding():
        result = run_multi_stack(order, asked, caller)
    shown.result(result)
    return EXIT_CODES[result.reason]


def drift(several: Several, session: Session, *, emulate: bool) -> MultiStackResult:
    """What was changed behind the backs of all stacks that it means; the plan of it is not shown.

    A stack that could not be read is told on stderr.
    """
    order, names = ordered(session, several.filters, runs_programs=False)
    options = RunOptions("refresh", preview_only=True, emulate=emulate)
    asked = MultiStackOptions(
        options,
        names,
        several.jobs,
        debug=session.verbose,
        drift=True,
    )

    def ended(name: str, how: Ended, _preview: bool) -> None:
        if how.code != 0:
            session.screen.warn(escape_invisible_lines(f"error: {name}: {how.text}"))

    def tell(name: str, line: Line) -> None:
        session.screen.warn(f"{name}: {line.text}")

    ask = session.screen.passphrase()
    caller = MultiStackCallbacks(
        tell,
        ended,
        lambda _plan: None,
        _Told(session.screen),
        ask_passphrase=None if ask is None else lambda name, prompt: ask(f"{name}: {prompt}"),
    )
    with unwinding():
        return run_multi_stack(order, asked, caller)


def _form(arguments: RunArguments) -> Form:
    if not arguments.json:
        return "text"
    return "json" if arguments.options.preview_only else "events"


class _Told(Signals):
    """The signals of this process; that the first was heard is told."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(screen)
        self._told = screen

    def register(
        self, cancel: Callable[[], None], leave: Callable[[], None]
    ) -> AbstractContextManager[None]:
        def told() -> None:
            self._told.warn(FIRST)
            cancel()

        return super().register(told, leave)


@dataclass(slots=True)
class _Shown:
    """Shows what happens: as text under each stack's name, or as JSON with it."""

    screen: Screen
    arguments: RunArguments
    file: Path | None
    documents: dict[str, list[str]] = field(default_factory=dict)

    def tell(self, name: str, line: Line) -> None:
        """A line of a stack."""
        if line.to == "err":
            self.screen.warn(f"{name}: {line.text}")
        elif not self.arguments.json:
            self.screen.print(f"{name}: {line.text}" if line.text else "")
        elif self.arguments.options.preview_only:
            self.documents.setdefault(name, []).append(line.text)
        elif line.text:
            self.screen.print(format_json({"stack": name, **json.loads(line.text)}))

    def ended(self, name: str, ended: Ended, preview: bool) -> None:
        """How a stack ended."""
        if self.arguments.json and ended.code != 0:
            self.screen.warn(f"error: {name}: {escape_invisible(ended.text)}")
        elif self.arguments.json:
            return
        elif ended.code == 0:
            self.screen.print(f"{name}: {'planned' if preview else 'done'}: {ended.text}")
        elif preview:
            self.screen.print(self.screen.paint("error", f"{name}: {_first(ended.text)}"))
        elif ended.code != NOT_STARTED and not ended.reason:  # else its run has told it
            self.screen.warn(
                self.screen.paint("error", f"error: {name}: {escape_invisible_lines(ended.text)}")
            )

    def plan(self, plan: StacksPlan) -> None:
        """The plan of all."""
        if not self.arguments.json:
            review = Review.from_stacks_plan(
                plan, str(self.file or ""), emulate=self.arguments.options.emulate
            )
            self.screen.print("\n" + render_review(review, self.screen.paint) + "\n")

    def result(self, result: MultiStackResult) -> None:
        """How all of it ended."""
        options = self.arguments.options
        if self.arguments.json and options.preview_only:
            found = {name: _document(lines) for name, lines in self.documents.items()}
            self.screen.print(format_json({"stacks": found}, indent=2))
        if not self.arguments.json and result.reason is not ExitReason.DECLINED:
            self._table(result)
        for text in _reasons(result):
            self.screen.warn(text)
        if result.reason is ExitReason.DECLINED:
            self.screen.print("Nothing was changed.")
        if options.save_plan is not None and result.reason is ExitReason.SUCCEEDED:
            command = "up" if options.operation == "update" else options.operation
            applies = f"`gpuform {command} --all --plan {options.save_plan}` applies it."
            tell = self.screen.warn if self.arguments.json else self.screen.print
            tell(f"Plan saved to {options.save_plan}: {applies}")

    def _table(self, result: MultiStackResult) -> None:
        """A line for each stack that was to be applied."""
        is_planned = result.plan is not None and not result.plan.has_failed
        if not result.stacks or not is_planned or self.arguments.options.preview_only:
            return
        paint, width = self.screen.paint, max(map(len, result.stacks))
        self.screen.print("\n" + paint("bold", "Stacks:"))
        for name, ended in result.stacks.items():
            how, style = _how(ended)
            self.screen.print(paint(style, f"    {name:<{width}}  {escape_invisible(how)}"))


def _how(ended: Ended) -> tuple[str, str]:
    if ended.code == 0:
        return f"done: {ended.text}", ""
    if ended.code == NOT_STARTED:
        return ended.text, "warning"
    return f"failed: {_first(ended.text)}", "error"


def _first(text: str) -> str:
    return text.strip().split("\n")[0].removesuffix(":")


def _document(lines: list[str]) -> object:
    text = "\n".join(lines)
    return json.loads(text) if text.strip() else None


def _reasons(result: MultiStackResult) -> list[str]:
    """Why it ended as it did, where nothing else says so."""
    found = []
    plan = result.plan
    if result.reason is ExitReason.POLICY_VIOLATION and plan is not None:
        gates = [("", gate) for gate in plan.gates or ()]
        gates += [(f"{p.project}/{p.stack}: ", gate) for p in plan.plans for gate in p.gates or ()]
        found += [
            f"error: {whose}{g.source}: gate {format_gate(g)}"
            for whose, g in gates
            if g.is_blocking
        ]
    if result.reason is ExitReason.UNCHECKED and plan is not None:
        found += [
            f"error: {each.project}/{each.stack}: not checked: {text}"
            for each in plan.plans
            for text in each.unchecked
        ]
    if result.reason is ExitReason.UNEXPECTED_CHANGES:
        found.append("error: no changes were expected")
    if result.reason is ExitReason.OUT_OF_CREDIT:
        found.append("error: no credit is left: add credit to the account")
    if result.reason in (ExitReason.FAILED, ExitReason.CANCELLED):
        is_applied = plan is not None and not plan.has_failed
        bad = [name for name, ended in result.stacks.items() if ended.code != 0]
        how = "was interrupted" if result.reason is ExitReason.CANCELLED else "failed"
        if is_applied:
            found.append(
                f"error: the run {how}: {counted(len(bad), 'stack')} not done ({', '.join(bad)}). "
                "What was done is kept; the next run goes on from here."
            )
        else:
            found.append(f"error: the plan {how}: nothing was changed")
    return [escape_invisible(text) for text in found]
