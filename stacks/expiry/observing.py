"""Observe whether this machine's clock is right, and whether something has work that is due to end.

`gpuform expire` takes its decisions by a clock and often without a person: `proving` compares these
observations with what each decision needs.
"""

from dataclasses import dataclass, field
from typing import Final

from gpuform.providers.actions import Settings
from gpuform.providers.calls import Call, Clock, duration, serving
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import Observation
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.lifecycles import lifecycle_of

LARGEST_SKEW_S: Final = 300.0
"""How far this machine's clock and a platform's may be apart for an end of time to count."""


@dataclass(slots=True)
class ExpiryObserver:
    """What a run has heard of clocks, and asks about work. Safe for many threads.

    Args:
        settings: where credentials and addresses of the platforms come from.
        clock: by which the run decides.
    """

    settings: Settings
    clock: Clock
    _seconds_ahead: dict[str, float | None] = field(default_factory=dict)

    def hear_clock(self, platform: str, seconds_ahead: float | None) -> None:
        """Note how far this machine's clock is ahead of a platform's, by the Date of an answer.

        None is an answer without a Date. Of several answers the one that differs most counts.
        """
        known = self._seconds_ahead.get(platform)
        if known is None or (seconds_ahead is not None and abs(seconds_ahead) > abs(known)):
            self._seconds_ahead[platform] = seconds_ahead

    def seconds_ahead(self, platform: str) -> float | None:
        """Return how far this machine's clock is ahead of a platform's; None if nobody knows."""
        return 0.0 if self.clock.is_platforms else self._seconds_ahead.get(platform)

    def observe_clock(self, platform: str, *, needs_date: bool) -> Observation:
        """Return whether the clock of this machine agrees with the platform's.

        Args:
            platform: whose answers the run has read just now.
            needs_date: whether it is a gap that no answer told the platform's time.
        """
        ahead = self.seconds_ahead(platform)
        if ahead is None:
            missing = [f"no answer of {platform} has a Date that confirms it"] if needs_date else []
        elif abs(ahead) > LARGEST_SKEW_S:
            way = "ahead of" if ahead > 0 else "behind"
            missing = [f"it is {duration(abs(ahead))} {way} the clock of {platform}"]
        else:
            missing = []
        return Observation("this machine's clock", missing)

    def observe_work(self, entry: ResourceState) -> Observation | None:
        """Return what the platform measures of an object's GPUs; None if it measures nothing."""
        lifecycle = lifecycle_of(entry.type)
        if lifecycle is None:
            return None
        try:
            with serving(Call(clock=self.clock)):
                return lifecycle.observe_work(self.settings, entry.id)
        except GpuformError as error:
            return Observation(lifecycle.platform, [error.message])
