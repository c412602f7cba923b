"""Test Together's wire models against the documented bodies and the platform's SDK."""

import base64
import json
from typing import Any, get_args

import pytest
from pydantic import ValidationError
from together.types import Cluster as SdkCluster
from together.types.cluster import ControlPlaneNode as SdkControlPlaneNode
from together.types.cluster import GPUWorkerNode as SdkGpuWorkerNode
from together.types.clusters import ClusterStorage

from gpuform.schemas.changes import compute_changes, select_declared_fields
from gpuform.schemas.checking import validate_inputs
from gpuform.schemas.together import outputs as statuses
from gpuform.schemas.together import wire
from gpuform.schemas.together.inputs import ClusterInputs, SharedVolumeInputs
from gpuform.schemas.together.outputs import ClusterOutputs, SharedVolumeOutputs
from gpuform.schemas.together.wire import (
    Cluster,
    ClusterDeleted,
    ClusterList,
    ControlPlaneNode,
    GpuWorkerNode,
    NodeLifecycleEvent,
    RegionList,
    Volume,
    VolumeDeleted,
    VolumeList,
)

KUBECONFIG = "apiVersion: v1\nkind: Config\nusers:\n- name: admin\n  user:\n    token: hunter2\n"
ENCODED = base64.b64encode(KUBECONFIG.encode()).decode()

PHASES = [{"phase": "CLUSTER_PHASE_READY", "transition_time": "2026-03-01T08:20:00Z"}]
WORKER: dict[str, Any] = {
    "node_id": "n-1",
    "host_name": "my-gpu-cluster-worker-0",
    "status": "Running",
    "num_gpus": 8,
    "num_cpu_cores": 192,
    "memory_gib": 2048.0,
    "networks": ["10.0.1.10"],
    "phase_transitions": [
        {"phase": "NODE_PHASE_RUNNING", "transition_time": "2026-03-01T08:10:00Z"}
    ],
    "instance_id": "i-1",
    "public_ipv4": "203.0.113.7",
    "ephemeral_storage": "1Ti",
    "ib_hca_count": 8,
    "latest_remediation": {
        "id": "r-1",
        "cluster_id": "c-1",
        "instance_id": "i-1",
        "mode": "REMEDIATION_MODE_REBOOT_VM",
        "state": "SUCCEEDED",
        "trigger": "REMEDIATION_TRIGGER_MANUAL",
    },
}
CLUSTER: dict[str, Any] = {
    "cluster_id": "c-1",
    "cluster_name": "my-gpu-cluster",
    "cluster_type": "KUBERNETES",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 8,
    "billing_type": "ON_DEMAND",
    "cuda_version": "12.6",
    "nvidia_driver_version": "560",
    "status": "Ready",
    "project_id": "p-1",
    "kube_config": ENCODED,
    "control_plane_nodes": [
        {
            "node_id": "cp-1",
            "host_name": "my-gpu-cluster-control-0",
            "status": "Running",
            "num_cpu_cores": 8,
            "memory_gib": 32.0,
            "network": "10.0.0.10",
            "phase_transitions": [],
            "public_ipv4": "203.0.113.1",
        }
    ],
    "gpu_worker_nodes": [WORKER],
    "deleted_gpu_worker_nodes": [{**WORKER, "deleted_at": "2026-03-02T08:00:00Z"}],
    "volumes": [
        {"volume_id": "v-1", "volume_name": "data", "size_tib": 2, "status": "bound"},
    ],
    "add_ons": [
        {
            "add_on_type": "ingress",
            "name": "in",
            "config": {"ingress": {"enabled": True}},
            "state": {"ingress": {}},
        }
    ],
    "phase_transitions": PHASES,
    "node_lifecycle_events": [
        {
            "message": "joined",
            "node_id": "n-1",
            "reason": "TogetherScaledUp",
            "timestamp": "2026-03-01T09:00:00Z",
        }
    ],
    "num_cpu_workers": 0,
    "num_reserved_gpus": 0,
    "num_capacity_pool_gpus": 0,
    "desired_preemptible_gpus": 0,
    "allocated_preemptible_gpus": 0,
    "created_at": "2026-03-01T08:00:00Z",
    "first_ready_at": "2026-03-01T08:20:00Z",
    "cluster_config": {"load_balancer": "NONE", "gpu_operator_version": "v24.6.2"},
    "install_traefik": False,
    "a_newer_field": {"x": 1},
}


