"""Read the topology of a stack from its state, its platforms and its clusters' own Kubernetes.

`stacks/operations/topology_export` calls these functions one after the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import KubernetesClient, get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_declared_kubeconfig
from gpuform.providers.kubernetes.scheduler import NODES_PATH
from gpuform.schemas.checking import suggest_name
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.schemas.resource_facts import ResourcePlacement
from gpuform.stacks.engine.dynamic_providers import to_plain
from gpuform.stacks.engine.stack import LiveResource, Stack, read_resources
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.topology_export.model import (
    Node,
    NoTopology,
    StackTopology,
    add_labels,
    format_names,
)

_NOT_ON_PLATFORM: Final = "no longer exists on its platform: `gpuform refresh` updates the state"


@dataclass(frozen=True, slots=True)
class ResourceWithNodes:
    """A resource with nodes. `problem` is the reason why its platform did not report them now."""

    urn: str
    id: str
    platform: str
    placement: ResourcePlacement
    problem: str = ""

    @property
    def name(self) -> str:
        """Return the resource's name in the program, for messages."""
        return name_of(self.urn)


@dataclass(frozen=True, slots=True)
class KubernetesCluster:
    """A Kubernetes cluster of the stack's nodes.

    `key` identifies the cluster in records of every run.
    """

    key: str
    name: str
    client: KubernetesClient


def list_resources_with_nodes(
    stack: Stack, config: Mapping[str, str], names: Sequence[str], *, refresh: bool
) -> list[ResourceWithNodes]:
    """Return the named resources with nodes, sorted by URN; without `names` all of them.

    A name is a URN, a name in the program, or else a name on the platform. With `refresh` the nodes
    come from the platforms; else, and after a failed read, from the state. Raises NoTopology if the
    stack has no resource with nodes, or none of that name.
    """
    candidates = [
        (entry, placement)
        for entry in stack.snapshot.resources
        # An object that waits for its deletion is not part of the topology.
        if entry.custom and not (entry.delete or entry.pending_replacement)
        if (placement := _get_placement(entry, entry.outputs)) is not None
    ]
    if not candidates:
        raise NoTopology(
            f"stack '{stack.name}' has no resources with GPU nodes",
            hint="declare a cluster of together, or a node pool or GPU node of scp, and run "
            "`gpuform up`",
        )
    selected = candidates
    if names:
        selected = [match for name in names for match in _select_by_name(stack, candidates, name)]
    # A state has its resources in the order in which they were made, another one in each run.
    entries = sorted({entry.urn: entry for entry, _ in selected}.values(), key=lambda e: e.urn)
    live_resources = read_resources(stack, config, entries) if refresh else None
    if live_resources is None:
        return [_build_resource(entry, entry.outputs) for entry in entries]
    return [
        _build_live_resource(entry, live)
        for entry, live in zip(entries, live_resources, strict=True)
    ]


def require_one_scheduler(resources: Sequence[ResourceWithNodes], form: str) -> None:
    """Raise NoTopology if a resource among several has a scheduler of its own.

    `form` is the format's name.
    """
    own_schedulers = [resource for resource in resources if resource.placement.has_own_scheduler]
    if not own_schedulers or len(resources) == 1:
        return
    names = ", ".join(resource.name for resource in resources)
    raise NoTopology(
        f"{own_schedulers[0].name} has its own scheduler, and {form} describes one "
        f"scheduler, not several: {names}",
        hint="select one resource: "
        f"`gpuform export-topology {own_schedulers[0].name} --format {form}`",
    )


def build_topology(stack: Stack, resources: Sequence[ResourceWithNodes]) -> StackTopology:
    """Build the topology from the platforms' reports, without labels of Kubernetes nodes."""
    fabric_names = _build_fabric_names(resources)
    nodes = [
        _build_node(resource, node, fabric_names)
        for resource in resources
        for node in resource.placement.nodes
    ]
    return StackTopology(
        project=stack.project.name,
        stack=stack.name,
        nodes=tuple(sorted(nodes, key=lambda node: (node.resource, node.name))),
        names={resource.urn: resource.name for resource in resources},
        unknown=tuple(_describe_gaps(resources)),
    )


