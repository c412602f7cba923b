"""Render plans, reviews and state entries as terminal text, the dangerous changes first.

Called by `preview`, `up`, `destroy`, `refresh`, `review` and `gpuform state`.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gpuform.providers.values import PropertyMap
from gpuform.schemas.plan import OutputChange, Plan, PlanAction, PropertyChange, ResourceChange
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.state import PendingOperation, ResourceState, encode_resource
from gpuform.stacks.review.dangers import (
    format_gpu_delta,
    format_reason,
    is_visible,
    select_visible_changes,
    sort_by_danger,
)
from gpuform.stacks.review.differences import Row, build_change_rows
from gpuform.stacks.review.facts import (
    FAILED_NEXT_STEP,
    Review,
    StackFacts,
    describe_validity,
    format_gpu_changes,
    format_planned_counts,
    to_property_change,
)
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.rehearsal_text import TITLE as REHEARSAL_TITLE
from gpuform.stacks.review.rehearsal_text import render_rehearsal
from gpuform.stacks.review.summary_text import (
    format_cost_delta,
    format_gpu_totals,
    format_plan_cost,
    format_unchecked_warning,
    render_gates,
    render_notices,
    render_plan_cost,
    render_plan_gates,
    render_removals,
    render_repairs,
    render_resource_counts,
)
from gpuform.stacks.review.value_text import STYLES, SYMBOLS, counted, short_type, to_display_value

_STYLES = {"+": "add", "~": "change", "-": "remove", " ": "dim"}


def render_property_changes(
    changes: tuple[PropertyChange, ...], action: PlanAction, type_: str, paint: Paint
) -> Iterator[str]:
    """Yield the lines of a resource's property changes, with aligned values.

    The properties of a created resource have no symbol, since all of them are new.
    """
    bare = action is PlanAction.CREATE
    for row in build_change_rows(changes, type_):
        yield paint("" if bare else _STYLES[row.mark], _format_row(row, bare))


def render_output_changes(changes: Iterable[OutputChange], paint: Paint) -> Iterator[str]:
    """Yield the `Outputs:` block with the changed outputs; nothing without changes."""
    properties = tuple(map(to_property_change, changes))
    if properties:
        yield paint("bold", "Outputs:")
        lines = render_property_changes(properties, PlanAction.UPDATE, "", paint)
        yield from (f"  {line}" for line in lines)


def _format_row(row: Row, bare: bool) -> str:
    """Format a row of a plan with indent and mark; without the mark if `bare` or continued."""
    indent = "    " * row.depth
    if bare:
        return indent + row.text
    return indent + (row.text if row.continues else f"{row.mark} {row.text}")


_MAX_NAMES_LISTED = 3


def render_dangers(review: Review, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the `Dangerous changes:` block, the worst first; nothing without dangers."""
    lines = list(format_dangers(review))
    if lines:
        yield paint("bold", "Dangerous changes:")
        yield from (f"    {paint('remove', escape_invisible(danger))}" for danger in lines)


def format_dangers(review: Review) -> Iterator[str]:
    """Yield a line for each danger: weakened gates first, then `delete train: destroys 16 GPUs`."""
    is_multi_stack = len(review.stacks) > 1
    for weakened_stack, weakening in review.weakened_gates:
        where = f" (in {weakened_stack.name})" if is_multi_stack and weakened_stack else ""
        yield f"{weakening}{where}"
    for stack, subject in review.subjects:
        change, danger = subject.change, subject.danger
        if danger is not None:
            where = f" in {stack.name}" if is_multi_stack else ""
            yield f"{change.action} {change.name}{where}: {danger.text}"


def format_loss(plan: Plan) -> str:
    """Format the losses of the plan in one or two sentences for the prompt; empty for nothing.

    They are GPUs, data, and a change of cost; of a refresh, the number of missing objects.
    """
    facts = StackFacts(plan)
    removed_gpus, losses = facts.gpus_removed, []
    if plan.operation == "refresh":
        count = sum(subject.danger is not None for subject in facts.subjects)
        return (
            f"{counted(count, 'resource')} no longer {'exists' if count == 1 else 'exist'} on the "
            "platforms."
            if count
            else ""
        )
    if removed_gpus.known == 1 and removed_gpus.exact:
        losses.append("1 GPU")
    elif removed_gpus:
        losses.append(f"{removed_gpus} GPUs" if removed_gpus.known else f"{removed_gpus} of GPUs")
    if facts.losing_data:
        names = ", ".join(facts.losing_data[:_MAX_NAMES_LISTED])
        more = len(facts.losing_data) - _MAX_NAMES_LISTED
        losses.append(f"the data on {names}{f' and {more} more' if more > 0 else ''}")
    sentences = [f"{' and '.join(losses)} will be lost."] if losses else []
    if plan.cost is not None and plan.cost.before != plan.cost.after:
        sentences.append(f"Cost: {format_plan_cost(plan.cost)}.")
    summary = " ".join(sentences)
    return escape_invisible(summary[:1].upper() + summary[1:])


