"""A cluster's storage as its pods claim it: a shared volume for all, local NVMe for each."""

import pulumi

from gpuform.providers.together import Cluster, SharedVolume, VolumeClaim

REGION = "us-central-8"

config = pulumi.Config()

data = SharedVolume(
    "data",
    volume_name="training-data",
    region=REGION,
    size_tib=2,
)

train = Cluster(
    "train",
    cluster_name="training",
    region=REGION,
    gpu_type="H100_SXM",
    num_gpus=16,
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
    volume_id=data.id,
)

# A claim goes with its cluster: nothing is asked of a cluster that is deleted anyway.
with_train = pulumi.ResourceOptions(deleted_with=train)

shared = VolumeClaim(
    "shared",
    cluster_id=train.id,
    name="shared-pvc",
    storage="10Gi",
    volume_name=data.volume_name,
    opts=with_train,
)

scratch = VolumeClaim(
    "scratch",
    cluster_id=train.id,
    name="local-pvc",
    storage=config.get("scratch") or "50Gi",
    storage_class_name="local-storage-class",
    opts=with_train,
)

pulumi.export("shared", shared.status)
pulumi.export("scratch", scratch.status)
