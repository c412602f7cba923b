"""Define what topology files declare, before and after `for_each` and `when` are applied.

`loading` creates declarations from files, `expanding` creates the instances of each declaration.
"""

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
    """A declaration that `for_each` and `when` expand into instances."""

    section: str
    name: str
    position: SourcePosition
    for_each: Node | None = None
    when: Node | None = None

    @property
    def is_single(self) -> bool:
        """Return True if there is no `for_each`: the only instance has the declaration's name."""
        return self.for_each is None

    @property
    def address(self) -> str:
        """Return the reference of expressions in the same file, such as `clusters.train`."""
        return f"{self.section}.{self.name}"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Declaration(Repeatable):
    """An entry of a section, merged with the defaults of its section and platform."""

    platform: str
    properties: dict[str, Entry]
    options: Mapping[str, Entry]

    @property
    def kind(self) -> str:
        """Return the kind of resource in the declaration's section."""
        return SECTIONS[self.section]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Inclusion(Repeatable):
    """A module in an `include`: the arguments of `with`, and the declarations of its file."""

    file: Path
    arguments: Mapping[str, Entry]
    topology: "Topology"


@dataclass(frozen=True, slots=True)
class ConfigVariable:
    """A variable of `config` or `inputs`. `fields` are those of `schemas.topology.ConfigInputs`."""

    name: str
    position: SourcePosition
    fields: Mapping[str, Any]

    @property
    def type(self) -> str:
        """Return the declared type, `string` by default."""
        return str(self.fields.get("type", "string"))

    @property
    def secret(self) -> bool:
        """Return True if the variable is declared with `secret: true`."""
        return self.fields.get("secret") is True


@dataclass(slots=True)
class UnreadNames:
    """The names that a topology's files declare, but that reported problems kept from being read.

    References to these names are consequences of the reported problems, and are not reported.
    `addresses` holds pairs of a section, or `modules`, and a name. `has_unread_files` is True if
    any name may be declared in a file that could not be read.
    """

    addresses: set[tuple[str, str]] = field(default_factory=set)
    has_unread_files: bool = False

    def may_contain(self, section: str, name: str) -> bool:
        """Return True if a file may declare the name in spite of being missing."""
        return self.has_unread_files or (section, name) in self.addresses


@dataclass(slots=True)
class Topology:
    """A topology file with all files that it includes, in file order.

    `inputs` are the declared inputs of a module, None for the topology of a stack.
    """

    declarations: dict[str, dict[str, Declaration]] = field(
        default_factory=lambda: {section: {} for section in SECTIONS}
    )
    config: dict[str, ConfigVariable] = field(default_factory=dict)
    inputs: dict[str, ConfigVariable] | None = None
    stack_references: dict[str, Entry] = field(default_factory=dict)
    modules: dict[str, Inclusion] = field(default_factory=dict)
    outputs: dict[str, Entry] = field(default_factory=dict)
    unread: UnreadNames = field(default_factory=UnreadNames)

    def list_platforms(self) -> set[str]:
        """Return the platforms of all entries of a topology, including entries of modules."""
        sections = self.declarations.values()
        own = {
            declaration.platform
            for section_declarations in sections
            for declaration in section_declarations.values()
        }
        return own.union(*(module.topology.list_platforms() for module in self.modules.values()))


ALONE = ""
"""The key of the only instance of a declaration without `for_each`."""

_Declared = TypeVar("_Declared", bound=Repeatable)


@dataclass(frozen=True, slots=True, eq=False)
class Repetition(Generic[_Declared]):
    """One instance of a declaration.

    `item` is the value of the instance's key in `for_each`, evaluated or not. `module` is
    the module instance that contains the instance.
    """

    declaration: _Declared
    key: str = ALONE
    item: Any = None
    module: "ModuleInstance | None" = None

    @property
    def name(self) -> str:
        """Return the name of the instance in its URN."""
        # Names of modules are prefixes: a URN must be unique in the stack.
        own = self.declaration.name
        name = own if self.declaration.is_single else f"{own}-{self.key}"
        return f"{self.module.name}-{name}" if self.module else name

    @property
    def address(self) -> str:
        """Return the address for messages, such as `modules.east.clusters.train.a`."""
        own = ".".join(self.path)
        return f"{self.module.address}.{own}" if self.module else own

    @property
    def path(self) -> tuple[str, ...]:
        """Return the path among the variables of an expression in the same file."""
        own = (self.declaration.section, self.declaration.name)
        return own if self.declaration.is_single else (*own, self.key)


@dataclass(frozen=True, slots=True, eq=False)
class Instance(Repetition[Declaration]):
    """An instance of a resource declaration."""

    @property
    def lifecycle(self) -> "type[Lifecycle[Any, Any]]":
        """Return the lifecycle class for kind and platform of the instance."""
        return load_lifecycle_class(self.declaration.platform, self.declaration.kind)

    def list_property_names(self) -> tuple[str, ...]:
        """Return the names of all properties for expressions."""
        return ("id", "urn", *self.lifecycle.list_property_names())


_Made = TypeVar("_Made", bound=Repetition[Any])


@dataclass(slots=True)
class InstanceGroup(Generic[_Made]):
    """The instances of a declaration by key.

    `absent` holds the keys whose `when` is false. `open` is True while the keys are unknown.
    """

    declaration: Repeatable
    instances: dict[str, _Made] = field(default_factory=dict)
    absent: set[str] = field(default_factory=set)
    open: bool = False


Groups = Mapping[str, Mapping[str, InstanceGroup[Instance]]]
"""The groups of a file by section and name."""


@dataclass(frozen=True, slots=True, eq=False)
class ModuleInstance(Repetition[Inclusion]):
    """An instance of a module. Its groups and modules are empty until the module is expanded."""

    groups: dict[str, dict[str, InstanceGroup[Instance]]] = field(default_factory=dict)
    modules: "dict[str, InstanceGroup[ModuleInstance]]" = field(default_factory=dict)

    @property
    def is_expanded(self) -> bool:
        """Return True once the module's resources are expanded into `groups`."""
        return bool(self.groups)

    def list_resources(self) -> Iterator[Instance]:
        """Yield all resources of the module and of all included modules."""
        for section_groups in self.groups.values():
            for group in section_groups.values():
                yield from group.instances.values()
        for inner in self.modules.values():
            for module in inner.instances.values():
                yield from module.list_resources()


Modules = Mapping[str, InstanceGroup[ModuleInstance]]
"""The groups of modules by name."""
