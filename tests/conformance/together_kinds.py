"""Describe Together's cluster, shared volume and volume claim for the conformance suite."""

from typing import Any

from conformance.kind_descriptions import AnswerForm, Change, KindDescription, PlatformApi, Request

from gpuform.providers.emulator.together import ADMIN_KEY
from gpuform.schemas.together import wire

_CLUSTERS = "/compute/clusters"
_VOLUMES = "/compute/clusters/storage/volumes"

_CLUSTER = {
    "cluster_name": "train",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "billing_type": "ON_DEMAND",
}

CLUSTER = KindDescription(
    platform="together",
    kind="Cluster",
    valid_inputs=_CLUSTER,
    name_field="cluster_name",
    in_place=Change(
        {**_CLUSTER, "num_gpus": 24},
        "num_gpus",
        Request("PUT", f"{_CLUSTERS}/{{id}}", {"num_gpus": 24}),
    ),
    replacing=Change({**_CLUSTER, "gpu_type": "H200_SXM"}, "gpu_type"),
    invalid_inputs=[
        ({**_CLUSTER, "num_gpus": 12}, "num_gpus"),
        ({**_CLUSTER, "gpu_type": "H100_SMX"}, "gpu_type"),
        ({**_CLUSTER, "region": "us-central-88"}, "region"),
        ({**_CLUSTER, "billing_type": "RESERVED"}, "duration_days"),
        ({**_CLUSTER, "clustername": "x"}, "clustername"),
        ({**_CLUSTER, "add_ons": [{"name": "x"}]}, "add_ons[0].add_on_type"),
    ],
    create=Request("POST", _CLUSTERS, _CLUSTER),
    listed_as="clusters",
    outside_update=Request("PUT", f"{_CLUSTERS}/{{id}}", {"num_gpus": 32}),
    outside_drift={"num_gpus": 32},
    drift_is_repaired=True,
    outside_delete=Request("DELETE", f"{_CLUSTERS}/{{id}}"),
    pending_status="InstallingDrivers",
    failed_status="Degraded",
    object_path=r"^/compute/clusters/[0-9a-f-]{36}$",
    reports_creation_time=True,
    key_variable="TOGETHER_API_KEY",
    key_config="together:apiKey",
    key=ADMIN_KEY,
    request_paths="^/compute/",
    capacity_fault={"status": 409, "body": {"error": "Out of stock"}},
    wire=wire.Cluster,
    unplanted_fields=frozenset(
        {
            *(f"Cluster.{name}" for name in _CLUSTER),
            "Cluster.cluster_id",
            "Cluster.status",
            "GpuWorkerNode.deleted_at",
            "Volume.volume_id",
            "Volume.status",
        }
    ),
    secret_outputs=frozenset({"kube_config"}),
    unrelated_values=frozenset({"gpu_worker_nodes.num_gpus", "items.metadata.name"}),  # of one node
)

_VOLUME = {"volume_name": "data", "size_tib": 2, "region": "us-central-8"}

SHARED_VOLUME = KindDescription(
    platform="together",
    kind="SharedVolume",
    valid_inputs=_VOLUME,
    name_field="volume_name",
    in_place=Change(
        {**_VOLUME, "size_tib": 3},
        "size_tib",
        Request("PUT", _VOLUMES, {"volume_id": "{id}", "size_tib": 3}),
    ),
    replacing=Change({**_VOLUME, "region": "us-east-2"}, "region"),
    invalid_inputs=[
        ({**_VOLUME, "size_tib": 0}, "size_tib"),
        ({**_VOLUME, "region": "us-central-88"}, "region"),
        ({"volume_name": "data", "size_tib": 2}, "region"),
        ({**_VOLUME, "size": 2}, "size"),
    ],
    create=Request("POST", _VOLUMES, _VOLUME),
    listed_as="volumes",
    import_suffix="@us-central-8",
    outside_update=Request("PUT", _VOLUMES, {"volume_id": "{id}", "size_tib": 4}),
    outside_drift={"size_tib": 4},
    drift_is_repaired=False,
    outside_delete=Request("DELETE", f"{_VOLUMES}/{{id}}"),
    pending_status="provisioning",
    failed_status="failed",
    object_path=r"^/compute/clusters/storage/volumes/[0-9a-f-]{36}$",
    reports_creation_time=False,
    key_variable="TOGETHER_API_KEY",
    key_config="together:apiKey",
    key=ADMIN_KEY,
    request_paths="^/compute/",
    capacity_fault={"status": 409, "body": {"error": "Out of stock"}},
    wire=wire.Volume,
    unplanted_fields=frozenset({"Volume.volume_id", "Volume.volume_name", "Volume.status"}),
)

