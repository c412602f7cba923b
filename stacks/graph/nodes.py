"""Build the nodes of a diagram from a state or a plan, with the fabrics that resources share.

Secrets are never included. Called by `gpuform graph`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from gpuform.providers.catalog import Summary, summarize_resource
from gpuform.schemas.plan import Plan, PlanAction, ResourceChange
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.state import ResourceState, find_dependency_urns
from gpuform.stacks.engine.urn import MODULE_TYPE, STACK_REFERENCE_TYPE, is_noise, is_urn, name_of
from gpuform.stacks.review.value_text import counted, short_type, to_display_value

_CLUSTER_PARTS: Final = ("GpuNode", "NodePool")
"""Kinds that are drawn inside the cluster they belong to."""
_OTHER_PLATFORM: Final = "other"


@dataclass(frozen=True, slots=True)
class GraphNode:
    """Hold one resource, or one fabric that resources share.

    `type` is short (`together:Cluster`). `parent` and `dependencies` are keys of other nodes;
    `action` is what a plan does to the resource, None without a plan.
    """

    key: str
    type: str
    name: str
    facts: tuple[str, ...] = ()
    gpus: int = 0
    parent: str = ""
    dependencies: frozenset[str] = field(default_factory=frozenset)
    action: PlanAction | None = None

    @property
    def platform(self) -> str:
        """Return the name of the outermost box around the node."""
        if self.type == short_type(MODULE_TYPE):
            return "modules"
        platform, separator, _ = self.type.partition(":")
        return platform if platform and separator and platform != "dynamic" else _OTHER_PLATFORM

    @property
    def is_resource(self) -> bool:
        """Return True for a resource of the stack, False for a fabric known by name only."""
        return is_urn(self.key)

    @property
    def kind(self) -> str:
        """Return the last part of the type: `Cluster` of `together:Cluster`."""
        return self.type.rpartition(":")[2]


def build_state_nodes(entries: Iterable[ResourceState]) -> list[GraphNode]:
    """Build the nodes of a state. Old objects that wait for their deletion are left out."""
    live = [entry for entry in entries if _is_shown(entry)]
    return _connect_nodes([_build_entry_node(entry) for entry in live], _map_fabrics(live))


def build_plan_nodes(plan: Plan, entries: Iterable[ResourceState] = ()) -> list[GraphNode]:
    """Build the nodes of a plan with the planned actions, and the nodes of unchanged resources.

    `entries` are the entries of the state, which a plan read from JSON does not contain.
    """
    live = {e.urn: e for e in entries if _is_shown(e)}
    nodes: dict[str, GraphNode] = {}
    for change in plan.changes:
        if not _is_hidden_type(change.type):
            nodes.setdefault(change.urn, _build_change_node(change, live.get(change.urn)))
    # A preview's JSON leaves out what stays as it is.
    for urn, entry in live.items():
        nodes.setdefault(urn, _build_entry_node(entry))
    fabrics = _map_fabrics(live.values())
    for change in plan.changes:
        for property_change in change.changes:
            if property_change.path == _FABRIC and isinstance(property_change.after, str):
                # A planned fabric comes before the current one.
                fabrics[change.urn] = property_change.after
    return _connect_nodes(list(nodes.values()), fabrics)


def _is_shown(entry: ResourceState) -> bool:
    """Return False for an old object before its deletion, and for a type left out of diagrams."""
    return not (entry.delete or entry.pending_replacement or _is_hidden_type(entry.type))


def _is_hidden_type(type_: str) -> bool:
    """Return True for the stack, providers and stack references: the diagram leaves them out."""
    return is_noise(type_) or type_ == STACK_REFERENCE_TYPE


def _build_entry_node(entry: ResourceState) -> GraphNode:
    """Build the node of a resource in the state.

    Its facts are region, GPU type, GPUs, state, `not ready` and `protected`, as far as known. The
    parent is not among the dependencies.
    """
    type_, values = short_type(entry.type), _get_values(entry)
    summary = _get_summary(type_, values)
    size = counted(summary.gpus, "GPU") if summary.gpus else ""
    ready_note = "not ready" if summary.ready is False else ""
    facts = (
        *_get_location(values),
        size,
        summary.state,
        ready_note,
        "protected" if entry.protect else "",
    )
    return GraphNode(
        key=entry.urn,
        type=type_,
        name=name_of(entry.urn),
        facts=tuple(fact for fact in facts if fact),
        gpus=summary.gpus,
        parent=entry.parent,
        # The parent is drawn around the node, without an arrow.
        dependencies=frozenset(find_dependency_urns(entry, provider=False) - {entry.parent}),
    )


def _build_change_node(change: ResourceChange, entry: ResourceState | None) -> GraphNode:
    """Build the node of a planned change, with the planned values.

    A deleted or unchanged resource has the current values of its `entry`.
    """
    if entry is not None and change.action in (PlanAction.DELETE, PlanAction.SAME):
        return replace(_build_entry_node(entry), action=change.action)
    values = {
        property_change.path: property_change.after
        for property_change in change.changes
        if not property_change.secret
    }
    facts = [*_get_location({**(_get_values(entry) if entry else {}), **values})]
    facts += [f"-{counted(change.gpus_removed, 'GPU')}"] if change.gpus_removed else []
    facts += [f"+{counted(change.gpus_added, 'GPU')}"] if change.gpus_added else []
    return GraphNode(
        key=change.urn,
        type=short_type(change.type),
        name=change.name,
        facts=tuple(fact for fact in facts if fact),
        gpus=(change.gpus_added or 0) - (change.gpus_removed or 0),
        parent=change.parent,
        # A preview's JSON has no dependencies.
        dependencies=frozenset(
            change.dependencies or (find_dependency_urns(entry, provider=False) if entry else ())
        ),
        action=change.action,
    )


def _get_values(entry: ResourceState) -> dict[str, Any]:
    """Return the outputs of an entry, with declared inputs in place of missing outputs."""
    return {**_get_public_values(entry.inputs), **_get_public_values(entry.outputs)}


def _get_location(values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the region and the GPU type in a resource's values; each empty if unknown."""
    return _find_text(values, "region", "region_id"), _find_text(values, "gpu_type")


