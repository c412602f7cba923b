"""What a plan costs and what the project's gates say of it, added to every plan of a run."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from gpuform.providers.actions import Settings
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.steps import Step
from gpuform.stacks.engine.values import unwrap_secrets
from gpuform.stacks.gates.busy import Monitoring
from gpuform.stacks.gates.evaluating import Keeper
from gpuform.stacks.gates.file import project_gates
from gpuform.stacks.pricing.book import PriceBook
from gpuform.stacks.pricing.planned import with_costs


@dataclass(frozen=True, slots=True)
class Appraiser:
    """The price book and the gates of a project, for one run."""

    book: PriceBook
    keeper: Keeper

    @classmethod
    def of(cls, stack: Stack, environ: Mapping[str, str], allowed: Collection[str]) -> Self:
        """Reads both files. Raises EngineError for what is wrong in them, with its place."""
        directory = stack.project.directory
        settings = Settings(config=config_of(stack).get, environ=environ)
        ids = {entry.urn: entry.id for entry in stack.snapshot.resources if not entry.delete}
        gates = project_gates(directory)
        monitoring = Monitoring(settings, ids)
        keeper = Keeper(gates, allowed, stack.project.program, monitoring)
        return cls(PriceBook.read(directory), keeper)

    @classmethod
    def of_prices(cls, stack: Stack) -> Self:
        """The price book alone, for runs that change nothing on a platform."""
        return cls(PriceBook.read(stack.project.directory), Keeper((), (), stack.project.program))

    @property
    def has_gates(self) -> bool:
        return bool(self.keeper.gates)

    def appraised(self, plan: Plan, steps: Iterable[Step]) -> Plan:
        """The plan with costs and gates; `steps` are all those of the run that made it."""
        return self.keeper.judged(with_costs(plan, steps, self.book))


def config_of(stack: Stack) -> dict[str, str]:
    """The stack's configuration in plain text, by full keys."""
    inputs = unwrap_secrets(stack.settings.provider_inputs(stack.crypter))
    return {key: str(value) for key, value in inputs.items()} if isinstance(inputs, dict) else {}
