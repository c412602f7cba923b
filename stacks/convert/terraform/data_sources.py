"""Give the values of Terraform's data sources, as the state has them.

A topology declares no data sources: each value becomes a literal, and a note names the look-up that
gives it in each run. `topology` calls `DataSources.find_value` for paths such as `data.TYPE.NAME`.
The types are those of SamsungSDSCloud/samsungcloudplatformv2 6.x (its source,
service/multinodegpucluster/*_datasource*.go); other types get a note without a look-up.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.stacks.convert.terraform.expressions import (
    ExpressionResolver,
    UnresolvedExpression,
    select_part,
)
from gpuform.stacks.convert.terraform.files import ResourceInstance, TerraformBlock, TerraformFiles
from gpuform.stacks.convert.terraform.resource_types import Step
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    DeclaredReference,
    Value,
)
from gpuform.stacks.declaration_writer.topology_yaml import render_expression
from gpuform.stacks.document.diagnostics import SourcePosition


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
    report_omission: Callable[[SourcePosition, str, str], None]

    def find_value(self, steps: Sequence[Step], code: str) -> Value:
        """Return the state's value at the steps behind `data`, and report the source.

        Raises:
            UnresolvedExpression: the state has no such value, or it is null or sensitive; the
                error shows `code`.
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
        """Return the instance at TYPE.NAME or TYPE.NAME[KEY], and the steps behind it.

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
        """Report that the values of a data source are those of the state, at its block."""
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
        """Return the look-up with the block's arguments, as a topology has it."""
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