def _get_public_values(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties as plain values, without secrets."""
    # The SDK stores the code of a dynamic resource under this key.
    plain = to_display_value(
        {key: value for key, value in properties.items() if key != "__provider"}
    )
    return {key: value for key, value in plain.items() if value != MASK}


def _get_summary(type_: str, values: Mapping[str, Any]) -> Summary:
    """Return the summary of a resource of the short type `type_`; an empty one without values."""
    platform, _, kind = type_.partition(":")
    return summarize_resource(platform, kind, values) if values else Summary()


def _find_text(values: Mapping[str, Any], *names: str) -> str:
    """Return the first of the named values that is an unmasked text, or ""."""
    return next(
        (value for name in names if isinstance(value := values.get(name), str) and value != MASK),
        "",
    )


_FABRIC: Final = "cluster_fabric_name"


def _map_fabrics(entries: Iterable[ResourceState]) -> dict[str, str]:
    """Return the declared fabric of each resource, by URN."""
    fabric_names = (
        (entry.urn, _find_text(_get_public_values(entry.inputs), _FABRIC)) for entry in entries
    )
    return {urn: name for urn, name in fabric_names if name}


def _connect_nodes(nodes: list[GraphNode], fabrics: Mapping[str, str]) -> list[GraphNode]:
    """Return the nodes with their parents set, and a further node for each named fabric.

    A resource on a fabric depends on the fabric's node. `fabrics` maps URNs to names of fabrics.
    Dependencies on resources without a node are removed.
    """
    by_key = {node.key: node for node in nodes}
    # A fabric that is a resource of the stack is drawn as this resource.
    fabric_keys = {
        (node.platform, fabrics[node.key]): node.key
        for node in nodes
        if node.kind == "Fabric" and node.key in fabrics
    }
    connected: dict[str, GraphNode] = {}
    for node in nodes:
        fabric = fabrics.get(node.key)
        dependencies = {key for key in node.dependencies if key in by_key}
        if fabric and node.kind != "Fabric":
            key = fabric_keys.setdefault(
                (node.platform, fabric), f"fabric {node.platform} {fabric}"
            )
            if key not in by_key:
                connected.setdefault(key, GraphNode(key, f"{node.platform}:Fabric", fabric))
            dependencies.add(key)
        parent = node.parent if node.parent in by_key else _find_cluster(node, by_key)
        connected[node.key] = replace(
            node, parent=parent, dependencies=frozenset(dependencies - {parent})
        )
    return list(connected.values())


def _find_cluster(node: GraphNode, by_key: Mapping[str, GraphNode]) -> str:
    """Return the key of the cluster that a node pool or GPU node depends on.

    Returns "" for other kinds, and for a part of several clusters or of none.
    """
    if node.kind not in _CLUSTER_PARTS:
        return ""
    clusters = [
        key
        for key in node.dependencies
        if key in by_key and by_key[key].type == f"{node.platform}:Cluster"
    ]
    # A part of several clusters is drawn inside none.
    return clusters[0] if len(clusters) == 1 else ""
