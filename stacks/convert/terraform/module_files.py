"""Write local modules of Terraform as modules of a topology, where gpuform can express them.

`topology` calls `extract_modules` after a conversion that inlines all modules. A second conversion
stops at the inputs and outputs of modules. Its values are written only if they evaluate to those of
the first, so a module changes no plan.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpuform.stacks.convert.terraform.expressions import (
    UnresolvedExpression,
    join_text_parts,
)
from gpuform.stacks.convert.terraform.folding import RepeatedResource, fold_instances
from gpuform.stacks.convert.terraform.module_merging import (
    InexpressibleModule,
    ModuleEntryBuilder,
    ModuleMerger,
    find_inputs,
    list_values,
    name_input,
)
from gpuform.stacks.convert.terraform.modules import ModuleInstance
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    Declarations,
    DeclaredReference,
    InterpolatedText,
    ModuleReference,
    ResourceEntry,
    Value,
    convert_members,
    convert_references,
    find_references,
)

if TYPE_CHECKING:
    from gpuform.stacks.convert.terraform.topology import TerraformConverter


@dataclass(frozen=True, slots=True)
class InlinedConversion:
    """The result of a conversion that inlines all modules.

    `modules` maps the address of each entry to the prefix of its module.
    """

    converter: "TerraformConverter"
    declarations: Declarations
    modules: Mapping[str, str]
    repeated_resources: Sequence[RepeatedResource]


ConvertAgain = Callable[[Mapping[str, ModuleReference]], tuple["TerraformConverter", Declarations]]


def extract_modules(
    inlined: InlinedConversion, instances: Sequence[ModuleInstance], convert_again: ConvertAgain
) -> tuple[Declarations, dict[str, Declarations]]:
    """Return the topology, and the declarations of its modules by file name.

    Modules that cannot be expressed stay inlined. `convert_again` converts the files once more,
    with the given references in place of the locals that stand for the modules' inputs and outputs.
    """
    present = {inlined.modules[entry.address] for entry in inlined.declarations.entries}
    included = [
        instance
        for instance in instances
        if instance.prefix in present and "providers" not in instance.block.body
    ]
    while included:
        boundaries = dict(_list_boundaries(included))
        try:
            return _ModuleExtraction(inlined, included, *convert_again(boundaries)).extract()
        except InexpressibleModule as reason:
            # Others may use the outputs of this module, so all are extracted again.
            included = [instance for instance in included if instance.folder != reason.folder]
    return fold_instances(inlined.declarations, inlined.repeated_resources), {}


def _list_boundaries(instances: Sequence[ModuleInstance]) -> Iterator[tuple[str, ModuleReference]]:
    """Yield each local that stands for an input or output, with the reference that replaces it."""
    for instance in instances:
        for name in instance.find_blocks("variable"):
            yield f"{instance.prefix}-var-{name}", ModuleReference("inputs", name)
        for name in instance.find_blocks("output"):
            output = ModuleReference("modules", instance.prefix, (name,))
            yield f"{instance.prefix}-out-{name}", output


@dataclass(slots=True)
class _ModuleExtraction:
    """Extracts the modules of `included` from an inlined conversion.

    `converter` and `stopped` belong to a second conversion, which stops at the inputs and outputs
    of these modules instead of inlining their values.
    """

    inlined: InlinedConversion
    included: Sequence[ModuleInstance]
    converter: "TerraformConverter"
    stopped: Declarations
    instances: dict[str, ModuleInstance] = field(init=False)
    """The instances of modules by the prefix of their resources."""
    arguments: dict[str, dict[str, Value]] = field(init=False)
    """The values of the inputs of each instance."""

    def __post_init__(self) -> None:
        self.instances = {instance.prefix: instance for instance in self.included}
        self.arguments = {prefix: {} for prefix in self.instances}

    def extract(self) -> tuple[Declarations, dict[str, Declarations]]:
        """Return the topology, and the declarations of its modules by file name.

        Raises:
            InexpressibleModule: a topology cannot include one of the modules.
        """
        full, stopped = self.inlined.declarations, self.stopped
        stopped_entries = {entry.address: entry for entry in stopped.entries}
        entries = [
            self._choose_members(entry, stopped_entries.get(entry.address, entry))
            for entry in full.entries
        ]
        outputs = {
            name: self._choose(value, stopped.outputs.get(name))
            for name, value in full.outputs.items()
        }
        module_outputs = {
            prefix: dict(self._list_outputs(instance))
            for prefix, instance in self.instances.items()
        }
        self._collect_arguments(entries, module_outputs)
        # Folding renames the references in outputs: that is, in all that is around the entries.
        around = {"root": outputs, "modules": module_outputs, "arguments": self.arguments}
        folded = fold_instances(
            replace(full, entries=entries, outputs=around), self.inlined.repeated_resources
        )
        self.arguments = folded.outputs["arguments"]
        root = [entry for entry in folded.entries if not self._find_prefix(entry.address)]
        root_values = [list_values(root), folded.outputs["root"]]
        self._reject_inner_references(root_values)
        used_outputs = {
            (reference.name, reference.steps[0])
            for reference in find_references([*root_values, self.arguments], ModuleReference)
        }
        entries_by_prefix = {
            prefix: [
                entry for entry in folded.entries if self._find_prefix(entry.address) == prefix
            ]
            for prefix in self.instances
        }
        files = ModuleMerger(self.included, self.arguments, full.variables).build_files(
            entries_by_prefix, folded.outputs["modules"], used_outputs
        )
        modules, names = ModuleEntryBuilder(self.included, self.converter, self.arguments).build(
            {folder: name for folder, name, _ in files}
        )
        used_variables = {
            reference.name
            for reference in find_references([*root_values, self.arguments], ConfigReference)
        }
        topology = Declarations(
            [convert_members(entry, names.rename) for entry in root],
            [variable for variable in full.variables if variable.name in used_variables],
            convert_references(folded.outputs["root"], names.rename),
            [
                replace(module, arguments=convert_references(dict(module.arguments), names.rename))
                for module in modules
            ],
        )
        return topology, {name: declarations for _, name, declarations in files}

    def _find_prefix(self, address: str) -> str:
        """Return the prefix of the included module that has the entry, or "" for the root."""
        prefix = self.inlined.modules[address]
        return prefix if prefix in self.instances else ""

    def _choose_members(self, entry: ResourceEntry, stopped: ResourceEntry) -> ResourceEntry:
        """Return the entry with properties and options that are valid at the entry's place.

        In a module these are values in terms of its inputs. A value that refers to something
        outside becomes a new input.
        """
        prefix = self._find_prefix(entry.address)
        members: dict[str, Any] = {}
        for kind in ("properties", "options"):
            stopped_values = getattr(stopped, kind)
            members[kind] = {}
            for name, value in getattr(entry, kind).items():
                written = self._choose(value, stopped_values.get(name), prefix)
                if prefix and self._leaves_module(written, prefix):
                    inner_name = entry.name.removeprefix(f"{prefix}-")
                    input_name = name_input(inner_name, name, self.instances[prefix])
                    self.arguments[prefix][input_name] = value
                    written = ModuleReference("inputs", input_name)
                members[kind][name] = written
        return replace(entry, **members)

    def _choose(self, value: Value, stopped: Value, prefix: str = "") -> Value:
        """Return `stopped`, the value in terms of inputs and outputs, if it equals `value`.

        Otherwise return the inlined `value`; also if `stopped` refers to something that the module
        with this prefix does not see.
        """
        try:
            is_same = self._evaluate(stopped, prefix) == value
        except UnresolvedExpression:
            is_same = False
        if is_same and not (prefix and self._leaves_module(stopped, prefix)):
            return stopped
        return value

    def _evaluate(self, value: Value, prefix: str) -> Value:
        """Return the value with each reference to an input or output replaced by the inlined value.

        Raises UnresolvedExpression if a reference has no value: a topology would take its default.
        """
        if isinstance(value, Mapping):
            return {key: self._evaluate(item, prefix) for key, item in value.items()}
        if isinstance(value, list):
            return [self._evaluate(item, prefix) for item in value]
        if isinstance(value, InterpolatedText):
            return join_text_parts([self._evaluate(part, prefix) for part in value.parts], "")
        if not isinstance(value, ModuleReference):
            return value
        if value.root == "inputs":
            local, steps = f"{prefix}-var-{value.name}", value.steps
        else:
            local, steps = f"{value.name}-out-{value.steps[0]}", value.steps[1:]
        inlined_value = self.inlined.converter.create_resolver().resolve_local(local, steps)
        if inlined_value is None:
            raise UnresolvedExpression(local)
        return inlined_value

    def _leaves_module(self, value: Value, prefix: str) -> bool:
        """Return True if a value refers to something that a module does not see."""
        return any(find_references(value, ConfigReference)) or any(
            self.inlined.modules[f"{reference.section}.{reference.name}"] != prefix
            for reference in find_references(value, DeclaredReference)
        )

    def _list_outputs(self, instance: ModuleInstance) -> Iterator[tuple[str, Value]]:
        """Yield name and value of each output that needs nothing from outside of the module."""
        for name in instance.find_blocks("output"):
            try:
                value, stopped = self._resolve_both(f"{instance.prefix}-out-{name}")
            except UnresolvedExpression:
                continue
            written = self._choose(value, stopped, instance.prefix)
            if not self._leaves_module(written, instance.prefix):
                yield name, written

    def _resolve_both(self, local: str) -> tuple[Value, Value]:
        """Return the inlined and the stopped value of a local. Raises UnresolvedExpression."""
        return (
            self.inlined.converter.resolve_expression_of_local(local),
            self.converter.resolve_expression_of_local(local),
        )

    def _collect_arguments(
        self, entries: Sequence[ResourceEntry], module_outputs: Mapping[str, Mapping[str, Value]]
    ) -> None:
        """Add to `arguments` the values of all inputs that a module's entries and outputs use.

        Raises InexpressibleModule if the topology cannot give such a value.
        """
        declared = {variable.name for variable in self.inlined.declarations.variables}
        for prefix, instance in self.instances.items():
            own = [entry for entry in entries if self._find_prefix(entry.address) == prefix]
            used = find_inputs([list_values(own), dict(module_outputs[prefix])])
            for name in instance.find_blocks("variable"):
                if name in used and name in instance.block.body:
                    try:
                        value, stopped = self._resolve_both(f"{prefix}-var-{name}")
                    except UnresolvedExpression:
                        raise InexpressibleModule(instance.folder) from None
                    if value is not None:
                        self.arguments[prefix][name] = self._choose(value, stopped)
            variables = find_references(self.arguments[prefix], ConfigReference)
            if not declared.issuperset(variable.name for variable in variables):
                raise InexpressibleModule(instance.folder)
        self._reject_inner_references(self.arguments)

    def _reject_inner_references(self, value: Value) -> None:
        """Raise InexpressibleModule if a value of the topology refers to an entry of a module."""
        for reference in find_references(value, DeclaredReference):
            if prefix := self._find_prefix(f"{reference.section}.{reference.name}"):
                raise InexpressibleModule(self.instances[prefix].folder)