def find_kubernetes(
    resources: Sequence[ResourceWithNodes], flags: KubernetesInputs | None
) -> KubernetesCluster:
    """Return the Kubernetes cluster of the resources' nodes.

    The `resources` belong to one cluster. `flags` of the command line come first; then the
    kubeconfig of a cluster with its own scheduler, of which the first resource is read, or those
    that other resources declare. Sends no request. Raises NoTopology if no cluster is declared or
    several are, and GpuformError for an unusable kubeconfig.
    """
    # The caller has grouped the resources by cluster, so the first one stands for all.
    first = resources[0]
    name = ", ".join(resource.name for resource in resources)
    if flags is not None:
        return _build_declared_cluster(load_declared_kubeconfig(flags, "--", is_typed=True), name)
    if first.placement.has_own_scheduler:
        secret = first.placement.kubeconfig
        if secret is None:
            raise NoTopology(
                f"{first.name} has no kubeconfig yet",
                hint="check that it is ready with `gpuform status --refresh`, then run `gpuform "
                "refresh`",
            )
        client = get_kubernetes_client(secret.get_secret_value(), first.name)
        return KubernetesCluster(first.id, first.name, client)
    declared = [
        resource.placement.kubernetes for resource in resources if resource.placement.kubernetes
    ]
    if not declared:
        raise NoTopology(
            f"the Kubernetes cluster of the nodes of {name} is unknown",
            hint="pass --kubeconfig, or declare drain.kubernetes",
        )
    if any(kubeconfig != declared[0] for kubeconfig in declared):
        raise NoTopology(
            f"{name} declare different Kubernetes clusters in drain.kubernetes",
            hint="select the resources of one cluster, or pass --kubeconfig",
        )
    return _build_declared_cluster(load_declared_kubeconfig(declared[0]), name)


def add_labels_of_cluster(topology: StackTopology, kubernetes: KubernetesCluster) -> StackTopology:
    """Return the topology with the labels of the cluster's nodes.

    A sentence about nodes that the cluster does not have is added to `unknown`. Sends one request.
    Raises GpuformError if it fails.
    """
    labels_by_name: dict[str, dict[str, str]] = {}
    for node in kubernetes.client.list_objects(NODES_PATH):
        metadata = node.get("metadata")
        if isinstance(metadata, Mapping) and metadata.get("name"):
            labels = metadata.get("labels")
            labels_by_name[str(metadata["name"])] = (
                {str(k): str(v) for k, v in labels.items()} if isinstance(labels, Mapping) else {}
            )
    # A node of the platform may not have joined the cluster yet.
    nodes = [
        add_labels(node, labels_by_name[node.name]) if node.name in labels_by_name else node
        for node in topology.nodes
    ]
    unknown = topology.unknown
    if absent_names := [node.name for node in nodes if node.labels is None]:
        where = f"the Kubernetes of {kubernetes.name}"
        unknown = (*unknown, f"{format_names(absent_names)} are not nodes of {where}")
    return replace(topology, nodes=tuple(nodes), unknown=unknown)


def add_known_labels(
    topology: StackTopology, resources: Sequence[ResourceWithNodes], flags: KubernetesInputs | None
) -> StackTopology:
    """Return the topology with the labels of nodes in all clusters of the stack.

    A cluster that is unknown or cannot be read adds a sentence to `unknown` instead of an error.
    """
    for group in _group_by_cluster(resources, flags):
        name = ", ".join(resource.name for resource in group)
        urns = {resource.urn for resource in group}
        group_topology = replace(
            topology, nodes=tuple(n for n in topology.nodes if n.resource in urns)
        )
        try:
            labelled_topology = add_labels_of_cluster(group_topology, find_kubernetes(group, flags))
        except GpuformError as error:
            sentence = (
                f"the labels of the nodes of {name} are unknown: {' '.join(error.message.split())}"
            )
            # The rest of the topology is still worth showing.
            topology = replace(topology, unknown=(*topology.unknown, sentence))
            continue
        other_nodes = tuple(node for node in topology.nodes if node.resource not in urns)
        topology = replace(labelled_topology, nodes=(*other_nodes, *labelled_topology.nodes))
    return replace(
        topology, nodes=tuple(sorted(topology.nodes, key=lambda node: (node.resource, node.name)))
    )


def _group_by_cluster(
    resources: Sequence[ResourceWithNodes], flags: KubernetesInputs | None
) -> Iterator[list[ResourceWithNodes]]:
    """Yield the resources of each Kubernetes cluster; with `flags` all in one group.

    Resources of unknown clusters are one group.
    """
    groups: dict[Any, list[ResourceWithNodes]] = {}
    for resource in resources:
        declared = resource.placement.kubernetes
        # Declared kubeconfigs have no identity, so their content is compared.
        key: Any = (
            resource.urn if resource.placement.has_own_scheduler else declared and repr(declared)
        )
        groups.setdefault("--" if flags else key, []).append(resource)
    yield from groups.values()