def render_plan(
    plan: Plan, *, details: bool = False, shows_unchanged: bool = False, paint: Paint = PLAIN
) -> str:
    """Render a complete plan: changes, outputs, dangers, counts, cost, rehearsal, gates, unchecked.

    Args:
        plan: the plan.
        details: whether each resource shows its URN.
        shows_unchanged: whether unchanged resources are listed, too.
        paint: colors the text.
    """
    facts = StackFacts(plan)
    counts = {str(action): count for action, count in facts.counts.items()}
    ending = [*render_resource_counts(counts, preview=True, paint=paint)]
    gpus = format_gpu_totals(plan, paint)
    blocks = [
        format_unchecked_warning(len(plan.unchecked), paint),
        render_changes(plan, details=details, shows_unchanged=shows_unchanged, paint=paint),
        "\n".join(render_output_changes(plan.outputs, paint)),
        "\n".join(render_dangers(Review([facts]), paint)),
        "\n".join([*ending, gpus] if gpus else ending),
    ]
    blocks.append("\n".join(render_plan_cost(plan, paint)))
    blocks.append("\n".join(render_notices(plan.notices, paint)))
    blocks.append("\n".join(render_rehearsal(plan.rehearsal, paint)))
    blocks.append("\n".join(render_plan_gates(plan, paint)))
    if plan.unchecked:
        blocks.append("\n".join(render_unchecked(plan.unchecked, paint)))
    return "\n\n".join(block for block in blocks if block)


def render_changes(
    plan: Plan, *, details: bool = False, shows_unchanged: bool = False, paint: Paint = PLAIN
) -> str:
    """Render a block for every changed resource, the most dangerous first.

    An unchanged resource has a block with `shows_unchanged`, or if the platform keeps one of its
    values.
    """
    visible_changes = [
        change for change in sort_by_danger(plan.changes) if shows_unchanged or is_visible(change)
    ]
    return "\n\n".join(
        "\n".join(_render_resource(change, details, paint)) for change in visible_changes
    )


