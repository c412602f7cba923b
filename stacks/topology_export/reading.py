"""The topology of a stack, from its state, its platforms and its clusters' own Kubernetes."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any, Final

from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import KubernetesClient, get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_declared_kubeconfig
from gpuform.providers.kubernetes.nodes import NODES_PATH
from gpuform.providers.properties import to_properties
from gpuform.schemas.policies.drain import KubernetesInputs
from gpuform.schemas.resource_facts import ResourcePlacement
from gpuform.stacks.engine.provider_host import to_provider
from gpuform.stacks.engine.stack import LiveResource, Stack, read_resources
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.resource_rules import lifecycle_of
from gpuform.stacks.topology_export.model import Node, NoTopology, StackTopology, with_labels

_GONE: Final = "is gone from its platform: `gpuform refresh` takes that over"


@dataclass(frozen=True, slots=True)
class Placed:
    """A resource with nodes. `problem` says why its platform did not tell them now."""

    urn: str
    id: str
    platform: str
    placement: ResourcePlacement
    problem: str = ""

    @property
    def name(self) -> str:
        """Its name in the program."""
        return name_of(self.urn)


@dataclass(frozen=True, slots=True)
class Kubernetes:
    """A Kubernetes of nodes of a stack. `key` is the same whenever it is the same one."""

    key: str
    name: str
    client: KubernetesClient


def placed_resources(
    stack: Stack, config: Mapping[str, str], names: Sequence[str], *, refresh: bool
) -> list[Placed]:
    """Those named, by their names in the stack, on the platform or by URN; all without names.

    With `refresh` the platforms are asked. Raises NoTopology for a name that nothing with nodes
    has, and where there is nothing with nodes.
    """
    known = [
        (entry, placement)
        for entry in stack.snapshot.resources
        if entry.custom and not (entry.delete or entry.pending_replacement)
        if (placement := _placement(entry, entry.outputs)) is not None
    ]
    if not known:
        raise NoTopology(
            f"stack '{stack.name}' has nothing with GPU nodes",
            hint="clusters of together, node pools and GPU nodes of scp have: `gpuform up`",
        )
    chosen = [each for name in names for each in _chosen(stack, known, name)] if names else known
    # A state has its resources in the order in which they were made, another one in each run.
    entries = sorted({entry.urn: entry for entry, _ in chosen}.values(), key=lambda e: e.urn)
    seen = read_resources(stack, config, entries) if refresh else None
    if seen is None:
        return [_placed(entry, entry.outputs) for entry in entries]
    return [_placed_now(entry, now) for entry, now in zip(entries, seen, strict=True)]


def one_scheduler(placed: Sequence[Placed], form: str) -> None:
    """Raises NoTopology where the nodes have not all the same scheduler."""
    own = [each for each in placed if each.placement.has_own_scheduler]
    if not own or len(placed) == 1:
        return
    names = ", ".join(each.name for each in placed)
    raise NoTopology(
        f"{own[0].name} has a scheduler of its own, and {form} is for one scheduler: {names}",
        hint=f"name it: `gpuform topology {own[0].name} --format {form}`",
    )


def topology_of(stack: Stack, placed: Sequence[Placed]) -> StackTopology:
    """The model of what platforms tell."""
    fabrics = _fabric_names(placed)
    nodes = [_node(each, node, fabrics) for each in placed for node in each.placement.nodes]
    return StackTopology(
        project=stack.project.name,
        stack=stack.name,
        nodes=tuple(sorted(nodes, key=lambda node: (node.resource, node.name))),
        names={each.urn: each.name for each in placed},
        unknown=tuple(_unknown(placed)),
    )


def kubernetes_of(placed: Sequence[Placed], flags: KubernetesInputs | None) -> Kubernetes:
    """The Kubernetes that all of these nodes are in. `flags` is one that somebody names.

    Raises NoTopology where none is known or there are several, and GpuformError for a kubeconfig
    that cannot be used. Nothing is asked.
    """
    first = placed[0]
    name = ", ".join(each.name for each in placed)
    if flags is not None:
        return _declared(load_declared_kubeconfig(flags, "--", is_typed=True), name)
    if first.placement.has_own_scheduler:
        secret = first.placement.kubeconfig
        if secret is None:
            raise NoTopology(
                f"{first.name} has no kubeconfig yet",
                hint="look whether it is ready: `gpuform status --refresh`, then `gpuform refresh`",
            )
        return Kubernetes(
            first.id, first.name, get_kubernetes_client(secret.get_secret_value(), first.name)
        )
    declared = [each.placement.kubernetes for each in placed if each.placement.kubernetes]
    if not declared:
        raise NoTopology(
            f"the stack does not say which Kubernetes the nodes of {name} are in",
            hint="give --kubeconfig, or declare drain.kubernetes",
        )
    if any(each != declared[0] for each in declared):
        raise NoTopology(
            f"{name} declare several Kubernetes in drain.kubernetes",
            hint="name those of one, or give --kubeconfig",
        )
    return _declared(load_declared_kubeconfig(declared[0]), name)


def with_labels_of(topology: StackTopology, kubernetes: Kubernetes) -> StackTopology:
    """With what the labels of that Kubernetes say; one request. Raises GpuformError."""
    nodes = {
        name: node for node in kubernetes.client.list_objects(NODES_PATH) if (name := _name(node))
    }
    found = [
        with_labels(node, _labels(nodes[node.name])) if node.name in nodes else node
        for node in topology.nodes
    ]
    absent = [node.name for node in found if node.labels is None]
    more = _counted(absent, f"are no nodes of the Kubernetes of {kubernetes.name}")
    return replace(topology, nodes=tuple(found), unknown=(*topology.unknown, *more))


def with_labels_asked(
    topology: StackTopology, placed: Sequence[Placed], flags: KubernetesInputs | None
) -> StackTopology:
    """The same for every Kubernetes of the stack; why one could not be asked is not known."""
    for group in _groups(placed, flags):
        name = ", ".join(each.name for each in group)
        urns = {each.urn for each in group}
        part = replace(topology, nodes=tuple(n for n in topology.nodes if n.resource in urns))
        try:
            asked = with_labels_of(part, kubernetes_of(group, flags))
        except (GpuformError, NoTopology) as error:
            why = f"the labels of the nodes of {name} are not known: {_line(error.message)}"
            topology = replace(topology, unknown=(*topology.unknown, why))
            continue
        others = tuple(node for node in topology.nodes if node.resource not in urns)
        topology = replace(asked, nodes=(*others, *asked.nodes))
    return replace(
        topology, nodes=tuple(sorted(topology.nodes, key=lambda node: (node.resource, node.name)))
    )


def _groups(placed: Sequence[Placed], flags: KubernetesInputs | None) -> Iterator[list[Placed]]:
    """Those that have one Kubernetes."""
    found: dict[Any, list[Placed]] = {}
    for each in placed:
        declared = each.placement.kubernetes
        key: Any = each.urn if each.placement.has_own_scheduler else declared and repr(declared)
        found.setdefault("--" if flags else key, []).append(each)
    yield from found.values()


def _placed(entry: ResourceState, outputs: Any, problem: str = "") -> Placed:
    """A resource that has nodes by the state, with those of these outputs."""
    lifecycle, placement = lifecycle_of(entry.type), _placement(entry, outputs)
    assert lifecycle is not None  # noqa: S101 - it has placed it
    assert placement is not None  # noqa: S101 - as above
    return Placed(entry.urn, entry.id, lifecycle.platform, placement, problem)


def _placed_now(entry: ResourceState, now: LiveResource) -> Placed:
    if now.outputs is not None:
        return _placed(entry, now.outputs)
    found = _placed(entry, entry.outputs, now.problem or _GONE)
    if now.problem:
        return found
    return replace(found, placement=found.placement.model_copy(update={"nodes": ()}))


def _placement(entry: ResourceState, outputs: Any) -> ResourcePlacement | None:
    lifecycle = lifecycle_of(entry.type)
    return lifecycle.get_placement(to_properties(to_provider(outputs))) if lifecycle else None


def _chosen(
    stack: Stack, known: Sequence[tuple[ResourceState, ResourcePlacement]], name: str
) -> list[tuple[ResourceState, ResourcePlacement]]:
    found = [each for each in known if name in (each[0].urn, name_of(each[0].urn))]
    found = found or [each for each in known if name == each[1].name]
    if found:
        return found
    names = sorted({name_of(entry.urn) for entry, _ in known})
    near = get_close_matches(name, names, n=1)
    raise NoTopology(
        f"stack '{stack.name}' has nothing with GPU nodes that is called {name!r}",
        hint=f"did you mean {near[0]}?" if near else f"there are: {', '.join(names)}",
    )


def _node(placed: Placed, node: Any, fabrics: Mapping[tuple[str, str], str]) -> Node:
    placement = placed.placement
    key = node.fabric_id or node.fabric
    return Node(
        name=node.name,
        resource=placed.urn,
        platform=placed.platform,
        region=placement.region,
        pool=placement.pool,
        fabric_id=node.fabric_id,
        fabric=fabrics.get((key, node.fabric or key), ""),
        slurm=node.slurm,
        address=node.address,
    )


def _fabric_names(placed: Sequence[Placed]) -> dict[tuple[str, str], str]:
    """What each fabric is called, by id and name: two of one name get their ids' beginnings."""
    told = {(key, name) for each in placed for key, name in each.placement.fabrics.items()}
    names = [name for _, name in told]
    return {
        (key, name): name if names.count(name) == 1 else f"{name}-{key[:8]}" for key, name in told
    }


