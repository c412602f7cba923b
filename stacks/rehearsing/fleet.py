"""Record the fleet of an emulator over its clock, and compute what a run has cost the fleet.

`player` samples the fleet whenever the clock has moved; the losses are sums over these samples.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from flask import Flask

SECONDS_PER_HOUR: Final = 3600.0
_FLEET_PATH: Final = "/_emulator/fleet"

Owner = tuple[str, str]
"""Platform, and the cluster or fabric that has the GPUs."""


@dataclass(frozen=True, slots=True)
class FleetState:
    """The fleet at one moment of the clock (Unix seconds).

    Attributes:
        working: GPUs on which jobs can run, by owner.
        billed: GPUs that the platform charges, by platform.
        excused: GPUs that the hazard itself takes from their owner, with or without the plan.
        nodes: the nodes that work, each as platform, owner and name.
        data: labels of the stored data, by platform and key.
    """

    at: float
    working: Mapping[Owner, int]
    billed: Mapping[str, int]
    excused: Mapping[Owner, int] = field(default_factory=dict)
    nodes: frozenset[tuple[str, str, str]] = frozenset()
    data: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(slots=True)
class FleetRecorder:
    """Samples the fleet of an emulator's application.

    Attributes:
        app: the emulator.
        failed_nodes: names of nodes that a hazard has broken, by platform and owner.
        excused: GPUs that the hazard takes by itself from now on, by owner.
        samples: the fleet over the clock, oldest first.
    """

    app: Flask
    failed_nodes: set[tuple[str, str, str]] = field(default_factory=set)
    excused: dict[Owner, int] = field(default_factory=dict)
    samples: list[FleetState] = field(default_factory=list)

    def sample(self, now: float) -> None:
        """Add the fleet of the time `now`; of several samples of one time the last one stays.

        The first sample stays in any case: it is the fleet before the run, whose first request may
        come at the same time.
        """
        if len(self.samples) > 1 and self.samples[-1].at == now:
            self.samples.pop()
        self.samples.append(self.read(now))

    def read(self, now: float) -> FleetState:
        """Return the fleet as the emulator has it, without the broken nodes."""
        answer = self.app.test_client().get(_FLEET_PATH).get_json()
        working: Counter[Owner] = Counter()
        billed: Counter[str] = Counter()
        nodes = set()
        for node in answer["nodes"]:
            key = (node["platform"], node["owner"], node["name"])
            billed[node["platform"]] += node["gpus"] if node["is_billed"] else 0
            if node["works"] and key not in self.failed_nodes:
                working[key[:2]] += node["gpus"]
                nodes.add(key)
        return FleetState(
            now, working, billed, dict(self.excused), frozenset(nodes), _index_data(answer["data"])
        )


def _index_data(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    return {(entry["platform"], entry["key"]): entry["label"] for entry in entries}


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """The GPUs that should work all the time: those that the fleet has before and after the plan.

    `total` counts also GPUs that move to another owner.
    """

    by_owner: Mapping[Owner, int]
    total: int

    @classmethod
    def between(cls, before: FleetState, after: FleetState) -> "FleetTarget":
        """Return the target of a plan that leads from one state of the fleet to another."""
        by_owner = {
            owner: min(gpus, after.working.get(owner, 0)) for owner, gpus in before.working.items()
        }
        total = min(sum(before.working.values()), sum(after.working.values()))
        return cls({owner: gpus for owner, gpus in by_owner.items() if gpus}, total)

    def count_missing(self, state: FleetState) -> int:
        """Return how many GPUs of the target do not work, less those that the hazard excuses."""
        missing = sum(
            max(0, gpus - state.working.get(owner, 0) - state.excused.get(owner, 0))
            for owner, gpus in self.by_owner.items()
        )
        excused = sum(state.excused.values())
        return max(missing, self.total - sum(state.working.values()) - excused, 0)


@dataclass(frozen=True, slots=True)
class FleetLoss:
    """The GPUs that did not work during a run: the most at a time, for how long, and GPU-hours."""

    gpus: int
    seconds: float
    gpu_hours: float


def measure_loss(target: FleetTarget, samples: Sequence[FleetState]) -> FleetLoss:
    """Return what the target lacked from the first to the last sample.

    Between two samples the fleet is that of the first one.
    """
    most, seconds, gpu_seconds = 0, 0.0, 0.0
    for state, next_state in pairwise(samples):
        length = next_state.at - state.at
        missing = target.count_missing(state)
        if missing and length > 0:
            most = max(most, missing)
            seconds += length
            gpu_seconds += missing * length
    if samples:
        most = max(most, target.count_missing(samples[-1]))
    return FleetLoss(most, round(seconds, 3), round(gpu_seconds / SECONDS_PER_HOUR, 3))


def sum_billed_hours(samples: Sequence[FleetState], until: float) -> dict[str, float]:
    """Return the charged GPU-hours by platform from the first sample until the time `until`.

    After the last sample the fleet stays as it is.
    """
    hours: dict[str, float] = {}
    for state, next_at in zip(samples, [*(item.at for item in samples[1:]), until], strict=True):
        for platform, gpus in state.billed.items():
            length = max(0.0, next_at - state.at)
            hours[platform] = hours.get(platform, 0.0) + gpus * length / SECONDS_PER_HOUR
    return hours


def list_lost_data(before: FleetState, after: FleetState) -> tuple[str, ...]:
    """Return the labels of stored data that existed before the run and is gone after it."""
    return tuple(sorted(label for key, label in before.data.items() if key not in after.data))
