"""Convert Terraform's files and state to declarations that import the existing objects.

Each resource of a known type becomes an entry with the id of its object. Parts without an
equivalent are listed as omissions, with their lines; an entry that would be incomplete is left out.
`operations.converting` calls `convert_terraform`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.schemas.rules import FieldRules, get_field_rules
from gpuform.schemas.topology import SECTIONS
from gpuform.stacks.convert import NOWHERE, TerraformNotRead
from gpuform.stacks.convert.secret_values import SecretValues
from gpuform.stacks.convert.terraform.arguments import META_ARGUMENTS, ArgumentConverter
from gpuform.stacks.convert.terraform.expressions import (
    ExpressionResolver,
    ReportOmission,
    UnresolvedExpression,
    find_each_value,
)
from gpuform.stacks.convert.terraform.files import (
    STATE_FILE_NAME,
    ResourceInstance,
    TerraformBlock,
    TerraformFiles,
    read_terraform_files,
)
from gpuform.stacks.convert.terraform.module_files import InlinedConversion, extract_modules
from gpuform.stacks.convert.terraform.modules import ModuleInstance, apply_moves, inline_modules
from gpuform.stacks.convert.terraform.references import (
    IncompleteEntry,
    InstanceReferences,
    PoolMove,
)
from gpuform.stacks.convert.terraform.resource_types import (
    PUBLIC_NAT_IP,
    TERRAFORM_TYPES,
    Step,
    correct_case,
    flatten_attributes,
    has_zones,
)
from gpuform.stacks.convert.terraform.variables import DataSources, TerraformVariables
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    Declarations,
    DeclaredReference,
    ModuleReference,
    ResourceEntry,
    Value,
    find_references,
)
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic, SourcePosition

_ATTACHED_ARGUMENTS: Final = {"count", "for_each", "depends_on", "provider"}
"""Meta-arguments of an attached resource that say nothing about the nodes."""


@dataclass(frozen=True, slots=True)
class TerraformConversion:
    """The result of a conversion.

    `omissions` are the parts that were not converted, `secrets` the values that the stack still
    needs, by key. `modules` are the files that the topology includes, by name, and
    `resource_count` is the number of objects to import.
    """

    declarations: Declarations
    omissions: Sequence[DocumentDiagnostic]
    secrets: Mapping[str, str]
    resource_count: int
    modules: Mapping[str, Declarations] = field(default_factory=dict)


def convert_terraform(
    folder: Path, *, repeats: bool = False, modules: bool = False
) -> TerraformConversion:
    """Return the declarations for Terraform's files in a folder.

    With `repeats`, for a topology, instances of one resource become an entry with `for_each`; with
    `modules` as well, local modules become files that the topology includes.

    Raises:
        TerraformNotRead: files are missing or cannot be read, or a local refers to itself.
    """
    files = read_terraform_files(folder)
    apply_moves(files)
    instances = inline_modules(files, folder)

    def convert_again(
        boundaries: Mapping[str, ModuleReference],
    ) -> tuple[TerraformConverter, Declarations]:
        converter = TerraformConverter(files, folder, boundaries)
        return converter, converter.convert().declarations

    try:
        converter = TerraformConverter(files, folder)
        conversion = converter.convert()
    except RecursionError:
        raise TerraformNotRead(
            f"{folder}: a local value refers to itself", "run `terraform validate` in that folder"
        ) from None
    if not repeats:
        return conversion
    inlined = InlinedConversion(
        converter,
        conversion.declarations,
        converter.list_modules(),
        converter.references.list_repeated_resources(),
    )
    declarations, module_files = extract_modules(
        inlined, instances if modules else (), convert_again
    )
    return replace(conversion, declarations=declarations, modules=module_files)


@dataclass(slots=True)
class TerraformConverter:
    files: TerraformFiles
    folder: Path
    boundaries: Mapping[str, ModuleReference] = field(default_factory=dict)
    """The inputs and outputs of modules by the locals that `modules` makes of them.

    Empty to convert the modules' resources as resources of the root module.
    """
    omissions: Diagnostics = field(default_factory=Diagnostics)
    secrets: SecretValues = field(default_factory=SecretValues)
    variables: TerraformVariables = field(init=False)
    references: InstanceReferences = field(init=False)

    def __post_init__(self) -> None:
        self.variables = TerraformVariables(self.files, self.secrets)

    def convert(self) -> TerraformConversion:
        """Return the declarations for the Terraform files and state, with all omissions.

        Resources and outputs that cannot be converted become omissions.
        """
        resources = list(
            _pair_blocks_with_instances(self.files, self.folder, self._report_omission)
        )
        self.references = InstanceReferences(
            {(instance.type, instance.name, instance.key): instance for _, instance in resources},
            self.files.data_sources,
        )
        entries = []
        # The settings of single nodes are known before the entries of their pools are built.
        for block, instance in sorted(
            resources, key=lambda resource: not TERRAFORM_TYPES[resource[1].type].is_attached
        ):
            try:
                # One incomplete entry must not stop the conversion: the others are still useful.
                if TERRAFORM_TYPES[instance.type].is_attached:
                    self._convert_attached(block, instance)
                else:
                    entries.append(self._build_entry(block, instance))
            except IncompleteEntry as reason:
                self._report_omission(block.position, f"{instance.address}: {reason}")
        entries = self._remove_broken_entries(entries)
        outputs = dict(self._convert_outputs({entry.address for entry in entries}))
        variables = [*self.variables.used.values(), *self.secrets.list_variables()]
        # An argument may be replaced by what the state has, and an entry left out.
        values = [[dict(entry.properties), dict(entry.options)] for entry in entries]
        used_names = {
            reference.name for reference in find_references([*values, outputs], ConfigReference)
        }
        declarations = Declarations(
            entries, [variable for variable in variables if variable.name in used_names], outputs
        )
        missing_secrets = {
            name: value for name, value in self.secrets.missing_values.items() if name in used_names
        }
        return TerraformConversion(
            declarations, list(self.omissions), missing_secrets, len(entries)
        )

    def _convert_attached(self, block: TerraformBlock, instance: ResourceInstance) -> None:
        """Keep the public IPs that an attached resource gives to nodes, as settings of these nodes.

        The move of a node to another fabric is found through `find_move`. Arguments and nodes that
        cannot be converted become omissions.
        """
        for argument in block.body.keys() & {*META_ARGUMENTS} - _ATTACHED_ARGUMENTS:
            self._report_omission(
                block.find_argument_position(argument),
                f"{instance.address}: {argument} was not converted",
            )
        is_public_ip = instance.type == PUBLIC_NAT_IP
        for node_id, node in self.references.find_nodes(instance):
            if node is None:
                how = (
                    "with nat_enabled and public_ip_address_id"
                    if is_public_ip
                    else "with the cluster_fabric_id of its fabric"
                )
                self._report_omission(
                    block.position,
                    f"{instance.address}: no converted resource has the node {node_id}",
                    f"declare the node by hand, {how}",
                )
            elif is_public_ip:
                arguments = self._create_converter(block, instance, instance.attributes)
                name = "public_ip_address_id"
                # The state has the id in any case.
                id_ = arguments.convert_argument(name, block.body.get(name), FieldRules())
                self.references.node_settings[node_id] = {"nat_enabled": True, name: id_}

    def _create_converter(
        self, block: TerraformBlock, instance: ResourceInstance, attributes: Mapping[str, Any]
    ) -> ArgumentConverter:
        resolver = self.create_resolver(block, instance)
        return ArgumentConverter(
            block, instance, resolver, attributes, self.variables, self._report_omission
        )

    def _report_omission(self, position: SourcePosition, message: str, hint: str = "") -> None:
        self.omissions.add(position, "terraform", message, hint)

    def _build_entry(self, block: TerraformBlock, instance: ResourceInstance) -> ResourceEntry:
        """Return the entry of one instance, which imports its object.

        If none of the required alternatives has a value, the last one becomes configuration for the
        user to set.

        Raises:
            IncompleteEntry: neither the files nor the state have a required value, the id or the
                fabric.
        """
        terraform_type, reference = TERRAFORM_TYPES[instance.type], self.references.get(instance)
        move = self.references.find_move(instance)
        if move is not None:
            instance = move.apply_to(instance)
        inputs = load_lifecycle_class(
            terraform_type.platform, SECTIONS[terraform_type.section]
        ).inputs
        rules = get_field_rules(inputs)
        attributes = flatten_attributes(instance.attributes, terraform_type)
        arguments = self._create_converter(block, instance, attributes)
        properties = arguments.convert_properties(rules)
        properties = {
            **terraform_type.complete_properties(properties, attributes),
            **terraform_type.derive_properties(instance.attributes, self.references.node_settings),
        }
        if move is not None:
            properties.pop("cluster_fabric_id", None)
            properties["cluster_fabric_name"] = self._convert_fabric(move)
        alternatives = terraform_type.required_alternatives
        if alternatives and not properties.keys() & set(alternatives):
            properties[alternatives[-1]] = arguments.require_from_user(alternatives[-1])
        for name, model_field in inputs.model_fields.items():
            if model_field.is_required() and name not in properties:
                properties[name] = arguments.find_required_value(name, rules[name])
        id_ = terraform_type.build_id(properties, instance.attributes)
        if id_ is None:
            raise IncompleteEntry("the state does not contain its id")
        if terraform_type.section == "node_pools" and has_zones(properties):
            self._report_omission(
                block.position,
                f"{instance.address}: its zone needs version 1.3 of SCP's API",
                "run `gpuform config set scp:apiVersion 1.3`, or remove the zone",
            )
        properties = correct_case(properties, inputs)
        options = {"import": id_, **arguments.convert_meta_arguments()}
        return ResourceEntry(
            reference.section, reference.name, terraform_type.platform, properties, options
        )

    def _convert_fabric(self, move: PoolMove) -> Value:
        """Return the fabric of a moved pool: a reference to another pool, or the fabric's name."""
        block = next(
            block
            for block in self.files.find_blocks("resource")
            if block.labels == (move.member.type, move.member.name)
        )
        with suppress(UnresolvedExpression):
            fabric_id = self.create_resolver(block, move.member).resolve(
                block.body.get("after_cluster_fabric_id")
            )
            # A moved pool may refer to this one.
            if (
                isinstance(fabric_id, DeclaredReference)
                and fabric_id.steps == ("cluster_fabric_id",)
                and not self.references.is_moved(fabric_id)
            ):
                return replace(fabric_id, steps=("cluster_fabric_name",))
        return move.fabric_name

    def _find_data(self, steps: Sequence[Step], code: str) -> Value:
        """Return the part of a data source's result at `steps`, the steps after `data`.

        The position of the data source is reported. Raises UnresolvedExpression, with `code`, if
        the state has no such value.
        """
        sources = DataSources(self.files, self.create_resolver(), self._report_omission)
        return sources.find_value(steps, code)

    def create_resolver(
        self,
        block: TerraformBlock | None = None,
        instance: ResourceInstance | ModuleInstance | None = None,
    ) -> ExpressionResolver:
        """Create the resolver of expressions, with `count` and `each` of an instance if given.

        Without a block and an instance, as for outputs, `count` and `each` are not known.
        """
        key = instance.key if instance else None
        each_value = None
        if block is not None and "for_each" in block.body:
            # An undeclared variable leaves only `each.value` unresolved.
            with suppress(UnresolvedExpression):
                each_value = find_each_value(
                    block.body["for_each"], str(key), self.files.get_local, self.variables.is_set
                )
        return ExpressionResolver(
            self.references.find_references,
            self.variables.get_reference,
            self._get_local_or_boundary,
            key,
            each_value,
            self._find_data,
        )

    def _get_local_or_boundary(self, name: str) -> Any:
        return self.boundaries.get(name) or self.files.get_local(name)

    def resolve_expression_of_local(self, name: str) -> Value:
        """Return the value of a local, which may be a module's input or output itself.

        Raises UnresolvedExpression if it has no equivalent.
        """
        return self.create_resolver().resolve(self.files.get_local(name))

    def list_modules(self) -> dict[str, str]:
        """Return the outermost module of each entry by address, also of repeated entries."""
        modules = {block.labels: block.module for block in self.files.find_blocks("resource")}
        return {
            address: modules[type_, name]
            for (type_, name, _), reference in self.references.by_key.items()
            if not TERRAFORM_TYPES[type_].is_attached
            for address in (f"{reference.section}.{reference.name}", f"{reference.section}.{name}")
        }

    def _remove_broken_entries(self, entries: list[ResourceEntry]) -> list[ResourceEntry]:
        """Return the entries whose references all exist; the others are omissions."""
        while True:
            # An entry that is removed here may break references of further entries.
            addresses = {entry.address for entry in entries}
            broken_references = {
                entry.address: f"{reference.section}.{reference.name}"
                for entry in entries
                for reference in find_references(
                    [dict(entry.properties), dict(entry.options)], DeclaredReference
                )
                if f"{reference.section}.{reference.name}" not in addresses
            }
            if not broken_references:
                return entries
            for address, missing_address in broken_references.items():
                position = SourcePosition(str(self.folder), NOWHERE)
                self._report_omission(
                    position, f"{address} refers to {missing_address}, which was not converted"
                )
            entries = [entry for entry in entries if entry.address not in broken_references]

    def _convert_outputs(self, addresses: set[str]) -> Iterator[tuple[str, Value]]:
        """Yield name and value of each output that can be converted; others become omissions.

        `addresses` are those of the converted entries. A sensitive output has to be secret.
        """
        resolver = self.create_resolver()
        for block in self.files.find_blocks("output"):
            name = ".".join(block.labels)
            try:
                value = resolver.resolve(block.body.get("value"))
            except UnresolvedExpression as code:
                self._report_omission(block.position, f"output {name} was not converted: {code}")
                continue
            references = find_references(value, DeclaredReference)
            if not all(f"{it.section}.{it.name}" in addresses for it in references):
                self._report_omission(
                    block.position, f"output {name} refers to a resource that was not converted"
                )
                continue
            # Terraform hides a sensitive output; a topology shows an output unless its value is
            # secret.
            if block.body.get("sensitive") is True:
                value = self.variables.hide_literals(("output", name), value)
                if not self._is_secret(value):
                    reason = "it is sensitive, but its value is not secret"
                    self._report_omission(
                        block.position, f"output {name} was not converted: {reason}"
                    )
                    continue
            yield name, value

    def _is_secret(self, value: Value) -> bool:
        """Return True if the value refers to a configuration variable or to a secret property.

        Call after `hide_literals`, which makes every configuration variable in the value secret
        and replaces each literal with a reference to such a variable.
        """
        # Whether a module's output is secret, the conversion without boundaries has found out.
        if any(find_references(value, ConfigReference, ModuleReference)):
            return True
        sections = {kind.section: kind.platform for kind in TERRAFORM_TYPES.values()}
        return any(
            reference.steps
            and reference.steps[0]
            in load_lifecycle_class(
                sections[reference.section], SECTIONS[reference.section]
            ).list_secret_names()
            for reference in find_references(value, DeclaredReference)
        )


