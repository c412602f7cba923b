"""Together's shared volume, which outlives the clusters that mount it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.context import (
    PollResult,
    PollSchedule,
    ProviderContext,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import Conflict, GpuformError, NotFound, NotReady
from gpuform.providers.http import contradicted
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.providers.together import regions
from gpuform.providers.together.client import client_for, find_write_refusal
from gpuform.providers.together.cluster_facts import describe_volume_usage
from gpuform.providers.together.cluster_view import describe_volume_credit
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.resource_facts import Credit, ResourceUsage
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import SharedVolumeInputs
from gpuform.schemas.together.outputs import SharedVolumeOutputs
from gpuform.schemas.together.statuses import (
    FAILED_VOLUME_STATUSES,
    STUCK_VOLUME_MESSAGES,
    USABLE_VOLUME_STATUSES,
    VolumeStatus,
)

INTERVAL = 5.0
RELEASE = 600.0
"""Seconds to wait for a cluster to let go of a volume that is to be deleted."""

Seen = Observed[SharedVolumeOutputs]


class SharedVolumeActions:
    """The verbs of a shared volume."""

    def __init__(self, settings: Settings) -> None:
        self._client = client_for(settings)

    def planning_problems(
        self, call: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Whether the region exists."""
        return regions.find_region_problems(self._client, call, values)

    def create(self, call: ProviderContext, inputs: SharedVolumeInputs) -> str:
        """The platform tells no region of a volume: names are compared over all regions."""

        def candidates() -> list[Candidate]:
            return [
                Candidate(
                    each.volume_id,
                    leaving=each.status == VolumeStatus.DELETING,
                    shown={"size_tib": each.size_tib or None},
                )
                for each in self._client.get_shared_volumes(inputs.project_id).all()
                if each.volume_name == inputs.volume_name
            ]

        creation = Creation(
            Target(
                "together", "SharedVolume", call.redact_for_record(inputs.volume_name), region=""
            ),
            candidates,
            exists=lambda id_: self._find(id_, inputs.project_id) is not None,
            attempts=[
                Attempt(
                    lambda: self._client.create_volume(inputs).volume_id,
                    sent={"size_tib": inputs.size_tib},
                )
            ],
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(call, creation)

    def wait_until_ready(
        self, call: ProviderContext, object_id: str, inputs: SharedVolumeInputs
    ) -> Seen:
        """Available or bound, at the declared size."""

        def probe() -> PollResult[Seen]:
            volume = self._find(object_id, inputs.project_id)
            if volume is None:
                raise NotReady(f"volume {object_id} is gone from the platform")
            return look_at(volume, inputs.size_tib)

        return wait_until_done(
            call, probe, label=f"volume {inputs.volume_name}", interval=self._rhythm
        )

    def read(
        self,
        call: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,
        known_inputs: Mapping[str, Any],
    ) -> Seen | None:
        """The region is never returned, so it stays as declared."""
        volume = self._find(object_id, known_inputs.get("project_id"))
        return None if volume is None else look_at(volume, volume.size_tib).value

    def update(
        self,
        call: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,
        inputs: SharedVolumeInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - the size alone can change
    ) -> None:
        """Grows the volume."""
        self._client.update_volume(object_id, inputs)

    def delete(
        self, call: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Waits while a cluster still has it, for a while, and then until it answers 404."""
        what = f"volume {known_inputs.get('volume_name') or object_id}"
        project_id = known_inputs.get("project_id")
        self._wait_until_free(call, object_id, project_id, what)
        try:
            self._client.delete_volume(object_id)
        except NotFound as error:
            left = self._find(object_id, project_id)
            if left is not None and left.status != VolumeStatus.DELETING:
                raise contradicted(error, "it is still there") from None
        except Conflict:
            raise _attached(what) from None

        def probe() -> PollResult[object] | None:
            volume = self._find(object_id, project_id)
            return None if volume is None else PollResult(None, volume.status)

        wait_until_gone(call, probe, label=what, interval=self._rhythm)

    @property
    def _rhythm(self) -> PollSchedule:
        return self._client.get_poll_schedule(INTERVAL)

    def _find(self, id_: str, project_id: str | None) -> wire.Volume | None:
        try:
            return self._client.get_shared_volumes(project_id).one(id_)
        except NotFound:
            return None

    def _wait_until_free(
        self, call: ProviderContext, id_: str, project_id: str | None, what: str
    ) -> None:
        def probe() -> PollResult[None]:
            volume = self._find(id_, project_id)
            status = volume.status if volume else "gone"
            return PollResult(None, status, is_done=status != VolumeStatus.BOUND)

        try:
            wait_until_done(call, probe, label=what, interval=self._rhythm, limit=RELEASE)
        except NotReady:
            call.raise_if_cancelled()
            raise _attached(what) from None


class SharedVolumeLifecycle(Lifecycle[SharedVolumeInputs, SharedVolumeOutputs]):
    """A shared volume of Together."""

    platform = "together"
    kind = "SharedVolume"
    inputs = SharedVolumeInputs
    outputs = SharedVolumeOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=1800)
    operations = SharedVolumeActions
    id_example = "b8aaf8f3-228e-4b65-b805-f9180145fa48"
    import_field = "region"
    is_eventually_consistent = True

    @classmethod
    def get_credit(cls, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Credit | None:  # noqa: ARG003 - a hook
        """Access to it goes last."""
        return describe_volume_credit(outputs)

    @classmethod
    def find_write_refusal(cls, settings: Settings) -> str:
        """Clusters and volumes are of the control plane, which a Member may only see."""
        return find_write_refusal(settings)

    @classmethod
    def compute_resource_usage(
        cls,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],  # noqa: ARG003 - a hook
    ) -> ResourceUsage:
        """Storage."""
        return describe_volume_usage(inputs)

    @classmethod
    def is_stuck(cls, old_outputs: Mapping[str, Any]) -> bool:
        """Without credit."""
        return old_outputs.get("status") in STUCK_VOLUME_MESSAGES


def look_at(volume: wire.Volume, size_tib: int) -> PollResult[Seen]:
    """A volume as seen by somebody who waits for a size."""
    done = volume.status in USABLE_VOLUME_STATUSES and volume.size_tib >= size_tib
    phase = volume.status or "no status"
    if volume.status in USABLE_VOLUME_STATUSES and not done:
        phase = f"{phase} with {volume.size_tib} of {size_tib} TiB"
    failed = None
    if volume.status in FAILED_VOLUME_STATUSES:
        failed = STUCK_VOLUME_MESSAGES.get(volume.status, f"its status is {volume.status}")
    outputs = SharedVolumeOutputs(
        ready=done, not_ready_reason=None if done else (failed or phase), status=volume.status
    )
    inputs = {"volume_name": volume.volume_name, "size_tib": volume.size_tib}
    return PollResult(Observed(inputs, outputs), phase, is_done=done, failure=failed)


def _attached(what: str) -> GpuformError:
    return GpuformError(
        f"{what} cannot be deleted: a cluster still has it",
        hint="delete that cluster first, or keep the volume",
    )
