"""What is dangerous about plans, in words: above the question, in the log, in a review."""

from collections.abc import Iterator

from gpuform.schemas.plan import Plan
from gpuform.schemas.visible import visible
from gpuform.stacks.review.cost_text import plan_cost_text
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.names import counted
from gpuform.stacks.review.paint import PLAIN, Paint

_NAMED = 3


def dangers_lines(review: Review, paint: Paint = PLAIN) -> Iterator[str]:
    """`Dangerous changes:` and a line for each, the worst first; nothing where none is."""
    lines = list(danger_texts(review))
    if lines:
        yield paint("bold", "Dangerous changes:")
        yield from (f"    {paint('remove', visible(text))}" for text in lines)


def danger_texts(review: Review) -> Iterator[str]:
    """`delete train: destroys 16 GPUs`, with the stack where there are several."""
    for stack, subject in review.subjects:
        change, danger = subject.change, subject.danger
        if danger is not None:
            where = f" in {stack.name}" if len(review.stacks) > 1 else ""
            yield f"{change.action} {change.name}{where}: {danger.text}"


def loss_text(plan: Plan) -> str:
    """What is lost by the plan, in a sentence or two for who decides; empty where nothing is."""
    facts = StackFacts(plan)
    gone, told = facts.gpus_removed, []
    if plan.operation == "refresh":
        count = sum(each.danger is not None for each in facts.subjects)
        return f"{_are(count, 'resource')} gone from the platforms." if count else ""
    if gone.known == 1 and gone.exact:
        told.append("1 GPU")
    elif gone:
        told.append(f"{gone} GPUs" if gone.known else f"{gone} of GPUs")
    if facts.losing_data:
        names = ", ".join(facts.losing_data[:_NAMED])
        more = len(facts.losing_data) - _NAMED
        told.append(f"the data on {names}{f' and {more} more' if more > 0 else ''}")
    sentences = [f"{' and '.join(told)} will be gone."] if told else []
    if plan.cost is not None and plan.cost.before != plan.cost.after:
        sentences.append(f"Cost: {plan_cost_text(plan.cost)}.")
    text = " ".join(sentences)
    return visible(text[:1].upper() + text[1:])


def _are(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"
