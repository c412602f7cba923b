"""The topology of a stack: its nodes, and of each what is known of where it is."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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
