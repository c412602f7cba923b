"""The plan as text: every resource that changes, property by property, and why."""

from collections.abc import Iterator

from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.visible import visible
from gpuform.stacks.review.cost_text import change_cost_text, plan_cost_lines
from gpuform.stacks.review.dangers import ranked
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.gates_text import gates_lines
from gpuform.stacks.review.leaving_text import leaving_lines
from gpuform.stacks.review.names import STYLES, SYMBOLS, short_type
from gpuform.stacks.review.notices_text import notices_lines
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.reasons import gpus_note, is_shown, shown_properties, why
from gpuform.stacks.review.summary_text import gpus_line, resources_lines, unchecked_line
from gpuform.stacks.review.text.change_text import change_lines, output_changes_lines
from gpuform.stacks.review.text.dangers_text import dangers_lines


def plan_text(
    plan: Plan, *, details: bool = False, sames: bool = False, paint: Paint = PLAIN
) -> str:
    """The whole plan: changes, outputs, dangers, counts, cost, gates, and what was not checked.

    With `details` each resource that is listed has its URN; with `sames` those that do not change
    are listed, too.
    """
    facts = StackFacts(plan)
    counts = {str(action): count for action, count in facts.counts.items()}
    ending = [*resources_lines(counts, preview=True, paint=paint)]
    gpus = gpus_line(plan, paint)
    blocks = [
        unchecked_line(len(plan.unchecked), paint),
        changes_text(plan, details=details, sames=sames, paint=paint),
        "\n".join(output_changes_lines(plan.outputs, paint)),
        "\n".join(dangers_lines(Review([facts]), paint)),
        "\n".join([*ending, gpus] if gpus else ending),
    ]
    blocks.append("\n".join(plan_cost_lines(plan, paint)))
    blocks.append("\n".join(notices_lines(plan.notices, paint)))
    blocks.append("\n".join(gates_lines(plan, paint)))
    if plan.unchecked:
        blocks.append("\n".join(unchecked_lines(plan.unchecked, paint)))
    return "\n\n".join(block for block in blocks if block)


def changes_text(
    plan: Plan, *, details: bool = False, sames: bool = False, paint: Paint = PLAIN
) -> str:
    """A block for every resource that changes, what destroys capacity first."""
    shown = [change for change in ranked(plan.changes) if sames or is_shown(change)]
    return "\n\n".join("\n".join(_resource_lines(change, details, paint)) for change in shown)


def unchecked_lines(unchecked: tuple[str, ...], paint: Paint = PLAIN) -> Iterator[str]:
    """The checks that could not be made while planning."""
    yield paint("warning", "Not checked:")
    for text in unchecked:
        yield from (f"    {visible(line)}" for line in text.split("\n"))


def _resource_lines(change: ResourceChange, details: bool, paint: Paint) -> Iterator[str]:
    symbol = SYMBOLS[change.action]
    verb = "unchanged" if change.action is PlanAction.SAME else str(change.action)
    cause = why(change)
    notes = ", ".join(filter(None, (gpus_note(change), change_cost_text(change))))
    what = f"{verb}: {cause}" if cause else verb
    head = f"{symbol:<2} {change.name}  {short_type(change.type)}  {what}"
    yield paint(STYLES.get(symbol, ""), visible(f"{head}  ({notes})" if notes else head))
    if details:
        yield paint("dim", f"     urn: {visible(change.urn)}")
    indent = "     " if change.action is PlanAction.CREATE else "   "
    properties = shown_properties(change)
    lines = change_lines(properties, change.action, change.type, paint)
    yield from (indent + line for line in lines)
    for text in leaving_lines(change.leaving):
        yield paint(STYLES["-"], f"{indent}{visible(text)}")
