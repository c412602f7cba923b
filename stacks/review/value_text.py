"""Values as people read them: JSON on one line while it is short, indented lines when not.

Keys are sorted: objects come over Pulumi's wire in any order.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from gpuform.schemas.safe_text import MASK

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
