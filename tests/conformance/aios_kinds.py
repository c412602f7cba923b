"""Describe the AIOS registry's records and nodes for the conformance suite."""

from typing import Any

from conformance.kind_descriptions import AnswerForm, Change, KindDescription, PlatformApi, Request

from gpuform.schemas.aios import wire

_CLUSTERS = "/clusters"
_NODE: dict[str, Any] = {
    "gpus": {
        "count": 2,
        "memory": 32768,
        "gpus": [{"model_name": "NVIDIA A100", "memory": 16384}] * 2,
        "features": ["fp16"],
        "model_names": ["NVIDIA A100"],
    },
    "vcpus": {"count": 32},
    "memory": 131072,
    "swap": 8192,
    "storage": {"disks": 2, "size": 1048576},
    "network": {"interfaces": 2, "tx_bandwidth": 10000.0, "rx_bandwidth": 10000.0},
}
_ENTRY: dict[str, Any] = {
    "gpus": {
        "count": 2,
        "memory": 32768,
        "gpus": [{"modelName": "NVIDIA A100", "memory": 16384}] * 2,
        "features": ["fp16"],
        "modelNames": ["NVIDIA A100"],
    },
    "vcpus": {"count": 32},
    "memory": 131072,
    "swap": 8192,
    "storage": {"disks": 2, "size": 1048576},
    "network": {"interfaces": 2, "txBandwidth": 10000, "rxBandwidth": 10000},
}
_TOTALS = {name: _NODE[name] for name in ("vcpus", "memory", "swap", "storage", "network")}
_WIRED_TOTALS = {name: _ENTRY[name] for name in ("vcpus", "memory", "swap", "storage", "network")}
_GPUS = {"count": 2, "memory": 32768}

_CLUSTER: dict[str, Any] = {
    "cluster_id": "west",
    "region_id": "us-west-2",
    "nodes": {"count": 1, "node_data": [{"id": "node-1", **_NODE}]},
    "gpus": _GPUS,
    **_TOTALS,
    "config": {
        "policy_executor_id": "policy-exec-007",
        "policy_execution_mode": "local",
        "custom_policy_system": {"name": "Runner"},
        "public_hostname": "west.example.net",
        "use_gateway": True,
        "actions_policy_map": {"onScaleUp": "evaluate"},
    },
    "tags": ["gpu", "vision"],
    "cluster_metadata": {
        "name": "West",
        "description": "For vision",
        "owner": "ML",
        "email": "ml@example.net",
        "countries": ["USA"],
        "misc_contact_info": {"slack": "#ml"},
        "additional_info": {"rack": 7.0},
    },
    "reputation": 94.0,
}
_DOCUMENT: dict[str, Any] = {
    "id": "west",
    "regionId": "us-west-2",
    "nodes": {"count": 1, "nodeData": [{"id": "node-1", **_ENTRY}]},
    "gpus": _GPUS,
    **_WIRED_TOTALS,
    "config": {
        "policyExecutorId": "policy-exec-007",
        "policyExecutionMode": "local",
        "customPolicySystem": {"name": "Runner"},
        "publicHostname": "west.example.net",
        "useGateway": True,
        "actionsPolicyMap": {"onScaleUp": "evaluate"},
    },
    "tags": ["gpu", "vision"],
    "clusterMetadata": {
        "name": "West",
        "description": "For vision",
        "owner": "ML",
        "email": "ml@example.net",
        "countries": ["USA"],
        "miscContactInfo": {"slack": "#ml"},
        "additionalInfo": {"rack": 7},
    },
    "reputation": 94,
}
_DECLARED = {
    *(f"Cluster.{name}" for name in ("id", "region_id", "status", "tags")),
    *("Node.id", "Gpu.model_name", "NodeGpus.features", "NodeGpus.model_names"),
    *(
        f"Config.{name}"
        for name in ("policy_executor_id", "policy_execution_mode", "public_hostname")
    ),
    *(f"ClusterMetadata.{name}" for name in ("name", "description", "owner", "email", "countries")),
}
"""All texts except the platform's own are compared with the declared ones."""

_PLATFORM: dict[str, Any] = {
    "platform": "aios",
    "object_path": "^/clusters/[^/]+$",
    "list_path": "^/clusters/[^/]+$",
    "request_paths": "^/(clusters|api)",
    "deleting_statuses": frozenset(),
    "names_are_unique": True,
    "key_variable": "AIOS_REGISTRY_URL",
    "key_config": "aios:registryUrl",
    "key": "{url}/aios",
    "key_is_secret": False,
    "capacity_fault": {"status": 400, "body": {"error": "the registry takes no more"}},
    "wire": wire.Cluster,
    "answer_forms": (AnswerForm("^/clusters/[^/]+$", wire.Cluster),),
    "unplanted_fields": frozenset(_DECLARED),
}