def parse_cluster(**values: Any) -> Cluster:
    return Cluster.model_validate({**CLUSTER, **values})


@pytest.fixture
def declared_cluster(cluster: dict[str, Any]) -> dict[str, Any]:
    return validate_inputs(ClusterInputs, cluster)[0]


# Answers


def test_the_documented_cluster_is_parsed_completely():
    read = parse_cluster()
    assert read.gpu_worker_nodes[0].latest_remediation is not None
    assert read.gpu_worker_nodes[0].latest_remediation.state == "SUCCEEDED"
    assert read.control_plane_nodes[0].network == "10.0.0.10"
    assert read.deleted_gpu_worker_nodes[0].deleted_at == "2026-03-02T08:00:00Z"
    assert read.node_lifecycle_events == (
        NodeLifecycleEvent(
            message="joined",
            node_id="n-1",
            reason="TogetherScaledUp",
            timestamp="2026-03-01T09:00:00Z",
        ),
    )


@pytest.mark.parametrize(
    ("ours", "sdk"),
    [
        (Cluster, SdkCluster),
        (ControlPlaneNode, SdkControlPlaneNode),
        (GpuWorkerNode, SdkGpuWorkerNode),
        (Volume, ClusterStorage),
    ],
)
def test_every_field_of_the_sdk_is_parsed(ours: Any, sdk: Any):
    assert set(sdk.model_fields) <= set(ours.model_fields)


def test_answers_of_older_servers_and_with_few_fields_are_parsed():
    read = Cluster.model_validate(
        {"cluster_id": "c-1", "driver_version": "CUDA_12_6_560", "gpu_worker_nodes": None}
    )
    assert read.gpu_worker_nodes == ()
    assert read.driver_version == "CUDA_12_6_560"
    assert read.kube_config.get_secret_value() == ""


def test_an_answer_without_id_is_refused():
    with pytest.raises(ValidationError, match="cluster_id"):
        Cluster.model_validate({"cluster_name": "a"})


def test_a_newer_status_is_kept():
    assert parse_cluster(status="Hibernating").status == "Hibernating"


def test_lists_and_deletions_are_parsed():
    assert ClusterList.model_validate({"clusters": [CLUSTER]}).clusters[0].cluster_id == "c-1"
    assert ClusterList.model_validate({"clusters": None}).clusters == ()
    volumes = VolumeList.model_validate({"volumes": [{"volume_id": "v-1"}]}).volumes
    assert volumes[0].volume_id == "v-1"
    assert ClusterDeleted.model_validate({"cluster_id": "c-1"}).cluster_id == "c-1"
    assert not VolumeDeleted.model_validate({"success": False}).success


@pytest.mark.parametrize(
    "version",
    [
        {"cuda_version": "12.6", "nvidia_driver_version": "560"},
        {"cuda_version": "12.6", "nvidia_driver_version": "560", "id": "x", "os": "ubuntu-22.04"},
    ],
)
def test_regions_are_parsed_in_both_forms(version: dict[str, str]):
    (region,) = RegionList.model_validate(
        {
            "regions": [
                {
                    "name": "us-central-8",
                    "supported_instance_types": ["H100_SXM"],
                    "driver_versions": [version],
                }
            ]
        }
    ).regions
    assert region.driver_versions[0].cuda_version == "12.6"
    assert region.driver_versions[0].id == version.get("id")


