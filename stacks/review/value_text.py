"""Format operations, resource names, property values and stack outputs as text.

Every text view calls this module. Keys are sorted, and secrets are masked.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.providers.values import (
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
from gpuform.schemas.changes import Action
from gpuform.schemas.plan import OutputChange, PlanAction
from gpuform.schemas.safe_text import MASK, escape_invisible
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, MODULE_TYPE
from gpuform.stacks.review.paint import PLAIN, Paint

PROVIDER_PROPERTY = "__provider"
"""The property in which Pulumi's SDK stores the code of a dynamic resource; nobody declares it."""

SYMBOLS = {
    PlanAction.SAME: " ",
    PlanAction.CREATE: "+",
    PlanAction.UPDATE: "~",
    PlanAction.REPLACE: "+-",
    PlanAction.DELETE: "-",
    PlanAction.IMPORT: "=",
    PlanAction.READ: ">",
    PlanAction.REFRESH: "~",
}

STYLES = {
    "+": "add",
    "=": "add",
    "++": "add",
    "~": "change",
    "+-": "replace",
    "-": "remove",
    "--": "remove",
    ">": "dim",
    ">>": "replace",
    "<": "dim",
    "<<": "dim",
}


def format_stack_name(stack: str, *, emulated: bool) -> str:
    """Format a stack's name for people: `dev`, or `dev, emulated`."""
    return f"{stack}, emulated" if emulated else stack


def short_type(type_: str) -> str:
    """Shorten a type token, such as `gpuform:together:Cluster` to `together:Cluster`.

    Tokens of dynamic resources, of modules and of other packages are shortened, too.
    """
    if type_ == MODULE_TYPE:
        return "Module"
    dynamic = f"{DYNAMIC_PACKAGE}:dynamic"
    # Resources of the plugin have tokens that begin with `gpuform:`.
    if not type_.startswith(dynamic):
        return type_.removeprefix("gpuform:")
    rest = type_.removeprefix(dynamic)[1:]
    return rest.removeprefix("gpuform.") if "/" in type_ else f"dynamic:{rest}"


def counted(number: int, noun: str) -> str:
    """Format a number with a noun: `1 resource`, `2 resources`, `1,024 GPUs`."""
    return f"{number:,} {noun}" if abs(number) == 1 else f"{number:,} {noun}s"


_LONGEST_LINE = 72
_MARKS = (MASK, "[unknown]", "[known after apply]")


def format_inline(value: Any) -> str:
    """Format `value` on one line; the marks of secret and unknown values have no quotes."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key}: {format_inline(item)}" for key, item in sorted(value.items()))
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_inline, value))}]"
    if isinstance(value, str):
        return value if value in _MARKS else json.dumps(value, ensure_ascii=False)
    # Pulumi sends 8 as 8.0; from 1e16 on a double is not exact.
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return repr(value)


def format_labelled(label: str, value: Any) -> Iterator[str]:
    """Yield `label value`; a long object or list has one line for each item below the label."""
    lines = _format_block(value)
    if lines is None:
        yield f"{label} {format_inline(value)}"
    else:
        yield label.rstrip()
        yield from (f"  {line}" for line in lines)


def format_multiline(value: Any) -> str:
    """Format `value` without a label, on several lines for a long value."""
    return "\n".join(_format_block(value) or [format_inline(value)])


def _format_block(value: Any) -> list[str] | None:
    """Return the lines of an object or list too long for one line; None for other values."""
    if not isinstance(value, Mapping | list | tuple) or len(format_inline(value)) <= _LONGEST_LINE:
        return None
    if isinstance(value, Mapping):
        return [
            line for key, item in sorted(value.items()) for line in format_labelled(f"{key}:", item)
        ]
    lines = []
    for item in value:
        first, *rest = _format_block(item) or [format_inline(item)]
        lines += [f"- {first}", *(f"  {line}" for line in rest)]
    return lines


_RESOURCE_MARK = "@isPulumiResource"  # the SDK's, in previews only


def to_display_value(value: Any, *, show_secrets: bool = False) -> Any:
    """Convert `value` to plain JSON data, with `[secret]` and `[unknown]` as placeholders.

    With `show_secrets`, secrets are shown in the clear. References become URNs, files their kind
    (`[asset]`), whole floats integers.
    """
    if isinstance(value, Secret):
        return to_display_value(value.value, show_secrets=True) if show_secrets else MASK
    if isinstance(value, Unknown):
        return "[unknown]"
    if isinstance(value, dict):
        return {
            key: to_display_value(item, show_secrets=show_secrets)
            for key, item in value.items()
            if key != _RESOURCE_MARK
        }
    if isinstance(value, list):
        return [to_display_value(item, show_secrets=show_secrets) for item in value]
    # Pulumi sends 8 as 8.0; from 1e16 on a double is not exact.
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return int(value)
    if isinstance(value, ResourceReference):
        return value.urn
    if isinstance(value, Asset | Archive | bytes):
        return f"[{type(value).__name__.lower()}]"
    return value


def render_outputs(
    outputs: PropertyMap, *, show_secrets: bool = False, paint: Paint = PLAIN
) -> Iterator[str]:
    """Yield the `Outputs:` block with aligned values; nothing without outputs."""
    if not outputs:
        return
    width = max(map(len, outputs)) + 1
    yield paint("bold", "Outputs:")
    for name, value in sorted(outputs.items()):
        label = f"{name}:".ljust(width)
        plain = to_display_value(value, show_secrets=show_secrets)
        yield from (f"    {escape_invisible(line)}" for line in format_labelled(label, plain))


def has_output_changed(name: str, before: PropertyMap, after: PropertyMap) -> bool:
    """Return True if the value or the secrecy of an output changes."""
    if name not in before or name not in after:
        return True
    return bool(
        # Masked values would hide that a secret changes.
        to_display_value(before[name], show_secrets=True)
        != to_display_value(after[name], show_secrets=True)
        or to_display_value(before[name]) != to_display_value(after[name])
    )


def list_output_changes(before: PropertyMap, after: PropertyMap) -> Iterator[OutputChange]:
    """Yield the changes of the stack's outputs, sorted by name.

    A change of secrecy alone counts. An output is secret if all of it is; a secret inside an output
    is masked where it stands.
    """
    for name in sorted({*before, *after}):
        if has_output_changed(name, before, after):
            action = Action.UPDATE if name in before else Action.ADD
            old, new = before.get(name), after.get(name)
            yield OutputChange(
                name=name,
                action=action if name in after else Action.DELETE,
                before=_to_plan_value(old),
                after=_to_plan_value(new),
                unknown=contains_unknown(new),
                secret=isinstance(old, Secret) or isinstance(new, Secret),
            )


def _to_plan_value(value: PropertyValue) -> Any:
    """Convert a value for a plan; None for an unknown one."""
    return None if unwrap(value) is UNKNOWN else to_display_value(value)


def format_elapsed(seconds: float) -> str:
    """Format seconds, rounded and at least one: 45s, 3m20s, 1h05m10s."""
    total_seconds = max(1, round(seconds))
    minutes, rest = divmod(total_seconds, 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m{rest:02d}s"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
