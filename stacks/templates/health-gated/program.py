"""A cluster on Together, registered with AIOS once Lens reports healthy nodes."""

import pulumi

from gpuform.providers.aios import Cluster as Record
from gpuform.providers.lens import HealthGate
from gpuform.providers.together import Cluster

config = pulumi.Config()
gpus = config.get_int("gpus") or 16

train = Cluster(
    "train",
    cluster_name="training",
    region="us-central-8",
    gpu_type="H100_SXM",
    num_gpus=gpus,
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
)

healthy = HealthGate(
    "healthy",
    condition={
        "healthy_nodes": {"at_least": gpus // 8},
        "faulty_nodes": {"at_most": 0},
        "active_port_rate": {"at_least": 0.95},
    },
    wait_minutes=20,
    triggers=[train.id, train.num_gpus],
)

record = Record(
    "record",
    cluster_id="training-001",
    region_id="us-central-8",
    config={"public_hostname": "training-001.example.net"},
    tags=["gpu", "training"],
    cluster_metadata={
        "name": "Training",
        "description": "Trains models.",
        "owner": "AI Infrastructure",
    },
    opts=pulumi.ResourceOptions(depends_on=healthy),
)

pulumi.export("overview", healthy.overview)
pulumi.export("gateway", record.url_map["public_gateway"])
