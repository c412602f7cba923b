"""What is to be written, as data: resources with their properties, configuration, outputs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.models import InputModel
from gpuform.schemas.topology import SECTIONS


@dataclass(frozen=True, slots=True)
class Reference:
    """Another resource, which means its id, or the part of its properties that `steps` lead to.

    `key` is the instance's, where the entry has a `for_each`.
    """

    section: str
    name: str
    steps: tuple[str | int, ...] = ()
    key: str | None = None


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """The value of a configuration variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Mixed:
    """A text made of several parts."""

    parts: tuple[str | Reference | ConfigValue, ...]


Value = Any
"""Plain data (None, bool, int, float, str, lists, objects) with references, configuration values
and mixed texts at any depth."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One resource. `options` are those of a topology's entry, under its names."""

    section: str
    name: str
    platform: str
    properties: Mapping[str, Value]
    options: Mapping[str, Value] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return SECTIONS[self.section]

    @property
    def address(self) -> str:
        """How expressions call it: `clusters.train`."""
        return f"{self.section}.{self.name}"

    @property
    def model(self) -> type[InputModel]:
        return load_lifecycle_class(self.platform, self.kind).inputs


@dataclass(frozen=True, slots=True)
class Variable:
    """A configuration variable; `said` are the fields of schemas.topology.ConfigInputs."""

    name: str
    said: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Declared:
    """What a topology or a program declares, in its order."""

    entries: Sequence[Entry] = ()
    variables: Sequence[Variable] = ()
    outputs: Mapping[str, Value] = field(default_factory=dict)


def references(value: Value) -> Iterator[Reference]:
    """The references in a value, at any depth."""
    return (each for each in _parts(value) if isinstance(each, Reference))


def variables_in(value: Value) -> Iterator[ConfigValue]:
    """The configuration values in a value, at any depth."""
    return (each for each in _parts(value) if isinstance(each, ConfigValue))


def _parts(value: Value) -> Iterator[Reference | ConfigValue]:
    if isinstance(value, Reference | ConfigValue):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _parts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _parts(item)
    elif isinstance(value, Mixed):
        for part in value.parts:
            yield from _parts(part)


def in_order(entries: Sequence[Entry]) -> list[Entry]:
    """The entries, each after those that it refers to; otherwise as they are.

    A circle stays as it is: it cannot be made, whatever the order.
    """
    known = {entry.address: entry for entry in entries}
    found: dict[str, Entry] = {}
    begun: set[str] = set()

    def visit(entry: Entry) -> None:
        if entry.address in begun:
            return
        begun.add(entry.address)
        for reference in references([dict(entry.properties), dict(entry.options)]):
            needed = known.get(f"{reference.section}.{reference.name}")
            if needed is not None:
                visit(needed)
        found[entry.address] = entry

    for entry in entries:
        visit(entry)
    return list(found.values())
