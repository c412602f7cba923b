"""The example answers of the Lens reference, as data that comes from nowhere else."""

import json
from typing import Any

Json = dict[str, Any]

OVERVIEW: Json = json.loads(
    """
{
  "code": 0,
  "message": "success",
  "data": {
    "totalNodes": 10,
    "healthyNodes": 9,
    "faultyNodes": 1,
    "fullyIdleNodes": 3,
    "partiallyIdleNodes": 4,
    "busyNodes": 2,
    "allocationRate": 0.75,
    "utilization": 0.62,
    "storageStat": {
      "totalCapacity": "1000TB",
      "usedCapacity": "450TB",
      "availableCapacity": "550TB",
      "utilizationRate": 0.45
    },
    "rdmaClusterStat": { "totalPorts": 80, "activePorts": 76, "bandwidth": "400Gbps" }
  },
  "traceId": "trace-abc123"
}
"""
)

CONSUMERS: Json = json.loads(
    """
{
  "code": 0,
  "message": "success",
  "data": {
    "data": [
      {
        "kind": "Job",
        "name": "training-job-1",
        "namespace": "default",
        "uid": "abc123",
        "stat": { "gpuRequest": 8, "gpuUtilization": 0.85 },
        "pods": null,
        "source": "k8s"
      },
      {
        "kind": "Deployment",
        "name": "inference-service",
        "namespace": "production",
        "uid": "def456",
        "stat": { "gpuRequest": 4, "gpuUtilization": 0.62 },
        "pods": null,
        "source": "k8s"
      }
    ],
    "total": 50
  },
  "traceId": "trace-abc123"
}
"""
)

GARBLED = "\u00e2\u201e\u0192"
"""The unit of temperatures as the document has it; `℃` was meant."""

HEATMAP: Json = json.loads(
    """
{
  "code": 0,
  "message": "success",
  "data": {
    "power": {
      "serial": 2,
      "unit": "W",
      "yAxisMax": 850,
      "yAxisMin": 0,
      "data": [
        {
          "nodeName": "gpu-node-1", "deviceId": 0, "value": 750.5, "gpuModel": "AMD MI300X"
        },
        {
          "nodeName": "gpu-node-2", "deviceId": 1, "value": 732.3, "gpuModel": "AMD MI300X"
        }
      ]
    },
    "temperature": {
      "serial": 3,
      "unit": "\\u00e2\\u201e\\u0192",
      "yAxisMax": 110,
      "yAxisMin": 20,
      "data": [
        {
          "nodeName": "gpu-node-1", "deviceId": 0, "value": 82.5, "gpuModel": "AMD MI300X"
        },
        {
          "nodeName": "gpu-node-3", "deviceId": 2, "value": 79.8, "gpuModel": "AMD MI300X"
        }
      ]
    },
    "utilization": {
      "serial": 1,
      "unit": "%",
      "yAxisMax": 100,
      "yAxisMin": 0,
      "data": [
        {
          "nodeName": "gpu-node-2", "deviceId": 1, "value": 98.5, "gpuModel": "AMD MI300X"
        },
        {
          "nodeName": "gpu-node-1", "deviceId": 0, "value": 95.2, "gpuModel": "AMD MI300X"
        }
      ]
    }
  },
  "traceId": "trace-abc123"
}
"""
)

ERROR: Json = {
    "code": 500,
    "message": "Failed to retrieve cluster overview: database connection timeout",
    "traceId": "trace-abc123",
}


def pair_with_types(value: Any) -> Any:
    """Return a value with the type beside every part, which distinguishes 1, 1.0 and True."""
    if isinstance(value, dict):
        return {key: pair_with_types(item) for key, item in value.items()}
    if isinstance(value, list):
        return [pair_with_types(item) for item in value]
    return (type(value).__name__, value)
