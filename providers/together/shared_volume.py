"""Together's shared volume, which outlives the clusters that mount it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers.actions import Observed, Settings, Timeouts
from gpuform.providers.calls import Call, Look, Rhythm, wait_until, wait_until_gone
from gpuform.providers.creating import Attempt, Candidate, Creation, create_once
from gpuform.providers.errors import Conflict, GpuformError, NotFound, NotReady
from gpuform.providers.http import contradicted
from gpuform.providers.lifecycle import Lifecycle
from gpuform.providers.records import Target
from gpuform.providers.together import regions
from gpuform.providers.together.client import client_for, find_write_refusal
from gpuform.providers.together.cluster_facts import volume_footprint
from gpuform.providers.together.cluster_view import volume_credit
from gpuform.schemas.changes import FieldChange
from gpuform.schemas.models import Problem
from gpuform.schemas.resource_facts import Credit, Footprint
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import SharedVolumeInputs
from gpuform.schemas.together.outputs import SharedVolumeOutputs
from gpuform.schemas.together.statuses import (
    VOLUME_FAILED,
    VOLUME_READY,
    VOLUME_STUCK,
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

    def planning_problems(self, call: Call, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Whether the region exists."""
        return regions.find_region_problems(self._client, call, values)

    def create(self, call: Call, want: SharedVolumeInputs) -> str:
        """The platform tells no region of a volume: names are compared over all regions."""

        def candidates() -> list[Candidate]:
            return [
                Candidate(
                    each.volume_id,
                    leaving=each.status == VolumeStatus.DELETING,
                    shown={"size_tib": each.size_tib or None},
                )
                for each in self._client.get_shared_volumes(want.project_id).all()
                if each.volume_name == want.volume_name
            ]

        creation = Creation(
            Target("together", "SharedVolume", call.kept(want.volume_name), region=""),
            candidates,
            exists=lambda id_: self._find(id_, want.project_id) is not None,
            attempts=[
                Attempt(
                    lambda: self._client.create_volume(want).volume_id,
                    sent={"size_tib": want.size_tib},
                )
            ],
            clock_ahead=lambda: self._client.clock_ahead,
        )
        return create_once(call, creation)

    def settle(self, call: Call, id_: str, want: SharedVolumeInputs) -> Seen:
        """Available or bound, at the declared size."""

        def probe() -> Look[Seen]:
            volume = self._find(id_, want.project_id)
            if volume is None:
                raise NotReady(f"volume {id_} is gone from the platform")
            return look_at(volume, want.size_tib)

        return wait_until(call, probe, what=f"volume {want.volume_name}", interval=self._rhythm)

    def read(self, call: Call, id_: str, known: Mapping[str, Any]) -> Seen | None:  # noqa: ARG002 - the shape of Actions
        """The region is never returned, so it stays as declared."""
        volume = self._find(id_, known.get("project_id"))
        return None if volume is None else look_at(volume, volume.size_tib).value

    def update(
        self,
        call: Call,  # noqa: ARG002 - the shape of Actions
        id_: str,
        want: SharedVolumeInputs,
        changes: Sequence[FieldChange],  # noqa: ARG002 - the size alone can change
    ) -> None:
        """Grows the volume."""
        self._client.update_volume(id_, want)

    def delete(self, call: Call, id_: str, known: Mapping[str, Any]) -> None:
        """Waits while a cluster still has it, for a while, and then until it answers 404."""
        what = f"volume {known.get('volume_name') or id_}"
        project_id = known.get("project_id")
        self._wait_until_free(call, id_, project_id, what)
        try:
            self._client.delete_volume(id_)
        except NotFound as error:
            left = self._find(id_, project_id)
            if left is not None and left.status != VolumeStatus.DELETING:
                raise contradicted(error, "it is still there") from None
        except Conflict:
            raise _attached(what) from None

        def probe() -> Look[object] | None:
            volume = self._find(id_, project_id)
            return None if volume is None else Look(None, volume.status)

        wait_until_gone(call, probe, what=what, interval=self._rhythm)

    @property
    def _rhythm(self) -> Rhythm:
        return self._client.get_poll_interval(INTERVAL)

    def _find(self, id_: str, project_id: str | None) -> wire.Volume | None:
        try:
            return self._client.get_shared_volumes(project_id).one(id_)
        except NotFound:
            return None

    def _wait_until_free(self, call: Call, id_: str, project_id: str | None, what: str) -> None:
        def probe() -> Look[None]:
            volume = self._find(id_, project_id)
            status = volume.status if volume else "gone"
            return Look(None, status, done=status != VolumeStatus.BOUND)

        try:
            wait_until(call, probe, what=what, interval=self._rhythm, limit=RELEASE)
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
    actions = SharedVolumeActions
    id_example = "b8aaf8f3-228e-4b65-b805-f9180145fa48"
    asked = "region"
    lags = True

    @classmethod
    def credit(cls, values: Mapping[str, Any], seen: Mapping[str, Any]) -> Credit | None:  # noqa: ARG003 - a hook
        """Access to it goes last."""
        return volume_credit(seen)

    @classmethod
    def write_refusal(cls, settings: Settings) -> str:
        """Clusters and volumes are of the control plane, which a Member may only see."""
        return find_write_refusal(settings)

    @classmethod
    def footprint(cls, values: Mapping[str, Any], seen: Mapping[str, Any]) -> Footprint:  # noqa: ARG003 - a hook
        """Storage."""
        return volume_footprint(values)

    @classmethod
    def is_stuck(cls, old: Mapping[str, Any]) -> bool:
        """Without credit."""
        return old.get("status") in VOLUME_STUCK


def look_at(volume: wire.Volume, size_tib: int) -> Look[Seen]:
    """A volume as seen by somebody who waits for a size."""
    done = volume.status in VOLUME_READY and volume.size_tib >= size_tib
    phase = volume.status or "no status"
    if volume.status in VOLUME_READY and not done:
        phase = f"{phase} with {volume.size_tib} of {size_tib} TiB"
    failed = None
    if volume.status in VOLUME_FAILED:
        failed = VOLUME_STUCK.get(volume.status, f"its status is {volume.status}")
    outputs = SharedVolumeOutputs(
        ready=done, not_ready_reason=None if done else (failed or phase), status=volume.status
    )
    inputs = {"volume_name": volume.volume_name, "size_tib": volume.size_tib}
    return Look(Observed(inputs, outputs), phase, done=done, failed=failed)


def _attached(what: str) -> GpuformError:
    return GpuformError(
        f"{what} cannot be deleted: a cluster still has it",
        hint="delete that cluster first, or keep the volume",
    )
