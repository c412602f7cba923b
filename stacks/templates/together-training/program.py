"""A shared volume and a GPU cluster that trains on it, on Together."""

import pulumi

from gpuform.providers.together import Cluster, SharedVolume

REGION = "us-central-8"

config = pulumi.Config()

data = SharedVolume(
    "data",
    volume_name="training-data",
    region=REGION,
    size_tib=5,
)

train = Cluster(
    "train",
    cluster_name="training",
    region=REGION,
    gpu_type="H100_SXM",
    num_gpus=config.get_int("gpus") or 16,
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
    volume_id=data.id,
)

pulumi.export("cluster_id", train.id)
pulumi.export("status", train.status)
pulumi.export("kubeconfig", train.kube_config)
