"""Rehearse the plan of a stack: prepare the inputs, play all hazards, and order the outcomes."""

from collections.abc import Callable
from dataclasses import dataclass, field

from gpuform.schemas.plan import Plan
from gpuform.schemas.rehearsal import HazardKind, Rehearsal
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.operations.opening.selected_stack import SelectedStack


class RehearsalError(EngineError):
    """A plan that cannot be rehearsed."""

    help_page = "guides/rehearse"


@dataclass(frozen=True, slots=True)
class RehearsalOptions:
    """What to play.

    Attributes:
        hazards: the kinds to play; the run in which nothing goes wrong is always played.
        seed: the seed of the emulator's ids.
        jobs: how many processes play at a time.
        on_progress: called with the number of hazards played and of all hazards.
    """

    hazards: tuple[HazardKind, ...] = tuple(HazardKind)
    seed: int = 0
    jobs: int = 2
    on_progress: Callable[[int, int], None] = field(default=lambda _played, _all: None)


def rehearse(
    stack: SelectedStack, plan: Plan, options: RehearsalOptions = RehearsalOptions()
) -> Rehearsal:
    """Play `plan` of the stack on the emulator under all hazards, and return the outcomes.

    Nothing is written to the stack, and no platform is asked. KeyboardInterrupt ends the processes.

    Raises:
        RehearsalError: the plan or the state cannot be played on the emulator.
    """
    kinds = ", ".join(options.hazards)
    raise RehearsalError(f"stack {stack.name}: {plan.operation} cannot be rehearsed yet ({kinds})")
