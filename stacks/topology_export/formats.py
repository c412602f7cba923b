"""Render a stack's node topology in the format of Ansible, Topograph or another tool.

`stacks/operations/topology_export` looks formats up in `FORMATS`; `slurm_topology` and `manifests`
render most of them.

From Ansible's page 'How to build your inventory': YAML with `all`, `hosts`, `children`; names of
groups have letters, digits and underscores.

From Topograph's page 'Modeling and API Simulation': `switches` is a map, `blocks` name the nodes,
and an annotation of a block names an accelerator domain.

From NVIDIA/ai-cloud-validation, requirement CAP02 and its test `FleetManagementApiCheck`: ten fixed
fields of each node (`schemas.resource_facts.NodeRecord`).
"""

import csv
import hashlib
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gpuform.schemas.access import is_valid_host
from gpuform.schemas.resource_facts import NodeInventory, NodeRecord
from gpuform.stacks.topology_export.manifests import (
    Manifest,
    build_kueue_objects,
    build_node_labels,
    build_owner_label,
    describe_missing_kueue_labels,
    describe_unlabelled_values,
    render_documents,
)
from gpuform.stacks.topology_export.model import (
    REGION_LABEL,
    ZONE_LABEL,
    Node,
    NoTopology,
    StackTopology,
)
from gpuform.stacks.topology_export.slurm_topology import (
    build_slinky_objects,
    build_switches,
    describe_block_gaps,
    describe_tree_gaps,
    map_nodes_to_switches,
    render_slurm_block,
    render_slurm_tree,
    require_slurm_name,
)

DOMAIN_ANNOTATION: Final = "accelerator.topology.test/domain"


def render_topograph(topology: StackTopology) -> str:
    """Render Topograph's model of the topology as YAML.

    Raises NoTopology without nodes, for two nodes of one name, for names that Slurm cannot read,
    and for labels that make no tree.
    """
    import yaml  # noqa: PLC0415 - slow

    _reject_duplicate_nodes(topology)
    switches = build_switches(topology)
    switch_by_node = map_nodes_to_switches(switches)
    # A block has one switch, one domain and one location.
    groups: dict[tuple[str, str, str, str], list[Node]] = {}
    for node in topology.nodes:
        key = (switch_by_node[node], node.domain, node.region, node.zone)
        groups.setdefault(key, []).append(node)
    model = {
        "switches": {
            require_slurm_name(switch.name, "switch"): (
                {"switches": list(switch.switches)} if switch.switches else {}
            )
            for switch in switches
        },
        "blocks": [_build_block(key, nodes) for key, nodes in groups.items()],
    }
    model_yaml = yaml.safe_dump(model, sort_keys=False, width=1000)
    return f"# {topology.title}; written by gpuform.\n{model_yaml}"


def _reject_duplicate_nodes(topology: StackTopology) -> None:
    """Raise NoTopology without nodes, for two nodes of one name, or for an invalid Slurm name."""
    names = [require_slurm_name(node.name, "node") for node in topology.require_nodes()]
    duplicate_name = next((name for name in names if names.count(name) > 1), None)
    if duplicate_name is not None:
        raise NoTopology(
            f"two nodes have the name {duplicate_name}",
            hint="select clusters whose nodes have different names",
        )


def _build_block(key: tuple[str, str, str, str], nodes: list[Node]) -> dict[str, Any]:
    """Return Topograph's entry of a block: its switch, nodes, location and NVLink domain.

    `key` is switch, domain, region and zone; empty ones except the switch are left out.
    """
    switch, domain, region, zone = key
    labels = {name: value for name, value in ((REGION_LABEL, region), (ZONE_LABEL, zone)) if value}
    block: dict[str, Any] = {"switch": switch, "nodes": [node.name for node in nodes]}
    if labels:
        block["labels"] = labels
    if domain:
        block["annotations"] = {DOMAIN_ANNOTATION: domain}
    return block


_NOT_IN_GROUP_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")


def render_inventory(topology: StackTopology) -> str:
    """Render an Ansible inventory as YAML. A topology without nodes is an empty inventory.

    Raises NoTopology for two nodes of one name, and for a name that no host can have.
    """
    import yaml  # noqa: PLC0415 - slow

    hosts: dict[str, dict[str, Any]] = {}
    groups: dict[tuple[str, str], list[str]] = {}
    for node in topology.nodes:
        if not is_valid_host(node.name):
            raise NoTopology(
                f"the name of node {node.name!r} is not a valid host name",
                hint="rename the node on its platform, or select the other clusters",
            )
        if node.name in hosts:
            raise NoTopology(
                f"two nodes have the name {node.name}",
                hint="select clusters whose nodes have different names",
            )
        hosts[node.name] = dict(_iterate_variables(topology, node))
        for key in _iterate_groups(topology, node):
            groups.setdefault(key, []).append(node.name)
    # Ansible allows only letters, digits and underscores in names of groups.
    names = _build_group_names(list(groups))
    children: dict[str, Any] = {
        names[key]: {"hosts": {name: {} for name in groups[key]}} for key in sorted(groups)
    }
    document = {"all": {"hosts": hosts, **({"children": children} if children else {})}}
    yaml_text = yaml.dump(document, Dumper=_get_plain_dumper(), sort_keys=False, width=1000)
    return f"# {topology.title}; written by gpuform.\n{yaml_text}"


def _get_plain_dumper() -> Any:
    """Return a YAML dumper that writes equal values in full, without anchors."""
    import yaml  # noqa: PLC0415 - slow

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - of the library
            return True

    return Plain


