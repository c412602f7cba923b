"""A Slurm cluster that gets smaller without hurting a job."""

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
    cluster_type="SLURM",
    slurm_shm_size_gib=64,
    region=REGION,
    gpu_type="H100_SXM",
    num_gpus=config.get_int("gpus") or 24,
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
    volume_id=data.id,
    drain={"on_busy": "wait", "wait_minutes": 240},
)

pulumi.export("cluster_id", train.id)
pulumi.export("status", train.status)