def test_no_repr_or_dump_contains_the_kubeconfig():
    read = parse_cluster()
    assert read.kube_config.get_secret_value() == ENCODED
    outputs = ClusterOutputs(ready=True, status="Ready", kube_config=KUBECONFIG)
    assert ClusterOutputs.get_secret_names() == {"kube_config"}
    rendered = f"{read} {read!r} {read.model_dump()} {read.model_dump_json()} {outputs} {outputs!r}"
    assert "hunter2" not in rendered
    assert ENCODED not in rendered
    with pytest.raises(ValidationError) as refused:
        Cluster.model_validate({**CLUSTER, "kube_config": [ENCODED]})
    assert ENCODED not in str(refused.value)


def test_outputs_survive_json():
    outputs = ClusterOutputs.model_validate(
        {
            "ready": True,
            "status": "Ready",
            "kube_config": KUBECONFIG,
            "gpu_worker_nodes": [WORKER],
            "control_plane_nodes": CLUSTER["control_plane_nodes"],
            "volumes": CLUSTER["volumes"],
            "driver_version": "CUDA_12_6_560",
        }
    )
    assert outputs.gpu_worker_nodes[0].instance_id == "i-1"
    assert outputs.volumes[0].volume_id == "v-1"
    plain = json.loads(outputs.model_dump_json(exclude_none=True))
    assert plain["kube_config"] == KUBECONFIG
    assert "first_ready_at" not in plain
    assert ClusterOutputs.model_validate(plain) == outputs


def test_inputs_and_outputs_share_no_name():
    common = set(ClusterInputs.model_fields) & set(ClusterOutputs.model_fields)
    assert common == {"driver_version"}  # a spelling of the pair as input, computed as output
    assert not set(SharedVolumeInputs.model_fields) & set(SharedVolumeOutputs.model_fields)


def test_values_filled_in_by_the_platform_are_no_change(declared_cluster: dict[str, Any]):
    echo = select_declared_fields(ClusterInputs, CLUSTER, declared_cluster)
    assert echo == declared_cluster
    assert compute_changes(ClusterInputs, echo, declared_cluster) == []


def test_a_change_by_others_is_drift_of_that_field_only(declared_cluster: dict[str, Any]):
    answer = {**CLUSTER, "num_gpus": 32, "volumes": [], "project_id": "other"}
    echo = select_declared_fields(ClusterInputs, answer, declared_cluster)
    assert [change.path for change in compute_changes(ClusterInputs, echo, declared_cluster)] == [
        "num_gpus"
    ]


def test_disabled_add_ons_missing_in_the_answer_are_no_change(declared_cluster: dict[str, Any]):
    off = {"add_on_type": "dashboard", "name": "d", "config": {"dashboard": {"enabled": False}}}
    on = {"add_on_type": "ingress", "name": "in", "config": {"ingress": {"enabled": True}}}
    declared_cluster = {**declared_cluster, "add_ons": [off, on]}
    assert select_declared_fields(ClusterInputs, CLUSTER, declared_cluster) == declared_cluster
    declared_fields = select_declared_fields(
        ClusterInputs, {**CLUSTER, "add_ons": []}, declared_cluster
    )
    assert [
        change.path for change in compute_changes(ClusterInputs, declared_fields, declared_cluster)
    ] == ['add_ons["in"]']


# Requests


def test_the_documented_create_request(cluster: dict[str, Any], declared_cluster: dict[str, Any]):
    """See the Together reference, 'Create a Cluster'; a version pair replaces the driver's name."""
    expected = {
        "cluster_name": "my-gpu-cluster",
        "region": "us-central-8",
        "gpu_type": "H100_SXM",
        "num_gpus": 8,
        "cuda_version": "12.6",
        "nvidia_driver_version": "560",
        "billing_type": "ON_DEMAND",
    }
    assert wire.build_cluster_create(ClusterInputs.model_validate(declared_cluster)) == expected
    assert wire.build_cluster_create(ClusterInputs.model_validate(cluster)) == expected


