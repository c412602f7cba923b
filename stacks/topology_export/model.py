"""Model the nodes of a stack and their location, with the labels that Kubernetes has.

`reading` builds the model; every format renders it. Label keys are those of NVIDIA's Topograph (its
reference of node labels) in its present and its former form, of NVIDIA's GPU operator
(`nvidia.com/gpu.clique`), and of Kubernetes. `stacks/schedule/noticing` calls
`list_fabric_notices`: nodes that belong together, but are in several fabrics.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from gpuform.schemas.errors import EngineError
from gpuform.schemas.resource_facts import NodePlacement, Notice, NoticeKind, ResourcePlacement
from gpuform.stacks.engine.urn import name_of


class NoTopology(EngineError):
    """A topology cannot be written: a name does not fit the format, or a fact is unknown."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node. Unknown texts are empty.

    `resource` is the URN of the node's resource. `slurm` is the node's name in Slurm if it has
    another one there. `tiers` are its switches, the nearest first. `domain` is an NVLink domain
    over several nodes. `labels` are those of its Kubernetes node, None if they were not read or the
    cluster has no such node.
    """

    name: str
    resource: str
    platform: str = ""
    region: str = ""
    pool: str = ""
    fabric_id: str = ""
    fabric: str = ""
    slurm: str = ""
    address: str = ""
    zone: str = ""
    tiers: tuple[str, ...] = ()
    domain: str = ""
    labels: Mapping[str, str] | None = field(default=None, hash=False)

    @property
    def name_in_slurm(self) -> str:
        """Return the node's name in Slurm."""
        return self.slurm or self.name


@dataclass(frozen=True, slots=True)
class StackTopology:
    """The nodes of a stack, or of some of its clusters, sorted by resource and name.

    `names` are the resources' names in the program, by URN. `unknown` holds sentences about what is
    not known.
    """

    project: str
    stack: str
    nodes: tuple[Node, ...]
    names: Mapping[str, str]
    unknown: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Return the stack and its project for headings and messages."""
        return f"stack {self.stack} of project {self.project}"

    def require_nodes(self) -> tuple[Node, ...]:
        """Return the nodes. Raises NoTopology if there are none."""
        if not self.nodes:
            raise NoTopology(f"{self.title} has no nodes yet", hint="create them: `gpuform up`")
        return self.nodes


TIER_LABEL_PREFIX: Final = "fabric.topograph.run/tier-"
"""The prefix of the labels of Topograph's switches: tier 0 is the nearest to the node."""

FORMER_TIER_LABELS: Final = (
    ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/block"),
    ("network.topology.nvidia.com/spine",),
    ("network.topology.nvidia.com/core", "network.topology.nvidia.com/datacenter"),
)
"""The labels of switches in Topograph's former form, the nearest first; one of the keys is set."""

DOMAIN_LABELS: Final = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
)
"""The labels of NVLink domains over several nodes.

A server whose NVLink ends inside it has none.
"""

ZONE_LABEL: Final = "topology.kubernetes.io/zone"
REGION_LABEL: Final = "topology.kubernetes.io/region"
HOST_LABEL: Final = "kubernetes.io/hostname"


def add_labels(node: Node, labels: Mapping[str, str]) -> Node:
    """Return a copy of the node with its labels.

    Region, zone and NVLink domain come from the labels only if the node has none yet. Switches
    always come from the labels.
    """
    return replace(
        node,
        labels=labels,
        region=node.region or labels.get(REGION_LABEL, ""),
        zone=node.zone or labels.get(ZONE_LABEL, ""),
        # No platform reports switches.
        tiers=tuple(labels[key] for key in list_tier_keys(labels)),
        domain=node.domain or labels.get(find_domain_key(labels), ""),
    )


def list_tier_keys(labels: Mapping[str, str]) -> list[str]:
    """Return the keys of switch labels, the nearest switch first.

    Former keys count only without present ones.
    """
    numbers = (
        key.removeprefix(TIER_LABEL_PREFIX) for key in labels if key.startswith(TIER_LABEL_PREFIX)
    )
    # As numbers: tier 10 is above tier 9.
    tiers = sorted(int(digits) for digits in numbers if digits.isascii() and digits.isdigit())
    present_keys = (f"{TIER_LABEL_PREFIX}{number}" for number in tiers)
    former_keys = (
        next((key for key in keys if labels.get(key)), "") for keys in FORMER_TIER_LABELS
    )
    return [key for key in present_keys if labels.get(key)] or [key for key in former_keys if key]


def find_domain_key(labels: Mapping[str, str]) -> str:
    """Return the key of the label of the NVLink domain; empty without such a label."""
    return next((key for key in DOMAIN_LABELS if labels.get(key)), "")


_MAX_LISTED_NAMES: Final = 3


def list_fabric_notices(placements: Iterable[tuple[str, ResourcePlacement]]) -> Iterator[Notice]:
    """Yield a notice for each pool, and for each fabric name, whose nodes are in several fabrics.

    `placements` are resources by URN, as last observed. A pool with a notice is left out of the
    comparison by fabric names.
    """
    all_placements = list(placements)
    by_name: dict[tuple[str, str, str], list[tuple[str, NodePlacement]]] = {}
    for urn, placement in all_placements:
        split = _describe_split([(node.name, node) for node in placement.nodes])
        if split:
            yield _build_notice(f"its nodes are in {split}", urn)
            continue
        for node in placement.nodes:
            if node.fabric and node.fabric_id:
                key = (placement.region, placement.pool, node.fabric)
                by_name.setdefault(key, []).append((urn, node))
    for (_, _, fabric), nodes in by_name.items():
        split = _describe_split([(node.name, node) for _, node in nodes])
        if split:
            yield _build_notice(f"the nodes of fabric {fabric} are in {split}", "")


def _describe_split(nodes: Iterable[tuple[str, NodePlacement]]) -> str:
    """Describe the fabrics of the nodes; empty for fewer than two fabrics.

    Nodes without a reported fabric do not count.
    """
    fabrics: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for name, node in nodes:
        # Two fabrics can have one name.
        key = node.fabric_id or node.fabric
        if key:
            fabrics.setdefault(key, []).append(name)
            names[key] = node.fabric if node.fabric in {"", key} else f"{node.fabric} ({key})"
    if len(fabrics) < 2:
        return ""
    parts = (
        f"{format_names(sorted(node_names))} in {names[key] or key}"
        for key, node_names in sorted(fabrics.items())
    )
    return f"{len(fabrics)} fabrics: {'; '.join(parts)}"


def format_names(names: list[str]) -> str:
    """Return at most three names, and the number of the others: `a, b, c and 2 more`."""
    more = f" and {len(names) - _MAX_LISTED_NAMES} more" if len(names) > _MAX_LISTED_NAMES else ""
    return f"{', '.join(names[:_MAX_LISTED_NAMES])}{more}"


def _build_notice(message: str, urn: str) -> Notice:
    """Return a notice about nodes in several fabrics; an empty `urn` means no single resource."""
    return Notice(
        kind=NoticeKind.FABRICS,
        text=f"{message}. A job that runs in several fabrics does not get the network speed of one "
        "fabric",
        urn=urn,
        name=name_of(urn) if urn else "",
    )
