"""Test names that state files and scripts keep for ever. Never change an expectation here."""

import base64
import pickle

import dill
import pytest
from pulumi.dynamic import Config, ConfigureRequest
from pulumi.dynamic.dynamic import serialize_provider

from gpuform.providers.aios import client as aios
from gpuform.providers.catalog import list_kinds, load_lifecycle_class, load_resource_class
from gpuform.providers.context import CLOCK_VARIABLE
from gpuform.providers.lens import client as lens
from gpuform.providers.platform import platforms
from gpuform.providers.tensorone import client as tensorone
from gpuform.providers.together.client import (
    BASE_URL_VARIABLE,
    DEFAULT_BASE_URL,
    KEY_CONFIG,
    KEY_VARIABLE,
)

KINDS = list_kinds()


def test_dotted_paths_are_frozen() -> None:
    assert {name: platform.lifecycles for name, platform in platforms().items()} == {
        "together": {
            "Cluster": "gpuform.providers.together.cluster:ClusterLifecycle",
            "SharedVolume": "gpuform.providers.together.shared_volume:SharedVolumeLifecycle",
            "VolumeClaim": "gpuform.providers.together.volume_claim:VolumeClaimLifecycle",
            "Certification": "gpuform.providers.together.certification:CertificationLifecycle",
        },
        "scp": {
            "NodePool": "gpuform.providers.scp.node_pool:NodePoolLifecycle",
            "GpuNode": "gpuform.providers.scp.gpu_node:GpuNodeLifecycle",
            "Fabric": "gpuform.providers.scp.fabric:FabricLifecycle",
            "Certification": "gpuform.providers.scp.certification:CertificationLifecycle",
        },
        "tensorone": {
            "Cluster": "gpuform.providers.tensorone.cluster:ClusterLifecycle",
        },
        "aios": {
            "Cluster": "gpuform.providers.aios.cluster:ClusterLifecycle",
            "GpuNode": "gpuform.providers.aios.gpu_node:GpuNodeLifecycle",
        },
        "lens": {
            "HealthGate": "gpuform.providers.lens.health_gate:HealthGateLifecycle",
        },
    }


def test_environment_and_configuration_names_are_frozen() -> None:
    assert CLOCK_VARIABLE == "GPUFORM_CLOCK"
    assert KEY_VARIABLE == "TOGETHER_API_KEY"
    assert BASE_URL_VARIABLE == "TOGETHER_BASE_URL"
    assert KEY_CONFIG == "together:apiKey"
    assert DEFAULT_BASE_URL == "https://api.together.ai/v1"
    assert tensorone.KEY_VARIABLE == "TENSORONE_API_KEY"
    assert tensorone.BASE_URL_VARIABLE == "TENSORONE_BASE_URL"
    assert tensorone.KEY_CONFIG == "tensorone:apiKey"
    assert tensorone.DEFAULT_BASE_URL == "https://api.tensorone.ai/v1"
    assert aios.REGISTRY_VARIABLE == "AIOS_REGISTRY_URL"
    assert aios.REGISTRY_CONFIG == "aios:registryUrl"
    assert aios.PARSER_VARIABLE == "AIOS_PARSER_URL"
    assert aios.PARSER_CONFIG == "aios:parserUrl"
    assert (lens.URL_VARIABLE, lens.URL_CONFIG) == ("LENS_URL", "lens:url")
    assert (lens.TOKEN_VARIABLE, lens.TOKEN_CONFIG) == ("LENS_TOKEN", "lens:token")


@pytest.mark.parametrize(("platform", "kind"), KINDS)
def test_type_tokens_are_frozen(platform: str, kind: str) -> None:
    resource, lifecycle = load_resource_class(platform, kind), load_lifecycle_class(platform, kind)
    assert resource._resource_type_name == f"dynamic/gpuform.{platform}:{kind}"
    assert resource._lifecycle is lifecycle
    assert (lifecycle.platform, lifecycle.kind) == (platform, kind)


PICKLED = {
    (
        "together",
        "Cluster",
    ): "gASVPgAAAAAAAACMImdwdWZvcm0ucHJvdmlkZXJzLnRvZ2V0aGVyLmNsdXN0ZXKUjBBDbHVzdGVyTGlm"
    "ZWN5Y2xllJOUKYGULg==",
    (
        "together",
        "SharedVolume",
    ): "gASVSQAAAAAAAACMKGdwdWZvcm0ucHJvdmlkZXJzLnRvZ2V0aGVyLnNoYXJlZF92b2x1bWWUjBVT"
    "aGFyZWRWb2x1bWVMaWZlY3ljbGWUk5QpgZQu",
    (
        "scp",
        "NodePool",
    ): "gASVPAAAAAAAAACMH2dwdWZvcm0ucHJvdmlkZXJzLnNjcC5ub2RlX3Bvb2yUjBFOb2RlUG9vbExpZmVj"
    "eWNsZZSTlCmBlC4=",
    (
        "scp",
        "GpuNode",
    ): "gASVOgAAAAAAAACMHmdwdWZvcm0ucHJvdmlkZXJzLnNjcC5ncHVfbm9kZZSMEEdwdU5vZGVMaWZlY3lj"
    "bGWUk5QpgZQu",
    (
        "scp",
        "Fabric",
    ): "gASVNwAAAAAAAACMHGdwdWZvcm0ucHJvdmlkZXJzLnNjcC5mYWJyaWOUjA9GYWJyaWNMaWZlY3ljbGWUk5QpgZQu",
    (
        "tensorone",
        "Cluster",
    ): "gASVPwAAAAAAAACMI2dwdWZvcm0ucHJvdmlkZXJzLnRlbnNvcm9uZS5jbHVzdGVylIwQQ2x1c3Rlckxp"
    "ZmVjeWNsZZSTlCmBlC4=",
    (
        "aios",
        "Cluster",
    ): "gASVOgAAAAAAAACMHmdwdWZvcm0ucHJvdmlkZXJzLmFpb3MuY2x1c3RlcpSMEENsdXN0ZXJMaWZl"
    "Y3ljbGWUk5QpgZQu",
    (
        "aios",
        "GpuNode",
    ): "gASVOwAAAAAAAACMH2dwdWZvcm0ucHJvdmlkZXJzLmFpb3MuZ3B1X25vZGWUjBBHcHVOb2RlTGlm"
    "ZWN5Y2xllJOUKYGULg==",
    (
        "lens",
        "HealthGate",
    ): "gASVQQAAAAAAAACMImdwdWZvcm0ucHJvdmlkZXJzLmxlbnMuaGVhbHRoX2dhdGWUjBNIZWFsdGhH"
    "YXRlTGlmZWN5Y2xllJOUKYGULg==",
}
"""What the first release wrote into states."""


