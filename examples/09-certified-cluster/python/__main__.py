"""A cluster whose nodes are proven before anything runs on them."""

import pulumi

from gpuform.providers.together import Certification, Cluster, VolumeClaim

train = Cluster(
    "train",
    cluster_name="training",
    region="us-central-8",
    gpu_type="H100_SXM",
    num_gpus=pulumi.Config().get_int("gpus") or 16,
    driver_version="CUDA_12_6_560",
    billing_type="ON_DEMAND",
    repair={"on": ["platform", "failed_certification"]},
)

fabric = Certification(
    "fabric",
    cluster_id=train.id,
    num_gpus=train.num_gpus,  # more of them: the new nodes are tested
    name="fabric",
    categories=[
        {
            "domain": "communication",
            "variant": "nccl-all-reduce",
            "options": {"testScale": "intra-node"},  # each node by itself
            "floor": 300,  # GB/s of bus bandwidth
            "tolerance": "10%",
        }
    ],
    opts=pulumi.ResourceOptions(deleted_with=train),
)

VolumeClaim(  # waits until the nodes are proven
    "scratch",
    cluster_id=train.id,
    name="local-pvc",
    storage="50Gi",
    storage_class_name="local-storage-class",
    opts=pulumi.ResourceOptions(depends_on=[fabric], deleted_with=train),
)

pulumi.export("nodes", fabric.status)
