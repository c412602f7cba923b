"""Whether what declares `idle` is idle now: its platform is asked, and what it says is told."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gpuform.providers.context import Clock, ProviderContext, use_context
from gpuform.providers.errors import GpuformError
from gpuform.providers.lifetime import Verdict
from gpuform.providers.operations import Settings
from gpuform.providers.records import Intents
from gpuform.schemas.policies.lifetime import idleness_of
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.lifecycles import lifecycle_of
from gpuform.stacks.pricing.footprints import told


@dataclass(slots=True)
class IdleWatch:
    """Asks by `settings`, and keeps by URN what was last told.

    Looks that are remembered are kept beside `intents`.
    """

    settings: Settings
    clock: Clock
    intents: Intents
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def __call__(self, entry: ResourceState) -> Verdict | None:
        """None where nothing is declared, or the resource is off already.

        What cannot be asked is not idle, and the verdict says so.
        """
        lifecycle, idleness = lifecycle_of(entry.type), idleness_of(told(entry.inputs))
        if lifecycle is None or idleness is None or lifecycle.is_off(told(entry.outputs)):
            return None
        try:
            known = told(entry.outputs)
            with use_context(ProviderContext(clock=self.clock, intents=self.intents, known=known)):
                verdict = lifecycle.idle(self.settings, entry.id, idleness)
        except GpuformError as error:
            verdict = Verdict(is_idle=False, because=f"it cannot be told: {error.message}")
        if verdict is not None:
            self.verdicts[entry.urn] = verdict
        return verdict

    def lines(self) -> Iterator[str]:
        """Why what was asked about is not stopped."""
        for urn, verdict in self.verdicts.items():
            if not verdict.is_idle:
                yield f"{name_of(urn)} is not stopped as idle: {verdict.because}"
