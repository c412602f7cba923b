"""Define the stacks that courses play with: each platform's topology, by variant."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import dedent

from hostile.fakes.simulation import START, PlatformObject

BASE, GROWN, RENAMED, LESS = "base", "grown", "renamed", "less"
ROLLED = "rolled"
"""With another image, node by node."""
TTL = "ttl"
_EXPIRES = "expires: 2026-01-03"
ENDS_AT = START + 3 * 86_400
"""The end of that day."""
TTL_S = 2 * 86_400
SECRET = "password"


@dataclass(frozen=True)
class Project:
    """One stack: its declarations in each variant, and the objects that `import` can adopt."""

    name: str
    platform: str
    topologies: Mapping[str, str]
    token: str
    kind: str
    """`token` is the type for `gpuform import`, `kind` the platform's word for the same object."""

    def write_topology(self, variant: str, lifetime: str) -> str:
        topology = self.topologies[variant]
        return topology.replace(_EXPIRES, "ttl: 2d") if lifetime == TTL else topology

    def filter_importable(self, platform_objects: list[PlatformObject]) -> list[PlatformObject]:
        return [item for item in platform_objects if item.kind == self.kind]


def _write_together(
    gpus: int = 16, size: int = 5, name: str = "training", *, has_all: bool = True
) -> str:
    volume = f"""\
        shared_volumes:
          data:
            platform: together
            volume_name: {name}-data
            region: us-central-8
            size_tib: {size}
        """
    cluster = f"""\
        clusters:
          train:
            platform: together
            cluster_name: {name}
            region: us-central-8
            gpu_type: H100_SXM
            num_gpus: {gpus}
            driver_version: CUDA_12_6_560
            billing_type: ON_DEMAND
            volume: "{{{{ shared_volumes.data }}}}"
            expires: 2026-01-03
        outputs:
          kubeconfig: "{{{{ clusters.train.kube_config }}}}"
        """
    return dedent(volume) + (dedent(cluster) if has_all else "")


_HARDWARE = """\
            image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
            server_type_id: f90e8ef54cc2451b825608e9f95f7bcb
            region_id: kr-west1
            vpc_id: e58348b1bc9148e5af86500fd4ef99ca
            subnet_id: ab313c43291e4b678f4bacffe10768ae
            os_user_password: "{{ config.password }}"
"""


def _write_scp(count: int = 2, name: str = "train", *, has_all: bool = True) -> str:
    pool = f"""\
        config:
          password: {{secret: true}}
        node_pools:
          train:
            platform: scp
            node_pool_id: POOL001-krw1a
            cluster_fabric_name: train-a
            gpu_node_name_prefix: {name}
            count: {count}
            expires: 2026-01-03
        """
    node = """\
        gpu_nodes:
          extra:
            platform: scp
            cluster_fabric_id: "{{ node_pools.train.cluster_fabric_id }}"
            gpu_node_name: extra-001
        """
    hardware = dedent(_HARDWARE).replace("\n", "\n    ").rstrip()
    pool = f"{dedent(pool)}    {hardware}\n"
    return pool + (f"{dedent(node)}    {hardware}\n" if has_all else "")


def _write_pool(
    count: int = 3, image: str = "IMAGE-7XFMaJpLsapKvskFMjCtmm", name: str = "train"
) -> str:
    """Return a pool with repairs and a rolling rollout."""
    policies = """\
    rollout: {max_unavailable: 1}
    repair: {on: [platform], approve: automatic, max_unhealthy: 50%}
"""
    pool = _write_scp(count, name, has_all=False).replace("IMAGE-7XFMaJpLsapKvskFMjCtmm", image)
    return pool + policies


def _write_fleet(
    count: int = 3, image: str = "IMAGE-7XFMaJpLsapKvskFMjCtmm", name: str = "train"
) -> str:
    """Return a pool like `_write_pool`'s with a Kubernetes, which is stopped when idle."""
    policies = """\
    drain: {kubernetes: {kubeconfig: ~/.kube/train}, wait_minutes: 10}
    idle: {below: 5%, for: 30m}
"""
    return _write_pool(count, image, name) + policies


def _write_slurm(
    count: int = 3, image: str = "IMAGE-7XFMaJpLsapKvskFMjCtmm", name: str = "train"
) -> str:
    """Return a pool like `_write_pool`'s with a Slurm, whose commands this machine has."""
    return _write_pool(count, image, name) + "    drain: {slurm: {via: local}, wait_minutes: 10}\n"


_AFTER_THE_FIRST = '    options: {depends_on: "{{ clusters.workbench }}"}\n'
"""Makes the second cluster depend on the first, so that requests have a fixed order."""


def _write_tensorone(gpus: int = 2, name: str = "workbench", *, has_all: bool = True) -> str:
    config = """\
        config:
          password: {secret: true}
        """
    entries = {"workbench": name, "second": "second"} if has_all else {"second": "second"}
    first = next(iter(entries))
    clusters = "".join(
        f"""\
  {key}:
    platform: tensorone
    name: {entry}
    gpu_type: A100
    gpu_count: {gpus}
    storage_gb: 500
    region: us-west-2
    project_id: proj_456
    environment_variables:
      TOKEN: "{{{{ config.password }}}}"
    tags: {{team: research}}
    expires: 2026-01-03
{"" if key == first else _AFTER_THE_FIRST}"""
        for key, entry in entries.items()
    )
    return f"{dedent(config)}clusters:\n{clusters}"


