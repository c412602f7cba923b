"""Hold what topology files declare, before and after `for_each` and `when` are applied."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.document.diagnostics import SourcePosition
from gpuform.stacks.document.nodes import Entry, Node

if TYPE_CHECKING:
    from gpuform.providers.lifecycle import Lifecycle

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


ALONE = ""
"""The key of the only instance of a declaration without `for_each`."""

_Declared = TypeVar("_Declared", bound=Repeatable)


@dataclass(frozen=True, slots=True, eq=False)
class Repetition(Generic[_Declared]):
    """One of what a declaration makes.

    `item` is what its key stands for in `for_each`, evaluated or not; `module` the one it is in.
    """

    declaration: _Declared
    key: str = ALONE
    item: Any = None
    module: "ModuleInstance | None" = None

    @property
    def name(self) -> str:
        """Its name in its URN."""
        own = self.declaration.name
        name = own if self.declaration.is_single else f"{own}-{self.key}"
        return f"{self.module.name}-{name}" if self.module else name

    @property
    def address(self) -> str:
        """How messages call it: `clusters.train.a`, or `modules.east.clusters.train.a`."""
        own = ".".join(self.path)
        return f"{self.module.address}.{own}" if self.module else own

    @property
    def path(self) -> tuple[str, ...]:
        """Its place among the variables of an expression of its file."""
        own = (self.declaration.section, self.declaration.name)
        return own if self.declaration.is_single else (*own, self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Instance(Repetition[Declaration]):
    """One resource to be."""

    @property
    def lifecycle(self) -> "type[Lifecycle[Any, Any]]":
        return load_lifecycle_class(self.declaration.platform, self.declaration.kind)

    def property_names(self) -> tuple[str, ...]:
        """What expressions can ask it for."""
        return ("id", "urn", *self.lifecycle.list_property_names())


_Made = TypeVar("_Made", bound=Repetition[Any])


@dataclass(slots=True)
class Group(Generic[_Made]):
    """The instances of a declaration by key.

    `absent` are the keys whose `when` is false. `open` says that the keys are not known yet.
    """

    declaration: Repeatable
    instances: dict[str, _Made] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    open: bool = False


Groups = Mapping[str, Mapping[str, Group[Instance]]]
"""By section and name."""


@dataclass(frozen=True, slots=True, eq=False)
class ModuleInstance(Repetition[Inclusion]):
    """A module with its inputs given. What is in it is there once it has been expanded."""

    groups: dict[str, dict[str, Group[Instance]]] = field(default_factory=dict)
    modules: "dict[str, Group[ModuleInstance]]" = field(default_factory=dict)

    @property
    def is_expanded(self) -> bool:
        return bool(self.groups)

    def resources(self) -> Iterator[Instance]:
        """All that are in it, and in the modules that it includes."""
        for of_section in self.groups.values():
            for group in of_section.values():
                yield from group.instances.values()
        for inner in self.modules.values():
            for each in inner.instances.values():
                yield from each.resources()


Modules = Mapping[str, Group[ModuleInstance]]
"""By name."""
