"""Format plans, reviews and state entries as text: every changed resource, property by property,
dangers first.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpuform.schemas.plan import OutputChange, Plan, PlanAction, PropertyChange, ResourceChange
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.state import PendingOperation, ResourceState, encode_resource
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.review.dangers import gpus_note, is_shown, ranked, shown_properties, why
from gpuform.stacks.review.differences import Row, change_rows
from gpuform.stacks.review.facts import (
    FAILED,
    Review,
    StackFacts,
    as_property,
    gpus_text,
    planned_text,
    validity,
)
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import (
    change_cost_text,
    gates_lines,
    gpus_line,
    leaving_lines,
    lines_of_gates,
    notices_lines,
    plan_cost_lines,
    plan_cost_text,
    repairs_lines,
    resources_lines,
    unchecked_line,
)
from gpuform.stacks.review.value_text import STYLES, SYMBOLS, counted, short_type, shown

_STYLES = {"+": "add", "~": "change", "-": "remove", " ": "dim"}


def change_lines(
    changes: tuple[PropertyChange, ...], action: PlanAction, type_: str, paint: Paint
) -> Iterator[str]:
    """The lines of a resource's property changes, their values aligned.

    In a new resource everything is new, so that its properties need no symbol.
    """
    bare = action is PlanAction.CREATE
    for row in change_rows(changes, type_):
        yield paint("" if bare else _STYLES[row.mark], _line(row, bare))


def output_changes_lines(changes: Iterable[OutputChange], paint: Paint) -> Iterator[str]:
    """`Outputs:` with those that change, each marked; nothing when none does."""
    properties = tuple(map(as_property, changes))
    if properties:
        yield paint("bold", "Outputs:")
        lines = change_lines(properties, PlanAction.UPDATE, "", paint)
        yield from (f"  {line}" for line in lines)


def _line(row: Row, bare: bool) -> str:
    indent = "    " * row.depth
    if bare:
        return indent + row.text
    return indent + (row.text if row.continues else f"{row.mark} {row.text}")


_NAMED = 3


def dangers_lines(review: Review, paint: Paint = PLAIN) -> Iterator[str]:
    """`Dangerous changes:` and a line for each, the worst first; nothing where none is."""
    lines = list(danger_texts(review))
    if lines:
        yield paint("bold", "Dangerous changes:")
        yield from (f"    {paint('remove', escape_invisible(text))}" for text in lines)


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
    return escape_invisible(text[:1].upper() + text[1:])


def _are(count: int, noun: str) -> str:
    return f"{counted(count, noun)} {'is' if count == 1 else 'are'}"


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
        yield from (f"    {escape_invisible(line)}" for line in text.split("\n"))


def _resource_lines(change: ResourceChange, details: bool, paint: Paint) -> Iterator[str]:
    symbol = SYMBOLS[change.action]
    verb = "unchanged" if change.action is PlanAction.SAME else str(change.action)
    cause = why(change)
    notes = ", ".join(filter(None, (gpus_note(change), change_cost_text(change))))
    what = f"{verb}: {cause}" if cause else verb
    head = f"{symbol:<2} {change.name}  {short_type(change.type)}  {what}"
    yield paint(STYLES.get(symbol, ""), escape_invisible(f"{head}  ({notes})" if notes else head))
    if details:
        yield paint("dim", f"     urn: {escape_invisible(change.urn)}")
    indent = "     " if change.action is PlanAction.CREATE else "   "
    properties = shown_properties(change)
    lines = change_lines(properties, change.action, change.type, paint)
    yield from (indent + line for line in lines)
    for text in leaving_lines(change.leaving):
        yield paint(STYLES["-"], f"{indent}{escape_invisible(text)}")


def review_text(review: Review, paint: Paint = PLAIN) -> str:
    """The text, without an end of its own; nothing is left out."""
    blocks = ["\n".join(_errors_lines(review, paint)), unchecked_line(review.unchecked, paint)]
    blocks += ["\n".join(_heading(review, paint)), "\n".join(dangers_lines(review, paint))]
    blocks.append("\n".join(repairs_lines((stack.plan for stack in review.stacks), paint)))
    if review.whole is not None:
        blocks.append("\n".join(lines_of_gates(review.whole.gates, paint, "Gates over all:")))
    for stack in review.stacks:
        own = [block for block in _of_stack(stack, paint) if block]
        title = paint("bold", f"{escape_invisible(stack.name)}:")
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
        made = [escape_invisible(text) for text in (stack.plan.made_at, stack.plan.made_by) if text]
        title = f"{review.kind.capitalize()} of {escape_invisible(stack.name)}"
        title += "" if stack.is_drift else f": {stack.plan.operation}"
        title += f", made {' by '.join(made)}" if made else ""
        yield paint("bold", title)
        if stack.plan.basis is not None and stack.plan.basis.seal:
            yield f"Digest: {escape_invisible(stack.plan.basis.seal)}"
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
    width = max(len(escape_invisible(stack.name)) for stack in review.stacks)
    for stack in review.stacks:
        dangers = f"; {counted(stack.dangers, 'dangerous change')}" if stack.dangers else ""
        gpus = f"; GPUs: {gpus_text(stack)}" if stack.gpus_removed or stack.gpus_added else ""
        yield f"{escape_invisible(stack.name):<{width}}  {planned_text(stack)}{gpus}{dangers}"


def _next(review: Review, paint: Paint) -> Iterator[str]:
    commands = [command for _, command in review.commands]
    yield paint("bold", "Next:") if commands else review.nothing
    yield from (f"    {escape_invisible(command)}" for command in commands)
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
            yield f"    {escape_invisible(where + first)}"
            yield from (f"      {escape_invisible(line)}" for line in rest)


_FLAGS = {
    "protect": "protected",
    "delete": "waits for deletion",
    "pending_replacement": "waits for replacement",
    "taint": "tainted",
    "external": "external",
    "retain_on_delete": "retained on delete",
    "init_errors": "not ready",
}


def flags_of(entry: ResourceState) -> list[str]:
    """What is special about an entry, in a few words each."""
    return [word for attribute, word in _FLAGS.items() if getattr(entry, attribute)]


def state_lines(
    entries: Sequence[ResourceState], pending: Sequence[PendingOperation]
) -> Iterator[str]:
    """A line for each entry, URNs and ids aligned, and one for each pending operation."""
    rows = [(entry.urn, entry.id or "-", ", ".join(flags_of(entry))) for entry in entries]
    rows += [(o.resource.urn, o.resource.id or "-", f"pending: {o.type}") for o in pending]
    rows = [
        (escape_invisible(urn), escape_invisible(id_), escape_invisible(flags))
        for urn, id_, flags in rows
    ]
    urns = max([len(row[0]) for row in rows] + [3])
    ids = max([len(row[1]) for row in rows] + [2])
    yield f"{'URN':<{urns}}  {'ID':<{ids}}  FLAGS"
    for urn, id_, flags in rows:
        yield f"{urn:<{urns}}  {id_:<{ids}}  {flags}".rstrip()


def state_rows(entries: Sequence[ResourceState]) -> list[dict[str, Any]]:
    """The same as data."""
    return [
        {"urn": entry.urn, "type": entry.type, "id": entry.id, "flags": flags_of(entry)}
        for entry in entries
    ]


def entry_document(entry: ResourceState, *, show_secrets: bool = False) -> dict[str, Any]:
    """An entry as Pulumi's JSON names it, secrets masked unless they are to be shown.

    The code of a dynamic resource, which the SDK keeps among its properties, is left out.
    """

    def plain(properties: PropertyMap) -> PropertyMap:
        own = {key: value for key, value in properties.items() if not key.startswith("__")}
        made: PropertyMap = shown(own, show_secrets=show_secrets)
        return made

    masked = replace(
        entry,
        inputs=plain(entry.inputs),
        outputs=plain(entry.outputs),
        replacement_trigger=shown(entry.replacement_trigger, show_secrets=show_secrets),
    )
    document: dict[str, Any] = json.loads(encode_resource(masked, None))
    return document