_AIOS_NODE = """\
  east-{id}:
    platform: aios
    cluster_id: "{{{{ clusters.east.cluster_id }}}}"
    node_id: {id}
    gpus:
      gpus: [{{model_name: NVIDIA A100, memory: 16384}}]
      features: [fp16]
    vcpus: {{count: 32}}
    memory: 131072
    swap: 8192
    storage: {{disks: 2, size: 1048576}}
    network: {{interfaces: 2, tx_bandwidth: 10000, rx_bandwidth: 10000}}
"""


def _write_aios_cluster(name: str, cluster_id: str, description: str) -> str:
    return f"""\
  {name}:
    platform: aios
    cluster_id: {cluster_id}
    region_id: us-east-1
    config: {{public_hostname: {cluster_id}.example.net}}
    tags: [gpu, training]
    cluster_metadata:
      name: {name}
      description: {description}
      owner: AI Infrastructure
      additional_info: {{join: "{{{{ config.password }}}}"}}
"""


def _write_aios(description: str = "Trains.", cluster_id: str = "east-001", nodes: int = 1) -> str:
    config = "config:\n  password: {secret: true}\n"
    topology = f"{config}clusters:\n{_write_aios_cluster('east', cluster_id, description)}"
    if nodes:
        added = [_AIOS_NODE.format(id=f"node-{number}") for number in range(1, nodes + 1)]
        dependencies = '    options: {depends_on: "{{ gpu_nodes.east-node-1 }}"}\n'
        topology += "gpu_nodes:\n" + dependencies.join([*added, ""] if nodes > 1 else added)
    return topology


def _write_lens(
    description: str = "Trains.", cluster_id: str = "east-001", at_least: int = 2
) -> str:
    gate = f"""\
        health_gates:
          healthy:
            platform: lens
            condition: {{healthy_nodes: {{at_least: {at_least}}}}}
            wait_minutes: 20
        """
    dependencies = '    options: {depends_on: "{{ health_gates.healthy }}"}\n'
    return _write_aios(description, cluster_id, nodes=0) + dependencies + dedent(gate)


def _build_pool_project(name: str, build: Callable[..., str]) -> Project:
    """Return the project of a pool of SCP nodes with the topology of `build`."""
    topologies = {
        BASE: build(),
        GROWN: build(count=6),
        RENAMED: build(name="renamed"),
        LESS: build(count=2),
        ROLLED: build(image="IMAGE-8XFMaJpLsapKvskFMjCtmm"),
    }
    return Project(name, "scp", topologies, "scp:GpuNode", "node")


PROJECTS = {
    project.name: project
    for project in (
        Project(
            "together",
            "together",
            {
                BASE: _write_together(),
                GROWN: _write_together(gpus=24, size=8),
                RENAMED: _write_together(name="renamed"),
                LESS: _write_together(has_all=False),
            },
            "together:SharedVolume",
            "volume",
        ),
        Project(
            "scp",
            "scp",
            {
                BASE: _write_scp(),
                GROWN: _write_scp(count=3),
                RENAMED: _write_scp(name="renamed"),
                LESS: _write_scp(has_all=False),
            },
            "scp:GpuNode",
            "node",
        ),
        _build_pool_project("pool", _write_pool),
        _build_pool_project("fleet", _write_fleet),
        _build_pool_project("slurm", _write_slurm),
        Project(
            "tensorone",
            "tensorone",
            {
                BASE: _write_tensorone(),
                GROWN: _write_tensorone(gpus=4),
                RENAMED: _write_tensorone(name="renamed"),
                LESS: _write_tensorone(has_all=False),
            },
            "tensorone:Cluster",
            "cluster",
        ),
        Project(
            "aios",
            "aios",
            {
                BASE: _write_aios(),
                GROWN: _write_aios(description="Trains more.", nodes=2),
                RENAMED: _write_aios(cluster_id="east-002"),
                LESS: _write_aios(nodes=0),
            },
            "aios:Cluster",
            "cluster",
        ),
        Project(
            "lens",
            "aios",
            {
                BASE: _write_lens(),
                GROWN: _write_lens(description="Trains more.", at_least=3),
                RENAMED: _write_lens(cluster_id="east-002"),
                LESS: _write_lens(at_least=1),
            },
            "aios:Cluster",
            "cluster",
        ),
    )
}


def render_stack_file(project: Project, form: str, salt: str, encrypted_secret: str) -> str:
    """Return `Pulumi.dev.yaml` with a secret like that of `gpuform config set --secret`."""
    lines = [f"encryptionsalt: {salt}", "config:", f"  gpuform:form: {form}"]
    if encrypted_secret and SECRET in project.topologies[BASE]:
        lines += [f"  {project.name}:{SECRET}:", f"    secure: {encrypted_secret}"]
    return "\n".join(lines) + "\n"


def render_project_file(project: Project) -> str:
    return f"name: {project.name}\nruntime: python\n"
