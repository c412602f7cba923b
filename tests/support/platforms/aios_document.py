"""The example of the AIOS registry's reference, as data that comes from nowhere else."""

import json
from typing import Any

Json = dict[str, Any]

CLUSTER: Json = json.loads(
    """
{
  "id": "cluster-west-vision-001",
  "regionId": "us-west-2",
  "status": "live",
  "nodes": {
    "count": 2,
    "nodeData": [
      {
        "id": "node-1",
        "gpus": {
          "count": 2,
          "memory": 32768,
          "gpus": [
            { "modelName": "NVIDIA A100", "memory": 16384 },
            { "modelName": "NVIDIA A100", "memory": 16384 }
          ],
          "features": ["fp16", "tensor_cores"],
          "modelNames": ["NVIDIA A100"]
        },
        "vcpus": { "count": 32 },
        "memory": 131072,
        "swap": 8192,
        "storage": { "disks": 2, "size": 1048576 },
        "network": { "interfaces": 2, "txBandwidth": 10000, "rxBandwidth": 10000 }
      },
      {
        "id": "node-2",
        "gpus": {
          "count": 1,
          "memory": 16384,
          "gpus": [{ "modelName": "NVIDIA V100", "memory": 16384 }],
          "features": ["fp16"],
          "modelNames": ["NVIDIA V100"]
        },
        "vcpus": { "count": 16 },
        "memory": 65536,
        "swap": 4096,
        "storage": { "disks": 1, "size": 524288 },
        "network": { "interfaces": 1, "txBandwidth": 5000, "rxBandwidth": 5000 }
      }
    ]
  },
  "gpus": { "count": 3, "memory": 49152 },
  "vcpus": { "count": 48 },
  "memory": 196608,
  "swap": 12288,
  "storage": { "disks": 3, "size": 1572864 },
  "network": { "interfaces": 3, "txBandwidth": 15000, "rxBandwidth": 15000 },
  "config": {
    "policyExecutorId": "policy-exec-007",
    "policyExecutionMode": "local",
    "customPolicySystem": { "name": "AdvancedPolicyRunner", "version": "2.1.0" },
    "publicHostname": "cluster-west-vision-001.company.net",
    "useGateway": true,
    "actionsPolicyMap": {
      "onScaleUp": "evaluate-gpu-availability",
      "onFailure": "notify-admin"
    },
    "urlMap": {
      "controllerService": "http://cluster-west-vision-001.company.net:32000/controller",
      "metricsService": "http://cluster-west-vision-001.company.net:32000/metrics",
      "blocksQuery": "http://cluster-west-vision-001.company.net:32000/blocks",
      "publicGateway": "http://cluster-west-vision-001.company.net:32000",
      "parameterUpdater": "http://cluster-west-vision-001.company.net:32000/mgmt"
    }
  },
  "tags": ["gpu", "production", "ml", "vision", "us-west"],
  "clusterMetadata": {
    "name": "Sample cluster",
    "description": "Dedicated to serving large-scale computer vision models in production.",
    "owner": "AI Infrastructure Team",
    "email": "[email protected]",
    "countries": ["USA", "Canada"],
    "miscContactInfo": {
      "pagerDuty": "https://sample-website/ai-clusters",
      "slack": "#ml-infra"
    },
    "additionalInfo": {}
  },
  "reputation": 94
}
"""
)

UPDATE: Json = {"$set": {"tags": ["gpu", "updated"], "reputation": 97}}

QUERY: Json = {"gpus.count": {"$gte": 2}, "clusterMetadata.countries": {"$in": ["USA"]}}

DECLARED: Json = {
    "cluster_id": "cluster-west-vision-001",
    "region_id": "us-west-2",
    "nodes": {
        "node_data": [
            {
                "id": "node-1",
                "gpus": {
                    "gpus": [
                        {"model_name": "NVIDIA A100", "memory": 16384},
                        {"model_name": "NVIDIA A100", "memory": 16384},
                    ],
                    "features": ["fp16", "tensor_cores"],
                },
                "vcpus": {"count": 32},
                "memory": 131072,
                "swap": 8192,
                "storage": {"disks": 2, "size": 1048576},
                "network": {"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000},
            },
            {
                "id": "node-2",
                "gpus": {
                    "gpus": [{"model_name": "NVIDIA V100", "memory": 16384}],
                    "features": ["fp16"],
                },
                "vcpus": {"count": 16},
                "memory": 65536,
                "swap": 4096,
                "storage": {"disks": 1, "size": 524288},
                "network": {"interfaces": 1, "tx_bandwidth": 5000, "rx_bandwidth": 5000},
            },
        ]
    },
    "config": {
        "policy_executor_id": "policy-exec-007",
        "policy_execution_mode": "local",
        "custom_policy_system": {"name": "AdvancedPolicyRunner", "version": "2.1.0"},
        "public_hostname": "cluster-west-vision-001.company.net",
        "use_gateway": True,
        "actions_policy_map": {
            "onScaleUp": "evaluate-gpu-availability",
            "onFailure": "notify-admin",
        },
    },
    "tags": ["gpu", "production", "ml", "vision", "us-west"],
    "cluster_metadata": {
        "name": "Sample cluster",
        "description": "Dedicated to serving large-scale computer vision models in production.",
        "owner": "AI Infrastructure Team",
        "email": "[email protected]",
        "countries": ["USA", "Canada"],
        "misc_contact_info": {
            "pagerDuty": "https://sample-website/ai-clusters",
            "slack": "#ml-infra",
        },
        "additional_info": {},
    },
    "reputation": 94,
}
"""The example as a person declares it, without sums and without what the registry fills in."""


def remove_mongo_keys(value: Any) -> Any:
    """Return a document without the keys `_id` and `__v`, at every depth."""
    if isinstance(value, dict):
        own = {key: item for key, item in value.items() if key not in ("_id", "__v")}
        return {key: remove_mongo_keys(item) for key, item in own.items()}
    return [remove_mongo_keys(item) for item in value] if isinstance(value, list) else value


def pair_with_types(value: Any) -> Any:
    """Return a value with the type beside every part, which distinguishes 1, 1.0 and True."""
    if isinstance(value, dict):
        return {key: pair_with_types(item) for key, item in value.items()}
    if isinstance(value, list):
        return [pair_with_types(item) for item in value]
    return (type(value).__name__, value)
