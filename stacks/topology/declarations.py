"""What topology files declare, before any expression is evaluated."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.document.nodes import Entry, Node

MODULES = "modules"
"""The root under which expressions find the modules that are included."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Repeatable:
    """What `for_each` and `when` make instances of."""

    section: str
    name: str
    place: SourcePosition
    for_each: Node | None = None
    when: Node | None = None

    @property
    def is_single(self) -> bool:
        """Whether it declares one instance, under its own name."""
        return self.for_each is None

    @property
    def address(self) -> str:
        """How expressions of its file call it: `clusters.train`."""
        return f"{self.section}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Declaration(Repeatable):
    """One entry of a section, with the defaults of its section and platform."""

    platform: str
    properties: dict[str, Entry]
    options: Mapping[str, Entry]

    @property
    def kind(self) -> str:
        return SECTIONS[self.section]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Inclusion(Repeatable):
    """A module in an `include`: what it is given, and what its file declares."""

    file: Path
    given: Mapping[str, Entry]
    topology: "Topology"


@dataclass(frozen=True, slots=True)
class ConfigVariable:
    """One value of `config` or `inputs`; `said` are the fields of schemas.topology.ConfigInputs."""

    name: str
    place: SourcePosition
    said: Mapping[str, Any]

    @property
    def type(self) -> str:
        return str(self.said.get("type", "string"))

    @property
    def secret(self) -> bool:
        return self.said.get("secret") is True


@dataclass(slots=True)
class Topology:
    """A topology file with all that it includes, in the order of the files.

    `inputs` are a module's; None in the topology of a stack.
    """

    declarations: dict[str, dict[str, Declaration]] = field(
        default_factory=lambda: {section: {} for section in SECTIONS}
    )
    config: dict[str, ConfigVariable] = field(default_factory=dict)
    inputs: dict[str, ConfigVariable] | None = None
    stack_references: dict[str, Entry] = field(default_factory=dict)
    modules: dict[str, Inclusion] = field(default_factory=dict)
    outputs: dict[str, Entry] = field(default_factory=dict)

    def platforms(self) -> set[str]:
        """The platforms of its entries, and of those in its modules."""
        sections = self.declarations.values()
        own = {each.platform for of_section in sections for each in of_section.values()}
        return own.union(*(each.topology.platforms() for each in self.modules.values()))
