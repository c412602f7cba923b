"""Model the nodes of a stack and where each is, by the labels that Kubernetes has.

Keys are those of NVIDIA's Topograph (its reference of node labels), in its present form and in the
one before, of NVIDIA's GPU operator (`nvidia.com/gpu.clique`), and Kubernetes' own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from gpuform.stacks.engine.errors import EngineError


class NoTopology(EngineError):
    """A topology cannot be written: a name does not fit, or something that it needs is unknown."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node. Texts that nobody tells are empty.

    `resource` is the URN of what it belongs to. `tiers` are its switches, the nearest first.
    `domain` is an NVLink domain over several nodes. `labels` are those of its Kubernetes, None
    where that was not asked or has no such node.
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
        """What Slurm calls it."""
        return self.slurm or self.name


@dataclass(frozen=True, slots=True)
class StackTopology:
    """The nodes of a stack, or of some of its clusters, by resource and name.

    `names` are those of the resources in the program, by URN. `unknown` are sentences about what
    is not known.
    """

    project: str
    stack: str
    nodes: tuple[Node, ...]
    names: Mapping[str, str]
    unknown: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """Which stack it is of."""
        return f"stack {self.stack} of project {self.project}"


def by_resource(nodes: Sequence[Node]) -> Iterator[tuple[str, list[Node]]]:
    """The nodes of each resource, in their order."""
    found: dict[str, list[Node]] = {}
    for node in nodes:
        found.setdefault(node.resource, []).append(node)
    yield from found.items()


TIER: Final = "fabric.topograph.run/tier-"
"""Topograph's switches: tier 0 is the nearest to the node."""

FORMER_TIERS: Final = (
    ("network.topology.nvidia.com/leaf", "network.topology.nvidia.com/block"),
    ("network.topology.nvidia.com/spine",),
    ("network.topology.nvidia.com/core", "network.topology.nvidia.com/datacenter"),
)
"""The same before, the nearest first; each switch under one of its keys."""

DOMAINS: Final = (
    "nvidia.com/gpu.clique",
    "accelerator.topograph.run/domain",
    "network.topology.nvidia.com/accelerator",
)
"""NVLink domains over several nodes. A server with NVLink inside alone has none of them."""

ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOST: Final = "kubernetes.io/hostname"


def with_labels(node: Node, labels: Mapping[str, str]) -> Node:
    """The node with what its labels say; what its platform says of it counts first."""
    return replace(
        node,
        labels=labels,
        region=node.region or labels.get(REGION, ""),
        zone=node.zone or labels.get(ZONE, ""),
        tiers=tuple(labels[key] for key in tier_keys(labels)),
        domain=node.domain or next((labels[key] for key in DOMAINS if labels.get(key)), ""),
    )


def tier_keys(labels: Mapping[str, str]) -> list[str]:
    """The keys of its switches, the nearest first; those of one form alone."""
    numbers = (key.removeprefix(TIER) for key in labels if key.startswith(TIER))
    tiers = sorted(int(each) for each in numbers if each.isascii() and each.isdigit())
    found = [f"{TIER}{number}" for number in tiers if labels.get(f"{TIER}{number}")]
    if found:
        return found
    former = (next((key for key in keys if labels.get(key)), "") for keys in FORMER_TIERS)
    return [key for key in former if key]


def domain_key(labels: Mapping[str, str]) -> str:
    """The key of its NVLink domain; empty where it is in none."""
    return next((key for key in DOMAINS if labels.get(key)), "")
