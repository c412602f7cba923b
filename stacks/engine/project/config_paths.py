"""A part of a configuration value by its path, `servers[0].name`, by the Pulumi CLI's rules."""

import re
from collections.abc import Sequence
from typing import Final

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.project.stack_settings import SECURE
from gpuform.stacks.engine.values import Json, Path, PathError, parse

_KEY: Final = re.compile(r'((?:[^:.\["]+:)*)(.+)', re.DOTALL)
_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")


def split(key: str) -> tuple[str, Path]:
    """A key and the path inside its value: `ns:a.b[0]` is `ns:a` and `("b", 0)`."""
    found = _KEY.fullmatch(key)
    try:
        first, *rest = parse(found[2]) if found else [0]
    except PathError:
        first, rest = 0, []
    if found is None or not isinstance(first, str) or "*" in rest:
        raise EngineError(
            f"{key!r} is no path of a configuration value",
            hint="Write a key and what is inside: servers[0].name",
        )
    return f"{found[1]}{first}", tuple(rest)


def leaf_of(text: str) -> Json:
    """A text as it is kept inside of an object or list: true, false and numbers are values."""
    if text in {"true", "false"}:
        return text == "true"
    return int(text) if _NUMBER.fullmatch(text) else text


def get_in(value: Json, path: Sequence[str | int]) -> Json:
    """What is at the path; None where there is nothing."""
    for step in path:
        if isinstance(value, dict) and isinstance(step, str):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
            value = value[step]
        else:
            return None
    return value


def set_in(value: Json, path: Sequence[str | int], leaf: Json, at: str) -> Json:
    """The value with this at the path; what is missing on the way is made.

    `at` names the value. Raises EngineError where something else is on the way.
    """
    if not path:
        return leaf
    step, rest = path[0], path[1:]
    inside = f"{at}[{step}]" if isinstance(step, int) else f"{at}.{step}"
    if value is None:
        value = [None] * (step + 1) if isinstance(step, int) and step >= 0 else {}
    if isinstance(value, list):
        if not isinstance(step, int) or not 0 <= step <= len(value):
            raise EngineError(f"{at} is a list of {len(value)}: there is no {inside}")
        old = [*value, None] if step == len(value) else [*value]
        old[step] = set_in(old[step], rest, leaf, inside)
        return old
    if not isinstance(value, dict) or not isinstance(step, str):
        kind = "an object" if isinstance(value, dict) else "a single value"
        raise EngineError(f"{at} is {kind}: there is no {inside}")
    made = {**value, step: set_in(value.get(step), rest, leaf, inside)}
    _refuse_lookalike(made, at)
    return made


def remove_in(value: Json, path: Sequence[str | int], at: str) -> Json:
    """The value without what is at the path; the same one where nothing is."""
    step, rest = path[0], path[1:]
    inside = get_in(value, [step])
    if isinstance(value, list) and isinstance(step, int) and 0 <= step < len(value):
        kept = [remove_in(inside, rest, at)] if rest else []
        return [*value[:step], *kept, *value[step + 1 :]]
    if not isinstance(value, dict) or not isinstance(step, str):
        return value
    if rest and step in value:
        return {**value, step: remove_in(inside, rest, at)}
    made = {key: each for key, each in value.items() if key != step}
    _refuse_lookalike(made, at)
    return made


def _refuse_lookalike(made: dict[str, Json], at: str) -> None:
    """An object of this one key stands for an encrypted text."""
    if made.keys() == {SECURE} and isinstance(made[SECURE], str):
        raise EngineError(f"{at} cannot hold `{SECURE}` alone: it stands for an encrypted value")