def _pair_blocks_with_instances(
    files: TerraformFiles, folder: Path, report_omission: ReportOmission
) -> Iterator[tuple[TerraformBlock, ResourceInstance]]:
    """Yield each block of a known type with each instance; others become omissions."""
    state_position = SourcePosition(str(folder / STATE_FILE_NAME), NOWHERE)
    blocks = {block.labels: block for block in files.find_blocks("resource")}
    for block in files.find_blocks("module"):
        report_omission(
            block.position,
            f"module {'.'.join(block.labels)} was not converted: copy it into a folder, and name "
            "the folder in `source`",
        )
    instance_names = {
        (instance.type, instance.name) for instance in files.instances if not instance.module
    }
    for labels, block in blocks.items():
        # A block that was never applied has no object to import.
        if len(labels) == 2 and labels[0] in TERRAFORM_TYPES and labels not in instance_names:
            report_omission(block.position, f"{'.'.join(labels)} has no object in the state")
        elif len(labels) != 2 or labels[0] not in TERRAFORM_TYPES:
            report_omission(
                block.position, f"{'.'.join(labels)} has a type that gpuform does not support"
            )
    for instance in files.instances:
        block_of_instance = blocks.get((instance.type, instance.name))
        if instance.module or (block_of_instance is None and instance.type in TERRAFORM_TYPES):
            report_omission(
                state_position, f"{instance.address} is in the state but not in these files"
            )
        elif block_of_instance is not None and instance.type in TERRAFORM_TYPES:
            yield block_of_instance, instance
