"""Describe TensorOne's cluster for the conformance suite."""

from conformance.described import Answers, Change, Described, Request, Room

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

CLUSTER = Described(
    platform="tensorone",
    kind="Cluster",
    good=_CLUSTER,
    name_field="name",
    in_place=Change(
        {**_CLUSTER, "tags": {"team": "ml", "stage": "test"}},
        "tags",
        Request("PUT", f"{_CLUSTERS}/{{id}}", {"tags": {"team": "ml", "stage": "test"}}),
    ),
    replacing=Change({**_CLUSTER, "region": "us-east-1"}, "region"),
    bad=[
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
    behind=Request("PUT", f"{_CLUSTERS}/{{id}}", {"description": "of somebody else"}),
    drift={"description": "of somebody else"},
    delete_behind=_GONE,
    pending="starting",
    failed="error",
    own="^/clusters/cluster_[0-9a-f]{12}$",
    key_variable="TENSORONE_API_KEY",
    key_config="tensorone:apiKey",
    key=KEY,
    paths="^/clusters",
    shortage={"capacity": True},
    wire=wire.ClusterAnswer,
    answers=(Answers("^/clusters", wire.ClusterAnswer),),
    meant=frozenset(
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
    secret=frozenset({"ssh_command", "ssh_connection"}),
    secret_inputs=frozenset({"environment_variables"}),
    unlike=frozenset(
        {
            "data.cost.billing_period.start",
            *("data.network.firewall_rules.description", "data.network.firewall_rules.protocol"),
            "data.network.port_mappings.external_port",  # where none is declared, the platform's
            "data.storage.volumes.name",
        }
    ),
)

KINDS = (CLUSTER,)

ROOMS = {
    "tensorone": Room(
        prefix="/tensorone/v1",
        headers=lambda _method, _url: {"Authorization": f"Bearer {KEY}"},
        gone={
            "error": "RESOURCE_NOT_FOUND",
            "message": "Cluster not found",
            "code": 404,
            "details": {"resource": "cluster", "id": "x"},
        },
        empty={"success": True, "data": {"clusters": [], "pagination": {"total_pages": 1}}},
        lists="^/clusters$",
    ),
}
