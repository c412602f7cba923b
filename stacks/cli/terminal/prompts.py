"""Ask for confirmation before a change.

The modules that run operations and the commands that edit state call these functions.
"""

from typing import Final

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan, PlanAction
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.cli.flags import RunArguments
from gpuform.stacks.cli.terminal.screen import Screen
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_text import format_loss, render_plan
from gpuform.stacks.review.value_text import counted

_PREVIEW_COMMANDS: Final = {
    "expire": "expire --dry-run",
    "repair": "repair --dry-run",
    "destroy": "destroy --preview-only",
    "refresh": "refresh --preview-only",
}
"""The commands that preview an operation, where `preview` does not."""


def require_answerable(arguments: RunArguments, screen: Screen) -> None:
    """Raise an error for a command which would ask a question where nobody can answer.

    With --skip-preview nothing is asked, but --json still requires --yes.

    Raises:
        UsageError: with --json nothing can be asked.
        EngineError: there is no terminal, or questions are switched off.
    """
    options = arguments.options
    if options.preview_only or arguments.yes:
        return
    # A question on stdout would be part of the JSON.
    if arguments.json:
        raise click.UsageError(
            f"`{arguments.command} --json` cannot ask for a confirmation: add --yes, or "
            "preview first with `gpuform "
            f"{_PREVIEW_COMMANDS.get(options.operation, 'preview')} --json`"
        )
    # Found before the run: a preview may take minutes, and the question comes after it.
    if not screen.interactive and not options.skip_preview:
        skip_hint = "" if options.operation in ("expire", "repair") else " or --skip-preview"
        preview_command = _PREVIEW_COMMANDS.get(options.operation, "preview")
        raise EngineError(
            f"`gpuform {arguments.command}` requires a confirmation, and the command "
            "cannot ask for it here",
            hint=f"add --yes (the preview is shown first){skip_hint}; `gpuform {preview_command}` "
            "only shows what would change",
        )


def confirm_plan(screen: Screen, plan: Plan) -> bool:
    """Ask until the answer is clear, and return True for a yes; no answer is a no.

    To destroy the stack or to lose data, the user has to type the stack's name. `details` shows the
    plan with details and asks again. Ctrl-C raises KeyboardInterrupt.
    """
    # A habitual `yes` must not destroy a stack.
    needs_name = plan.operation == "destroy" or bool(StackFacts(plan).losing_data)
    expected_answer = plan.stack if needs_name else "yes"
    question = f"{_build_question(plan, by_name=needs_name)} [{expected_answer}/no/details] "
    screen.print()
    while True:
        answer = screen.ask(screen.paint("bold", question))
        if answer == expected_answer or (not needs_name and is_yes(answer)):
            return True
        if answer == "details":
            screen.print("\n" + render_plan(plan, details=True, paint=screen.paint) + "\n")
        elif answer.lower() in ("", "no", "n"):
            return False
        else:
            screen.print(f"Answer {expected_answer}, no or details.")


def confirm_all_plans(screen: Screen, plan: StacksPlan) -> bool:
    """Ask about the combined plan, and return True for a yes; no answer and Ctrl-C are a no.

    To destroy or to lose data, the user has to type the name of the workspace's folder, if any.
    """
    review = Review.from_stacks_plan(plan)
    destroys = all(stack_plan.operation == "destroy" for stack_plan in plan.plans)
    by_name = bool(plan.name) and (
        destroys or any(stack_facts.losing_data for stack_facts in review.stacks)
    )
    expected_answer = plan.name if by_name else "yes"
    stacks = counted(len(plan.plans), "stack")
    question = f"This destroys {stacks}." if destroys else f"Perform this on {stacks}?"
    name_request = f" Type the name of their folder, {plan.name}, to confirm." if by_name else ""
    try:
        while True:
            answer = screen.ask(
                screen.paint("bold", f"{question}{name_request} [{expected_answer}/no] ")
            )
            if answer == expected_answer or (not by_name and is_yes(answer)):
                return True
            if answer.lower() in ("", "no", "n"):
                return False
            screen.print(f"Answer {expected_answer} or no.")
    # Ctrl-C leaves the cursor after the question: the next output begins on a new line.
    except KeyboardInterrupt:
        screen.print()
        return False


def is_confirmed(screen: Screen, question: str, *, yes: bool) -> bool:
    """Return True if `yes` was given or the user answers yes; print a line after a no.

    Raises:
        EngineError: nobody can answer.
    """
    if yes:
        return True
    if not screen.interactive:
        raise EngineError(
            "this requires a confirmation, and the command cannot ask for it here", hint="add --yes"
        )
    if is_yes(screen.ask(screen.paint("bold", f"{question} [yes/no] "))):
        return True
    screen.print("Nothing was changed.")
    return False


def is_yes(answer: str) -> bool:
    """Return True if a person's answer is yes or y."""
    return answer.lower() in ("yes", "y")


def _build_question(plan: Plan, *, by_name: bool) -> str:
    """Return the question before a run: what is deleted or lost, and what to type."""
    parts = [format_loss(plan), " Type the stack's name to confirm." if by_name else ""]
    if plan.operation == "destroy":
        deleted = plan.summary.get(PlanAction.DELETE, 0)
        deletion = (
            f"This deletes {counted(deleted, 'resource')} of stack {plan.stack} and what is on "
        )
        parts.insert(0, f"{deletion}{'it' if deleted == 1 else 'them'}.")
    else:
        parts.insert(0, f"Perform this {plan.operation}?")
    return " ".join(filter(None, parts))
