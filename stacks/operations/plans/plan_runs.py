"""Find out from a stack's history whether a saved plan was applied.

Runs of saved plans record the plan's seal in the history (`saved_plans.build_origin`). Multi-stack
runs and `SavedPlan` call this module.
"""

from enum import Enum, auto

from gpuform.stacks.engine.stack import PLAN_SEAL
from gpuform.stacks.engine.store import RunHistory


class PlanRun(Enum):
    """What the history of a stack shows of a saved plan."""

    NONE = auto()
    """No run has applied the plan."""
    UNFINISHED = auto()
    """The last run has begun to apply the plan, and has failed, was killed or still runs."""
    DONE = auto()
    """The last run has applied the plan."""
    OVERTAKEN = auto()
    """A run has applied the plan, and another run has changed the stack since."""


def find_plan_run(history: RunHistory, seal: str) -> PlanRun:
    """Return what the history shows of the plan with this seal.

    Raises:
        DamagedFile: an entry of the history cannot be read.
    """
    # The latest entry decides nearly always, and costs one request.
    for index, name in enumerate(reversed(history.names)):
        entry = history.read_entry(name)
        if not seal or entry.environment.get(PLAN_SEAL) != seal:
            if index >= _SEARCHED_RUNS:
                break
            continue
        if index > 0:
            return PlanRun.OVERTAKEN
        return PlanRun.DONE if entry.result == "succeeded" else PlanRun.UNFINISHED
    return PlanRun.NONE


_SEARCHED_RUNS = 20
"""How many runs back the plan is searched: the answer only chooses the words of a refusal."""
