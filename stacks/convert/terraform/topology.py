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
from gpuform.stacks.convert.terraform.data_sources import DataSources
from gpuform.stacks.convert.terraform.expressions import (
    META_ARGUMENTS,
    SPLAT,
    ExpressionResolver,
    ReportOmission,
    TerraformVariables,
    UnresolvedExpression,
    convert_meta_arguments,
    find_each_value,
    strip_interpolation,
)
from gpuform.stacks.convert.terraform.files import (
    STATE_FILE_NAME,
    ResourceInstance,
    TerraformBlock,
    TerraformFiles,
    read_terraform_files,
)
from gpuform.stacks.convert.terraform.folding import RepeatedResource
from gpuform.stacks.convert.terraform.module_files import InlinedConversion, extract_modules
from gpuform.stacks.convert.terraform.modules import ModuleInstance, apply_moves, inline_modules
from gpuform.stacks.convert.terraform.pool_attachments import (
    IncompleteEntry,
    PoolAttachments,
    PoolMove,
)
from gpuform.stacks.convert.terraform.resource_types import (
    FABRIC_MEMBER,
    PUBLIC_NAT_IP,
    TERRAFORM_TYPES,
    Step,
    TerraformType,
    correct_case,
    flatten_attributes,
    get_node_key,
    has_zones,
    is_plain,
    to_hcl_literal,
)
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    Declarations,
    DeclaredReference,
    InterpolatedText,
    ModuleReference,
    Reference,
    ResourceEntry,
    Value,
    find_config_references,
    find_module_references,
    find_resource_references,
)
from gpuform.stacks.document.diagnostics import Diagnostics, DocumentDiagnostic, SourcePosition

Key = tuple[str, str, Step | None]

ArgumentSource = tuple[TerraformBlock, ResourceInstance, ExpressionResolver, Mapping[str, Any]]
"""Where arguments come from: the block, the instance, its resolver, and the state's attributes."""

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
    ) -> tuple[_TerraformConverter, Declarations]:
        converter = _TerraformConverter(files, folder, boundaries)
        return converter, converter.convert().declarations

    try:
        converter = _TerraformConverter(files, folder)
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
        converter.list_repeated_resources(),
    )
    declarations, module_files = extract_modules(
        inlined, instances if modules else (), convert_again
    )
    return replace(conversion, declarations=declarations, modules=module_files)


