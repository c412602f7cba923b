"""What the platform answers, as inputs to compare and as outputs to give out."""

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from gpuform.schemas.together.drivers import driver_name, driver_pair
from gpuform.schemas.together.outputs import (
    AttachedVolumeOutputs,
    ClusterOutputs,
    ControlPlaneNodeOutputs,
    GpuWorkerNodeOutputs,
    SharedVolumeOutputs,
)
from gpuform.schemas.together.wire import Cluster, Volume

_SAME_NAMES = (
    "cluster_name",
    "region",
    "gpu_type",
    "num_gpus",
    "billing_type",
    "cluster_type",
    "capacity_pool_id",
    "num_capacity_pool_gpus",
    "num_reserved_gpus",
    "reservation_start_time",
    "reservation_end_time",
    "project_id",
    "install_traefik",
    "slurm_shm_size_gib",
)


def cluster_inputs(cluster: Cluster, known: Mapping[str, Any]) -> dict[str, Any]:
    """The input fields that the platform returns, in the names and types of ClusterInputs.

    ``known``: the inputs declared last time. A field without a value in the answer is left out, and
    so is ``num_gpus`` where automatic scaling may have moved it.
    """
    values = {name: getattr(cluster, name) for name in _SAME_NAMES}
    values["cuda_version"], values["nvidia_driver_version"] = _drivers(cluster)
    values["num_preemptible_gpus"] = cluster.desired_preemptible_gpus
    values["oidc_config"] = _declared_part(cluster.oidc_config)
    values["cluster_config"] = _declared_part(cluster.cluster_config)
    if cluster.add_ons is not None:
        values["add_ons"] = [_declared_part(add_on) for add_on in cluster.add_ons]
    if not cluster.num_gpus or _was_scaled_automatically(cluster.num_gpus, known):
        del values["num_gpus"]
    return {name: value for name, value in values.items() if value not in (None, "")}


def cluster_outputs(
    cluster: Cluster, *, ready: bool, not_ready_reason: str | None = None
) -> ClusterOutputs:
    """The computed outputs; whether it is ready is for the caller to say."""
    cuda, driver = _drivers(cluster)
    return ClusterOutputs(
        ready=ready,
        not_ready_reason=not_ready_reason,
        status=cluster.status,
        kube_config=kube_config_text(cluster),
        control_plane_nodes=[
            ControlPlaneNodeOutputs.model_validate(node, from_attributes=True)
            for node in cluster.control_plane_nodes
        ],
        gpu_worker_nodes=[
            GpuWorkerNodeOutputs.model_validate(node, from_attributes=True)
            for node in cluster.gpu_worker_nodes
        ],
        volumes=[
            AttachedVolumeOutputs.model_validate(volume, from_attributes=True)
            for volume in cluster.volumes
        ],
        driver_version=_name_or_none(cuda, driver),
        allocated_preemptible_gpus=cluster.allocated_preemptible_gpus,
        duration_hours=cluster.duration_hours,
        created_at=cluster.created_at,
        first_ready_at=cluster.first_ready_at,
    )


def kube_config_text(cluster: Cluster) -> str | None:
    """The kubeconfig as YAML, None until the control plane exists. It is a secret.

    The API sends base64; an answer that is none is taken for the YAML itself.
    """
    sent = cluster.kube_config.get_secret_value()
    if not sent:
        return None
    try:
        return base64.b64decode(sent, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return sent


def volume_inputs(volume: Volume) -> dict[str, Any]:
    """The input fields that the platform returns: its region is not among them."""
    values = {"volume_name": volume.volume_name, "size_tib": volume.size_tib}
    return {name: value for name, value in values.items() if value}


def volume_outputs(
    volume: Volume, *, ready: bool, not_ready_reason: str | None = None
) -> SharedVolumeOutputs:
    """The computed outputs; whether it is ready is for the caller to say."""
    return SharedVolumeOutputs(ready=ready, not_ready_reason=not_ready_reason, status=volume.status)


def _drivers(cluster: Cluster) -> tuple[str, str]:
    """The pair, which older servers send as one name."""
    if cluster.driver_version and not cluster.cuda_version:
        try:
            return driver_pair(cluster.driver_version)
        except ValueError:
            pass
    return cluster.cuda_version, cluster.nvidia_driver_version


def _name_or_none(cuda_version: str, nvidia_driver_version: str) -> str | None:
    try:
        return driver_name(cuda_version, nvidia_driver_version)
    except ValueError:
        return None


def _declared_part(part: BaseModel | None) -> dict[str, Any] | None:
    return None if part is None else part.model_dump(exclude_none=True)


def _was_scaled_automatically(num_gpus: int, known: Mapping[str, Any]) -> bool:
    least, most = known.get("num_gpus"), known.get("auto_scale_max_gpus")
    return bool(known.get("auto_scale")) and (least or 0) <= num_gpus <= (most or num_gpus)
