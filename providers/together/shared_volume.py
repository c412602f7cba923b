"""Create, read, grow and delete Together's shared volumes, which outlive clusters.

`gpuform.providers.lifecycle` calls `SharedVolumeOperations` through `SharedVolumeLifecycle`, whose
dotted path is in state files.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.providers.context import (
    PollResult,
    PollSchedule,
    ProviderContext,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import Conflict, GpuformError, NotFound, NotReady, NotShown
from gpuform.providers.http import build_contradiction_error
from gpuform.providers.lifecycle import KindHooks, Lifecycle
from gpuform.providers.operations import Observed, Settings, Timeouts
from gpuform.providers.records import Target
from gpuform.providers.together import regions
from gpuform.providers.together.client import find_write_refusal, get_client
from gpuform.providers.together.cluster_facts import describe_volume_usage
from gpuform.providers.together.cluster_view import describe_volume_credit
from gpuform.providers.together.regions import (
    complete_project,
    format_recorded_project,
    list_in_projects,
)
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import SharedVolumeInputs
from gpuform.schemas.together.outputs import (
    FAILED_VOLUME_STATUSES,
    STUCK_VOLUME_MESSAGES,
    USABLE_VOLUME_STATUSES,
    SharedVolumeOutputs,
    VolumeStatus,
)

POLL_INTERVAL_S = 5.0
DETACH_TIMEOUT_S = 600.0
"""Seconds that a delete waits for clusters to detach the volume."""

ObservedVolume = Observed[SharedVolumeOutputs]


class SharedVolumeOperations:
    """The operations of a shared volume."""

    def __init__(self, settings: Settings) -> None:
        self._client = get_client(settings)

    def find_planning_problems(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> Iterator[Problem]:
        """Yield a problem if the region does not exist.

        If Together does not answer, nothing is refused, and the context reports the missing check.
        """
        return regions.find_region_problems(self._client, context, values)

    def create(self, context: ProviderContext, inputs: SharedVolumeInputs) -> str:
        """Create a shared volume, or find the volume of an earlier attempt, and return the id.

        A volume that an earlier attempt has created is found again. Together reports no region of a
        volume (document 003, "Retrieve a Shared Volume"), so names are compared over all regions.

        Raises:
            GpuformError: Together refuses; see `create_once` for the others.
        """
        target = _build_target(context, inputs.volume_name)
        earlier_intent = context.intents.find(context.urn, target)

        def list_candidates() -> list[Candidate]:
            return [
                Candidate(
                    volume.volume_id,
                    is_being_deleted=volume.status == VolumeStatus.DELETING,
                    is_elsewhere=is_elsewhere,
                    reported_properties={"size_tib": volume.size_tib or None},
                )
                for volume, is_elsewhere in list_in_projects(
                    earlier_intent,
                    inputs.project_id,
                    lambda project_id: self._client.get_volume_listing(project_id).read_all(),
                )
                if volume.volume_name == inputs.volume_name
            ]

        creation = Creation(
            target,
            list_candidates,
            exists=lambda volume_id: self._find_volume(volume_id, inputs.project_id) is not None,
            attempts=[
                Attempt(
                    partial(self._client.create_volume, inputs),
                    sent={"size_tib": inputs.size_tib},
                )
            ],
            clock_ahead=lambda: self._client.clock_ahead,
            project=format_recorded_project(context, inputs.project_id),
        )
        return create_once(context, creation)

    def wait_until_ready(
        self, context: ProviderContext, object_id: str, inputs: SharedVolumeInputs
    ) -> ObservedVolume:
        """Wait until the volume is available or bound at the declared size.

        Raises:
            NotReady: the volume is gone or has failed, or the time is over.
        """

        def poll() -> PollResult[ObservedVolume]:
            volume = self._find_volume(object_id, inputs.project_id)
            if volume is None:
                raise NotShown(f"volume {object_id} no longer exists on the platform")
            return evaluate_volume(volume, inputs.size_tib)

        return wait_until_done(
            context, poll, label=f"volume {inputs.volume_name}", interval=self._poll_schedule
        )

    def read(
        self,
        context: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,
        known_inputs: Mapping[str, Any],
    ) -> ObservedVolume | None:
        """Return the volume as Together reports the values, or None for a missing volume.

        Together reports no region: the declared one is kept.
        """
        volume = self._find_volume(object_id, known_inputs.get("project_id"))
        return None if volume is None else evaluate_volume(volume, volume.size_tib).value

    def update(
        self,
        context: ProviderContext,  # noqa: ARG002 - the shape of ResourceOperations
        object_id: str,
        inputs: SharedVolumeInputs,
        changes: Sequence[FieldChange],
    ) -> None:
        """Request the growth of the volume to the declared size, the only change of a volume.

        A project that the state did not have yet sends no change. `wait_until_ready` waits for the
        growth.

        Raises:
            GpuformError: the newly declared project does not have the volume, or Together refuses.
        """
        paths = {change.path for change in changes}
        if "project_id" in paths:
            listing = self._client.get_volume_listing(inputs.project_id)
            if object_id not in {volume.volume_id for volume in listing.read_all()}:
                raise GpuformError(
                    f"project_id: project {inputs.project_id} does not show volume "
                    f"{inputs.volume_name}",
                    hint="declare the project of the volume, or none; Together cannot move a "
                    "volume to another project",
                )
        if paths != {"project_id"}:
            self._client.update_volume(object_id, inputs)

    def delete(
        self, context: ProviderContext, object_id: str, known_inputs: Mapping[str, Any]
    ) -> None:
        """Wait until clusters have detached the volume, delete it, and wait for the end.

        A missing volume is no error.

        Raises:
            GpuformError: a cluster still has the volume after `DETACH_TIMEOUT_S`, or again.
        """
        label = f"volume {known_inputs.get('volume_name') or object_id}"
        project_id = known_inputs.get("project_id")
        self._wait_until_detached(context, object_id, project_id, label)
        try:
            self._client.delete_volume(object_id)
        except NotFound as error:
            remaining_volume = self._find_volume(object_id, project_id)
            # a 404 alone proves nothing: a proxy may send it, too
            if remaining_volume is not None and remaining_volume.status != VolumeStatus.DELETING:
                raise build_contradiction_error(error, "it still exists") from None
        # a cluster attached the volume between the poll and the request
        except Conflict:
            raise _build_still_attached_error(label) from None

        def poll() -> PollResult[object] | None:
            volume = self._find_volume(object_id, project_id)
            return None if volume is None else PollResult(None, volume.status)

        wait_until_gone(context, poll, label=label, interval=self._poll_schedule)

    @property
    def _poll_schedule(self) -> PollSchedule:
        """Return the poll schedule shared by all waiters for volumes."""
        return self._client.get_poll_schedule(POLL_INTERVAL_S)

    def _find_volume(self, volume_id: str, project_id: str | None) -> wire.Volume | None:
        """Return the volume, or None if deleted."""
        return self._client.get_volume_listing(project_id).find_one(volume_id)

    def _wait_until_detached(
        self, context: ProviderContext, volume_id: str, project_id: str | None, label: str
    ) -> None:
        """Wait until no cluster has the volume, or the volume is gone.

        Raises:
            GpuformError: a cluster still has the volume after `DETACH_TIMEOUT_S`.
        """

        def poll() -> PollResult[None]:
            volume = self._find_volume(volume_id, project_id)
            # a volume that was deleted by somebody else is detached as well
            status = volume.status if volume else "gone"
            return PollResult(None, status, is_done=status != VolumeStatus.BOUND)

        try:
            wait_until_done(
                context, poll, label=label, interval=self._poll_schedule, limit=DETACH_TIMEOUT_S
            )
        except NotReady:
            context.raise_if_cancelled()
            raise _build_still_attached_error(label) from None


class SharedVolumeLifecycle(Lifecycle[SharedVolumeInputs, SharedVolumeOutputs]):
    """The resource kind of Together's shared volumes."""

    platform = "together"
    kind = "SharedVolume"
    inputs = SharedVolumeInputs
    outputs = SharedVolumeOutputs
    timeouts = Timeouts(create=1800, update=1800, delete=1800)
    operations = SharedVolumeOperations
    id_example = "b8aaf8f3-228e-4b65-b805-f9180145fa48"
    import_field = "region"
    is_eventually_consistent = True
    hooks = KindHooks(
        get_credit=lambda _inputs, outputs: describe_volume_credit(outputs),
        find_write_refusal=find_write_refusal,
        compute_resource_usage=lambda inputs, _outputs: describe_volume_usage(inputs),
        is_stuck=lambda old_outputs: old_outputs.get("status") in STUCK_VOLUME_MESSAGES,
    )

    def _complete_inputs(
        self, context: ProviderContext, values: Mapping[str, Any]
    ) -> tuple[dict[str, Any], list[Problem]]:
        """Return the inputs with the project of the volume, if one is known, and no problems."""
        target = _build_target(context, str(values.get("volume_name")))
        return complete_project(self._settings or Settings(), context, values, target), []


