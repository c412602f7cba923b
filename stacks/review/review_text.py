"""A review as text: one line for each stack where there are several, then every plan whole."""

from collections.abc import Iterator

from gpuform.schemas.plan import PlanAction
from gpuform.stacks.review.change_text import change_lines
from gpuform.stacks.review.cost_text import plan_cost_lines
from gpuform.stacks.review.facts import Review, StackFacts, as_property, gpus_text, validity
from gpuform.stacks.review.gates_text import gates_lines
from gpuform.stacks.review.names import counted
from gpuform.stacks.review.notices_text import notices_lines
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.plan_text import changes_text, unchecked_lines
from gpuform.stacks.review.summary_text import counts_text
from gpuform.stacks.review.visible import visible


def review_text(review: Review, paint: Paint = PLAIN) -> str:
    """The text, without an end of its own; nothing is left out."""
    blocks = ["\n".join(_heading(review, paint)), "\n".join(_dangers(review, paint))]
    for stack in review.stacks:
        title = paint("bold", f"{visible(stack.name)}:")
        blocks += [title] if len(review.stacks) > 1 else []
        blocks.append(changes_text(stack.plan, paint=paint))
        blocks.append("\n".join(_outputs(stack, paint)))
        blocks.append("\n".join(plan_cost_lines(stack.plan, paint)))
        blocks.append("\n".join(notices_lines(stack.plan.notices, paint)))
        blocks.append("\n".join(gates_lines(stack.plan, paint)))
        if stack.plan.unchecked:
            blocks.append("\n".join(unchecked_lines(stack.plan.unchecked, paint)))
    blocks.append("\n".join(_next(review, paint)))
    return "\n\n".join(block for block in blocks if block)


def _heading(review: Review, paint: Paint) -> Iterator[str]:
    if len(review.stacks) == 1:
        (stack,) = review.stacks
        made = [visible(text) for text in (stack.plan.made_at, stack.plan.made_by) if text]
        ending = f" (made {', '.join(made)})" if made else ""
        yield paint("bold", f"Plan of {visible(stack.name)}: {stack.plan.operation}{ending}")
    else:
        yield paint("bold", f"Plans of {len(review.stacks)} stacks")
    removed = bool(review.gpus_removed)
    yield counts_text(review.counts)
    yield paint("remove" if removed else "", f"GPUs: {gpus_text(review)}")
    if len(review.stacks) > 1:
        yield ""
        yield from _table(review)


def _dangers(review: Review, paint: Paint) -> Iterator[str]:
    found = [(stack, subject) for stack, subject in review.subjects if subject.danger]
    if found:
        yield paint("bold", "Dangerous changes:")
    for stack, subject in found:
        change, danger = subject.change, subject.danger
        where = f" in {stack.name}" if len(review.stacks) > 1 else ""
        text = f"{change.action} {change.name}{where}: {danger.text if danger else ''}"
        yield "    " + paint("remove", visible(text))


def _table(review: Review) -> Iterator[str]:
    width = max(len(visible(stack.name)) for stack in review.stacks)
    for stack in review.stacks:
        dangers = f"; {counted(stack.dangers, 'dangerous change')}" if stack.dangers else ""
        gpus = f"; {gpus_text(stack)} GPUs" if stack.gpus_removed or stack.gpus_added else ""
        yield f"{visible(stack.name):<{width}}  {counts_text(stack.counts)}{gpus}{dangers}"


def _outputs(stack: StackFacts, paint: Paint) -> Iterator[str]:
    changes = tuple(map(as_property, stack.plan.outputs))
    if changes:
        yield paint("bold", "Outputs:")
        lines = change_lines(changes, PlanAction.UPDATE, "", paint)
        yield from (f"  {line}" for line in lines)


def _next(review: Review, paint: Paint) -> Iterator[str]:
    commands = [stack.command for stack in review.stacks if stack.command]
    yield paint("bold", "Next:") if commands else "Nothing is to be done."
    yield from (f"    {visible(command)}" for command in commands)
    if commands:
        yield validity(review)
