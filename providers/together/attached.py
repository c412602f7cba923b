"""The shared volume of a cluster: whether it can be attached, and when it is free again."""

from typing import Final

from gpuform.providers.calls import Call, Look, Rhythm, wait_until
from gpuform.providers.errors import GpuformError, NotFound, NotReady
from gpuform.providers.together.client import TogetherClient
from gpuform.schemas.together.inputs import ClusterInputs
from gpuform.schemas.together.statuses import VolumeStatus

RELEASE: Final = 600.0
"""Seconds to wait for the volume of a deleted cluster."""


def refuse_unusable(client: TogetherClient, want: ClusterInputs) -> None:
    """Raises GpuformError where the declared volume cannot be attached now."""
    volume_id = want.volume_id
    if volume_id is None:
        return
    try:
        status = client.shared_volumes(want.project_id).one(volume_id).status
    except NotFound:
        raise GpuformError(
            f"volume_id: there is no shared volume {volume_id}",
            hint="declare the id of a volume that exists, in the cluster's region",
        ) from None
    if status not in (VolumeStatus.AVAILABLE, VolumeStatus.BOUND):
        raise GpuformError(
            f"volume_id: the shared volume {volume_id} cannot be attached now: it is {status}",
            hint="a volume can be attached when it is available, or bound to other clusters",
        )


def wait_until_free(
    call: Call, client: TogetherClient, volume_id: str, project_id: str | None, rhythm: Rhythm
) -> None:
    """Waits until the volume of a cluster that is gone can be used, unless another one has it."""
    volumes, clusters = client.shared_volumes(project_id), client.shared_clusters(project_id)
    if any(volume_id == each.volume_id for one in clusters.all() for each in one.volumes):
        return

    def probe() -> Look[object]:
        try:
            status = volumes.one(volume_id).status
        except NotFound:
            return Look(None, "gone", done=True)
        return Look(None, f"volume {status}", done=status != VolumeStatus.BOUND)

    what = f"release of volume {volume_id}"
    try:
        wait_until(call, probe, what=what, interval=rhythm, limit=RELEASE)
    except NotReady as error:
        # The cluster is gone; deleting the volume waits again.
        call.on_warning(error.reason)
