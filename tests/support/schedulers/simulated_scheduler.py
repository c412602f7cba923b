"""Simulate a scheduler whose jobs end by a clock, without a cluster."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpuform.providers.draining import ScheduledNode
from gpuform.schemas.policies.drain import RunningJob


@dataclass
class SimulatedScheduler:
    """Nodes with at most one job each. `before` is called ahead of every request."""

    clock: Any
    names: Iterable[str] = ("w0", "w1", "w2", "w3")
    ends: dict[str, float] = field(default_factory=dict)
    nodes_by_name: dict[str, ScheduledNode] = field(default_factory=dict)
    stubborn: set[str] = field(default_factory=set)
    """The nodes whose jobs survive every eviction."""
    requests: list[str] = field(default_factory=list)
    before: Callable[[str], None] = lambda _: None
    name: str = "Kubernetes"

    def __post_init__(self) -> None:
        for index, name in enumerate(self.names):
            self.nodes_by_name[name] = ScheduledNode(name, joined_at=float(index))

    def start_job(self, node: str, minutes: float) -> None:
        self.ends[node] = self.clock.now() + minutes * 60

    def is_busy(self, node: str) -> bool:
        return self.ends.get(node, 0.0) > self.clock.now()

    def list_nodes(self) -> Sequence[ScheduledNode]:
        self._record_request("nodes")
        return [
            replace(
                node,
                jobs=(RunningJob(id=f"ml/on-{name}", name="on", user="ada"),)
                if self.is_busy(name)
                else (),
            )
            for name, node in self.nodes_by_name.items()
        ]

    def cordon(self, node_names: Collection[str], owner_label: str) -> None:
        self._record_request("cordon")
        for name in node_names:
            if not self.nodes_by_name[name].is_cordoned:
                self.nodes_by_name[name] = replace(
                    self.nodes_by_name[name], is_cordoned=True, owner_label=owner_label
                )

    def uncordon(self, node_names: Collection[str], owner_label: str) -> None:
        self._record_request("uncordon")
        for name in node_names:
            if name in self.nodes_by_name and self.nodes_by_name[name].owner_label == owner_label:
                self.nodes_by_name[name] = replace(
                    self.nodes_by_name[name], is_cordoned=False, owner_label=None
                )

    def evict(self, node_names: Collection[str]) -> None:
        self._record_request("evict")
        for name in set(node_names) - self.stubborn:
            self.ends.pop(name, None)

    @property
    def cordoned(self) -> list[str]:
        return [name for name, node in self.nodes_by_name.items() if node.is_cordoned]

    def _record_request(self, verb: str) -> None:
        self.before(verb)
        self.requests.append(verb)