def render_unchecked(unchecked: tuple[str, ...], paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the title `Not checked:`, even without checks, and the failed checks of planning."""
    yield paint("warning", "Not checked:")
    for check in unchecked:
        yield from (f"    {escape_invisible(line)}" for line in check.split("\n"))


def _render_resource(change: ResourceChange, details: bool, paint: Paint) -> Iterator[str]:
    """Yield the lines of a resource: the action with its cause, properties, and removed nodes.

    With `details` one more line has the URN.
    """
    symbol = SYMBOLS[change.action]
    verb = "unchanged" if change.action is PlanAction.SAME else str(change.action)
    cause = format_reason(change)
    notes = ", ".join(filter(None, (format_gpu_delta(change), format_cost_delta(change))))
    action_text = f"{verb}: {cause}" if cause else verb
    head = f"{symbol:<2} {change.name}  {short_type(change.type)}  {action_text}"
    yield paint(STYLES.get(symbol, ""), escape_invisible(f"{head}  ({notes})" if notes else head))
    if details:
        yield paint("dim", f"     urn: {escape_invisible(change.urn)}")
    # Rows without a symbol are aligned with rows that have one.
    indent = "     " if change.action is PlanAction.CREATE else "   "
    properties = select_visible_changes(change)
    lines = render_property_changes(properties, change.action, change.type, paint)
    yield from (indent + line for line in lines)
    for node_line in render_removals(change):
        yield paint(STYLES["-"], f"{indent}{escape_invisible(node_line)}")


def render_review(review: Review, paint: Paint = PLAIN) -> str:
    """Render a review in full, without a final line break."""
    blocks = [
        "\n".join(_render_errors(review, paint)),
        format_unchecked_warning(review.unchecked, paint),
    ]
    blocks += ["\n".join(_render_heading(review, paint)), "\n".join(render_dangers(review, paint))]
    blocks.append("\n".join(render_repairs((stack.plan for stack in review.stacks), paint)))
    if review.combined is not None:
        blocks.append(
            "\n".join(render_gates(review.combined.gates, paint, "Gates over all stacks:"))
        )
        label = f"{REHEARSAL_TITLE} with all stacks together"
        blocks.append("\n".join(render_rehearsal(review.combined.rehearsal, paint, label)))
    for stack in review.stacks:
        own = [block for block in _render_stack_blocks(stack, paint) if block]
        title = paint("bold", f"{escape_invisible(stack.name)}:")
        blocks += [title, *own] if own and len(review.stacks) > 1 else own
    blocks.append("\n".join(_render_next_commands(review, paint)))
    return "\n\n".join(block for block in blocks if block)


def _render_stack_blocks(stack: StackFacts, paint: Paint) -> Iterator[str]:
    """Yield the text blocks of one stack in a review, changes first; a block may be empty."""
    plan = stack.plan
    yield render_changes(plan, paint=paint)
    yield "\n".join(render_output_changes(plan.outputs, paint))
    yield "\n".join(render_plan_cost(plan, paint))
    yield "\n".join(render_notices(plan.notices, paint))
    yield "\n".join(render_rehearsal(plan.rehearsal, paint))
    yield "\n".join(render_plan_gates(plan, paint))
    if plan.unchecked:
        yield "\n".join(render_unchecked(plan.unchecked, paint))


def _render_heading(review: Review, paint: Paint) -> Iterator[str]:
    """Yield the title with the plan's origin, counts and GPUs; of several stacks also a table."""
    if len(review.stacks) == 1:
        (stack,) = review.stacks
        made = [escape_invisible(part) for part in (stack.plan.made_at, stack.plan.made_by) if part]
        title = f"{review.kind.capitalize()} of {escape_invisible(stack.name)}"
        title += "" if stack.is_drift else f": {stack.plan.operation}"
        title += f", made {' by '.join(made)}" if made else ""
        yield paint("bold", title)
    else:
        subject = "Drift" if review.is_drift else "Plans"
        yield paint("bold", f"{subject} of {len(review.stacks)} stacks")
    if review.digest:
        yield f"Digest: {escape_invisible(review.digest)}"
    removed = bool(review.gpus_removed)
    yield format_planned_counts(review)
    yield paint("remove" if removed else "", f"GPUs: {format_gpu_changes(review)}")
    if len(review.stacks) > 1:
        yield ""
        yield from _render_stack_table(review)


def _render_stack_table(review: Review) -> Iterator[str]:
    """Yield a line for each stack: counts, GPUs and dangerous changes."""
    width = max(len(escape_invisible(stack.name)) for stack in review.stacks)
    for stack in review.stacks:
        dangers = f"; {counted(stack.dangers, 'dangerous change')}" if stack.dangers else ""
        gpus = (
            f"; GPUs: {format_gpu_changes(stack)}" if stack.gpus_removed or stack.gpus_added else ""
        )
        name = escape_invisible(stack.name)
        yield f"{name:<{width}}  {format_planned_counts(stack)}{gpus}{dangers}"


def _render_next_commands(review: Review, paint: Paint) -> Iterator[str]:
    """Yield the commands for applying, or the sentence for a plan with nothing to apply."""
    commands = [command for _, command in review.commands]
    yield paint("bold", "Next:") if commands else review.nothing
    yield from (f"    {escape_invisible(command)}" for command in commands)
    if commands:
        yield FAILED_NEXT_STEP if review.has_failed else describe_validity(review)


def _render_errors(review: Review, paint: Paint = PLAIN) -> Iterator[str]:
    """Yield the `Failed:` block with each error in full; nothing if no preview failed."""
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


def list_entry_flags(entry: ResourceState) -> list[str]:
    """List the special states of an entry, such as `protected` or `not ready`."""
    return [word for attribute, word in _FLAGS.items() if getattr(entry, attribute)]


def render_state(
    entries: Sequence[ResourceState], pending: Sequence[PendingOperation]
) -> Iterator[str]:
    """Yield a table of the state entries and the pending operations."""
    rows = [(entry.urn, entry.id or "-", ", ".join(list_entry_flags(entry))) for entry in entries]
    # A pending operation is one that an interrupted run has left.
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


def build_state_rows(entries: Sequence[ResourceState]) -> list[dict[str, Any]]:
    """Build the JSON rows of state entries for `gpuform state list`."""
    return [
        {"urn": entry.urn, "type": entry.type, "id": entry.id, "flags": list_entry_flags(entry)}
        for entry in entries
    ]


def build_entry_document(entry: ResourceState, *, show_secrets: bool = False) -> dict[str, Any]:
    """Build the JSON of a state entry in Pulumi's names, with secrets masked.

    The code of a dynamic resource, which the SDK stores among its properties, is left out.
    """

    def mask_properties(properties: PropertyMap) -> PropertyMap:
        # The SDK keeps the code of a dynamic resource in `__provider`.
        declared = {key: value for key, value in properties.items() if not key.startswith("__")}
        masked_properties: PropertyMap = to_display_value(declared, show_secrets=show_secrets)
        return masked_properties

    masked = replace(
        entry,
        inputs=mask_properties(entry.inputs),
        outputs=mask_properties(entry.outputs),
        replacement_trigger=to_display_value(entry.replacement_trigger, show_secrets=show_secrets),
    )
    document: dict[str, Any] = json.loads(encode_resource(masked, None))
    return document
