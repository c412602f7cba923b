"""Merge the instances of a Terraform module into one, and build the entries that include its file.

`module_files` calls `ModuleMerger` with the entries and outputs of all instances: values in which
instances differ become inputs. `ModuleEntryBuilder` builds one entry with `for_each` for a module
with `count` or `for_each`, where the arguments allow it.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpuform.stacks.convert.terraform.expressions import (
    UnresolvedExpression,
    join_text_parts,
    resolve_literal,
)
from gpuform.stacks.convert.terraform.files import TerraformBlock
from gpuform.stacks.convert.terraform.folding import EACH_KEY
from gpuform.stacks.convert.terraform.modules import ModuleInstance
from gpuform.stacks.convert.terraform.resource_types import is_plain
from gpuform.stacks.convert.terraform.variables import find_config_type
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    Declarations,
    DeclaredReference,
    EachReference,
    InterpolatedText,
    ModuleEntry,
    ModuleReference,
    ResourceEntry,
    Value,
    convert_members,
    convert_references,
    find_references,
)

if TYPE_CHECKING:
    from gpuform.stacks.convert.terraform.topology import TerraformConverter

_FORMER_PARENT: Final = [{"parent": None}]
"""The alias of an entry that an earlier conversion has inlined: only its parent is new."""
_OTHER_FILES: Final = ("Pulumi", "topology")


class InexpressibleModule(Exception):
    """Raised if a topology cannot include the modules of one folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(str(folder))
        self.folder = folder


@dataclass(slots=True)
class ModuleMerger:
    """Merges the instances of a module into one file: values that differ become inputs.

    `arguments` has the values of each instance's inputs by the instance's prefix, and gets the new
    inputs. `variables` is the configuration of the topology.
    """

    included: Sequence[ModuleInstance]
    arguments: dict[str, dict[str, Value]]
    variables: Sequence[ConfigEntry]

    def build_files(
        self,
        entries: Mapping[str, Sequence[ResourceEntry]],
        outputs: Mapping[str, Mapping[str, Value]],
        used_outputs: set[tuple[str, Any]],
    ) -> list[tuple[Path, str, Declarations]]:
        """Return folder, file name and declarations of each module.

        Args:
            entries: the entries of each instance, by prefix.
            outputs: the outputs of each instance, by prefix.
            used_outputs: prefix and name of each output that the topology uses, and that a module
                must therefore have.

        Raises:
            InexpressibleModule: the instances of a module differ in more than plain values.
        """
        by_folder: dict[Path, list[ModuleInstance]] = {}
        for instance in self.included:
            by_folder.setdefault(instance.folder, []).append(instance)
        files: list[tuple[Path, str, Declarations]] = []
        for folder, group in by_folder.items():
            merged_entries = self._merge_instances(entries, group)
            prefixes = {instance.prefix for instance in group}
            used = {output for prefix, output in used_outputs if prefix in prefixes}
            merged_outputs = dict(self._merge_outputs(outputs, group, used))
            inputs = self._declare_inputs(group, [list_values(merged_entries), merged_outputs])
            # Two folders may have one name.
            names = [*_OTHER_FILES, *(Path(name).stem for _, name, _ in files)]
            stem = folder.name
            while stem.lower() in (name.lower() for name in names):
                stem += "-module"
            declarations = Declarations(merged_entries, outputs=merged_outputs, inputs=inputs)
            files.append((folder, f"{stem}.yaml", declarations))
        return files

    def _merge_instances(
        self, entries: Mapping[str, Sequence[ResourceEntry]], group: Sequence[ModuleInstance]
    ) -> list[ResourceEntry]:
        """Merge the entries of all instances of a module into the entries of its file."""
        by_prefix = {
            prefix: {
                inner.address: inner
                for inner in (_strip_prefix(entry, prefix) for entry in entries[prefix])
            }
            for prefix in (instance.prefix for instance in group)
        }
        first, *others = by_prefix.values()
        if any(other.keys() != first.keys() for other in others):
            raise InexpressibleModule(group[0].folder)
        return [
            self._merge_entry(
                {prefix: inner[address] for prefix, inner in by_prefix.items()}, group[0]
            )
            for address in first
        ]

    def _merge_entry(
        self, by_prefix: Mapping[str, ResourceEntry], instance: ModuleInstance
    ) -> ResourceEntry:
        """Merge the same entry of all instances into one; values that differ become inputs."""
        first = next(iter(by_prefix.values()))

        def merge(name: str, values: Mapping[str, Value]) -> Value:
            first_value, *others = values.values()
            # Two instances of a module never import one object.
            is_shared = name not in ("import", "for_each") or isinstance(first_value, EachReference)
            if is_shared and all(value == first_value for value in others):
                return first_value
            if not all(map(is_plain, values.values())) or None in values.values():
                raise InexpressibleModule(instance.folder)
            input_name = name_input(first.name, name, instance)
            for prefix, value in values.items():
                self.arguments[prefix][input_name] = value
            return ModuleReference("inputs", input_name)

        members: dict[str, Any] = {}
        for kind in ("properties", "options"):
            values = {prefix: getattr(entry, kind) for prefix, entry in by_prefix.items()}
            if any(item.keys() != getattr(first, kind).keys() for item in values.values()):
                raise InexpressibleModule(instance.folder)
            members[kind] = {
                name: merge(name, {prefix: item[name] for prefix, item in values.items()})
                for name in getattr(first, kind)
            }
        members["options"]["aliases"] = _FORMER_PARENT
        repeated = {prefix: entry.for_each for prefix, entry in by_prefix.items()}
        is_repeated = any(items is not None for items in repeated.values())
        for_each = merge("for_each", repeated) if is_repeated else None
        return replace(first, **members, for_each=for_each)

    def _merge_outputs(
        self,
        outputs: Mapping[str, Mapping[str, Value]],
        group: Sequence[ModuleInstance],
        used: set[Any],
    ) -> Iterator[tuple[str, Value]]:
        """Yield the outputs that the topology uses, and others that refer to entries."""
        for name, block in group[0].find_blocks("output").items():
            values = [
                convert_references(
                    outputs[instance.prefix].get(name), partial(_strip_reference, instance.prefix)
                )
                for instance in group
            ]
            if any(value is None or value != values[0] for value in values):
                if name in used:
                    raise InexpressibleModule(group[0].folder)
            # What nobody uses could be a literal that nobody is to see.
            elif name in used or (
                isinstance(values[0], DeclaredReference) and block.body.get("sensitive") is not True
            ):
                yield name, values[0]

    def _declare_inputs(self, group: Sequence[ModuleInstance], values: Value) -> list[ConfigEntry]:
        """Return the inputs of a merged module, and drop arguments that the module does not use."""
        used = find_inputs(values)
        for instance in group:
            arguments = self.arguments[instance.prefix]
            self.arguments[instance.prefix] = {
                name: value for name, value in arguments.items() if name in used
            }
        variables = group[0].find_blocks("variable")
        names = sorted(used, key=[*variables, *used].index)
        return [self._declare_input(name, variables.get(name), group) for name in names]

    def _declare_input(
        self, name: str, block: TerraformBlock | None, group: Sequence[ModuleInstance]
    ) -> ConfigEntry:
        """Return the declaration of an input, with the one type that all its values have.

        Raises InexpressibleModule if the values have different types.
        """
        body = block.body if block else {}
        arguments = [
            self.arguments[instance.prefix][name]
            for instance in group
            if name in self.arguments[instance.prefix]
        ]
        fields: dict[str, Value] = {}
        default = None if body.get("sensitive") is True else resolve_literal(body.get("default"))
        values = [*arguments, *([] if default is None else [default])]
        types = {self._find_type(value, body.get("type")) for value in values}
        if types == {"integer", "number"}:
            types = {"number"}
        if len(types) != 1:
            raise InexpressibleModule(group[0].folder)
        if types != {"string"}:
            fields["type"] = types.pop()
        if isinstance(description := body.get("description"), str):
            fields["description"] = resolve_literal(description)
        if default is not None and not self._has_secret(arguments):
            fields["default"] = default
        if body.get("sensitive") is True:
            fields["secret"] = True
        return ConfigEntry(name, fields)

    def _find_type(self, value: Value, declared_type: Any) -> str:
        if isinstance(value, ConfigReference) and not value.steps:
            for variable in self.variables:
                if variable.name == value.name:
                    return str(variable.fields.get("type", "string"))
        is_known = isinstance(value, str | int | float | list | Mapping)
        return find_config_type(None if is_known else declared_type, value if is_known else None)

    def _has_secret(self, values: Value) -> bool:
        """Return True if a value refers to a secret variable: the default may be a secret, too."""
        secret = {variable.name for variable in self.variables if variable.fields.get("secret")}
        return any(
            reference.name in secret for reference in find_references(values, ConfigReference)
        )