def _unknown(placed: Sequence[Placed]) -> Iterator[str]:
    for each in placed:
        if each.problem:
            yield f"{each.name}: as the state has it, because {_line(each.problem)}"
        elif not each.placement.nodes:
            yield f"{each.name} has no nodes yet"
        if each.placement.untold:
            yield f"{each.name}: {each.platform} tells no {' and no '.join(each.placement.untold)}"
        nodes = each.placement.nodes if "fabrics" not in each.placement.untold else ()
        lost = [node.name for node in nodes if not (node.fabric_id or node.fabric)]
        yield from _counted(lost, "are in no fabric that is told")


def _counted(names: Sequence[str], what: str) -> Iterator[str]:
    shown = 3
    if names:
        more = f" and {len(names) - shown} more" if len(names) > shown else ""
        yield f"{', '.join(names[:shown])}{more} {what}"


def _declared(kubeconfig: str, name: str) -> Kubernetes:
    client = get_kubernetes_client(kubeconfig, name)
    return Kubernetes(client.server, name, client)


def _name(node: Any) -> str:
    metadata = node.get("metadata") if isinstance(node, Mapping) else None
    return str(metadata.get("name") or "") if isinstance(metadata, Mapping) else ""


def _labels(node: Any) -> dict[str, str]:
    found = node["metadata"].get("labels")
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, Mapping) else {}


def _line(text: str) -> str:
    return " ".join(text.split())