def _build_target(context: ProviderContext, volume_name: str) -> Target:
    """Build the target of a volume's create, under which the create is recorded."""
    return Target("together", "SharedVolume", context.redact_for_record(volume_name), region="")


def evaluate_volume(volume: wire.Volume, wanted_size_tib: int) -> PollResult[ObservedVolume]:
    """Return the poll result of a volume: ready at `wanted_size_tib`, not yet ready, or failed.

    The value has the inputs and outputs of the volume in each case. A larger volume is ready, too.
    """
    # a resize leaves the status as it is, so the size is compared as well
    is_ready = volume.status in USABLE_VOLUME_STATUSES and volume.size_tib >= wanted_size_tib
    progress = volume.status or "no status"
    if volume.status in USABLE_VOLUME_STATUSES and not is_ready:
        progress = f"{progress} with {volume.size_tib} of {wanted_size_tib} TiB"
    failure = None
    if volume.status in FAILED_VOLUME_STATUSES:
        failure = STUCK_VOLUME_MESSAGES.get(volume.status, f"its status is {volume.status}")
    outputs = SharedVolumeOutputs(
        ready=is_ready,
        not_ready_reason=None if is_ready else (failure or progress),
        status=volume.status,
    )
    inputs = {"volume_name": volume.volume_name, "size_tib": volume.size_tib}
    return PollResult(Observed(inputs, outputs), progress, is_done=is_ready, failure=failure)


def _build_still_attached_error(label: str) -> GpuformError:
    """Build the error for the deletion of a volume still attached to a cluster."""
    return GpuformError(
        f"{label} cannot be deleted: it is attached to a cluster",
        hint="delete that cluster first, or keep the volume",
    )
