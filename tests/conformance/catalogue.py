"""Collect every platform's kinds and emulated APIs for the conformance suite.

gpuform's own platforms have a module `conformance.<name>_kinds`; another platform has `conformance`
in its package. Each module has `KINDS` and `APIS`.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from conformance.kind_descriptions import KindDescription, PlatformApi

from gpuform.providers.platform import list_own_platforms, platforms


def _load_modules() -> Iterator[Any]:
    for name, platform in platforms().items():
        own = name in list_own_platforms()
        yield (
            import_module(f"conformance.{name}_kinds")
            if own
            else platform.import_module("conformance")
        )


KINDS: tuple[KindDescription, ...] = tuple(
    kind for module in _load_modules() for kind in module.KINDS
)
"""Every described kind, in the order of the catalogue."""

APIS: Mapping[str, PlatformApi] = {
    name: api for module in _load_modules() for name, api in module.APIS.items()
}
