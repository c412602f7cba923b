"""Format operations, resource names, property values and stack outputs as text.

Keys are sorted, and secrets are masked.

Keys are sorted: objects come over Pulumi's wire in any order.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import OutputChange, PlanAction
from gpuform.schemas.safe_text import MASK, escape_invisible
from gpuform.stacks.engine.urn import DYNAMIC_PACKAGE, MODULE_TYPE
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

PROVIDER_PROPERTY = "__provider"
"""Where the SDK keeps a dynamic resource's code: not a property that anybody declared."""

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


def in_world(stack: str, *, emulated: bool) -> str:
    """A stack as people are shown it: `dev`, or `dev, emulated`."""
    return f"{stack}, emulated" if emulated else stack


def short_type(type_: str) -> str:
    """`pulumi-python:dynamic/gpuform.together:Cluster` -> `together:Cluster`; or `Module`."""
    if type_ == MODULE_TYPE:
        return "Module"
    dynamic = f"{DYNAMIC_PACKAGE}:dynamic"
    if not type_.startswith(dynamic):
        return type_.removeprefix("gpuform:")
    rest = type_.removeprefix(dynamic)[1:]
    return rest.removeprefix("gpuform.") if "/" in type_ else f"dynamic:{rest}"


def counted(number: int, noun: str) -> str:
    """`1 resource`, `2 resources`, `1,024 GPUs`."""
    return f"{number:,} {noun}" if abs(number) == 1 else f"{number:,} {noun}s"


_LONGEST_LINE = 72
_MARKS = (MASK, "[unknown]", "[known after apply]")


def inline(value: Any) -> str:
    """The value on one line; the marks of secret and unknown values stand without quotes."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{key}: {inline(item)}" for key, item in sorted(value.items()))
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    if isinstance(value, str):
        return value if value in _MARKS else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e16:
        return str(int(value))
    if value is None or isinstance(value, bool | int | float):
        return json.dumps(value)
    return repr(value)


def labelled(label: str, value: Any) -> Iterator[str]:
    """`label value`; a long object or list has a line for each of its items below the label."""
    lines = _block(value)
    if lines is None:
        yield f"{label} {inline(value)}"
    else:
        yield label.rstrip()
        yield from (f"  {line}" for line in lines)


def multiline(value: Any) -> str:
    """The value alone, on as many lines as read well."""
    return "\n".join(_block(value) or [inline(value)])


def _block(value: Any) -> list[str] | None:
    """The lines of an object or list that is too long for one."""
    if not isinstance(value, Mapping | list | tuple) or len(inline(value)) <= _LONGEST_LINE:
        return None
    if isinstance(value, Mapping):
        return [line for key, item in sorted(value.items()) for line in labelled(f"{key}:", item)]
    made = []
    for item in value:
        first, *rest = _block(item) or [inline(item)]
        made += [f"- {first}", *(f"  {line}" for line in rest)]
    return made


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
