"""Records of two clusters in the AIOS registry, with their nodes."""

import pulumi

from gpuform.providers.aios import Cluster, GpuNode
from gpuform.providers.aios.resources import (
    GpuArguments,
    NetworkArguments,
    NodeArguments,
    NodeGpusArguments,
    StorageArguments,
    VcpusArguments,
)

A100: GpuArguments = {"model_name": "NVIDIA A100", "memory": 16384}
GPUS: NodeGpusArguments = {"gpus": [A100, A100], "features": ["fp16", "tensor_cores"]}
VCPUS: VcpusArguments = {"count": 32}
MEMORY = 131072
SWAP = 8192
STORAGE: StorageArguments = {"disks": 2, "size": 1048576}
NETWORK: NetworkArguments = {"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000}


def describe_node(node_id: str) -> NodeArguments:
    """Return the entry of a node in a cluster's record."""
    return {
        "id": node_id,
        "gpus": GPUS,
        "vcpus": VCPUS,
        "memory": MEMORY,
        "swap": SWAP,
        "storage": STORAGE,
        "network": NETWORK,
    }


# This record declares its nodes itself.
west = Cluster(
    "west",
    cluster_id="west-vision-001",
    region_id="us-west-2",
    nodes={"node_data": [describe_node("node-1"), describe_node("node-2")]},
    config={"public_hostname": "west-vision-001.example.net"},
    tags=["gpu", "vision"],
    cluster_metadata={
        "name": "West",
        "description": "Serves vision models.",
        "owner": "AI Infrastructure",
    },
)

# Each node of this record is a resource of its own.
east = Cluster(
    "east",
    cluster_id="east-training-001",
    region_id="us-east-1",
    config={
        "public_hostname": "east-training-001.example.net",
        "actions_policy_map": {"onFailure": pulumi.Output.concat("move-to-", west.cluster_id)},
    },
    tags=["gpu", "training"],
    cluster_metadata={
        "name": "East",
        "description": "Trains models.",
        "owner": "AI Infrastructure",
    },
)

GpuNode(
    "east-node-1",
    cluster_id=east.cluster_id,
    node_id="node-1",
    gpus=GPUS,
    vcpus=VCPUS,
    memory=MEMORY,
    swap=SWAP,
    storage=STORAGE,
    network=NETWORK,
)

pulumi.export("gpus_in_the_west", west.gpus["count"])
pulumi.export("gateway", west.url_map["public_gateway"])
