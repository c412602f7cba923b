"""Parse and apply paths into property values, and parse durations of Pulumi programs and states.

Pulumi's options name properties by path (ignore_changes, replace_on_changes), also inside secrets.
The step generator and refreshes call this module.
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
    """Text that is not a path, or a path whose parts the values do not have."""


_SEGMENT = re.compile(
    r'\["(?P<key>(?:\\"|[^"])*)"\]|\[(?P<index>\*|[+-]?[0-9]+)\]|(?P<name>[^.\[]+)|\.(?!$)',
    re.DOTALL,
)


def parse(path: str) -> Path:
    """Parse `a.b["c d"][0]` into keys and indexes, `*` for `[*]`. Raises PathError."""
    segments: list[str | int] = []
    at = 0
    while at < len(path):
        match = _SEGMENT.match(path, at)
        if match is None or path[0] == ".":
            raise PathError(f"{path!r} is not a property path")
        at = match.end()
        key, index, name = match["key"], match["index"], match["name"]
        if key is not None:
            segments.append(key.replace('\\"', '"'))
        elif index is not None:
            segments.append(index if index == "*" else int(index))
        elif name is not None:
            segments.append(name)
    return tuple(segments)


def get_root(path: str) -> str:
    """Return the top-level property of a path, or the complete text of an invalid path."""
    try:
        segments = parse(path)
    except PathError:
        return path
    return str(segments[0]) if segments else path


def list_roots(paths: Iterable[str]) -> list[str]:
    """Return the top-level properties of the paths, each once, in order."""
    return list(dict.fromkeys(map(get_root, paths)))


def covers(pattern: Path, path: Path) -> bool:
    """Return True if the pattern names the path or a property around the path."""
    # Pulumi's replaceOnChanges: a pattern also matches everything below the property that it names.
    return len(pattern) <= len(path) and all(
        part in ("*", own) for part, own in zip(pattern, path, strict=False)
    )


def find_differences(old: PropertyValue, new: PropertyValue, at: Path = ()) -> Iterator[Path]:
    """Yield the paths of the innermost different values; secrets compare by plaintext.

    A list or object that has no counterpart is one difference.
    """
    old, new = unwrap(old), unwrap(new)
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from find_differences(old[key], new[key], (*at, key))
            else:
                yield (*at, key)
    elif isinstance(old, list) and isinstance(new, list):
        for index in range(max(len(old), len(new))):
            if index < len(old) and index < len(new):
                yield from find_differences(old[index], new[index], (*at, index))
            else:
                yield (*at, index)
    elif not are_equal(old, new):
        yield at


def ignore_changes(
    olds: PropertyMap, news: PropertyMap, paths: Sequence[str]
) -> tuple[PropertyMap, list[str]]:
    """Return `news` with the old value at each path, and the paths without a match in the values.

    Where the old properties have no value, the new ones lose theirs. Text that is not a path is
    ignored, as in Pulumi.
    """
    result: Any = news
    unfollowed_paths: list[str] = []
    for path_text in paths:
        try:
            path = parse(path_text)
        except PathError:
            continue
        try:
            result = _reset_to_old(olds, result, path, hide=False)
        except PathError:
            unfollowed_paths.append(path_text)
    return result, unfollowed_paths


_MISSING: Any = object()


def _reset_to_old(old: Any, new: Any, path: Path, *, hide: bool) -> Any:
    """Return a copy of `new` with the old value at the path.

    With `hide`, the old value is inside a secret and must be in one again. Raises PathError where
    the path does not fit the values.
    """
    if isinstance(new, Secret):
        return Secret(_reset_to_old(unwrap(old), new.value, path, hide=False))
    if isinstance(old, Secret):
        old, hide = unwrap(old), True
    key, rest = path[0], path[1:]
    if key == "*":
        for wildcard_key in _expand_wildcard(old, new, leaf=not rest):
            new = _replace_part(
                new, wildcard_key, _reset_part(old, new, wildcard_key, rest, hide=hide)
            )
        return new
    kind = list if isinstance(key, int) else dict
    of_kind = isinstance(old, kind) + isinstance(new, kind)
    if not of_kind:
        return new
    if of_kind == 1 and (rest or kind is list):
        raise PathError
    return _replace_part(new, key, _reset_part(old, new, key, rest, hide=hide))


def _reset_part(old: Any, new: Any, key: str | int, rest: Path, *, hide: bool) -> Any:
    """Return the new value of one key on the path, or `_MISSING` for none.

    At the end of the path (`rest` empty) this is the old value.
    """
    before, after = _get_part(old, key), _get_part(new, key)
    if not rest:
        return make_secret(before) if hide and before is not _MISSING else before
    if before is _MISSING and after is _MISSING:
        return _MISSING
    if after is _MISSING or (before is _MISSING and isinstance(key, int)):
        raise PathError
    return _reset_to_old(None if before is _MISSING else before, after, rest, hide=hide)


def _expand_wildcard(old: Any, new: Any, *, leaf: bool) -> list[str | int]:
    """Return the keys or indexes matched by `*`; at the end of a path (`leaf`) of both objects.

    Raises PathError for values of two kinds.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        return sorted(old.keys() | new.keys()) if leaf else sorted(old)
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return list(range(len(old)))
    if leaf and isinstance(new, dict | list) and type(old) is not type(new):
        return []
    raise PathError


def _get_part(value: Any, key: str | int) -> Any:
    """Return the value at a key or index, or `_MISSING`."""
    if isinstance(key, int):
        return value[key] if isinstance(value, list) and 0 <= key < len(value) else _MISSING
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def _replace_part(new: Any, key: str | int, value: Any) -> Any:
    """Return a copy of `new` with another value at the key; `_MISSING` removes the key.

    Raises PathError if this would change the length of a list.
    """
    present = _get_part(new, key) is not _MISSING
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


# The units of Go's durations, in which the SDK sends customTimeouts.
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def parse_duration(duration: str) -> float:
    """Return a duration in seconds: `1h30m` is 5400.0; an empty text is 0.

    Raises:
        ValueError: the text is no duration.
    """
    if duration in ("", "0"):
        return 0.0
    if not re.fullmatch(f"(?:{_PART.pattern})+", duration):
        raise ValueError(f"{duration!r} is not a duration; write one such as 30s, 45m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(duration))
