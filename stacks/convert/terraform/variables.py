"""Give the values of Terraform's variables and data sources.

`topology` creates one `TerraformVariables` for a conversion. A topology declares no data sources:
the state's value of one becomes a literal, and a note names the look-up that gives it in each run.
The types of data sources are those of SamsungSDSCloud/samsungcloudplatformv2 6.x (its source,
service/multinodegpucluster/*_datasource*.go); other types get a note without a look-up.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from gpuform.stacks.convert.secret_values import VALUE_TYPES, SecretValues
from gpuform.stacks.convert.terraform.expressions import (
    SPLAT,
    ExpressionResolver,
    ReportOmission,
    UnresolvedExpression,
    resolve_literal,
    select_part,
    strip_interpolation,
)
from gpuform.stacks.convert.terraform.files import ResourceInstance, TerraformBlock, TerraformFiles
from gpuform.stacks.convert.terraform.resource_types import Step
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    DeclaredReference,
    InterpolatedText,
    ModuleReference,
    Reference,
    Value,
    find_references,
)
from gpuform.stacks.declaration_writer.topology_yaml import render_expression

_CONFIG_TYPES: Final = {"string": "string", "bool": "boolean", "number": "number"}
_LIST_TYPES: Final = ("list", "set", "tuple")
_OBJECT_TYPES: Final = ("map", "object")


@dataclass(slots=True)
class TerraformVariables:
    """The variables that the converted entries use, in the order of their first use.

    A variable without a value stays without a default: the user sets it.
    """

    files: TerraformFiles
    secrets: SecretValues
    used: dict[str, ConfigEntry] = field(default_factory=dict)

    def get_reference(self, name: str, steps: Sequence[Step] = ()) -> ConfigReference:
        """Return the reference to a variable's part at the steps, and declare the variable.

        Raises:
            UnresolvedExpression: the files declare no variable of this name, or its value has no
                such part, as for an optional attribute with a default.
        """
        block = self._require_block(name)
        value = self._get_value(name, block)
        code = ".".join(map(str, ("var", name, *steps)))
        # An expression of a topology has no step for all items.
        if SPLAT in steps:
            raise UnresolvedExpression(code)
        if value is not None:
            select_part(value, steps, code)
        if name not in self.used:
            self.used[name] = self._convert_variable(name, block)
        return ConfigReference(name, tuple(steps))

    def is_set(self, name: str) -> bool:
        """Return True if the Terraform files declare the variable as a set.

        Raises UnresolvedExpression if the files declare no such variable.
        """
        type_ = strip_interpolation(str(self._require_block(name).body.get("type") or ""))
        return type_.startswith("set(")

    def _require_block(self, name: str) -> TerraformBlock:
        """Return the block of a variable. Raises UnresolvedExpression if there is none."""
        for block in self.files.find_blocks("variable"):
            if block.labels == (name,):
                return block
        raise UnresolvedExpression(f"var.{name}")

    def _get_value(self, name: str, block: TerraformBlock) -> Value:
        # The value that made the existing objects: .tfvars override the default.
        raw = self.files.variable_values.get(name, block.body.get("default"))
        return None if raw is None else resolve_literal(raw)

    def _convert_variable(self, name: str, block: TerraformBlock) -> ConfigEntry:
        """Return the configuration entry of a variable, whose default is the value from the files.

        A sensitive or ephemeral variable becomes a secret without a default.
        """
        value = self._get_value(name, block)
        fields: dict[str, Value] = {}
        if (type_ := find_config_type(block.body.get("type"), value)) != "string":
            fields["type"] = type_
        if isinstance(description := block.body.get("description"), str):
            fields["description"] = resolve_literal(description)
        if value is not None:
            fields["default"] = value
        # Terraform keeps an ephemeral value out of plan and state; as a plain default it would be
        # committed with the topology.
        is_hidden = block.body.get("sensitive") is True or block.body.get("ephemeral") is True
        variable = ConfigEntry(name, fields)
        return self._to_secret_entry(variable) if is_hidden else variable

    def _to_secret_entry(self, variable: ConfigEntry) -> ConfigEntry:
        """Return the variable as a secret one; the default becomes a missing secret value."""
        fields = {**variable.fields, "secret": True}
        value = fields.pop("default", None)
        if value is not None:
            plaintext = value if isinstance(value, str) else json.dumps(value)
            self.secrets.missing_values[variable.name] = plaintext
        return ConfigEntry(variable.name, fields)

    def declare_secret(self, name: str) -> ConfigReference:
        """Return the reference to secret configuration for the user to set."""
        self.secrets.declare_variable(name)
        return ConfigReference(name)

    def hide_literals(self, name: tuple[str, str], value: Value) -> Value:
        """Return the value with a secret configuration variable in place of each literal part.

        References to resources and variables are kept, and the variables become secret. `name` is
        the pair of names from which the names of new variables are made.
        """
        # The files may declare a variable as public although a secret property uses it.
        for variable in find_references(value, ConfigReference):
            self.used[variable.name] = self._to_secret_entry(self.used[variable.name])
        if isinstance(value, InterpolatedText):
            return self.secrets.replace_literal_parts(name, value)
        if isinstance(value, Reference):
            return value
        if any(find_references(value, DeclaredReference, ConfigReference, ModuleReference)):
            if isinstance(value, Mapping):
                return {
                    key: self.hide_literals((name[0], f"{name[1]}_{key}"), value[key])
                    for key in value
                }
            return [self.hide_literals(name, item) for item in value]
        return self.secrets.get_reference(name, value)


def find_config_type(raw: Any, value: Any) -> str:
    """Return the configuration type for a Terraform type, or else for the type of the value.

    A `number` is an integer if the value is one. Without a type and a value, it is `string`.
    """
    type_text = str(raw or "").removeprefix("${").removesuffix("}").strip()
    # Terraform has one type for all numbers; the value decides between the two types of a topology.
    if type_text == "number" and (value is None or isinstance(value, int)):
        return "integer" if isinstance(value, int) else "number"
    # Configuration has no type for items: `list(string)` becomes an array.
    name = type_text.partition("(")[0]
    if name in _LIST_TYPES:
        return "array"
    if name in _OBJECT_TYPES:
        return "object"
    return _CONFIG_TYPES.get(name) or VALUE_TYPES.get(type(value), "string")


@dataclass(frozen=True, slots=True)
class DataSourceLookup:
    """The look-up of a topology for a data source.

    `arguments` are those that the look-up takes as well. `filter` follows the call in the
    expression, and may contain the argument `{id}`.
    """

    function: str
    arguments: tuple[str, ...] = ()
    filter: str = ""


_PREFIX: Final = "samsungcloudplatformv2_multinodegpucluster_"
_BY_ID: Final = " | selectattr('id', 'eq', {id}) | first"
_IDS: Final = " | map(attribute='id') | list"

DATA_SOURCE_LOOKUPS: Final[Mapping[str, DataSourceLookup]] = {
    f"{_PREFIX}cluster_fabric": DataSourceLookup("scp.fabrics", filter=_BY_ID),
    f"{_PREFIX}cluster_fabrics": DataSourceLookup(
        "scp.fabrics", ("cluster_fabric_name", "state", "node_pool_id"), _IDS
    ),
    f"{_PREFIX}gpunode": DataSourceLookup("scp.gpu_nodes", filter=_BY_ID),
    f"{_PREFIX}gpunodes": DataSourceLookup(
        "scp.gpu_nodes",
        (
            *("gpu_node_name", "state", "ip", "vpc_id"),
            *("cluster_fabric_name", "cluster_fabric_id", "zone"),
        ),
        _IDS,
    ),
    f"{_PREFIX}gpunode_images": DataSourceLookup("scp.images", ("region_id",)),
    f"{_PREFIX}gpunode_products": DataSourceLookup("scp.products", ("type", "image_id")),
    f"{_PREFIX}node_pools": DataSourceLookup(
        "scp.node_pools",
        ("subnet_id", "cluster_fabric_id", "node_pool_id", "zone"),
        " | map(attribute='node_pool_id') | list",
    ),
}


@dataclass(slots=True)
class DataSources:
    """The results of the data sources in the state.

    `report_omission` gets position, message and hint for each source whose values are used.
    """

    files: TerraformFiles
    resolver: ExpressionResolver
    report_omission: ReportOmission

    def find_value(self, steps: Sequence[Step], code: str) -> Value:
        """Return the part of a data source's result at `steps`, and report that the value was used.

        Raises:
            UnresolvedExpression: the state has no such value, or it is null or sensitive; the error
                shows `code`.
        """
        instance, remaining_steps = self._find_instance(steps, code)
        # Terraform shows no part of a sensitive attribute.
        if instance.sensitive.intersection(map(str, remaining_steps or instance.sensitive)):
            raise UnresolvedExpression(code)
        value = select_part(dict(instance.attributes), remaining_steps, code)
        if value is None:
            raise UnresolvedExpression(code)
        self._report(instance)
        return value

    def _find_instance(
        self, steps: Sequence[Step], code: str
    ) -> tuple[ResourceInstance, Sequence[Step]]:
        """Return the instance that TYPE.NAME or TYPE.NAME[KEY] names, and the steps after it.

        Data sources of modules are not searched.

        Raises:
            UnresolvedExpression: the state has no such instance.
        """
        for instance in self.files.data_sources:
            if not instance.module and list(steps[:2]) == [instance.type, instance.name]:
                if instance.key is None:
                    return instance, steps[2:]
                if list(steps[2:3]) == [instance.key]:
                    return instance, steps[3:]
        raise UnresolvedExpression(code)

    def _report(self, instance: ResourceInstance) -> None:
        """Report at a data source's block that its values were taken from Terraform's state."""
        labels = (instance.type, instance.name)
        for block in self.files.find_blocks("data"):
            if block.labels == labels:
                lookup = DATA_SOURCE_LOOKUPS.get(instance.type)
                self.report_omission(
                    block.position,
                    f"data.{'.'.join(labels)}: its values are those of the state",
                    f"to look them up in each run, write {self._render_lookup(lookup, block)} in a "
                    "topology"
                    if lookup
                    else "",
                )

    def _render_lookup(self, lookup: DataSourceLookup, block: TerraformBlock) -> str:
        """Return the look-up in a topology's syntax, with the block's arguments."""
        arguments = dict(self._render_arguments(block))
        call = ", ".join(
            f"{name}={arguments[name]}" for name in lookup.arguments if name in arguments
        )
        following = lookup.filter.format(id=arguments.get("id", "ID"))
        return f"{{{{ {lookup.function}({call}){following} }}}}"

    def _render_arguments(self, block: TerraformBlock) -> Iterator[tuple[str, str]]:
        """Yield each argument of a block, as an expression of a topology.

        Arguments without an equivalent are left out.
        """
        for name, raw in block.body.items():
            try:
                value: Any = self.resolver.resolve(raw)
            except UnresolvedExpression:
                continue
            if isinstance(value, DeclaredReference | ConfigReference):
                yield name, render_expression(value)
            elif isinstance(value, str | int):
                yield name, repr(value)
