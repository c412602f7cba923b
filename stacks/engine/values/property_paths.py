"""Parse paths into property values, and the durations that Pulumi programs and states use.

Pulumi's options name properties by them (ignore_changes, replace_on_changes), also inside secrets.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from gpuform.providers.values import (
    PropertyMap,
    PropertyValue,
    Secret,
    are_equal,
    make_secret,
    unwrap,
)

Path: TypeAlias = tuple[str | int, ...]


class PathError(ValueError):
    """Text that is no path, or a path whose parts are missing or of another kind in the values."""


_SEGMENT = re.compile(
    r'\["(?P<key>(?:\\"|[^"])*)"\]|\[(?P<index>\*|[+-]?[0-9]+)\]|(?P<name>[^.\[]+)|\.(?!$)',
    re.DOTALL,
)


def parse(path: str) -> Path:
    """`a.b["c d"][0]` as its keys and indices. Raises PathError."""
    segments: list[str | int] = []
    at = 0
    while at < len(path):
        found = _SEGMENT.match(path, at)
        if found is None or path[0] == ".":
            raise PathError(f"{path!r} is not a property path")
        at = found.end()
        key, index, name = found["key"], found["index"], found["name"]
        if key is not None:
            segments.append(key.replace('\\"', '"'))
        elif index is not None:
            segments.append(index if index == "*" else int(index))
        elif name is not None:
            segments.append(name)
    return tuple(segments)


def root_of(path: str) -> str:
    """The top-level property that a path is in; all of it where it is none."""
    try:
        segments = parse(path)
    except PathError:
        return path
    return str(segments[0]) if segments else path


def top_level(paths: Iterable[str]) -> list[str]:
    """The top-level properties that the paths are in, each once, in order."""
    return list(dict.fromkeys(map(root_of, paths)))


def covers(pattern: Path, path: Path) -> bool:
    """Whether the pattern names the path or something around it."""
    return len(pattern) <= len(path) and all(
        part in ("*", own) for part, own in zip(pattern, path, strict=False)
    )


def differences(old: PropertyValue, new: PropertyValue, at: Path = ()) -> Iterator[Path]:
    """The paths of the innermost values that differ; secrets compare by what they hide."""
    old, new = unwrap(old), unwrap(new)
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from differences(old[key], new[key], (*at, key))
            else:
                yield (*at, key)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index < len(old) and index < len(new):
                yield from differences(old[index], new[index], (*at, index))
            else:
                yield (*at, index)
    elif not are_equal(old, new):
        yield at


def ignore_changes(
    olds: PropertyMap, news: PropertyMap, paths: Sequence[str]
) -> tuple[PropertyMap, list[str]]:
    """`news` with the old value at each path, and the paths that could not be followed.

    Where the old properties have nothing, the new ones lose the property. As in Pulumi, a text that
    is no path says nothing.
    """
    result: Any = news
    lost: list[str] = []
    for text in paths:
        try:
            path = parse(text)
        except PathError:
            continue
        try:
            result = _reset(olds, result, path, hide=False)
        except PathError:
            lost.append(text)
    return result, lost


_MISSING: Any = object()


def _reset(old: Any, new: Any, path: Path, *, hide: bool) -> Any:
    """`new`, which stays as it is, with the old value at the path.

    `hide`: the old value is inside a secret, and must be in one again.
    """
    if isinstance(new, Secret):
        return Secret(_reset(unwrap(old), new.value, path, hide=False))
    if isinstance(old, Secret):
        old, hide = unwrap(old), True
    key, rest = path[0], path[1:]
    if key == "*":
        for each in _every_key(old, new, leaf=not rest):
            new = _with(new, each, _reset_part(old, new, each, rest, hide=hide))
        return new
    kind = list if isinstance(key, int) else dict
    of_kind = isinstance(old, kind) + isinstance(new, kind)
    if not of_kind:
        return new
    if of_kind == 1 and (rest or kind is list):
        raise PathError
    return _with(new, key, _reset_part(old, new, key, rest, hide=hide))


def _reset_part(old: Any, new: Any, key: str | int, rest: Path, *, hide: bool) -> Any:
    """What is to stand at a key of `new`; `_MISSING` when nothing is."""
    before, after = _part(old, key), _part(new, key)
    if not rest:
        return make_secret(before) if hide and before is not _MISSING else before
    if before is _MISSING and after is _MISSING:
        return _MISSING
    if after is _MISSING or (before is _MISSING and isinstance(key, int)):
        raise PathError
    return _reset(None if before is _MISSING else before, after, rest, hide=hide)


def _every_key(old: Any, new: Any, *, leaf: bool) -> list[str | int]:
    """What `*` stands for."""
    if isinstance(old, dict) and isinstance(new, dict):
        return sorted(old.keys() | new.keys()) if leaf else sorted(old)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return list(range(len(old)))
    if leaf and isinstance(new, dict | list) and type(old) is not type(new):
        return []
    raise PathError


def _part(value: Any, key: str | int) -> Any:
    if isinstance(key, int):
        return value[key] if isinstance(value, list) and 0 <= key < len(value) else _MISSING
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def _with(new: Any, key: str | int, value: Any) -> Any:
    """`new` with another value at the key; a list can neither grow nor shrink."""
    present = _part(new, key) is not _MISSING
    if value is _MISSING and not present:
        return new
    if isinstance(key, int):
        if value is _MISSING or not present:
            raise PathError
        return [*new[:key], value, *new[key + 1 :]]
    if not isinstance(new, dict):
        raise PathError
    if value is _MISSING:
        return {name: item for name, item in new.items() if name != key}
    return {**new, key: value}


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def seconds(text: str) -> float:
    """`1h30m` -> 5400.0; an empty text is 0.

    Raises ValueError when the text is no duration.
    """
    if text in ("", "0"):
        return 0.0
    if not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise ValueError(f"{text!r} is no duration; write it like 30s, 45m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
