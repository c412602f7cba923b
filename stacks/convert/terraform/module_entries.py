"""Build the entries that include the files of Terraform's modules.

`module_files` calls `ModuleEntryBuilder`. The instances of a module with `count` or `for_each`
become one entry with `for_each` where their arguments allow it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from gpuform.stacks.convert.terraform.expressions import (
    ExpressionResolver,
    UnresolvedExpression,
    join_text_parts,
)
from gpuform.stacks.convert.terraform.files import TerraformBlock
from gpuform.stacks.convert.terraform.folding import EACH_KEY
from gpuform.stacks.convert.terraform.modules import ModuleInstance
from gpuform.stacks.convert.terraform.resource_types import is_plain
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    EachReference,
    InterpolatedText,
    ModuleEntry,
    ModuleReference,
    Value,
    convert_references,
)


class Converter(Protocol):
    """The part of a conversion that resolves expressions outside of resources."""

    def create_resolver(
        self, block: TerraformBlock | None = None, instance: ModuleInstance | None = None
    ) -> ExpressionResolver:
        """Create a resolver, with `count` and `each` of a module if given."""

    def resolve_expression_of_local(self, name: str) -> Value:
        """Return the value of the expression of a local."""


@dataclass(frozen=True, slots=True)
class ModuleEntryBuilder:
    """Builds the entries; `arguments` has the values of each instance's inputs by its prefix."""

    included: Sequence[ModuleInstance]
    converter: Converter
    arguments: Mapping[str, Mapping[str, Value]]

    def build(self, files: Mapping[Path, str]) -> "tuple[list[ModuleEntry], OutputNames]":
        """Return the modules to include, and the names under which their outputs are found."""
        by_call: dict[str, list[ModuleInstance]] = {}
        for instance in self.included:
            by_call.setdefault(instance.block.labels[0], []).append(instance)
        modules: list[ModuleEntry] = []
        names = OutputNames({})
        for name, group in by_call.items():
            file = files[group[0].folder]
            repeated = None if group[0].key is None else self._repeat(file, name, group)
            if repeated is not None:
                modules.append(repeated)
                for instance in group:
                    names.names[instance.prefix] = (name, (str(instance.key),))
                continue
            # An instance included under the name NAME-KEY has the resources of NAME[KEY].
            for instance in group:
                modules.append(ModuleEntry(file, instance.prefix, self.arguments[instance.prefix]))
                names.names[instance.prefix] = (instance.prefix, ())
        return modules, names

    def _repeat(self, file: str, name: str, group: Sequence[ModuleInstance]) -> ModuleEntry | None:
        """Return the module with `for_each` for all its instances.

        None if the instances have different arguments that are not plain: items are known before
        the first reference.
        """
        by_key = {str(instance.key): self.arguments[instance.prefix] for instance in group}
        first, *others = by_key.values()
        if any(other.keys() != first.keys() for other in others):
            return None
        arguments: dict[str, Value] = {}
        items: dict[str, dict[str, Value]] = {key: {} for key in by_key}
        for argument, value in first.items():
            general, *further = (self._generalize(argument, instance) for instance in group)
            if all(other[argument] == value for other in others):
                arguments[argument] = value
            elif general is not None and all(other == general for other in further):
                arguments[argument] = general
            else:
                arguments[argument] = EachReference(("value", argument))
                for key, values in by_key.items():
                    items[key][argument] = values[argument]
        return ModuleEntry(file, name, arguments, items) if is_plain(items) else None

    def _generalize(self, argument: str, instance: ModuleInstance) -> Value:
        """Return an argument of an instance with `each.key` in the place of its key.

        None if there is no such value, or if it does not mean the argument.
        """
        if argument not in instance.block.body:
            return None
        key = str(instance.key)

        def insert_each(reference: Value) -> Value:
            # `each.value` of a variable is the variable's part at the key.
            if not isinstance(reference, ConfigReference) or key not in reference.steps:
                return reference
            steps = tuple(EACH_KEY if step == key else step for step in reference.steps)
            return replace(reference, steps=steps)

        def insert_key(value: Value) -> Value:
            if isinstance(value, InterpolatedText):
                return join_text_parts([insert_key(part) for part in value.parts], "")
            if isinstance(value, ConfigReference):
                steps = tuple(key if step == EACH_KEY else step for step in value.steps)
                return replace(value, steps=steps)
            return key if value == EACH_KEY else value

        resolver = self.converter.create_resolver(instance.block, instance)
        try:
            written = replace(resolver, key=EACH_KEY).resolve(instance.block.body[argument])
            general = convert_references(written, insert_each)
            is_same = insert_key(general) == self.arguments[instance.prefix][argument]
        except UnresolvedExpression:
            return None
        return general if is_same else None


@dataclass(frozen=True, slots=True)
class OutputNames:
    """The name and key of each module by the prefix of its resources."""

    names: dict[str, tuple[str, tuple[str, ...]]]

    def rename(self, reference: Value) -> Value:
        """Return the reference to an output as the topology has it."""
        if not isinstance(reference, ModuleReference) or reference.root != "modules":
            return reference
        name, key = self.names[reference.name]
        return ModuleReference("modules", name, (*key, *reference.steps))