@dataclass(slots=True)
class _TerraformConverter:
    files: TerraformFiles
    folder: Path
    boundaries: Mapping[str, ModuleReference] = field(default_factory=dict)
    """The inputs and outputs of modules by the locals that `modules` makes of them.

    Empty to convert the modules' resources as resources of the root module.
    """
    omissions: Diagnostics = field(default_factory=Diagnostics)
    secrets: SecretValues = field(default_factory=SecretValues)
    variables: TerraformVariables = field(init=False)
    attachments: PoolAttachments = field(init=False)
    node_settings: dict[str, Mapping[str, Value]] = field(default_factory=dict)
    """Settings of single nodes by their ids."""
    instances: dict[Key, ResourceInstance] = field(default_factory=dict)
    references: dict[Key, DeclaredReference] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.variables = TerraformVariables(self.files, self.secrets)

    def convert(self) -> TerraformConversion:
        """Return the declarations for the Terraform files and state, with all omissions.

        Resources and outputs that cannot be converted become omissions.
        """
        resources = list(
            _pair_blocks_with_instances(self.files, self.folder, self._report_omission)
        )
        self.instances = {_get_key(instance): instance for _, instance in resources}
        self.attachments = PoolAttachments(list(self.instances.values()), self.files.data_sources)
        self._assign_references()
        entries = []
        # The settings of single nodes are known before the entries of their pools are built.
        for block, instance in sorted(resources, key=_is_entry):
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
        used_names = {reference.name for reference in find_config_references([*values, outputs])}
        declarations = Declarations(
            entries, [variable for variable in variables if variable.name in used_names], outputs
        )
        missing_secrets = {
            name: value for name, value in self.secrets.missing_values.items() if name in used_names
        }
        return TerraformConversion(
            declarations, list(self.omissions), missing_secrets, len(entries)
        )

    def list_repeated_resources(self) -> list[RepeatedResource]:
        """Return the resources with `count` or `for_each`, with the names of their entries."""
        names: dict[tuple[str, str], dict[str, str]] = {}
        for (type_, name, key), reference in self.references.items():
            if key is not None and not TERRAFORM_TYPES[type_].is_attached:
                names.setdefault((type_, name), {})[str(key)] = reference.name
        return [
            RepeatedResource(TERRAFORM_TYPES[type_].section, name, names_by_key)
            for (type_, name), names_by_key in names.items()
        ]

    def _assign_references(self) -> None:
        """Assign the reference of each instance, before the first entry is built.

        Terraform's resources refer to later ones too. The reference of an attached resource is the
        pool, or the node of the pool.
        """
        for key, instance in self.instances.items():
            # The option `import` takes one id, so each instance of `count` or `for_each` becomes an
            # entry of its own.
            name = instance.name if instance.key is None else f"{instance.name}-{instance.key}"
            if not TERRAFORM_TYPES[instance.type].is_attached:
                section = TERRAFORM_TYPES[instance.type].section
                self.references[key] = DeclaredReference(section, name)
        nodes = {
            key: node
            for key, instance in self.instances.items()
            if TERRAFORM_TYPES[instance.type].is_attached
            for _, node in self.attachments.find_nodes(instance)
            if node is not None
        }
        # The settings decide the keys of nodes, and their values may refer to other resources.
        self.node_settings |= {
            node.id: {} for (type_, _, _), node in nodes.items() if type_ == PUBLIC_NAT_IP
        }
        for key, node in nodes.items():
            pool = self.references[_get_key(node.pool)]
            node_key = get_node_key(node.pool.attributes, node.name, self.node_settings)
            steps = ("gpu_nodes", node_key) if key[0] == PUBLIC_NAT_IP else ()
            self.references[key] = DeclaredReference(pool.section, pool.name, steps)

    def _convert_attached(self, block: TerraformBlock, instance: ResourceInstance) -> None:
        """Keep what an attached resource declares about nodes; the rest becomes omissions."""
        for argument in block.body.keys() & {*META_ARGUMENTS} - _ATTACHED_ARGUMENTS:
            self._report_omission(
                block.find_argument_position(argument),
                f"{instance.address}: {argument} was not converted",
            )
        for node_id, node in self.attachments.find_nodes(instance):
            if node is None:
                self._report_omission(
                    block.position,
                    f"{instance.address}: no converted resource has the node {node_id}",
                    "declare the node by hand, "
                    + (
                        "with nat_enabled and public_ip_address_id"
                        if instance.type == PUBLIC_NAT_IP
                        else "with the cluster_fabric_id of its fabric"
                    ),
                )
            elif instance.type == PUBLIC_NAT_IP:
                self.node_settings[node_id] = {
                    "nat_enabled": True,
                    "public_ip_address_id": self._convert_public_ip(block, instance),
                }

    def _convert_public_ip(self, block: TerraformBlock, instance: ResourceInstance) -> Value:
        """Return the id of the public IP of a public NAT IP; the state has it in any case."""
        name = "public_ip_address_id"
        source = (block, instance, self.create_resolver(block, instance), instance.attributes)
        return self._convert_argument(block.body.get(name), name, FieldRules(), source)

    def _report_omission(self, position: SourcePosition, message: str, hint: str = "") -> None:
        """Add something that was not converted to the omissions."""
        self.omissions.add(position, "terraform", message, hint)

    def _build_entry(self, block: TerraformBlock, instance: ResourceInstance) -> ResourceEntry:
        """Return the entry of one instance, which imports its object.

        If none of the required alternatives has a value, the last one becomes configuration for the
        user to set.

        Raises:
            IncompleteEntry: neither the files nor the state have a required value, the id or the
                fabric.
        """
        terraform_type, reference = TERRAFORM_TYPES[instance.type], self._get_reference(instance)
        move = self.attachments.find_move(instance)
        if move is not None:
            instance = move.apply_to(instance)
        lifecycle = load_lifecycle_class(terraform_type.platform, SECTIONS[terraform_type.section])
        rules = get_field_rules(lifecycle.inputs)
        resolver = self.create_resolver(block, instance)
        attributes = flatten_attributes(instance.attributes, terraform_type)
        properties = self._convert_arguments((block, instance, resolver, attributes), rules)
        properties = {
            **terraform_type.complete_properties(properties, attributes),
            **terraform_type.derive_properties(instance.attributes, self.node_settings),
        }
        if move is not None:
            properties.pop("cluster_fabric_id", None)
            properties["cluster_fabric_name"] = self._convert_fabric(move)
        if terraform_type.required_alternatives and not any(
            name in properties for name in terraform_type.required_alternatives
        ):
            properties |= self._require_from_user(
                block, instance, terraform_type.required_alternatives[-1]
            )
        for name, model_field in lifecycle.inputs.model_fields.items():
            if model_field.is_required() and name not in properties:
                properties[name] = self._find_required_value(
                    name, rules[name], instance, attributes
                )
        id_ = terraform_type.build_id(properties, instance.attributes)
        if id_ is None:
            raise IncompleteEntry("the state does not contain its id")
        if terraform_type.section == "node_pools" and has_zones(properties):
            self._report_omission(
                block.position,
                f"{instance.address}: its zone needs version 1.3 of SCP's API",
                "run `gpuform config set scp:apiVersion 1.3`, or remove the zone",
            )
        properties = correct_case(properties, lifecycle.inputs)
        options = {
            "import": id_,
            **convert_meta_arguments(block, resolver, self._report_omission, terraform_type),
        }
        return ResourceEntry(
            reference.section, reference.name, terraform_type.platform, properties, options
        )

    def _convert_arguments(
        self, source: ArgumentSource, rules: Mapping[str, FieldRules]
    ) -> dict[str, Value]:
        """Return the properties for the arguments of a block; `rules` are those of properties.

        Null arguments are left out; an argument without a property becomes an omission.

        Raises:
            IncompleteEntry: neither an argument nor the state has a value for a property.
        """
        block, instance, resolver, attributes = source
        terraform_type = TERRAFORM_TYPES[instance.type]
        properties: dict[str, Value] = {}
        for argument, raw in self._iterate_arguments(block, terraform_type, resolver, attributes):
            name = terraform_type.get_property_name(argument)
            if name not in rules:
                self._report_omission(
                    block.find_argument_position(argument),
                    f"{instance.address}: gpuform has no property for {argument}",
                )
                continue
            value = self._convert_argument(raw, argument, rules[name], source)
            if value is not None:
                properties[name] = terraform_type.convert_value(name, value)
        return properties

    def _convert_fabric(self, move: PoolMove) -> Value:
        """Return the name of the fabric of a moved pool: a reference to another pool, or a text."""
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
                and not self._is_moved(fabric_id)
            ):
                return replace(fabric_id, steps=("cluster_fabric_name",))
        return move.fabric_name

    def _is_moved(self, reference: DeclaredReference) -> bool:
        """Return True if a cluster fabric member moves the pool of a reference."""
        return any(
            node is not None and self.references[_get_key(node.pool)].name == reference.name
            for instance in self.instances.values()
            if instance.type == FABRIC_MEMBER
            for _, node in self.attachments.find_nodes(instance)
        )

    def _get_reference(self, instance: ResourceInstance) -> DeclaredReference:
        """Return the reference assigned to a resource instance of the state."""
        return self.references[_get_key(instance)]

    def _iterate_arguments(
        self,
        block: TerraformBlock,
        terraform_type: TerraformType,
        resolver: ExpressionResolver,
        attributes: Mapping[str, Any],
    ) -> Iterator[tuple[str, Any]]:
        """Yield names and raw values of the arguments of a block, without meta-arguments.

        The members of a nested argument are yielded as arguments of their own. If the nested
        argument is an expression without an equivalent, the members have the values in
        `attributes`, the state's, and an omission is reported.
        """
        for name, raw in block.body.items():
            if name in META_ARGUMENTS or name in terraform_type.ignored_arguments:
                continue
            if name not in terraform_type.nested_arguments:
                yield name, raw
            elif isinstance(raw, Mapping):
                yield from raw.items()
            else:
                code = strip_interpolation(str(raw))
                nested_object = attributes.get(name) or {}
                members = {member: f"${{{code}.{member}}}" for member in nested_object}
                resolvable = {
                    member: path for member, path in members.items() if resolver.can_resolve(path)
                }
                # The state also has members that the provider computes.
                if resolvable:
                    yield from resolvable.items()
                    continue
                self._report_omission(
                    block.find_argument_position(name),
                    f"{'.'.join(block.labels)}: {name} has the state's value instead of {code}",
                )
                for member, value in nested_object.items():
                    yield member, to_hcl_literal(value)

    def _convert_argument(
        self,
        raw: Any,
        name: str,
        rules: FieldRules,
        source: ArgumentSource,
    ) -> Value:
        """Return the value of an argument.

        If the expression has no equivalent, returns the value in Terraform's state and reports an
        omission. Without a value in the state, a secret becomes configuration for the user to set,
        and one of the required alternatives becomes None.

        Args:
            raw: the expression.
            name: the argument's name in Terraform.
            rules: the rules of the property.
            source: the block and the instance of the argument.

        Raises:
            IncompleteEntry: the state has no value either, and the property is not a secret.
        """
        block, instance, resolver, attributes = source
        terraform_type = TERRAFORM_TYPES[instance.type]
        # A user may give a sensitive value to a public argument: the state lists the attribute as
        # sensitive.
        is_secret = rules.holds_secret or name in instance.sensitive
        try:
            value = _resolve_argument(
                resolver,
                raw,
                is_reworded=terraform_type.get_property_name(name)
                in terraform_type.reworded_properties,
            )
        except UnresolvedExpression as code:
            state_value = attributes.get(terraform_type.get_property_name(name))
            if state_value is None:
                # Without the argument the user is asked for a value.
                if name in terraform_type.required_alternatives:
                    return None
                if rules.secret:
                    return self._declare_secret(name)
                raise IncompleteEntry(
                    f"{name} is {code}, and the state does not contain its value"
                ) from None
            # The expression may contain the secret as a literal, and omissions are printed.
            expression_label = "the written expression" if is_secret else code
            message = (
                f"{instance.address}: {name} has the state's value instead of {expression_label}"
            )
            self._report_omission(block.find_argument_position(name), message)
            value = state_value
        return self._convert_secret((instance.name, name), value) if is_secret else value

    def _convert_secret(self, name: tuple[str, str], value: Value) -> Value:
        """Return the value with secret configuration in place of each literal part.

        References to resources and variables are kept, and the variables become secret. `name` is
        the pair of names from which the names of new variables are made.
        """
        # The files may declare a variable as public although a secret property uses it.
        for variable in find_config_references(value):
            self.variables.make_secret(variable.name)
        if isinstance(value, InterpolatedText):
            return self.secrets.replace_literal_parts(name, value)
        if isinstance(value, Reference):
            return value
        finders = (find_resource_references, find_config_references, find_module_references)
        if any(any(find(value)) for find in finders):
            if isinstance(value, Mapping):
                return {
                    key: self._convert_secret((name[0], f"{name[1]}_{key}"), value[key])
                    for key in value
                }
            return [self._convert_secret(name, item) for item in value]
        return self.secrets.get_reference(name, value)

    def _find_required_value(
        self,
        name: str,
        rules: FieldRules,
        instance: ResourceInstance,
        attributes: Mapping[str, Any],
    ) -> Value:
        """Return the state's value of a required property without a value in the files.

        A secret without a value becomes configuration that the user sets.
        """
        value = attributes.get(name)
        if value is not None:
            is_secret = rules.holds_secret or name in instance.sensitive
            return self._convert_secret((instance.name, name), value) if is_secret else value
        if rules.secret:
            return self._declare_secret(name)
        raise IncompleteEntry(f"neither the files nor the state contain its {name}")

    def _require_from_user(
        self, block: TerraformBlock, instance: ResourceInstance, name: str
    ) -> Mapping[str, Value]:
        """Return a property with configuration for the user to set, and report an omission."""
        self.variables.used.setdefault(name, ConfigEntry(name, {"type": "string"}))
        self._report_omission(
            block.position,
            f"{instance.address}: neither the files nor the state contain its {name}: set it with "
            f"`gpuform config set {name} VALUE`",
        )
        return {name: ConfigReference(name)}

    def _declare_secret(self, name: str) -> ConfigReference:
        """Return the reference to secret configuration for the user to set."""
        self.secrets.declare_variable(name)
        return ConfigReference(name)

    def _find_data(self, steps: Sequence[Step], code: str) -> Value:
        """Return the value of a data source at the steps behind `data`, and report the source.

        Raises UnresolvedExpression, with `code`, if the state has no such value.
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
                    block.body["for_each"], str(key), self._get_local, self.variables.is_set
                )
        return ExpressionResolver(
            self._find_references,
            self.variables.get_reference,
            self._get_local_or_boundary,
            key,
            each_value,
            self._find_data,
        )

    def _get_local(self, name: str) -> Any:
        """Return the raw expression of a local value.

        Raises UnresolvedExpression if none is declared.
        """
        for block in self.files.find_blocks("locals"):
            if name in block.body:
                return block.body[name]
        raise UnresolvedExpression(f"local.{name}")

    def _get_local_or_boundary(self, name: str) -> Any:
        """Return the reference to an input or output of a module, or the expression of a local."""
        return self.boundaries.get(name) or self._get_local(name)

    def resolve_expression_of_local(self, name: str) -> Value:
        """Return the value of a local, which may be a module's input or output itself.

        Raises UnresolvedExpression if it has no equivalent.
        """
        return self.create_resolver().resolve(self._get_local(name))

    def list_modules(self) -> dict[str, str]:
        """Return the outermost module of each entry by address, also of repeated entries."""
        modules = {block.labels: block.module for block in self.files.find_blocks("resource")}
        return {
            address: modules[type_, name]
            for (type_, name, _), reference in self.references.items()
            if not TERRAFORM_TYPES[type_].is_attached
            for address in (f"{reference.section}.{reference.name}", f"{reference.section}.{name}")
        }

    def _find_references(self, root: str, steps: Sequence[Step]) -> Value:
        """Return the reference for a path, or those of all instances for TYPE.NAME[*].

        Returns None if there is no reference, as `_find_reference`.
        """
        if list(steps[1:2]) != [SPLAT]:
            return self._find_reference(root, steps)
        # Terraform has the instances in the order of their keys.
        keys = sorted(
            (
                key
                for type_, name, key in self.references
                if (type_, name) == (root, steps[0]) and key is not None
            ),
            key=lambda key: (isinstance(key, str), key),
        )
        references = [self._find_reference(root, [steps[0], key, *steps[2:]]) for key in keys]
        return references if references and None not in references else None

    def _find_reference(self, root: str, steps: Sequence[Step]) -> DeclaredReference | None:
        """Return the reference for a path such as TYPE.NAME[KEY].ATTRIBUTE, or None.

        Returns None if the resource is not converted, or if no property has the value of the
        attribute. `root` is TYPE, `steps` are the other parts.
        """
        if root not in TERRAFORM_TYPES or not steps:
            return None
        remaining_steps = list(steps[1:])
        # Behind a resource's name comes the key of an instance or an attribute: only the state's
        # keys show which.
        key = (
            remaining_steps.pop(0)
            if remaining_steps and (root, str(steps[0]), remaining_steps[0]) in self.references
            else None
        )
        instance_key = (root, str(steps[0]), key)
        reference = self.references.get(instance_key)
        if reference is None:
            return None
        terraform_type = TERRAFORM_TYPES[root]
        if not remaining_steps or (
            len(remaining_steps) == 1 and remaining_steps[0] in terraform_type.id_attributes
        ):
            return replace(reference, steps=())
        path = terraform_type.convert_path(
            remaining_steps, self.instances[instance_key].attributes, self.node_settings
        )
        if path is None:
            return None
        if terraform_type.is_attached:
            name = terraform_type.property_names.get(str(path[0]))
            return None if name is None else replace(reference, steps=(*reference.steps, name))
        property_names = load_lifecycle_class(
            terraform_type.platform, SECTIONS[terraform_type.section]
        ).list_property_names()
        name = terraform_type.get_property_name(str(path[0]))
        # A reworded property has another value here than in Terraform.
        if name not in property_names or name in terraform_type.reworded_properties:
            return None
        return DeclaredReference(reference.section, reference.name, (name, *path[1:]))

    def _remove_broken_entries(self, entries: list[ResourceEntry]) -> list[ResourceEntry]:
        """Return the entries whose references all exist; the others are omissions."""
        while True:
            # An entry that is removed here may break references of further entries.
            addresses = {entry.address for entry in entries}
            broken_references = {
                entry.address: f"{reference.section}.{reference.name}"
                for entry in entries
                for reference in find_resource_references(
                    [dict(entry.properties), dict(entry.options)]
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
            if not all(
                f"{reference.section}.{reference.name}" in addresses
                for reference in find_resource_references(value)
            ):
                self._report_omission(
                    block.position, f"output {name} refers to a resource that was not converted"
                )
                continue
            # Terraform hides a sensitive output; a topology shows an output unless its value is
            # secret.
            if block.body.get("sensitive") is True:
                value = self._convert_secret(("output", name), value)
                if not self._is_secret(value):
                    reason = "it is sensitive, but its value is not secret"
                    self._report_omission(
                        block.position, f"output {name} was not converted: {reason}"
                    )
                    continue
            yield name, value

    def _is_secret(self, value: Value) -> bool:
        """Return True if the value refers to a configuration variable or to a secret property.

        Call after `_convert_secret`, which makes every configuration variable in the value secret
        and replaces each literal with a reference to such a variable.
        """
        # Whether a module's output is secret, the conversion without boundaries has found out.
        if any(find_config_references(value)) or any(find_module_references(value)):
            return True
        sections = {kind.section: kind.platform for kind in TERRAFORM_TYPES.values()}
        return any(
            reference.steps
            and reference.steps[0]
            in load_lifecycle_class(
                sections[reference.section], SECTIONS[reference.section]
            ).list_secret_names()
            for reference in find_resource_references(value)
        )


def _is_entry(resource: tuple[TerraformBlock, ResourceInstance]) -> bool:
    """Return True if a resource becomes an entry of its own."""
    return not TERRAFORM_TYPES[resource[1].type].is_attached


def _get_key(instance: ResourceInstance) -> Key:
    """Return type, name and key of an instance."""
    return instance.type, instance.name, instance.key


def _resolve_argument(resolver: ExpressionResolver, raw: Any, *, is_reworded: bool) -> Value:
    """Return the value of an argument; a reworded argument must be plain.

    Raises:
        UnresolvedExpression: the value has no equivalent, or a reworded argument has a reference.
    """
    value = resolver.resolve(raw)
    if is_reworded and not is_plain(value):
        expression = str(raw)
        raise UnresolvedExpression(
            expression[2:-1]
            if expression.startswith("${") and expression.endswith("}")
            else expression
        )
    return value


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