def _strip_prefix(entry: ResourceEntry, prefix: str) -> ResourceEntry:
    inner = convert_members(entry, partial(_strip_reference, prefix))
    return replace(inner, name=entry.name.removeprefix(f"{prefix}-"))


def _strip_reference(prefix: str, reference: Value) -> Value:
    """Return a reference to an entry of the module under the entry's name inside the module."""
    if not isinstance(reference, DeclaredReference):
        return reference
    return replace(reference, name=reference.name.removeprefix(f"{prefix}-"))


def name_input(entry: str, member: str, instance: ModuleInstance) -> str:
    """Return a name for the new input of an entry's member that no variable of the module has."""
    name = f"{entry}_{member}".replace("-", "_")
    while name in instance.find_blocks("variable"):
        name += "_value"
    return name


def find_inputs(value: Value) -> dict[str, None]:
    """Return the names of the inputs to which a value refers, in the order of the references."""
    return {
        reference.name: None
        for reference in find_references(value, ModuleReference)
        if reference.root == "inputs"
    }


def list_values(entries: Sequence[ResourceEntry]) -> list[Value]:
    """Return the properties and options of entries."""
    return [
        [dict(entry.properties), dict(entry.options), entry.for_each or {}] for entry in entries
    ]


@dataclass(frozen=True, slots=True)
class ModuleEntryBuilder:
    """Builds the entries by which a topology includes modules.

    `arguments` has the values of each instance's inputs by the instance's prefix.
    """

    included: Sequence[ModuleInstance]
    converter: "TerraformConverter"
    arguments: Mapping[str, Mapping[str, Value]]

    def build(self, files: Mapping[Path, str]) -> "tuple[list[ModuleEntry], OutputNames]":
        """Return the entries that include the modules, and the new names for references to outputs.

        `files` are the names of the modules' files by folder.
        """
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
        """Return one entry with `for_each` that stands for all instances of a module.

        None if arguments differ between the instances and are not plain: the items of `for_each`
        must be known before the first reference is.
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
        """Return an argument in terms of `each.key`, valid for every instance; None without one.

        A form that does not give back the argument of `instance` for the instance's own key does
        not count.
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
    """Entry and key of an instance's outputs in the topology, by the instance's prefix."""

    names: dict[str, tuple[str, tuple[str, ...]]]

    def rename(self, reference: Value) -> Value:
        """Return a reference to an output in the form that the topology has for the instance."""
        if not isinstance(reference, ModuleReference) or reference.root != "modules":
            return reference
        name, key = self.names[reference.name]
        return ModuleReference("modules", name, (*key, *reference.steps))
