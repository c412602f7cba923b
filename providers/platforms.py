"""The platforms that there are: gpuform's own, and those of other installed distributions.

A distribution announces a platform by an entry point of the group `gpuform.platforms`: the
platform's name, and the dotted path of its `Platform`. One that cannot be used is left out and
keeps nobody from using the others; whoever names it is told why.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, distributions
from types import MappingProxyType
from typing import Final

from gpuform.providers.platform import KINDS, Platform, Setting

ENTRY_POINTS: Final = "gpuform.platforms"

_OWN: Final = ("together", "scp", "tensorone", "aios", "lens")
_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class Unusable:
    """Why a platform that is announced cannot be used, and what to do about it."""

    because: str
    hint: str


def platforms() -> Mapping[str, Platform]:
    """The platforms that can be used, by their names."""
    return find_platforms()[0]


def own_platforms() -> Mapping[str, Platform]:
    """gpuform's own platforms: those that its files and its documentation tell of."""
    return {name: platform for name, platform in platforms().items() if name in _OWN}


def unusable_platforms() -> Mapping[str, Unusable]:
    """The platforms that are announced and cannot be used, by their names."""
    return find_platforms()[1]


@cache
def all_settings() -> tuple[Setting, ...]:
    """Every setting of every platform."""
    return tuple(each for platform in platforms().values() for each in platform.settings)


@cache
def find_platforms() -> tuple[Mapping[str, Platform], Mapping[str, Unusable]]:
    found = {name: _own(name) for name in _OWN}
    unusable: dict[str, Unusable] = {}
    announced: dict[str, list[tuple[str, EntryPoint]]] = {}
    for distribution in _announcing():
        for point in distribution.entry_points.select(group=ENTRY_POINTS):
            announced.setdefault(point.name, []).append((distribution.name, point))
    for name, points in sorted(announced.items()):
        if name in found or len(points) > 1:
            owners = [*(["gpuform"] if name in _OWN else []), *(owner for owner, _ in points)]
            found.pop(name, None)
            unusable[name] = Unusable(
                f"{' and '.join(owners)} both have a platform of this name",
                f"uninstall {points[-1][0]}, or whichever you do not need",
            )
            continue
        owner, point = points[0]
        because = ""
        try:
            platform = point.load()
            because = _wrong(platform, name)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's module raises
            because = f"{point.value} cannot be imported: {type(error).__name__}: {error}"
        if because:
            unusable[name] = Unusable(
                f"the distribution {owner} announces it, and {because}",
                f"update or uninstall {owner}, or tell its authors",
            )
        else:
            found[name] = platform
    return MappingProxyType(found), MappingProxyType(unusable)


def _own(name: str) -> Platform:
    # The package first, which imports its descriptor itself: threads that came from both ends would
    # hold what the other waits for.
    import_module(f"gpuform.providers.{name}")
    platform: Platform = import_module(f"gpuform.providers.{name}.platform").PLATFORM
    return platform


def _announcing() -> Iterator[Distribution]:
    """The distributions that announce platforms, each one once wherever it is found.

    Their texts are searched, for parsing all entry points of an environment takes three times as
    long, and every command pays for it.
    """
    names = set()
    for each in distributions():
        if f"[{ENTRY_POINTS}]" in (each.read_text("entry_points.txt") or ""):
            if each.name not in names:
                yield each
            names.add(each.name)


def _wrong(platform: object, name: str) -> str:
    """What is wrong with a descriptor; empty when nothing is."""
    if not isinstance(platform, Platform):
        return "what it names is no gpuform.providers.platform.Platform"
    if platform.name != name or not _NAME.fullmatch(name):
        return (
            f"the descriptor calls it {platform.name!r}: a name is lower-case letters, digits and "
            "_, the same in both places"
        )
    unknown = [kind for kind in platform.lifecycles if kind not in KINDS]
    if unknown:
        return f"{', '.join(unknown)} is no kind of resource: there are {', '.join(KINDS)}"
    return ""
