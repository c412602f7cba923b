"""A scheduler whose jobs end by a clock: what a cluster's own does, without the cluster."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.providers.draining import ScheduledNode
from gpuform.schemas.policies.drain import RunningJob


@dataclass
class Simulated:
    """Nodes with one job each at the most. `before` is called ahead of every question."""

    clock: Any
    names: Iterable[str] = ("w0", "w1", "w2", "w3")
    ends: dict[str, float] = field(default_factory=dict)
    nodes_: dict[str, ScheduledNode] = field(default_factory=dict)
    stubborn: set[str] = field(default_factory=set)
    """The nodes whose jobs no eviction may end."""
    asked: list[str] = field(default_factory=list)
    before: Callable[[str], None] = lambda _: None
    name: str = "Kubernetes"

    def __post_init__(self) -> None:
        for at, name in enumerate(self.names):
            self.nodes_[name] = ScheduledNode(name, joined_at=float(at))

    def run(self, node: str, minutes: float) -> None:
        self.ends[node] = self.clock.now() + minutes * 60

    def is_busy(self, node: str) -> bool:
        return self.ends.get(node, 0.0) > self.clock.now()

    def list_nodes(self) -> Sequence[ScheduledNode]:
        self._tell("nodes")
        return [
            replace(
                node,
                jobs=(RunningJob(id=f"ml/on-{name}", name="on", user="ada"),)
                if self.is_busy(name)
                else (),
            )
            for name, node in self.nodes_.items()
        ]

    def cordon(self, node_names: Collection[str], owner_label: str) -> None:
        self._tell("cordon")
        for name in node_names:
            if not self.nodes_[name].is_cordoned:
                self.nodes_[name] = replace(
                    self.nodes_[name], is_cordoned=True, owner_label=owner_label
                )

    def uncordon(self, node_names: Collection[str], owner_label: str) -> None:
        self._tell("uncordon")
        for name in node_names:
            if name in self.nodes_ and self.nodes_[name].owner_label == owner_label:
                self.nodes_[name] = replace(self.nodes_[name], is_cordoned=False, owner_label=None)

    def evict(self, node_names: Collection[str]) -> None:
        self._tell("evict")
        for name in set(node_names) - self.stubborn:
            self.ends.pop(name, None)

    @property
    def cordoned(self) -> list[str]:
        return [name for name, node in self.nodes_.items() if node.is_cordoned]

    def _tell(self, what: str) -> None:
        self.before(what)
        self.asked.append(what)