def _build_resource(entry: ResourceState, outputs: Any, problem: str = "") -> ResourceWithNodes:
    """Build a resource with the nodes in `outputs`.

    The caller has checked that its kind has nodes.
    """
    lifecycle, placement = find_lifecycle(entry.type), _get_placement(entry, outputs)
    assert lifecycle is not None  # noqa: S101 - it has placed it
    assert placement is not None  # noqa: S101 - as above
    return ResourceWithNodes(entry.urn, entry.id, lifecycle.platform, placement, problem)


def _build_live_resource(entry: ResourceState, live: LiveResource) -> ResourceWithNodes:
    """Build a resource from the platform's current report.

    After a failed read it has the nodes of the state; a deleted resource has no nodes.
    """
    if live.outputs is not None:
        return _build_resource(entry, live.outputs)
    resource = _build_resource(entry, entry.outputs, live.problem or _NOT_ON_PLATFORM)
    if live.problem:
        return resource
    return replace(resource, placement=resource.placement.model_copy(update={"nodes": ()}))


def _get_placement(entry: ResourceState, outputs: Any) -> ResourcePlacement | None:
    """Return where the nodes in `outputs` are, or None for a resource without nodes.

    None also for a resource that is not one of gpuform's.
    """
    lifecycle = find_lifecycle(entry.type)
    return lifecycle.hooks.get_placement(to_plain(outputs)) if lifecycle else None


def _select_by_name(
    stack: Stack, candidates: Sequence[tuple[ResourceState, ResourcePlacement]], name: str
) -> list[tuple[ResourceState, ResourcePlacement]]:
    """Return the candidates with this URN or name in the program, else this name on a platform.

    Raises NoTopology if no candidate matches.
    """
    matches = [item for item in candidates if name in (item[0].urn, name_of(item[0].urn))]
    # Names on a platform can be equal to another resource's name in the program.
    if matches := matches or [item for item in candidates if name == item[1].name]:
        return matches
    names = sorted({name_of(entry.urn) for entry, _ in candidates})
    raise NoTopology(
        f"stack '{stack.name}' has no resource {name!r} with GPU nodes",
        hint=suggest_name(
            name, names, f"the resources with GPU nodes are {', '.join(names)}", similarity=0.6
        ),
    )


def _build_node(
    resource: ResourceWithNodes, node: Any, fabrics: Mapping[tuple[str, str], str]
) -> Node:
    """Build a node of the topology from a node in the resource's placement.

    `fabrics` are unique names by the fabric's key and name; other fabrics stay unnamed.
    """
    placement = resource.placement
    key = node.fabric_id or node.fabric
    return Node(
        name=node.name,
        resource=resource.urn,
        platform=resource.platform,
        region=placement.region,
        pool=placement.pool,
        fabric_id=node.fabric_id,
        fabric=fabrics.get((key, node.fabric or key), ""),
        slurm=node.slurm,
        address=node.address,
        zone=node.zone,
    )


def _build_fabric_names(resources: Sequence[ResourceWithNodes]) -> dict[tuple[str, str], str]:
    """Return the name of each fabric by id and reported name.

    Equal names get the beginning of the id.
    """
    fabrics = {
        (key, name) for resource in resources for key, name in resource.placement.fabrics.items()
    }
    # Counted without ids: two fabrics can have one name.
    names = [name for _, name in fabrics]
    return {
        (key, name): name if names.count(name) == 1 else f"{name}-{key[:8]}"
        for key, name in fabrics
    }


def _describe_gaps(resources: Sequence[ResourceWithNodes]) -> Iterator[str]:
    """Yield a sentence about each unknown or missing value of the resources and their nodes."""
    for resource in resources:
        if resource.problem:
            problem = " ".join(resource.problem.split())
            yield f"{resource.name}: read from the state, because {problem}"
        elif not resource.placement.nodes:
            yield f"{resource.name} has no nodes yet"
        if resource.placement.untold:
            yield (
                f"{resource.name}: {resource.platform} does not report "
                f"{' or '.join(resource.placement.untold)}"
            )
        nodes = resource.placement.nodes if "fabrics" not in resource.placement.untold else ()
        unplaced_nodes = [node.name for node in nodes if not (node.fabric_id or node.fabric)]
        if unplaced_nodes:
            yield f"{format_names(unplaced_nodes)} have no known fabric"


def _build_declared_cluster(kubeconfig: str, name: str) -> KubernetesCluster:
    """Return the cluster of a kubeconfig, identified by its server; `name` is for messages.

    No request is sent.
    """
    client = get_kubernetes_client(kubeconfig, name)
    return KubernetesCluster(client.server, name, client)
