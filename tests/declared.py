"""What most tests declare: a shared volume, and a cluster of 16 GPUs."""

VOLUME = {"volume_name": "data", "region": "us-central-8", "size_tib": 5}
CLUSTER = {
    "cluster_name": "training",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "driver_version": "CUDA_12_6_560",
    "billing_type": "ON_DEMAND",
}
