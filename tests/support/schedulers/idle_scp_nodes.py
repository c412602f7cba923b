"""Share the start time, the declared idleness and the scheduler of tests of idle SCP nodes."""

from typing import Final

from support.clocks.fake_clock import FakeClock

from gpuform.schemas.policies.lifetime import Idleness

START: Final = 1_800_100_000.0
IDLENESS: Final = Idleness(5.0, 3600.0, "below 5% for 1h")
SCHEDULER: Final = "gpuform.providers.scp.nodes.draining.create_declared_scheduler"
"""The function that finds who gives the nodes their jobs."""


def start_clock() -> FakeClock:
    """Return this machine's clock at START."""
    return FakeClock(START, is_platforms=False)