_CLAIMS = "/{train}/api/v1/namespaces/default/persistentvolumeclaims"
_CLAIM = {
    "cluster_id": "{train}",
    "name": "scratch",
    "storage": "10Gi",
    "storage_class_name": "shared-storage-class",
}


def _build_claim(storage: str) -> dict[str, Any]:
    return {"resources": {"requests": {"storage": storage}}}


VOLUME_CLAIM = KindDescription(
    platform="together",
    kind="VolumeClaim",
    valid_inputs=_CLAIM,
    name_field="name",
    in_place=Change(
        {**_CLAIM, "storage": "20Gi"},
        "storage",
        Request("PATCH", f"{_CLAIMS}/scratch", {"spec": _build_claim("20Gi")}),
    ),
    replacing=Change({**_CLAIM, "storage_class_name": "local-storage-class"}, "storage_class_name"),
    invalid_inputs=[
        ({**_CLAIM, "storage": "10 GB"}, "storage"),
        ({**_CLAIM, "storage": "0"}, "storage"),
        ({**_CLAIM, "name": "Scratch_1"}, "name"),
        ({**_CLAIM, "volume_name": "data"}, "volume_name"),
        ({**_CLAIM, "access_modes": ["ReadWriteAll"]}, "access_modes[0]"),
        ({**_CLAIM, "size": "10Gi"}, "size"),
    ],
    create=Request(
        "POST",
        _CLAIMS,
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "scratch"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                **_build_claim("10Gi"),
                "storageClassName": "shared-storage-class",
            },
        },
    ),
    listed_as="volume_claims",
    outside_update=Request("PATCH", f"{_CLAIMS}/scratch", {"spec": _build_claim("40Gi")}),
    outside_drift={"storage": "40Gi"},
    drift_is_repaired=False,
    outside_delete=Request("DELETE", f"{_CLAIMS}/scratch"),
    pending_status="Provisioning",
    failed_status="Lost",
    object_path=r"/persistentvolumeclaims/[^/]+$",
    names_are_unique=True,
    reuses_ids=True,
    deleting_statuses=frozenset(),
    key_variable="TOGETHER_API_KEY",
    key_config="together:apiKey",
    key=ADMIN_KEY,
    request_paths="^/",
    list_path=r"/persistentvolumeclaims/[^/]+$",
    capacity_fault={"status": 403, "body": {"message": "exceeded quota: storage"}},
    wire=wire.Claim,
    answer_forms=[AnswerForm(r"/persistentvolumeclaims/[^/]+$", wire.Claim)],
    unplanted_fields=frozenset(
        {
            *("ClaimMetadata.name", "ClaimMetadata.namespace", "ClaimMetadata.uid"),
            *("ClaimMetadata.annotations", "ClaimMetadata.deleted_at", "ClaimStatus.phase"),
            *("ClaimResources.requests", "ClaimStatus.capacity", "ClaimSpec.access_modes"),
            *("ClaimSpec.storage_class_name", "ClaimSpec.volume_name"),
        }
    ),
    requirements=[Request("POST", _CLUSTERS, _CLUSTER)],
    requirements_listed_as="clusters",
    api="kubernetes",
    control_path="kubernetes",
    unrelated_values=frozenset(
        {
            "spec.volumeName",  # made by the storage class, where that is declared
            *("status.accessModes", "status.capacity.storage"),  # what there is, not what is asked
        }
    ),
)

KINDS = (CLUSTER, SHARED_VOLUME, VOLUME_CLAIM)

APIS = {
    "together": PlatformApi(
        prefix="/together/v1",
        headers=lambda _method, _url: {"Authorization": f"Bearer {ADMIN_KEY}"},
        not_found_answer={
            "error": {"message": "not found", "type": "not_found_error", "code": 404}
        },
        empty_list_answer={"clusters": [], "volumes": []},
        list_paths="/compute/clusters$|/storage/volumes$",
    ),
    "kubernetes": PlatformApi(
        prefix="/kubernetes",
        headers=lambda _method, _url: {},  # each cluster has a credential of its own
        not_found_answer={
            "kind": "Status",
            "apiVersion": "v1",
            "status": "Failure",
            "reason": "NotFound",
            "message": 'persistentvolumeclaims "scratch" not found',
            "details": {"name": "scratch", "kind": "persistentvolumeclaims"},
            "code": 404,
        },
        empty_list_answer={"kind": "PersistentVolumeClaimList", "apiVersion": "v1", "items": []},
        list_paths="/persistentvolumeclaims$",
    ),
}
