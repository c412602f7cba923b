"""Implement the lifecycle of a health gate, which waits until Lens's numbers meet a condition.

`lifecycle` calls `HealthGateOperations`. Create waits and delete does nothing: no object exists. A
passed gate stays passed until its triggers or its condition change. A refresh reports whether the
gate would pass now.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done
from gpuform.providers.errors import GpuformError
from gpuform.providers.evidence import OPEN_HEALTH_GATE, Observation, find_gaps
from gpuform.providers.http import Retry
from gpuform.providers.lens.client import LensClient, get_client
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.lens.conditions import (
    collect_numbers,
    describe_violations,
    find_heatmap_contradictions,
    find_overview_contradictions,
    needs_heatmap,
)
from gpuform.schemas.lens.inputs import (
    DEFAULT_WAIT_MINUTES,
    ConditionInputs,
    HealthGateInputs,
    HealthGateOutputs,
    SeenOutputs,
)
from gpuform.schemas.lens.wire import GpuHeatmap, Overview
from gpuform.schemas.resource_facts import Notice, NoticeKind

ID = "overview"
"""The id of every gate: Lens has one overview."""

POLL_INTERVAL_S = 15.0
DAY_S = 86400.0

ObservedGate = Observed[HealthGateOutputs]


class HealthGateOperations:
    """The operations of a gate."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def create(self, context: ProviderContext, inputs: HealthGateInputs) -> str:  # noqa: ARG002 - the shape of ResourceOperations
        """Return the one id of all gates; send nothing.

        Raises:
            MissingCredentials: no address of Lens is configured.
        """
        self._client.require_address()
        return ID

    def wait_until_ready(
        self,
        context: ProviderContext,
        object_id: str,  # noqa: ARG002 - the shape of ResourceOperations
        inputs: HealthGateInputs,
    ) -> ObservedGate:
        """Wait until the condition holds, for at most the declared `wait_minutes`.

        Without a declaration the wait is `DEFAULT_WAIT_MINUTES`.

        Raises:
            NotReady: the condition does not hold in time; the error has the last numbers.
        """

        def poll_gate() -> PollResult[ObservedGate]:
            overview, heatmap = _fetch_numbers(self._client, inputs.condition)
            reason = _explain_closed(inputs.condition, overview, heatmap)
            outputs = build_outputs(overview, heatmap, reason)
            return PollResult(Observed({}, outputs), reason or "passed", is_done=not reason)

        timeout_s = 60.0 * (inputs.wait_minutes or DEFAULT_WAIT_MINUTES)
        return wait_until_done(
            context, poll_gate, label="health gate", interval=POLL_INTERVAL_S, limit=timeout_s
        )

    def read(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> ObservedGate | None:
        """Return the gate as of its last pass, and in `amiss_now` why a passed gate would fail now.

        An import, which has no known inputs, gets the current overview instead. Returns None if
        `object_id` is not the id of all gates.

        Raises:
            GpuformError: Lens does not answer an import.
        """
        if object_id != ID:
            return None
        # An import has no condition that could be checked.
        if not known_inputs:
            return Observed({}, build_outputs(self._client.get_overview(), None, ""))
        names = HealthGateOutputs.model_fields
        # The numbers of the moment when the gate passed: dependents were created because of them.
        stored_outputs = {
            name: value for name, value in context.stored_properties.items() if name in names
        }
        stored_outputs["amiss_now"] = (
            self._explain_closed_now(known_inputs) if stored_outputs.get("ready") else None
        )
        return Observed({}, HealthGateOutputs.model_validate({"ready": False, **stored_outputs}))

    def _explain_closed_now(self, known_inputs: Mapping[str, Any]) -> str | None:
        """Return why the gate would not pass now, or None if it would.

        Lens is asked once. A Lens that does not answer is a reason, and no error.
        """
        condition = ConditionInputs.model_validate(known_inputs["condition"])
        try:
            # Sent once: a refresh must not wait for a Lens that does not answer.
            reason = _explain_closed(
                condition, *_fetch_numbers(self._client, condition, Retry.NEVER)
            )
        # A refresh of the whole stack must not fail because Lens does not answer.
        except GpuformError as error:
            message = str(error).partition("\n")[0]
            return f"whether the gate would pass now is unknown: {message}"
        return f"the gate would not pass now: {reason}" if reason else None

    def update(
        self,
        context: ProviderContext,
        object_id: str,
        inputs: HealthGateInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Send nothing.

        `wait_until_ready`, called after every update, evaluates the condition again.
        """

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Send nothing to Lens: a health gate exists only in the state."""


def _find_observed_news(
    old_outputs: Mapping[str, Any],  # noqa: ARG001 - a hook
    outputs: Mapping[str, Any],
) -> Iterable[Notice]:
    """Yield a notice while Lens's numbers would keep a passed gate closed.

    Each read repeats the notice, until somebody acts.
    """
    if message := outputs.get("amiss_now"):
        yield Notice(kind=NoticeKind.CHANGED, text=str(message))


class HealthGateLifecycle(Lifecycle[HealthGateInputs, HealthGateOutputs]):
    """A health gate on Lens."""

    platform = "lens"
    kind = "HealthGate"
    inputs = HealthGateInputs
    outputs = HealthGateOutputs
    timeouts = Timeouts(
        create=DAY_S, update=DAY_S, delete=60
    )  # `wait_minutes` is what ends waiting
    operations = HealthGateOperations
    id_example = ID
    is_bound = True
    creates_no_object = True
    import_field = "condition"
    hooks = KindHooks(find_observed_news=_find_observed_news)


def _fetch_numbers(
    client: LensClient, condition: ConditionInputs, retry: Retry = Retry.SAFE
) -> tuple[Overview, GpuHeatmap | None]:
    """Return the overview, and the heatmap if the condition is about single GPUs."""
    return client.get_overview(retry), client.get_heatmap(retry) if needs_heatmap(
        condition
    ) else None


def _explain_closed(
    condition: ConditionInputs, overview: Overview, heatmap: GpuHeatmap | None
) -> str:
    """Return why the gate stays closed, or "" if it opens.

    Reasons are bounds that do not hold, and answers that are not evidence. `heatmap` is None if the
    condition needs none.
    """
    observations = [Observation("overview", find_overview_contradictions(condition, overview))]
    if heatmap is not None:
        observations.append(
            Observation("gpuHeatmap", find_heatmap_contradictions(condition, heatmap))
        )
    gaps = find_gaps(OPEN_HEALTH_GATE, *observations)
    return ", ".join(filter(None, (describe_violations(condition, overview, heatmap), *gaps)))


def build_outputs(overview: Overview, heatmap: GpuHeatmap | None, reason: str) -> HealthGateOutputs:
    """Return the outputs of a gate with the numbers of Lens; ready if `reason` is empty.

    `heatmap` is None if the condition needs none.
    """
    return HealthGateOutputs(
        ready=not reason,
        not_ready_reason=reason or None,
        overview=SeenOutputs.model_validate(collect_numbers(overview, heatmap)),
    )
