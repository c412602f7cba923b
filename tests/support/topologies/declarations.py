"""The inputs and topologies that most tests declare."""

VOLUME = {"volume_name": "data", "region": "us-central-8", "size_tib": 5}
CLUSTER = {
    "cluster_name": "training",
    "region": "us-central-8",
    "gpu_type": "H100_SXM",
    "num_gpus": 16,
    "driver_version": "CUDA_12_6_560",
    "billing_type": "ON_DEMAND",
}
BENCH = """\
clusters:
  bench:
    platform: tensorone
    name: bench
    gpu_type: A100
    gpu_count: 2
    storage_gb: 100
    region: us-west-2
    project_id: proj_456
    docker_image: a/b:c
shared_volumes:
  data: {platform: together, volume_name: data, region: us-central-8, size_tib: 1}
"""
"""The topology of a TensorOne cluster and a Together volume."""

SCP_POOL = """\
    platform: scp
    node_pool_id: POOL001-krw1a
    region_id: kr-west1
    vpc_id: e58348b1bc9148e5af86500fd4ef99ca
    subnet_id: ab313c43291e4b678f4bacffe10768ae
    server_type_id: f90e8ef54cc2451b825608e9f95f7bcb
    os_user_password: Only4Tests!
"""
"""The first lines of an SCP node pool; a test adds image, fabric, names and number of nodes."""
