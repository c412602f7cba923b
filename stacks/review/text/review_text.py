"""A review as text: one line for each stack where there are several, then every plan whole."""

from collections.abc import Iterator

from gpuform.schemas.visible import visible
from gpuform.stacks.review.cost_text import plan_cost_lines
from gpuform.stacks.review.facts import (
    FAILED,
    Review,
    StackFacts,
    gpus_text,
    planned_text,
    validity,
)
from gpuform.stacks.review.gates_text import gates_lines, lines_of_gates
from gpuform.stacks.review.names import counted
from gpuform.stacks.review.notices_text import notices_lines
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.repairs_text import repairs_lines
from gpuform.stacks.review.summary_text import unchecked_line
from gpuform.stacks.review.text.change_text import output_changes_lines
from gpuform.stacks.review.text.dangers_text import dangers_lines
from gpuform.stacks.review.text.plan_text import changes_text, unchecked_lines


def review_text(review: Review, paint: Paint = PLAIN) -> str:
    """The text, without an end of its own; nothing is left out."""
    blocks = ["\n".join(_errors_lines(review, paint)), unchecked_line(review.unchecked, paint)]
    blocks += ["\n".join(_heading(review, paint)), "\n".join(dangers_lines(review, paint))]
    blocks.append("\n".join(repairs_lines((stack.plan for stack in review.stacks), paint)))
    if review.whole is not None:
        blocks.append("\n".join(lines_of_gates(review.whole.gates, paint, "Gates over all:")))
    for stack in review.stacks:
        own = [block for block in _of_stack(stack, paint) if block]
        title = paint("bold", f"{visible(stack.name)}:")
        blocks += [title, *own] if own and len(review.stacks) > 1 else own
    blocks.append("\n".join(_next(review, paint)))
    return "\n\n".join(block for block in blocks if block)


def _of_stack(stack: StackFacts, paint: Paint) -> Iterator[str]:
    """All that there is to tell of one stack; a block may be empty."""
    plan = stack.plan
    yield changes_text(plan, paint=paint)
    yield "\n".join(output_changes_lines(plan.outputs, paint))
    yield "\n".join(plan_cost_lines(plan, paint))
    yield "\n".join(notices_lines(plan.notices, paint))
    yield "\n".join(gates_lines(plan, paint))
    if plan.unchecked:
        yield "\n".join(unchecked_lines(plan.unchecked, paint))


def _heading(review: Review, paint: Paint) -> Iterator[str]:
    if len(review.stacks) == 1:
        (stack,) = review.stacks
        made = [visible(text) for text in (stack.plan.made_at, stack.plan.made_by) if text]
        title = f"{review.kind.capitalize()} of {visible(stack.name)}"
        title += "" if stack.is_drift else f": {stack.plan.operation}"
        title += f", made {' by '.join(made)}" if made else ""
        yield paint("bold", title)
        if stack.plan.basis is not None and stack.plan.basis.seal:
            yield f"Digest: {visible(stack.plan.basis.seal)}"
    else:
        what = "Drift" if review.is_drift else "Plans"
        yield paint("bold", f"{what} of {len(review.stacks)} stacks")
    removed = bool(review.gpus_removed)
    yield planned_text(review)
    yield paint("remove" if removed else "", f"GPUs: {gpus_text(review)}")
    if len(review.stacks) > 1:
        yield ""
        yield from _table(review)


def _table(review: Review) -> Iterator[str]:
    width = max(len(visible(stack.name)) for stack in review.stacks)
    for stack in review.stacks:
        dangers = f"; {counted(stack.dangers, 'dangerous change')}" if stack.dangers else ""
        gpus = f"; GPUs: {gpus_text(stack)}" if stack.gpus_removed or stack.gpus_added else ""
        yield f"{visible(stack.name):<{width}}  {planned_text(stack)}{gpus}{dangers}"


def _next(review: Review, paint: Paint) -> Iterator[str]:
    commands = [command for _, command in review.commands]
    yield paint("bold", "Next:") if commands else review.nothing
    yield from (f"    {visible(command)}" for command in commands)
    if commands:
        yield FAILED if review.has_failed else validity(review)


def _errors_lines(review: Review, paint: Paint = PLAIN) -> Iterator[str]:
    """`Failed:` and each error in full, with its stack where there are several; or nothing."""
    if review.has_failed:
        yield paint("error", "Failed:")
    for stack in review.stacks:
        for error in stack.plan.errors:
            first, *rest = error.split("\n")
            where = f"{stack.name}: " if len(review.stacks) > 1 else ""
            yield f"    {visible(where + first)}"
            yield from (f"      {visible(line)}" for line in rest)
