"""What a plan costs, what there is to know and what gates say, added to every plan of a run."""

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from gpuform.providers.context import Clock, get_clock, synchronize_clock
from gpuform.providers.operations import Settings
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.planning import Step
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.gates.busy import Monitoring, with_usage
from gpuform.stacks.gates.evaluating import Keeper
from gpuform.stacks.gates.file import project_gates
from gpuform.stacks.gates.proven import proofs_of_steps, with_unreached
from gpuform.stacks.operations.opening.worlds import config_of
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.planned import with_costs
from gpuform.stacks.review.renames import find_option_changes, find_renames
from gpuform.stacks.schedule.noticing import exposures_of_steps, notices_of_steps


@dataclass(frozen=True, slots=True)
class Appraiser:
    """The price book and the gates of a project, for one run."""

    book: PriceBook
    keeper: Keeper
    clock: Clock

    @classmethod
    def of(cls, stack: Stack, environ: Mapping[str, str], allowed: Collection[str]) -> Self:
        """Reads both files. Raises EngineError for what is wrong in them, with its place."""
        directory = stack.project.directory
        settings = Settings(config=config_of(stack).get, environ=environ)
        ids = {entry.urn: entry.id for entry in stack.snapshot.resources if not entry.delete}
        gates = project_gates(directory)
        monitoring = Monitoring(settings, ids)
        keeper = Keeper(gates, allowed, stack.project.program, monitoring)
        return cls(PriceBook.read(directory), keeper, synchronize_clock(get_clock(environ)))

    @classmethod
    def of_prices(cls, stack: Stack) -> Self:
        """The price book alone, for runs that change nothing on a platform."""
        keeper = Keeper((), (), stack.project.program)
        return cls(
            PriceBook.read(stack.project.directory),
            keeper,
            synchronize_clock(get_clock(os.environ)),
        )

    @property
    def has_gates(self) -> bool:
        return bool(self.keeper.gates)

    def appraised(self, plan: Plan, steps: Iterable[Step]) -> Plan:
        """The plan with costs, notices and gates; `steps` are all those of the run that made it."""
        steps = list(steps)
        noticed = notices_of_steps(steps, self.clock.now(), is_emulated=self.clock.is_platforms)
        notices = (*plan.notices, *noticed, *find_option_changes(steps), *find_renames(steps))
        proofs = proofs_of_steps(steps) if self.keeper.asks("certified") else None
        looked_at = {"exposures": exposures_of_steps(steps), "proofs": proofs}
        plan = with_costs(plan, steps, self.book).model_copy(
            update={"notices": notices, **looked_at}
        )
        plan = self.keeper.judged(plan)
        monitoring = self.keeper.monitoring
        if monitoring is None:
            return plan
        return with_unreached(with_usage(plan, monitoring), steps, monitoring.settings)
