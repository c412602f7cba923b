"""A stack's outputs as text. A secret inside an output masks that part; `show` lifts that."""

from collections.abc import Iterator
from typing import Any

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import OutputChange
from gpuform.schemas.safe_text import MASK, escape_invisible
from gpuform.stacks.engine.values import (
    UNKNOWN,
    Archive,
    Asset,
    PropertyMap,
    PropertyValue,
    ResourceReference,
    Secret,
    Unknown,
    contains_unknown,
    unwrap,
)
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import labelled

_RESOURCE_MARK = "@isPulumiResource"  # the SDK's, in previews only


def shown(value: Any, *, show_secrets: bool = False) -> Any:
    """The value as plain JSON data, with `[secret]` and `[unknown]` where they belong."""
    if isinstance(value, Secret):
        return shown(value.value, show_secrets=True) if show_secrets else MASK
    if isinstance(value, Unknown):
        return "[unknown]"
    if isinstance(value, dict):
        return {
            key: shown(item, show_secrets=show_secrets)
            for key, item in value.items()
            if key != _RESOURCE_MARK
        }
    if isinstance(value, list):
        return [shown(item, show_secrets=show_secrets) for item in value]
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return int(value)
    if isinstance(value, ResourceReference):
        return value.urn
    if isinstance(value, Asset | Archive | bytes):
        return f"[{type(value).__name__.lower()}]"
    return value


def outputs_lines(
    outputs: PropertyMap, *, show_secrets: bool = False, paint: Paint = PLAIN
) -> Iterator[str]:
    """`Outputs:` and a line for each, values aligned; nothing when there are none."""
    if not outputs:
        return
    width = max(map(len, outputs)) + 1
    yield paint("bold", "Outputs:")
    for name, value in sorted(outputs.items()):
        label = f"{name}:".ljust(width)
        plain = shown(value, show_secrets=show_secrets)
        yield from (f"    {escape_invisible(line)}" for line in labelled(label, plain))


def differs(name: str, before: PropertyMap, after: PropertyMap) -> bool:
    """Whether an output changes, or whether it is secret."""
    if name not in before or name not in after:
        return True
    return bool(
        shown(before[name], show_secrets=True) != shown(after[name], show_secrets=True)
        or shown(before[name]) != shown(after[name])
    )


def output_changes(before: PropertyMap, after: PropertyMap) -> Iterator[OutputChange]:
    """One for each output that comes, changes or goes, by name.

    It is secret when all of it is; a secret inside one is masked in its place.
    """
    for name in sorted({*before, *after}):
        if differs(name, before, after):
            action = Action.UPDATE if name in before else Action.ADD
            old, new = before.get(name), after.get(name)
            yield OutputChange(
                name=name,
                action=action if name in after else Action.DELETE,
                before=_plain(old),
                after=_plain(new),
                unknown=contains_unknown(new),
                secret=isinstance(old, Secret) or isinstance(new, Secret),
            )


def _plain(value: PropertyValue) -> Any:
    return None if unwrap(value) is UNKNOWN else shown(value)
