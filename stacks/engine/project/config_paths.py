"""Get, set and remove parts of a configuration value by path, as the Pulumi CLI does.

A path is like `servers[0].name`. The `config` commands call this module.
"""

import re
from collections.abc import Sequence
from typing import Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project.stack_settings import SECURE
from gpuform.stacks.engine.values import Json, Path, PathError, parse

_KEY: Final = re.compile(r'((?:[^:.\["]+:)*)(.+)', re.DOTALL)
# At most 18 digits, which fit into Go's int64.
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")


def split_key(key: str) -> tuple[str, Path]:
    """Split a key and the path inside the value: `ns:a.b[0]` is `ns:a` and `("b", 0)`.

    Raises:
        EngineError: `key` is no such path.
    """
    match = _KEY.fullmatch(key)
    try:
        first, *rest = parse(match[2]) if match else [0]
    except PathError:
        first, rest = 0, []
    if match is None or not isinstance(first, str) or "*" in rest:
        raise EngineError(
            f"{key!r} is not a valid path of a configuration value",
            hint="Write a key and a path below it, such as servers[0].name",
        )
    return f"{match[1]}{first}", tuple(rest)


def parse_leaf(leaf: str) -> Json:
    """Convert a text to a value inside an object or list: a boolean, an integer or text."""
    if leaf in {"true", "false"}:
        return leaf == "true"
    return int(leaf) if _NUMBER.fullmatch(leaf) else leaf


def get_value_at(value: Json, path: Sequence[str | int]) -> Json:
    """Return the part at the path, or None if there is none."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def set_value_at(value: Json, path: Sequence[str | int], leaf: Json, at: str) -> Json:
    """Return the value with `leaf` at the path; missing objects and lists are created.

    A list grows by one value at most; a missing list is filled with null up to the index.

    Args:
        value: the value to change; it stays as it is.
        path: the path inside the value.
        leaf: the new part.
        at: names the value in errors.

    Raises:
        EngineError: a part on the path is neither an object nor a list that has the next step, or
            would look like an encrypted value.
    """
    if not path:
        return leaf
    step, rest = path[0], path[1:]
    inside = f"{at}[{step}]" if isinstance(step, int) else f"{at}.{step}"
    if value is None:
        value = [None] * (step + 1) if isinstance(step, int) and step >= 0 else {}
    if isinstance(value, list):
        if not isinstance(step, int) or not 0 <= step <= len(value):
            raise EngineError(f"{at} is a list of {len(value)} values: {inside} does not exist")
        old = [*value, None] if step == len(value) else [*value]
        old[step] = set_value_at(old[step], rest, leaf, inside)
        return old
    if not isinstance(value, dict) or not isinstance(step, str):
        kind = "an object" if isinstance(value, dict) else "a single value"
        raise EngineError(f"{at} is {kind}: {inside} does not exist")
    changed = {**value, step: set_value_at(value.get(step), rest, leaf, inside)}
    _reject_secure_lookalike(changed, at)
    return changed


def remove_value_at(value: Json, path: Sequence[str | int], at: str) -> Json:
    """Return the value without the part at the path; unchanged if there is none.

    An object or list that becomes empty stays. Raises EngineError if what remains would look like
    an encrypted value.
    """
    step, rest = path[0], path[1:]
    inside = get_value_at(value, [step])
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        changed_items = [remove_value_at(inside, rest, at)] if rest else []
        return [*value[:step], *changed_items, *value[step + 1 :]]
    if not isinstance(value, dict) or not isinstance(step, str):
        return value
    if rest and step in value:
        return {**value, step: remove_value_at(inside, rest, at)}
    changed = {key: item for key, item in value.items() if key != step}
    _reject_secure_lookalike(changed, at)
    return changed


def _reject_secure_lookalike(changed: dict[str, Json], at: str) -> None:
    """Reject an object with only the key `secure` and a text as its value: an encrypted text."""
    if changed.keys() == {SECURE} and isinstance(changed[SECURE], str):
        raise EngineError(
            f"{at} cannot have `{SECURE}` as its only key, which is reserved for encrypted values"
        )
