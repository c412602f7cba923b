"""Check after a course that `gpuform explain` knows which run created and deleted each object.

The ledger of the simulation is the truth: it has each action with its step, and the history of the
stack has the runs of each step.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from hostile.backends import Backend
from hostile.fakes.simulation import OURS, PlatformObject, Simulation
from support.stacks.lives import LifeEnd, find_wrong_end, read_events, select_events

from gpuform.schemas.timeline import LifeEvent
from gpuform.stacks.engine.store import Backend as StateBackend


@dataclass
class LifeChecker:
    """Compares the ledger with the explanations of a stack's history."""

    simulation: Simulation
    backend: Backend
    project: str
    runs_by_step: dict[int, range] = field(default_factory=dict)
    first_step: int = 0
    """The step after which the history begins: `stack rm` removes it."""
    _counted: int = 0

    def record_step(self) -> None:
        """Note which runs the history has since the last step."""
        folder = f".pulumi/history/{self.project}/"
        count = sum(
            name.startswith(folder) and ".history.json" in name
            for name in self.backend.list_names()
        )
        if count < self._counted:
            self.first_step, self._counted, self.runs_by_step = self.simulation.step, count, {}
            return
        known = self.runs_by_step.get(self.simulation.step)
        first = known.start if known else self._counted + 1
        self.runs_by_step[self.simulation.step] = range(first, count + 1)
        self._counted = count

    def find_wrong_lives(self, ignored_ids: set[str], *, has_succeeded: bool) -> Iterator[str]:
        """Yield each object whose creation or deletion is explained by a run of another step.

        An object of which no run has decided whose it is has no life yet: then the last command
        has not succeeded.
        """
        state_backend = StateBackend.open(self.backend.url, self.backend.environ)
        events = read_events(state_backend, self.project, "dev")
        for platform_object in self.simulation.objects:
            if platform_object.creator != OURS or platform_object.id in ignored_ids:
                continue
            own = select_events(events, platform_object.id)
            # A surplus node of a killed run, which the next run removed before any state had it.
            is_unseen = (
                not own
                and platform_object.kind == "node"
                and not platform_object.is_alive(self.simulation.now)
            )
            if own or (has_succeeded and not is_unseen):
                yield from self._compare(platform_object, own)

    def _compare(
        self, platform_object: PlatformObject, events: Sequence[LifeEvent]
    ) -> Iterator[str]:
        ends: tuple[LifeEnd, LifeEnd] = ("created", "deleted")
        for action in ends:
            steps = [
                entry.step
                for entry in self.simulation.ledger
                if entry.platform_object is platform_object
                and entry.action == action
                and entry.actor == OURS
            ]
            if not steps or min(steps) <= self.first_step:
                continue
            runs = {number for step in steps for number in self.runs_by_step.get(step, ())}
            yield from find_wrong_end(str(platform_object), action, runs, events)
