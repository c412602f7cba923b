"""Declare a complete topology for each kind on each platform, as its page shows it."""

from collections.abc import Mapping
from typing import Final

_POOL: Final = """\
    node_pool_id: POOL001-krw1a
    region_id: kr-west1
    vpc_id: e58348b1bc9148e5af86500fd4ef99ca
    subnet_id: ab313c43291e4b678f4bacffe10768ae
    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    server_type_id: f90e8ef54cc2451b825608e9f95f7bcb
    os_user_password: "{{ config.password }}"
"""
_NODE: Final = _POOL.removeprefix("    node_pool_id: POOL001-krw1a\n")
_CONFIG: Final = """\
config:
  password: {secret: true}   # gpuform config set password
"""

EXAMPLES: Final[Mapping[tuple[str, str], str]] = {
    ("together", "Cluster"): """\
config:
  gpus: {type: integer, default: 16, multiple_of: 8}

shared_volumes:
  data:
    platform: together
    volume_name: training-data
    region: us-central-8
    size_tib: 5

clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: "{{ config.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes.data }}"
    options: {protect: true, timeouts: {create: 2h}}

outputs:
  kubeconfig: "{{ clusters.train.kube_config }}"
""",
    ("together", "SharedVolume"): """\
shared_volumes:
  data:
    platform: together
    volume_name: training-data
    region: us-central-8
    size_tib: 5
    options: {protect: true}

outputs:
  volume_id: "{{ shared_volumes.data.id }}"
""",
    ("together", "VolumeClaim"): """\
shared_volumes:
  data:
    platform: together
    volume_name: training-data
    region: us-central-8
    size_tib: 5

clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes.data }}"

volume_claims:
  shared:                      # on the shared volume
    platform: together
    cluster: "{{ clusters.train }}"
    name: shared-pvc
    storage: 10Gi
    volume_name: "{{ shared_volumes.data.volume_name }}"
    options: {deleted_with: "{{ clusters.train }}"}
  scratch:                     # on the NVMe of the pod's node
    platform: together
    cluster: "{{ clusters.train }}"
    name: local-pvc
    storage: 50Gi
    storage_class_name: local-storage-class
    options: {deleted_with: "{{ clusters.train }}"}

outputs:
  shared: "{{ volume_claims.shared.status }}"
""",
    ("together", "Certification"): """\
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND

certifications:
  fabric:
    platform: together
    cluster: "{{ clusters.train }}"
    num_gpus: "{{ clusters.train.num_gpus }}"
    name: fabric
    categories:
      - domain: communication
        variant: nccl-all-reduce
        floor: 300               # GB/s of bus bandwidth
        tolerance: 10%
    options: {deleted_with: "{{ clusters.train }}"}

outputs:
  certified_at: "{{ certifications.fabric.certified_at }}"
""",
    ("scp", "Certification"): f"""\
{_CONFIG}
node_pools:
  train:
    platform: scp
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: 6
{_POOL}
certifications:
  fabric:
    platform: scp
    name: fabric
    node_ids: "{{{{ node_pools.train.node_ids }}}}"
    slurm: {{via: ssh, host: slurm-login}}
    categories:
      - domain: communication
        variant: nccl-all-reduce
        floor: 300               # GB/s of bus bandwidth
        job:
          script: |
            #!/bin/bash
            srun all_reduce_perf -b 8 -e 16G -f 2 -g 8
          result: 'Avg bus bandwidth\\s*:\\s*([0-9.]+)'

outputs:
  certified_at: "{{{{ certifications.fabric.certified_at }}}}"
""",
    ("scp", "NodePool"): f"""\
{_CONFIG}
node_pools:
  train:
    platform: scp
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: 6
{_POOL}
outputs:
  node_ids: "{{{{ node_pools.train.node_ids }}}}"
""",
    ("scp", "GpuNode"): f"""\
{_CONFIG}
node_pools:
  train:
    platform: scp
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: 2
{_POOL}
gpu_nodes:
  head:
    platform: scp
    gpu_node_name: train-head
    cluster_fabric_id: "{{{{ node_pools.train.cluster_fabric_id }}}}"
{_NODE}
outputs:
  head: "{{{{ gpu_nodes.head.id }}}}"
""",
    ("scp", "Fabric"): """\
fabrics:
  shared:
    platform: scp
    node_pool_id: POOL001-krw1a
    cluster_fabric_name: train-a
    region_id: kr-west1

outputs:
  fabric_id: "{{ fabrics.shared.cluster_fabric_id }}"
""",
    ("tensorone", "Cluster"): """\
config:
  wandb_key: {secret: true}   # gpuform config set wandb_key

clusters:
  workbench:
    platform: tensorone
    name: workbench
    gpu_type: A100
    gpu_count: 2
    storage_gb: 500
    region: us-west-2
    project_id: proj_456
    template_id: tmpl_pytorch_latest
    environment_variables:
      WANDB_API_KEY: "{{ config.wandb_key }}"
    port_mappings:
      - {internal_port: 8888, protocol: tcp, description: Jupyter}
    auto_terminate: {enabled: true, idle_minutes: 60, cost_limit_usd: 100}
    tags: {team: research}
    final_snapshot: true

outputs:
  ssh: "{{ clusters.workbench.ssh_command }}"
""",
    ("aios", "Cluster"): """\
clusters:
  west:
    platform: aios
    cluster_id: west-vision-001
    region_id: us-west-2
    nodes:
      node_data:
        - id: node-1
          gpus:
            gpus: [{model_name: NVIDIA A100, memory: 16384}]
            features: [fp16, tensor_cores]
          vcpus: {count: 32}
          memory: 131072
          swap: 8192
          storage: {disks: 2, size: 1048576}
          network: {interfaces: 2, tx_bandwidth: 10000, rx_bandwidth: 10000}
    config: {public_hostname: west-vision-001.example.net}
    tags: [gpu, vision]
    cluster_metadata:
      name: West
      description: Serves vision models.
      owner: AI Infrastructure

outputs:
  status: "{{ clusters.west.status }}"
""",
    ("aios", "GpuNode"): """\
clusters:
  east:
    platform: aios
    cluster_id: east-training-001
    region_id: us-east-1
    config: {public_hostname: east-training-001.example.net}
    tags: [gpu, training]
    cluster_metadata:
      name: East
      description: Trains models.
      owner: AI Infrastructure

gpu_nodes:
  east-node-1:
    platform: aios
    cluster_id: "{{ clusters.east.cluster_id }}"
    node_id: node-1
    gpus:
      gpus: [{model_name: NVIDIA A100, memory: 16384}]
      features: [fp16, tensor_cores]
    vcpus: {count: 32}
    memory: 131072
    swap: 8192
    storage: {disks: 2, size: 1048576}
    network: {interfaces: 2, tx_bandwidth: 10000, rx_bandwidth: 10000}

outputs:
  node: "{{ gpu_nodes['east-node-1'].id }}"
""",
    ("lens", "HealthGate"): """\
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND

health_gates:
  healthy:
    platform: lens
    condition:
      healthy_nodes: {at_least: 2}
      faulty_nodes: {at_most: 0}
      active_port_rate: {at_least: 0.95}
    wait_minutes: 20
    triggers: ["{{ clusters.train.id }}", "{{ clusters.train.num_gpus }}"]

outputs:
  overview: "{{ health_gates.healthy.overview }}"
""",
}
"""By platform and kind. The page has the same in Python, made of it."""
