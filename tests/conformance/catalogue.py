"""Collect every platform's kinds and its part of the emulator for the conformance suite.

gpuform's own platforms have a module `conformance.<name>_kinds`; another one has `conformance` in
its package. Each has `KINDS` and `ROOMS`.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from conformance.described import Described, Room

from gpuform.providers.platform import list_own_platforms, platforms


def _load_modules() -> Iterator[Any]:
    for name, platform in platforms().items():
        own = name in list_own_platforms()
        yield (
            import_module(f"conformance.{name}_kinds")
            if own
            else platform.import_module("conformance")
        )


KINDS: tuple[Described, ...] = tuple(kind for module in _load_modules() for kind in module.KINDS)
"""Every kind that is described, in the order of the catalogue."""

ROOMS: Mapping[str, Room] = {
    name: room for each in _load_modules() for name, room in each.ROOMS.items()
}
