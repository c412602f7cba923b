"""What topology files declare, before any expression is evaluated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.diagnostics import Place
from gpuform.stacks.document.nodes import Entry, Node


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """One entry of a section, with the defaults of its section and platform."""

    section: str
    name: str
    place: Place
    platform: str
    properties: Mapping[str, Entry]
    options: Mapping[str, Entry]
    for_each: Node | None = None
    when: Node | None = None

    @property
    def kind(self) -> str:
        return SECTIONS[self.section]

    @property
    def is_single(self) -> bool:
        """Whether it declares one resource, under its own name."""
        return self.for_each is None

    @property
    def address(self) -> str:
        """How expressions call it: `clusters.train`."""
        return f"{self.section}.{self.name}"


@dataclass(frozen=True, slots=True)
class ConfigVariable:
    """One value of the `config` section; `said` are the fields of schemas.topology.ConfigInputs."""

    name: str
    place: Place
    said: Mapping[str, Any]

    @property
    def type(self) -> str:
        return str(self.said.get("type", "string"))

    @property
    def secret(self) -> bool:
        return self.said.get("secret") is True


@dataclass(slots=True)
class Topology:
    """A topology file with all that it includes, in the order of the files."""

    declarations: dict[str, dict[str, Declaration]] = field(
        default_factory=lambda: {section: {} for section in SECTIONS}
    )
    config: dict[str, ConfigVariable] = field(default_factory=dict)
    stack_references: dict[str, Entry] = field(default_factory=dict)
    outputs: dict[str, Entry] = field(default_factory=dict)
