"""Rules over several resources, as the engine applies them; `stacks/program.py` has the rules."""

from collections.abc import Callable, Iterable, Mapping

from gpuform.schemas.models import Problem
from gpuform.stacks.engine.registration import Registration

Rule = Callable[[Registration, Mapping[str, Registration]], Iterable[Problem]]
"""Given a registration and those so far by URN, itself included: what is wrong with it.

The registrations' inputs are as checked; a value may be unknown while planning.
"""
