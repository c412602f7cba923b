"""Play a plan on the emulator while something goes wrong, and report what each hazard costs.

`rehearse` is the operation behind `gpuform rehearse`. The processes that play have no credentials
and can reach nothing but their emulator.
"""

from gpuform.stacks.rehearsing.operation import RehearsalOptions, rehearse

__all__ = ["RehearsalOptions", "rehearse"]