def _iterate_variables(topology: StackTopology, node: Node) -> Iterator[tuple[str, Any]]:
    """Yield the name and value of each Ansible variable of a node; empty values are left out.

    `ansible_host` is yielded only for a valid address. No value is a template that Ansible
    evaluates.
    """
    if node.address and is_valid_host(node.address):
        yield "ansible_host", node.address
    values = {
        "resource": topology.names.get(node.resource, ""),
        "platform": node.platform,
        "region": node.region,
        "zone": node.zone,
        "pool": node.pool,
        "fabric": node.fabric,
        "fabric_id": node.fabric_id,
        "nvlink_domain": node.domain,
        "slurm_name": node.slurm,
    }
    yield from (
        (f"gpuform_{key}", _neutralize_templates(value)) for key, value in values.items() if value
    )
    if node.tiers:
        yield "gpuform_switches", [_neutralize_templates(tier) for tier in node.tiers]


def _neutralize_templates(text: str) -> str:
    """Put a space into the brackets of Jinja2 templates.

    Ansible evaluates templates in variables.
    """
    # A name from a platform must never run as code on the machine with Ansible.
    return text.replace("{{", "{ {").replace("{%", "{ %").replace("{#", "{ #")


def _iterate_groups(topology: StackTopology, node: Node) -> Iterator[tuple[str, str]]:
    """Yield the kind and value of each group of a node, such as `region` and its name.

    Empty values are left out.
    """
    values = {
        "resource": topology.names.get(node.resource, ""),
        "platform": node.platform,
        "region": node.region,
        "pool": node.pool,
        "fabric": node.fabric,
        "nvlink": node.domain,
    }
    yield from ((key, value) for key, value in values.items() if value)


def _build_group_names(keys: list[tuple[str, str]]) -> dict[tuple[str, str], str]:
    """Return the name of each group. Groups that would have one name get a digest of their key."""
    names = {key: _NOT_IN_GROUP_NAMES.sub("_", "_".join(key)) for key in keys}
    all_names = list(names.values())
    # The same digest in every run: group names must not change between two exports.
    digests = {key: hashlib.sha256("\0".join(key).encode()).hexdigest()[:8] for key in keys}
    return {
        key: name if all_names.count(name) == 1 else f"{name}_{digests[key]}"
        for key, name in names.items()
    }


_ManifestBuilder = Callable[[StackTopology, str], Sequence[Manifest]]
_GapDescriber = Callable[[StackTopology], Iterable[str]]


@dataclass(frozen=True, slots=True)
class Format:
    """One format.

    `render` returns its text, or `build_manifests` the labels and objects of a cluster.

    `needs_one_scheduler` is True if all nodes must have the same scheduler. `describe_gaps` yields
    sentences about what the format leaves out.
    """

    render: Callable[[StackTopology], str] | None = None
    build_manifests: _ManifestBuilder | None = None
    needs_one_scheduler: bool = True
    describe_gaps: _GapDescriber = lambda _: ()

    def render_text(self, topology: StackTopology, namespace: str) -> str:
        """Render the topology as text: YAML documents for formats with manifests.

        `namespace` is used only by formats with manifests. Raises NoTopology if the topology does
        not fit the format.
        """
        if self.build_manifests is not None:
            return render_documents(
                self.build_manifests(topology, namespace), build_owner_label(topology)
            )
        assert self.render is not None  # noqa: S101 - one of the two is there
        return self.render(topology)


@dataclass(frozen=True, slots=True)
class TopologyResult:
    """The topology and its text in one format. `unknown` holds sentences about what is left out."""

    form: str
    topology: StackTopology
    text: str
    unknown: Sequence[str]


FORMATS: Final[Mapping[str, Format]] = {
    "slurm-tree": Format(render_slurm_tree, describe_gaps=describe_tree_gaps),
    "slurm-block": Format(render_slurm_block, describe_gaps=describe_block_gaps),
    "slinky": Format(build_manifests=build_slinky_objects, describe_gaps=describe_tree_gaps),
    "kubernetes-labels": Format(
        build_manifests=build_node_labels, describe_gaps=describe_unlabelled_values
    ),
    "kueue": Format(
        build_manifests=build_kueue_objects, describe_gaps=describe_missing_kueue_labels
    ),
    "topograph": Format(
        render_topograph, needs_one_scheduler=False, describe_gaps=describe_tree_gaps
    ),
    "inventory": Format(render_inventory, needs_one_scheduler=False),
}
"""The formats by their names on the command line."""


def render_inventory_json(inventory: NodeInventory) -> str:
    """Render the records of all nodes as JSON, for NVIDIA's AI cloud validation and others."""
    return inventory.model_dump_json(indent=2) + "\n"


def render_inventory_csv(inventory: NodeInventory) -> str:
    """Render the records of all nodes as CSV: a header, then a row for each node.

    Unknown values are empty; a text that a spreadsheet would run as a formula gets a quote before.
    """
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(NodeRecord.model_fields)
    for node in inventory.nodes:
        writer.writerow(map(_format_cell, node.model_dump(mode="json").values()))
    return lines.getvalue()


def _format_cell(value: str | float | bool | None) -> str:
    """Return a value of a record as text of a cell; None is empty, a boolean is lower case."""
    if value is None:
        return ""
    cell = str(value).lower() if isinstance(value, bool) else str(value)
    # A name from a platform must never run on the machine of a reader.
    return f"'{cell}" if cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


INVENTORY_FORMATS: Final[Mapping[str, Callable[[NodeInventory], str]]] = {
    "inventory-json": render_inventory_json,
    "inventory-csv": render_inventory_csv,
}
"""The formats of node records, which are made from all resources with nodes."""

APPLICABLE_FORMATS: Final = tuple(
    name for name, export_format in FORMATS.items() if export_format.build_manifests is not None
)
"""The formats that `gpuform export-topology --apply` can write into a Kubernetes cluster."""
