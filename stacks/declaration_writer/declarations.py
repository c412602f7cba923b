"""Model what is to be written: resources with their properties, configuration and outputs.

`convert` and `importing` build these objects; the renderers of this package read them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.models import InputModel
from gpuform.schemas.topology import SECTIONS
from gpuform.schemas.values import iterate_leaves, sort_by_dependencies


@dataclass(frozen=True, slots=True)
class EachReference:
    """A reference to `each` inside of an entry with `for_each`: `("value", "region")`."""

    steps: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class DeclaredReference:
    """A reference to another resource: to its id, or to the part of its properties at `steps`.

    Without `steps` the reference means the id. `key` is the instance's key if the resource's entry
    has a `for_each`, else None.
    """

    section: str
    name: str
    steps: tuple[str | int, ...] = ()
    key: str | EachReference | None = None


@dataclass(frozen=True, slots=True)
class ConfigReference:
    """A reference to the value of a configuration variable, or to its part at `steps`."""

    name: str
    steps: tuple[str | int | EachReference, ...] = ()


@dataclass(frozen=True, slots=True)
class ModuleReference:
    """A reference to a value that enters or leaves a module; only topologies can have them.

    `root` is `inputs` in the module's file and `modules` in the file that includes the module;
    `name` is the input or the module, and `steps` are the output and its parts.
    """

    root: str
    name: str
    steps: tuple[str | int, ...] = ()


Reference = DeclaredReference | ConfigReference | ModuleReference | EachReference


@dataclass(frozen=True, slots=True)
class InterpolatedText:
    """A text with references inside: `parts` are literal texts and references in their order."""

    parts: tuple[str | Reference, ...]


Value = Any
"""A value to write: plain data with references and interpolated texts at any depth.

Plain data is None, bool, int, float, str, lists and objects.
"""


@dataclass(frozen=True, slots=True)
class ResourceEntry:
    """One resource to declare.

    `section` is the topology's section (`clusters`), `options` are the entry's options under the
    names that a topology has.
    """

    section: str
    name: str
    platform: str
    properties: Mapping[str, Value]
    options: Mapping[str, Value] = field(default_factory=dict)
    for_each: Mapping[str, Mapping[str, Value]] | ModuleReference | None = None
    """The items of a repeated entry, or the input that has them; only topologies can repeat."""

    @property
    def kind(self) -> str:
        """Return the resource's kind: `Cluster`."""
        return SECTIONS[self.section]

    @property
    def address(self) -> str:
        """Return the resource's name in expressions: `clusters.train`."""
        return f"{self.section}.{self.name}"

    @property
    def model(self) -> type[InputModel]:
        """Return the model of the resource's inputs."""
        return load_lifecycle_class(self.platform, self.kind).inputs

    def sort_properties(self) -> list[tuple[str, Value]]:
        """Return the properties in the order of the model; unknown names come last."""
        order = {name: position for position, name in enumerate(self.model.model_fields)}
        return sorted(self.properties.items(), key=lambda item: order.get(item[0], len(order)))


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One configuration variable to declare.

    `fields` are those of `schemas.topology.ConfigInputs`.
    """

    name: str
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ModuleEntry:
    """One module to include: its file, its name, and the values of its inputs.

    `for_each` has the items of a module with several instances.
    """

    file: str
    name: str
    arguments: Mapping[str, Value]
    for_each: Mapping[str, Mapping[str, Value]] | None = None


@dataclass(frozen=True, slots=True)
class Declarations:
    """The content of a topology or a program, in the order in which it is written.

    Only topologies can have `modules`, the included ones, and only files of modules `inputs`.
    """

    entries: Sequence[ResourceEntry] = ()
    variables: Sequence[ConfigEntry] = ()
    outputs: Mapping[str, Value] = field(default_factory=dict)
    modules: Sequence[ModuleEntry] = ()
    inputs: Sequence[ConfigEntry] = ()


AnyReference = TypeVar("AnyReference", bound=Reference)


def find_references(value: Value, *kinds: type[AnyReference]) -> Iterator[AnyReference]:
    """Yield the references of the classes `kinds` in a value, at any depth."""
    for leaf in iterate_leaves(value):
        if isinstance(leaf, InterpolatedText):
            yield from find_references(leaf.parts, *kinds)
        elif isinstance(leaf, kinds):
            yield leaf


def to_reference_in_text(reference: AnyReference) -> AnyReference:
    """Return the reference for use in a text.

    A reference to a resource itself gets the step `id`: as a complete value, a resource means its
    id without the step.
    """
    if isinstance(reference, DeclaredReference) and not reference.steps:
        return replace(reference, steps=("id",))
    return reference


def convert_members(entry: ResourceEntry, convert: Callable[[Value], Value]) -> ResourceEntry:
    """Return an entry with each reference in properties and options converted."""
    return replace(
        entry,
        properties=convert_references(dict(entry.properties), convert),
        options=convert_references(dict(entry.options), convert),
    )


def convert_references(value: Value, convert: Callable[[Value], Value]) -> Value:
    """Return a value with the results of `convert` for all leaves and references, at any depth."""
    if isinstance(value, Mapping):
        return {key: convert_references(item, convert) for key, item in value.items()}
    if isinstance(value, list):
        return [convert_references(item, convert) for item in value]
    if isinstance(value, InterpolatedText):
        return InterpolatedText(tuple(map(convert, value.parts)))
    return convert(value)


def sort_entries(entries: Sequence[ResourceEntry]) -> list[ResourceEntry]:
    """Return the entries, each after all entries to which the entry refers.

    Otherwise the order stays as it is.

    A cycle is cut at one of its references: no order could create its entries. References to other
    entries are ignored.
    """
    entries_by_address = {entry.address: entry for entry in entries}

    def list_dependencies(address: str) -> Iterator[str]:
        entry = entries_by_address[address]
        values = [dict(entry.properties), dict(entry.options)]
        for reference in find_references(values, DeclaredReference):
            yield f"{reference.section}.{reference.name}"

    addresses = sort_by_dependencies(entries_by_address, list_dependencies)
    return [entries_by_address[address] for address in addresses]
