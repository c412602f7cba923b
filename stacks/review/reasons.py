"""Why a resource changes, and what that means for GPUs, in words."""

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.stacks.review.names import PROVIDER_PROPERTY, counted

_REASONS = {
    PlanReason.DEPENDENCY_REPLACED: "what it depends on is replaced",
    PlanReason.REPLACEMENT_REQUESTED: "asked for",
    PlanReason.NOT_READY: "go on waiting until it is ready",
    PlanReason.NOT_IN_PROGRAM: "no longer in the program",
    PlanReason.IMPORTED: "the object becomes the stack's, as it is",
    PlanReason.READ_BY_PROGRAM: "the program reads it and does not own it",
    PlanReason.DRIFT: "changed outside of this stack",
    PlanReason.GONE: "no longer exists on the platform",
    PlanReason.EXPIRED: "it has expired",
}
_FORCES = "forces it"


def why(change: ResourceChange) -> str:
    """The reason, with the fields that force a replacement; empty when there is nothing to say."""
    said = [f"{_listed(paths)} {text}" if paths else text for paths, text in causes(change)]
    return "; ".join(said)


def causes(change: ResourceChange) -> list[tuple[list[str], str]]:
    """The reasons one by one: the fields that each is about, if any, and its text."""
    found: dict[str, list[str]] = {}
    fell = change.reason is PlanReason.DEPENDENCY_REPLACED
    if fell and change.replace_paths:
        found["depends on what is replaced"] = [*change.replace_paths]
    elif change.reason is not PlanReason.FIELD_FORCES_REPLACEMENT:
        text = _REASONS.get(change.reason, "")
        return [([], text)] if text else []
    for each in change.changes:
        if each.forces_replacement and not (fell and each.path in change.replace_paths):
            found.setdefault(each.because or _FORCES, []).append(each.path)
    if not found and change.replace_paths:
        found = {_FORCES: [*change.replace_paths]}
    return [(paths, text) for text, paths in found.items()]


def forcing(change: ResourceChange) -> tuple[str, ...]:
    """The properties that force a replacement."""
    own = tuple(found.path for found in change.changes if found.forces_replacement)
    return own or change.replace_paths


def shown_properties(change: ResourceChange) -> tuple[PropertyChange, ...]:
    """The property changes that people want to read."""
    found = (p for p in change.changes if p.path != PROVIDER_PROPERTY)
    if change.action is PlanAction.SAME:
        found = (p for p in found if p.action is Action.KEEP)
    return tuple(found)


def is_shown(change: ResourceChange) -> bool:
    """Whether there is anything to tell of the resource."""
    return change.action is not PlanAction.SAME or bool(shown_properties(change))


def gpus_note(change: ResourceChange) -> str:
    """`-16 GPUs, +64 GPUs`; empty when none comes or goes, as far as it is known."""
    parts = []
    if change.gpus_removed:
        parts.append(f"-{counted(change.gpus_removed, 'GPU')}")
    if change.gpus_added:
        parts.append(f"+{counted(change.gpus_added, 'GPU')}")
    return ", ".join(parts)


def _listed(paths: list[str]) -> str:
    return paths[0] if len(paths) == 1 else f"{', '.join(paths[:-1])} and {paths[-1]}"
