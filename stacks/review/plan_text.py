"""The plan as text: every resource that changes, property by property, and why."""

from collections.abc import Iterator

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import Plan, PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.stacks.review.change_text import change_lines
from gpuform.stacks.review.names import (
    PROVIDER_PROPERTY,
    STYLES,
    SYMBOLS,
    counted,
    is_noise,
    short_type,
)
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import gpus_line, resources_lines

_REASONS = {
    PlanReason.DEPENDENCY_REPLACED: "what it depends on is replaced",
    PlanReason.REPLACEMENT_REQUESTED: "asked for",
    PlanReason.NOT_READY: "go on waiting until it is ready",
    PlanReason.NOT_IN_PROGRAM: "no longer in the program",
    PlanReason.IMPORTED: "the object becomes the stack's, as it is",
    PlanReason.READ_BY_PROGRAM: "the program reads it and does not own it",
    PlanReason.DRIFT: "changed outside of this stack",
    PlanReason.GONE: "no longer exists on the platform",
}


def plan_text(
    plan: Plan, *, unchanged: int = 0, details: bool = False, paint: Paint = PLAIN
) -> str:
    """The whole plan: `changes_text`, then the counts, the GPUs and what was not checked.

    `unchanged` counts resources that the plan does not list; with `details` each one listed has its
    URN.
    """
    changes = changes_text(plan, details=details, paint=paint)
    counts = {
        str(action): sum(change.action is action for change in _ranked(plan))
        for action in PlanAction
        if action is not PlanAction.SAME
    }
    counts["same"] = unchanged
    ending = [*resources_lines(counts, preview=True, paint=paint)]
    gpus = gpus_line(plan, paint)
    blocks = [changes, "\n".join([*ending, gpus] if gpus else ending)]
    if plan.unchecked:
        blocks.append("\n".join(unchecked_lines(plan.unchecked, paint)))
    return "\n\n".join(block for block in blocks if block)


def changes_text(plan: Plan, *, details: bool = False, paint: Paint = PLAIN) -> str:
    """A block for every resource that changes, what destroys capacity first."""
    shown = [change for change in _ranked(plan) if _is_shown(change)]
    return "\n\n".join("\n".join(_resource_lines(change, details, paint)) for change in shown)


def unchecked_lines(unchecked: tuple[str, ...], paint: Paint = PLAIN) -> Iterator[str]:
    """The checks that could not be made while planning."""
    yield paint("warning", "Not checked:")
    for text in unchecked:
        yield "    " + text.replace("\n", "\n    ")


def _ranked(plan: Plan) -> list[ResourceChange]:
    """What takes most GPUs away first, then other replacements and deletions, then the rest.

    The stack's own entry and providers are left out.
    """
    destroys = (PlanAction.REPLACE, PlanAction.DELETE)

    def rank(change: ResourceChange) -> tuple[float, bool, bool]:
        unknown = change.gpus_removed is None and change.action in destroys
        lost = float("inf") if unknown else change.gpus_removed or 0
        return -lost, change.action not in destroys, change.action is PlanAction.SAME

    return sorted((c for c in plan.changes if not is_noise(c.type)), key=rank)


def _is_shown(change: ResourceChange) -> bool:
    return change.action is not PlanAction.SAME or bool(_properties(change))


def _properties(change: ResourceChange) -> tuple[PropertyChange, ...]:
    found = (p for p in change.changes if p.path != PROVIDER_PROPERTY)
    if change.action is PlanAction.SAME:
        found = (p for p in found if p.action is Action.KEEP)
    return tuple(found)


def _resource_lines(change: ResourceChange, details: bool, paint: Paint) -> Iterator[str]:
    symbol = SYMBOLS[change.action]
    verb = "unchanged" if change.action is PlanAction.SAME else str(change.action)
    why = _why(change)
    what = f"{verb}: {why}" if why else verb
    head = f"{symbol:<2} {change.name}  {short_type(change.type)}  {what}{_gpus(change)}"
    yield paint(STYLES.get(symbol, ""), head)
    if details:
        yield paint("dim", f"     urn: {change.urn}")
    properties = _properties(change)
    indent = "     " if change.action is PlanAction.CREATE else "   "
    yield from (indent + line for line in change_lines(properties, change.action, paint))


def _why(change: ResourceChange) -> str:
    if change.reason is not PlanReason.FIELD_FORCES_REPLACEMENT:
        return _REASONS.get(change.reason, "")
    causes: dict[str, list[str]] = {}
    for found in change.changes:
        if found.forces_replacement:
            causes.setdefault(found.because or "forces it", []).append(found.path)
    if not causes:
        causes = {"forces it": list(change.replace_paths)} if change.replace_paths else {}
    return "; ".join(f"{_listed(paths)} {because}" for because, paths in causes.items())


def _listed(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"


def _gpus(change: ResourceChange) -> str:
    parts = []
    if change.gpus_removed:
        parts.append(f"-{counted(change.gpus_removed, 'GPU')}")
    if change.gpus_added:
        parts.append(f"+{counted(change.gpus_added, 'GPU')}")
    return f"  ({', '.join(parts)})" if parts else ""