CLUSTER = KindDescription(
    **_PLATFORM,
    kind="Cluster",
    valid_inputs=_CLUSTER,
    name_field="cluster_id",
    in_place=Change(
        {**_CLUSTER, "tags": ["gpu", "updated"]},
        "tags",
        Request("PUT", f"{_CLUSTERS}/{{id}}", {"$set": {"tags": ["gpu", "updated"]}}),
    ),
    replacing=Change({**_CLUSTER, "cluster_id": "east"}, "cluster_id"),
    invalid_inputs=[
        ({**_CLUSTER, "memory": 1}, "memory"),
        ({**_CLUSTER, "nodes": {**_CLUSTER["nodes"], "count": 2}}, "nodes.count"),
        ({**_CLUSTER, "cluster_id": "a/b"}, "cluster_id"),
        ({**_CLUSTER, "tags": "gpu"}, "tags"),
        ({**_CLUSTER, "regionId": "us-west-2"}, "regionId"),
        ({**_CLUSTER, "config": {"use_gateway": True}}, "config.public_hostname"),
        (
            {**_CLUSTER, "config": {**_CLUSTER["config"], "url_map": {}}},
            "config.url_map",
        ),
    ],
    create=Request(
        "POST",
        "/api/createCluster",
        {
            "header": {"templateUri": "Parser/V1", "parameters": {}},
            "body": {"spec": {"values": _DOCUMENT}},
        },
    ),
    listed_as="clusters",
    outside_update=Request("PUT", f"{_CLUSTERS}/{{id}}", {"$set": {"tags": ["theirs"]}}),
    outside_drift={"tags": ["theirs"]},
    outside_delete=Request("DELETE", f"{_CLUSTERS}/{{id}}"),
    pending_status="onboarding",
    failed_status="down",
    unrelated_values=frozenset(
        {
            *("clusterMetadata._id", "config._id", "nodes.nodeData._id"),  # Mongo's
            "nodes.nodeData.gpus.gpus._id",
            "status",  # one that is not as declared: it is not ready
            # Totals: the state's, or in an import the sums over the nodes.
            *("nodes.count", "vcpus.count", "memory", "swap", "storage.disks", "storage.size"),
            *("gpus.count", "gpus.memory"),
            *("network.interfaces", "network.rxBandwidth", "network.txBandwidth"),
        }
    ),
)

_GPU_NODE = {"cluster_id": "{base}", "node_id": "solo", **_NODE}
_BASE = Request(
    "POST",
    _CLUSTERS,
    {
        **_DOCUMENT,
        "id": "base",
        "status": "live",
        "nodes": {"count": 0, "nodeData": []},
        "gpus": {"count": 0, "memory": 0},
        "vcpus": {"count": 0},
        "memory": 0,
        "swap": 0,
        "storage": {"disks": 0, "size": 0},
        "network": {"interfaces": 0, "txBandwidth": 0, "rxBandwidth": 0},
    },
)
_SUMS = {
    "nodes.count": 1,
    "gpus.count": 2,
    "gpus.memory": 32768,
    "vcpus.count": 32,
    "memory": 131072,
    "swap": 8192,
    "storage.disks": 2,
    "storage.size": 1048576,
    "network.interfaces": 2,
    "network.txBandwidth": 10000,
    "network.rxBandwidth": 10000,
}

GPU_NODE = KindDescription(
    **_PLATFORM,
    kind="GpuNode",
    is_entry=True,
    valid_inputs=_GPU_NODE,
    name_field="node_id",
    in_place=Change(
        {**_GPU_NODE, "memory": 131073},
        "memory",
        Request(
            "PUT",
            f"{_CLUSTERS}/{{base}}",
            {"$set": {"nodes.nodeData.0.memory": 131073, "memory": 131073}},
        ),
    ),
    replacing=Change({**_GPU_NODE, "node_id": "other"}, "node_id"),
    invalid_inputs=[
        ({**_GPU_NODE, "memory": -1}, "memory"),
        ({**_GPU_NODE, "gpus": {**_NODE["gpus"], "count": 3}}, "gpus.count"),
        ({**_GPU_NODE, "gpus": {"memory": 5}}, "gpus.count"),
        ({**_GPU_NODE, "cluster_id": "a/b"}, "cluster_id"),
        ({**_GPU_NODE, "node": "x"}, "node"),
    ],
    create=Request(
        "PUT",
        f"{_CLUSTERS}/{{base}}",
        {"$addToSet": {"nodes.nodeData": {"id": "solo", **_ENTRY}}, "$set": _SUMS},
    ),
    listed_as="gpu_nodes",
    outside_update=Request(
        "PUT", f"{_CLUSTERS}/{{base}}", {"$set": {"nodes.nodeData.0.memory": 7}}
    ),
    outside_drift={"memory": 7},
    outside_delete=Request(
        "PUT", f"{_CLUSTERS}/{{base}}", {"$pull": {"nodes.nodeData": {"id": "solo"}}}
    ),
    control_path="aios/gpu-nodes",
    requirements=[_BASE],
    requirements_listed_as="clusters",
    unrelated_values=frozenset(  # of the whole cluster
        {
            *("gpus.count", "gpus.memory", "memory", "nodes.count", "swap", "vcpus.count"),
            *("network.interfaces", "network.rxBandwidth", "network.txBandwidth"),
            *("storage.disks", "storage.size"),
        }
    ),
)

KINDS = (CLUSTER, GPU_NODE)

APIS = {
    "aios": PlatformApi(
        prefix="/aios",
        headers=lambda _method, _url: {},
        not_found_answer={"error": "Cluster not found"},
        empty_list_answer=[],
        list_paths="^/clusters$|^/clusters/query$",
    ),
}
