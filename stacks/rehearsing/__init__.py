"""Play a plan on the emulator while something goes wrong, and report what each hazard costs.

`rehearse` is the operation behind `gpuform rehearse`, `rehearse_together` that with `--all`. The
processes that play have no credentials and can reach nothing but their emulator.
"""

from gpuform.stacks.rehearsing.operation import RehearsalError, rehearse, rehearse_together
from gpuform.stacks.rehearsing.sealed_states import PlannedStack, RehearsalOptions

__all__ = ["PlannedStack", "RehearsalError", "RehearsalOptions", "rehearse", "rehearse_together"]
