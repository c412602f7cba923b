"""Describe TensorOne's cluster for the conformance suite."""

from conformance.kind_descriptions import AnswerForm, Change, KindDescription, PlatformApi, Request

from gpuform.providers.emulator.tensorone import KEY
from gpuform.schemas.tensorone import wire

_CLUSTERS = "/clusters"
_PORT = {"internal_port": 6006, "protocol": "tcp", "description": "TensorBoard"}
_VARIABLES = {"MODE": "planted-in-a-variable-of-the-environment"}

_CLUSTER = {
    "name": "train",
    "description": "for training",
    "gpu_type": "A100",
    "gpu_count": 4,
    "storage_gb": 1000,
    "region": "us-west-2",
    "project_id": "proj_456",
    "template_id": "tmpl_pytorch_latest",
    "environment_variables": _VARIABLES,
    "port_mappings": [_PORT],
    "security_groups": ["sg_ml_training", "sg_ssh_access"],
    "auto_terminate": {"enabled": True, "idle_minutes": 600, "cost_limit_usd": 500.0},
    "tags": {"team": "ml"},
}
_GONE = Request("DELETE", f"{_CLUSTERS}/{{id}}", {"confirm_deletion": "DELETE"})

CLUSTER = KindDescription(
    platform="tensorone",
    kind="Cluster",
    valid_inputs=_CLUSTER,
    name_field="name",
    in_place=Change(
        {**_CLUSTER, "tags": {"team": "ml", "stage": "test"}},
        "tags",
        Request("PUT", f"{_CLUSTERS}/{{id}}", {"tags": {"team": "ml", "stage": "test"}}),
    ),
    replacing=Change({**_CLUSTER, "region": "us-east-1"}, "region"),
    invalid_inputs=[
        ({**_CLUSTER, "gpu_count": 9}, "gpu_count"),
        ({**_CLUSTER, "gpu_type": "A1000"}, "gpu_type"),
        ({**_CLUSTER, "storage_gb": 10}, "storage_gb"),
        ({**_CLUSTER, "name": "my cluster"}, "name"),
        ({**_CLUSTER, "docker_image": "mine"}, "docker_image"),
        ({**_CLUSTER, "num_gpus": 4}, "num_gpus"),
        ({**_CLUSTER, "port_mappings": [{"internal_port": 0}]}, "port_mappings[0].internal_port"),
        ({**_CLUSTER, "environment_variables": {"MODE": 1}}, "environment_variables.MODE"),
    ],
    create=Request("POST", _CLUSTERS, {**_CLUSTER, "environment_variables": "[secret]"}),
    listed_as="clusters",
    outside_update=Request("PUT", f"{_CLUSTERS}/{{id}}", {"description": "of somebody else"}),
    outside_drift={"description": "of somebody else"},
    outside_delete=_GONE,
    pending_status="starting",
    failed_status="error",
    object_path="^/clusters/cluster_[0-9a-f]{12}$",
    key_variable="TENSORONE_API_KEY",
    key_config="tensorone:apiKey",
    key=KEY,
    request_paths="^/clusters",
    capacity_fault={"capacity": True},
    wire=wire.ClusterAnswer,
    answer_forms=(AnswerForm("^/clusters", wire.ClusterAnswer),),
    unplanted_fields=frozenset(
        {
            "Cluster.id",
            "Cluster.name",
            "Cluster.status",
            "Cluster.tags",
            "Cluster.created_at",
            "PortMapping.protocol",
            "Snapshot.id",
        }
    ),
    secret_outputs=frozenset({"ssh_command", "ssh_connection"}),
    secret_inputs=frozenset({"environment_variables"}),
    unrelated_values=frozenset(
        {
            "data.cost.billing_period.start",
            *("data.network.firewall_rules.description", "data.network.firewall_rules.protocol"),
            "data.network.port_mappings.external_port",  # where none is declared, the platform's
            "data.storage.volumes.name",
        }
    ),
)

KINDS = (CLUSTER,)

APIS = {
    "tensorone": PlatformApi(
        prefix="/tensorone/v1",
        headers=lambda _method, _url: {"Authorization": f"Bearer {KEY}"},
        not_found_answer={
            "error": "RESOURCE_NOT_FOUND",
            "message": "Cluster not found",
            "code": 404,
            "details": {"resource": "cluster", "id": "x"},
        },
        empty_list_answer={
            "success": True,
            "data": {"clusters": [], "pagination": {"total_pages": 1}},
        },
        list_paths="^/clusters$",
    ),
}