def build_update(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return wire.build_cluster_update(
        ClusterInputs.model_validate(after), compute_changes(ClusterInputs, before, after)
    )


def test_an_update_sends_only_the_changed_field(declared_cluster: dict[str, Any]):
    assert build_update(declared_cluster, {**declared_cluster, "num_gpus": 24}) == {"num_gpus": 24}


def test_the_documented_update_request(declared_cluster: dict[str, Any]):
    """See the Together reference, 'Update / Scale a Cluster'."""
    after = {**declared_cluster, "num_gpus": 24, "cluster_type": "KUBERNETES"}
    assert build_update({**declared_cluster, "cluster_type": "SLURM"}, after) == {
        "num_gpus": 24,
        "cluster_type": "KUBERNETES",
    }


def test_a_field_no_longer_declared_is_sent_with_its_default(declared_cluster: dict[str, Any]):
    assert build_update({**declared_cluster, "cluster_type": "SLURM"}, declared_cluster) == {
        "cluster_type": "KUBERNETES"
    }


def test_unchanged_and_immutable_fields_are_not_sent(declared_cluster: dict[str, Any]):
    before = {**declared_cluster, "num_preemptible_gpus": 8, "region": "elsewhere"}
    assert build_update(before, declared_cluster) == {}


def test_a_changed_object_is_sent_with_all_declared_fields(declared_cluster: dict[str, Any]):
    config = {"load_balancer": "NGINX", "ingress": {"enabled": True}}
    before = {**declared_cluster, "cluster_config": {**config, "ingress": {"enabled": False}}}
    after = {**declared_cluster, "cluster_config": config}
    assert build_update(before, after) == {"cluster_config": config}


def test_add_ons_are_merged_by_name_and_disabled(declared_cluster: dict[str, Any]):
    old = {"add_on_type": "dashboard", "name": "d"}
    new = {"add_on_type": "ingress", "name": "in"}
    assert build_update(
        {**declared_cluster, "add_ons": [old]}, {**declared_cluster, "add_ons": [new]}
    ) == {
        "add_ons": [
            {"name": "in", "config": {"ingress": {"enabled": True}}},
            {"name": "d", "config": {"dashboard": {"enabled": False}}},
        ]
    }


def test_the_documented_volume_requests(volume: dict[str, Any]):
    """See the Together reference, 'Create a Shared Volume' and 'Update a Shared Volume'."""
    inputs = SharedVolumeInputs.model_validate(volume)
    assert wire.build_volume_create(inputs) == {
        "volume_name": "my-shared-volume",
        "size_tib": 2,
        "region": "us-central-8",
    }
    assert wire.build_volume_update("12345-67890-12345-67890", inputs) == {
        "volume_id": "12345-67890-12345-67890",
        "size_tib": 2,
    }


# Statuses


def test_statuses_equal_the_enumeration_of_the_sdk():
    sdk = set(get_args(SdkCluster.model_fields["status"].annotation))
    assert set(statuses.ClusterStatus) == {*sdk, "Scheduled"}
    sdk = set(get_args(ClusterStorage.model_fields["status"].annotation))
    assert set(statuses.VolumeStatus) == sdk


def test_every_status_has_one_meaning():
    for enumeration, sets in (
        (
            statuses.ClusterStatus,
            (
                statuses.READY_CLUSTER_STATUSES,
                statuses.FAILED_CLUSTER_STATUSES,
                statuses.PENDING_CLUSTER_STATUSES,
            ),
        ),
        (
            statuses.VolumeStatus,
            (
                statuses.USABLE_VOLUME_STATUSES,
                statuses.FAILED_VOLUME_STATUSES,
                statuses.PENDING_VOLUME_STATUSES,
            ),
        ),
    ):
        assert sum(len(statuses_of_meaning) for statuses_of_meaning in sets) == len(enumeration)
        assert frozenset().union(*sets) == frozenset(enumeration)
    assert "WaitingForSubnet" in statuses.PENDING_CLUSTER_STATUSES
    assert "OnDemandComputePaused" in statuses.FAILED_CLUSTER_STATUSES
    assert "bound" in statuses.USABLE_VOLUME_STATUSES
