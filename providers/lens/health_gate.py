"""A gate that what depends on it passes once what Lens tells satisfies a condition.

Nothing is made: creating it waits, deleting it forgets it. It stays as it was when it was passed;
other triggers, or another condition, make it wait anew. A refresh tells whether it would be passed
now, and closes nothing.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import OPEN_HEALTH_GATE
from gpuform.providers.http import Retry
from gpuform.providers.lens.client import LensClient, client_for
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.lens.conditions import collect_numbers, describe_violations, needs_heatmap
from gpuform.schemas.lens.contradictions import (
    find_heatmap_contradictions,
    find_overview_contradictions,
)
from gpuform.schemas.lens.inputs import (
    DEFAULT_WAIT_MINUTES,
    ConditionInputs,
    HealthGateInputs,
    HealthGateOutputs,
    SeenOutputs,
)
from gpuform.schemas.lens.wire import GpuHeatmap, Overview
from gpuform.schemas.models import Problem
from gpuform.schemas.resource_facts import Notice, NoticeKind

ID = "overview"
"""There is one overview, so this is the id of every gate."""

INTERVAL = 15.0
DAY = 86400.0

Seen = Observed[HealthGateOutputs]


class HealthGateActions:
    """The verbs of a gate."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(
        self,
        call: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        values: Mapping[str, Any],  # noqa: ARG002 - the shape of ResourceOperations
    ) -> Iterator[Problem]:
        """What is not so now may be so when it is waited for."""
        return iter(())

    def create(self, call: ProviderContext, inputs: HealthGateInputs) -> str:  # noqa: ARG002 - the shape of ResourceOperations
        """There is nothing to make; without an address there is nothing to wait for."""
        self._client.require_address()
        return ID

    def wait_until_ready(
        self,
        call: ProviderContext,
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: HealthGateInputs,
    ) -> Seen:
        """Waits until the condition holds. Says what was seen when it does not in time."""

        def probe() -> PollResult[Seen]:
            overview, heatmap = _look(self._client, inputs.condition)
            reason = _find_reason(inputs.condition, overview, heatmap)
            outputs = outputs_of(overview, heatmap, reason)
            return PollResult(Observed({}, outputs), reason or "passed", is_done=not reason)

        limit = 60.0 * (inputs.wait_minutes or DEFAULT_WAIT_MINUTES)
        return wait_until_done(call, probe, label="health gate", interval=INTERVAL, limit=limit)

    def read(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> Seen | None:
        """The gate as it was when it was last passed, and what would keep it closed now.

        An import sees the overview of now.
        """
        if object_id != ID:
            return None
        if not known_inputs:
            return Observed({}, outputs_of(self._client.overview(), None, ""))
        names = HealthGateOutputs.model_fields
        stored = {name: value for name, value in call.stored_properties.items() if name in names}
        stored["amiss_now"] = self._amiss_now(known_inputs) if stored.get("ready") else None
        return Observed({}, HealthGateOutputs.model_validate({"ready": False, **stored}))

    def _amiss_now(self, known: Mapping[str, Any]) -> str | None:
        """A Lens that is silent keeps nobody from a refresh: it is asked once, and that is told."""
        condition = ConditionInputs.model_validate(known["condition"])
        try:
            reason = _find_reason(condition, *_look(self._client, condition, Retry.NEVER))
        except GpuformError as error:
            said = str(error).partition("\n")[0]
            return f"whether the gate would be passed now is not known: {said}"
        return f"the gate would not be passed now: {reason}" if reason else None

    def update(
        self,
        call: ProviderContext,
        object_id: str,
        inputs: HealthGateInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """There is nothing to send: `wait_until_ready` waits anew."""

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """There is nothing to delete."""


class HealthGateLifecycle(Lifecycle[HealthGateInputs, HealthGateOutputs]):
    """A health gate on Lens."""

    platform = "lens"
    kind = "HealthGate"
    inputs = HealthGateInputs
    outputs = HealthGateOutputs
    timeouts = Timeouts(create=DAY, update=DAY, delete=60)  # `wait_minutes` is what ends waiting
    operations = HealthGateActions
    id_example = ID
    is_bound = True
    creates_no_object = True
    import_field = "condition"

    @classmethod
    def find_observed_news(
        cls,
        old_outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
        outputs: Mapping[str, Any],
    ) -> Iterable[Notice]:
        """What would keep a passed gate closed, at each look: it stays so until somebody acts."""
        if text := outputs.get("amiss_now"):
            yield Notice(kind=NoticeKind.CHANGED, text=str(text))


def _look(
    client: LensClient, condition: ConditionInputs, retry: Retry = Retry.SAFE
) -> tuple[Overview, GpuHeatmap | None]:
    """What a condition is about; the heatmap is asked for where it is about single GPUs."""
    return client.overview(retry), client.heatmap(retry) if needs_heatmap(condition) else None


def _find_reason(condition: ConditionInputs, overview: Overview, heatmap: GpuHeatmap | None) -> str:
    """Return why the gate stays closed: bounds that do not hold, and answers that are no evidence.

    An empty text opens the gate.
    """
    observations = [Observation("overview", find_overview_contradictions(condition, overview))]
    if heatmap is not None:
        observations.append(
            Observation("gpuHeatmap", find_heatmap_contradictions(condition, heatmap))
        )
    gaps = find_gaps(OPEN_HEALTH_GATE, *observations)
    return ", ".join(filter(None, (describe_violations(condition, overview, heatmap), *gaps)))


def outputs_of(overview: Overview, heatmap: GpuHeatmap | None, reason: str) -> HealthGateOutputs:
    return HealthGateOutputs(
        ready=not reason,
        not_ready_reason=reason or None,
        overview=SeenOutputs.model_validate(collect_numbers(overview, heatmap)),
    )
