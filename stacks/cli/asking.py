"""The questions before a change is made."""

from typing import Final

import click

from gpuform.schemas.plan import Plan, PlanAction
from gpuform.stacks.cli.arguments import RunArguments
from gpuform.stacks.cli.screen import Screen
from gpuform.stacks.engine.deployment import Operation
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.review.names import counted
from gpuform.stacks.review.plan_text import plan_text
from gpuform.stacks.review.summary_text import gpus_removed

_LOOKING: Final = {"expire": "expire --dry-run"}
"""What only looks, for the operations that `preview` does not show."""


def refuse_what_nobody_can_answer(arguments: RunArguments, screen: Screen) -> None:
    """Ends a command that would have to ask, before it begins."""
    if arguments.preview_only or arguments.yes:
        return
    if arguments.json:
        raise click.UsageError(
            f"`{arguments.command} --json` cannot ask: add --yes, or look first with "
            f"`gpuform {_LOOKING.get(arguments.operation, 'preview')} --json`"
        )
    if not screen.interactive and not arguments.skip_preview:
        skipping = "" if arguments.operation == "expire" else " or --skip-preview"
        looking = _LOOKING.get(arguments.operation, "preview")
        raise EngineError(
            f"`gpuform {arguments.command}` asks before it changes anything, and nobody is here "
            "to answer",
            hint=f"add --yes (the preview is shown first){skipping}; `gpuform {looking}` only "
            "shows what would change",
        )


def confirmed(screen: Screen, plan: Plan, operation: Operation) -> bool:
    """Asks until the answer is clear; no answer is a no. A destroy wants the stack's name."""
    wanted = plan.stack if operation == "destroy" else "yes"
    question = f"{_what(plan, operation)} [{wanted}/no/details] "
    screen.print()
    while True:
        answer = screen.ask(screen.paint("bold", question))
        if answer == wanted:
            return True
        if answer == "details":
            screen.print("\n" + plan_text(plan, details=True, paint=screen.paint) + "\n")
        elif answer in ("", "no", "n"):
            return False
        else:
            screen.print(f"Answer {wanted}, no or details.")


def agreed(screen: Screen, question: str, *, yes: bool) -> bool:
    """Whether the person wants it: `yes` was given, or is the answer.

    Raises EngineError where nobody can answer.
    """
    if yes:
        return True
    if not screen.interactive:
        raise EngineError(
            "this wants a confirmation, and nobody is here to give it", hint="add --yes"
        )
    if screen.ask(screen.paint("bold", f"{question} [yes/no] ")) == "yes":
        return True
    screen.print("Nothing was changed.")
    return False


def _what(plan: Plan, operation: Operation) -> str:
    gone = gpus_removed(plan)
    gpus = f" {counted(gone, 'GPU')} will be gone." if gone else ""
    if operation == "destroy":
        deleted = plan.summary.get(PlanAction.DELETE, 0)
        return (
            f"This deletes {counted(deleted, 'resource')} of stack {plan.stack} and what is on "
            f"them.{gpus} Type the stack's name to go on."
        )
    return f"Perform this {operation}?{gpus}"
