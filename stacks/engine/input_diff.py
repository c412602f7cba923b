"""The engine's own comparison of two property maps, for providers that leave it to the engine."""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuform.providers.lifecycle import PROVIDER_KEY
from gpuform.stacks.engine import values
from gpuform.stacks.engine.values import PropertyMap


def changed_keys(olds: PropertyMap, news: PropertyMap) -> list[str]:
    """Top-level properties whose plain values differ; secrets compare by what they hide."""
    return sorted(
        key
        for key in olds.keys() | news.keys()
        if key != PROVIDER_KEY
        and not (
            key in olds
            and key in news
            and values.equal(values.unwrap_secrets(olds[key]), values.unwrap_secrets(news[key]))
        )
    )


_MISSING: Any = object()


def ignoring(olds: PropertyMap, news: PropertyMap, paths: Sequence[str]) -> PropertyMap:
    """`news` with the old value at each path that the program ignores (`a`, `a.b`, `a["b"]`)."""
    result = dict(news)
    for path in paths:
        _reset(result, olds, split_path(path))
    return result


def _reset(target: dict[str, Any], source: Any, path: Sequence[str]) -> None:
    key, rest = path[0], path[1:]
    old = source.get(key, _MISSING) if isinstance(source, dict) else _MISSING
    if not rest:
        if old is _MISSING:
            target.pop(key, None)
        else:
            target[key] = old
    elif isinstance(target.get(key), dict):
        target[key] = dict(target[key])
        _reset(target[key], old, rest)


def top_level(paths: Iterable[str]) -> list[str]:
    """The top-level properties that the paths are in, each once, in order."""
    return list(dict.fromkeys(split_path(path)[0] for path in paths))


def split_path(path: str) -> list[str]:
    """`a.b["c d"][0]` -> [`a`, `b`, `c d`, `0`]."""
    return list(_segments(path))


def _segments(path: str) -> Iterable[str]:
    rest = path
    while rest:
        if rest.startswith("["):
            inner, _, rest = rest[1:].partition("]")
            yield inner.strip("\"'")
        else:
            cut = min((i for i in (rest.find("."), rest.find("[")) if i >= 0), default=len(rest))
            yield rest[:cut]
            rest = rest[cut:]
        rest = rest.removeprefix(".")