@pytest.mark.parametrize(("platform", "kind"), PICKLED)
def test_pickles_of_old_states_load(platform: str, kind: str) -> None:
    lifecycle = load_lifecycle_class(platform, kind)
    assert type(dill.loads(base64.b64decode(PICKLED[platform, kind]))) is lifecycle
    if pickle.DEFAULT_PROTOCOL == 4:
        assert serialize_provider(lifecycle()) == PICKLED[platform, kind]


@pytest.mark.parametrize(("platform", "kind"), KINDS)
def test_the_pickle_is_small_and_by_reference(platform: str, kind: str) -> None:
    lifecycle = load_lifecycle_class(platform, kind)
    pickled = serialize_provider(lifecycle())
    assert len(pickled) < 200
    assert type(dill.loads(base64.b64decode(pickled))) is lifecycle
    assert lifecycle.serialize_as_secret_always is False


@pytest.mark.parametrize(("platform", "kind"), KINDS)
def test_a_lifecycles_configuration_is_not_pickled(platform: str, kind: str) -> None:
    lifecycle = load_lifecycle_class(platform, kind)
    configured = lifecycle()
    configured.configure(ConfigureRequest(Config({KEY_CONFIG: "a-key"}, "project")))
    assert serialize_provider(configured) == serialize_provider(lifecycle())


NAMES = {
    ("together", "Cluster"): """
        cluster_name region gpu_type num_gpus cuda_version nvidia_driver_version nvidia_version_id
        billing_type duration_days cluster_type volume_id shared_volume auto_scale
        auto_scale_max_gpus capacity_pool_id num_capacity_pool_gpus num_preemptible_gpus
        num_reserved_gpus reservation_start_time reservation_end_time project_id install_traefik
        oidc_config cluster_config add_ons acceptance_tests_params slurm_image slurm_shm_size_gib
        ready not_ready_reason status kube_config control_plane_nodes gpu_worker_nodes volumes
        driver_version allocated_preemptible_gpus duration_hours created_at first_ready_at
        on_no_capacity placed_region placed_gpu_type expires ttl paused_at reserved_until
        drain
    """,
    ("together", "SharedVolume"): """
        volume_name size_tib region is_lifecycle_independent project_id instance_cluster_id
        ready not_ready_reason status
    """,
    ("scp", "NodePool"): """
        node_pool_id cluster_fabric_name cluster_fabric_id gpu_node_name_prefix count nodes remove
        lock_enabled state image_id server_type_id region_id vpc_id subnet_id os_user_id
        os_user_password init_script tags ready not_ready_reason node_ids gpu_nodes
        expires ttl schedule drain
    """,
    ("scp", "GpuNode"): """
        gpu_node_name cluster_fabric_id ip_address nat_enabled public_ip_address_id lock_enabled
        state image_id server_type_id region_id vpc_id subnet_id os_user_id os_user_password
        init_script tags ready not_ready_reason policy_ip policy_use_nat policy_nat node_pool_id
        cluster_fabric_name pfs_ip server_type image_version created_at expires ttl schedule
    """,
    ("scp", "Fabric"): """
        node_pool_id cluster_fabric_name ready not_ready_reason cluster_fabric_id state
        gpu_node_details server_type region_id
    """,
    ("tensorone", "Cluster"): """
        name description gpu_type gpu_count storage_gb region project_id cpu_cores
        memory_gb template_id docker_image environment_variables ssh_enabled
        ssh_public_keys port_mappings security_groups auto_terminate tags state
        restore_snapshot final_snapshot final_snapshot_name ready not_ready_reason status
        status_message stopped_by restored_snapshot private_ip public_ip proxy_url
        port_urls ssh_command availability_zone storage_type gpu_health storage_health
        network_health docker_health alerts current_hourly_rate currency daily_estimate
        weekly_estimate monthly_estimate snapshots hidden_variables python_version
        cuda_version driver_version docker_version created_at updated_at expires ttl schedule
    """,
    ("aios", "Cluster"): """
        cluster_id region_id status nodes gpus vcpus memory swap storage network config
        tags cluster_metadata reputation create_mode ready not_ready_reason url_map
    """,
    ("aios", "GpuNode"): """
        cluster_id node_id gpus vcpus memory swap storage network ready not_ready_reason
    """,
    ("lens", "HealthGate"): """
        condition wait_minutes triggers ready not_ready_reason overview
    """,
}


@pytest.mark.parametrize(("platform", "kind"), NAMES)
def test_no_property_disappears(platform: str, kind: str) -> None:
    assert set(NAMES[platform, kind].split()) <= set(
        load_lifecycle_class(platform, kind).list_property_names()
    )
