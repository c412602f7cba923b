"""Together AI's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from gpuform.providers.together.certification import CertificationLifecycle
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle
from gpuform.providers.together.volume_claim import VolumeClaimLifecycle

__all__ = ["Certification", "Cluster", "SharedVolume", "VolumeClaim"]

LoadBalancer = Literal[
    "NONE",
    "TRAEFIK",
    "NGINX",
    "ISTIO",
]

DcgmDiagLevel = Literal[
    "DCGM_DIAG_LEVEL_SHORT",
    "DCGM_DIAG_LEVEL_MEDIUM",
    "DCGM_DIAG_LEVEL_LONG",
    "DCGM_DIAG_LEVEL_EXTENDED",
]

Via = Literal[
    "exec",
    "ssh",
    "local",
]

DrainBy = Literal[
    "scontrol",
    "slinky",
]

OnBusy = Literal[
    "wait",
    "fail",
    "evict",
]

Strategy = Literal["replace_cluster"]

Approve = Literal[
    "reviewed",
    "automatic",
]

On = Literal[
    "platform",
    "not_ready",
    "overheated",
    "failed_certification",
]

Modes = Literal[
    "HOST_AWARE",
    "VM_ONLY",
    "REBOOT_VM",
    "HOST_POWER_CYCLE",
]

BillingType = Literal[
    "ON_DEMAND",
    "RESERVED",
    "SCHEDULED_CAPACITY",
]

ClusterType = Literal[
    "KUBERNETES",
    "SLURM",
]

AccessModes = Literal[
    "ReadWriteOnce",
    "ReadOnlyMany",
    "ReadWriteMany",
    "ReadWriteOncePod",
]

Nodes = Literal[
    "new",
    "all",
]

Metric = Literal[
    "busBandwidthGBps",
    "algBandwidthGBps",
    "goodputRatio",
    "avgTFLOPsPerGPU",
]


class SharedVolumeArguments(TypedDict):
    """A volume that every node of a cluster mounts and that outlives the cluster."""

    # Name of the volume; Kubernetes claims bind to it by this name. (replaces)
    volume_name: pulumi.Input[str]
    # Size in whole TiB; it can only grow. (in place, grow-only)
    size_tib: pulumi.Input[int]
    # Region of the volume and of the clusters that mount it, such as us-central-8. (replaces,
    # write-only)
    region: pulumi.Input[str]
    # Whether an inline volume outlives its cluster. (replaces, write-only)
    is_lifecycle_independent: NotRequired[pulumi.Input[bool] | None]
    # Project that owns the volume. When not declared: that of the variable TOGETHER_PROJECT_ID when
    # the volume is created, else the API key's own project. (in place, or replaces: a volume stays
    # in its project, write-only)
    project_id: NotRequired[pulumi.Input[str] | None]
    # Cluster near whose machines the platform places the volume. (replaces, write-only)
    instance_cluster_id: NotRequired[pulumi.Input[str] | PlatformResource | None]


class OidcConfigArguments(TypedDict):
    """Sign-in to the cluster through an OpenID Connect issuer."""

    # Client id registered with the issuer.
    client_id: pulumi.Input[str]
    # Claim that holds a user's groups, such as groups.
    group_claim: pulumi.Input[str]
    # Prefix of each group's name, such as oidc:.
    group_prefix: pulumi.Input[str]
    # URL of the issuer.
    issuer_url: pulumi.Input[str]
    # Claim that names the user, such as sub or email.
    username_claim: pulumi.Input[str]
    # Prefix of each user's name, such as oidc:.
    username_prefix: pulumi.Input[str]
    # PEM certificate of the issuer's authority, for a private authority.
    ca_cert: NotRequired[pulumi.Input[str] | None]


class SwitchArguments(TypedDict):
    """A component that is on or off."""

    # Whether the setting is on.
    enabled: NotRequired[pulumi.Input[bool] | None]


class SlurmStartupScriptsArguments(TypedDict):
    """Scripts that Slurm runs at the stages of nodes and jobs; each begins with a shebang."""

    # Before a job, on the controller; the script calls no command of Slurm.
    controller_prolog: NotRequired[pulumi.Input[str] | None]
    # After a job, on the controller.
    controller_epilog: NotRequired[pulumi.Input[str] | None]
    # Before a job, on each worker; the script calls no command of Slurm.
    worker_prolog: NotRequired[pulumi.Input[str] | None]
    # After a job, on each worker.
    worker_epilog: NotRequired[pulumi.Input[str] | None]
    # At the start of login nodes.
    login_init_script: NotRequired[pulumi.Input[str] | None]
    # At the start of node sets.
    nodeset_init_script: NotRequired[pulumi.Input[str] | None]
    # Lines added to slurm.conf.
    extra_slurm_conf: NotRequired[pulumi.Input[str] | None]


class ClusterConfigArguments(TypedDict):
    """The components that the platform installs in the cluster."""

    # Load balancer: NONE, TRAEFIK, NGINX, ISTIO.
    load_balancer: pulumi.Input[LoadBalancer]
    # NVIDIA GPU Operator version, such as v24.6.2.
    gpu_operator_version: NotRequired[pulumi.Input[str] | None]
    # NVIDIA Network Operator version, such as v24.7.0.
    network_operator_version: NotRequired[pulumi.Input[str] | None]
    # The ingress controller.
    ingress: NotRequired[pulumi.Input[SwitchArguments] | None]
    # Whether the cluster has a jump host.
    jumphost_enabled: NotRequired[pulumi.Input[bool] | None]
    # Whether the Kubernetes dashboard is installed.
    kubernetes_dashboard_enabled: NotRequired[pulumi.Input[bool] | None]
    # Metrics and logs.
    observability: NotRequired[pulumi.Input[SwitchArguments] | None]
    # Scripts of a SLURM cluster.
    slurm_startup_scripts: NotRequired[pulumi.Input[SlurmStartupScriptsArguments] | None]
    # Whether SSH uses certificates of the cluster's own authority.
    ssh_ca_enabled: NotRequired[pulumi.Input[bool] | None]


class AddOnConfigArguments(TypedDict):
    """The settings of an add-on, under its type's name."""

    # Kubernetes dashboard.
    dashboard: NotRequired[pulumi.Input[SwitchArguments] | None]
    # Headlamp dashboard.
    headlamp: NotRequired[pulumi.Input[SwitchArguments] | None]
    # Ingress.
    ingress: NotRequired[pulumi.Input[SwitchArguments] | None]
    # Slurm web interface.
    slurm_web: NotRequired[pulumi.Input[SwitchArguments] | None]
    # No longer offered by Together.
    torchpass: NotRequired[pulumi.Input[SwitchArguments] | None]


class AddOnArguments(TypedDict):
    """One add-on of a cluster, identified by its name."""

    # Type: dashboard, headlamp, ingress or slurm_web. (replaces)
    add_on_type: pulumi.Input[str]
    # Name of the add-on in this cluster.
    name: pulumi.Input[str]
    # Settings of the add-on.
    config: NotRequired[pulumi.Input[AddOnConfigArguments] | None]


class AcceptanceTestsArguments(TypedDict):
    """The tests that a new cluster has to pass."""

    # Whether the tests run.
    enabled: NotRequired[pulumi.Input[bool] | None]
    # Depth of the DCGM diagnostics; MEDIUM when not declared.
    dcgm_diag_level: NotRequired[pulumi.Input[DcgmDiagLevel] | None]
    # Skip DCGM diagnostics.
    dcgm_diag_skipped: NotRequired[pulumi.Input[bool] | None]
    # Duration of GPU burn in seconds; 0 is the default.
    gpu_burn_duration: NotRequired[pulumi.Input[int] | None]
    # Skip GPU burn.
    gpu_burn_skipped: NotRequired[pulumi.Input[bool] | None]
    # Skip NCCL over several nodes.
    nccl_multi_node_skipped: NotRequired[pulumi.Input[bool] | None]
    # Skip NCCL inside one node.
    nccl_single_node_skipped: NotRequired[pulumi.Input[bool] | None]
    # Skip storage performance.
    storage_skipped: NotRequired[pulumi.Input[bool] | None]


class AlternativeArguments(TypedDict):
    """Another region, another GPU type, or both. Omitted properties stay as declared."""

    # The region to try.
    region: NotRequired[pulumi.Input[str] | None]
    # The type of GPU to try.
    gpu_type: NotRequired[pulumi.Input[str] | None]


class OnNoCapacityArguments(TypedDict):
    """What to do while the platform has no free GPUs, instead of failing at once."""

    # The alternatives for a new cluster, in this order.
    alternatives: NotRequired[pulumi.Input[Sequence[pulumi.Input[AlternativeArguments]]] | None]
    # How long to keep trying, in minutes.
    wait_minutes: NotRequired[pulumi.Input[int] | None]


class SlurmArguments(TypedDict):
    """How gpuform reaches a cluster's Slurm. A setting of gpuform, never sent to the platform."""

    # exec in a pod through the cluster's Kubernetes, ssh to a login node, or local where Slurm's
    # commands are installed on this machine.
    via: NotRequired[pulumi.Input[Via] | None]
    # exec: namespace of Slurm.
    namespace: NotRequired[pulumi.Input[str] | None]
    # exec: labels of the pods in which commands can be run; a running one is used.
    pod_selector: NotRequired[pulumi.Input[str] | None]
    # exec: the container of the pod.
    container: NotRequired[pulumi.Input[str] | None]
    # ssh: the login node, or a Host of your SSH configuration.
    host: NotRequired[pulumi.Input[str] | None]
    # ssh: name to log in with; the name in your SSH configuration when not declared.
    user: NotRequired[pulumi.Input[str] | None]
    # ssh: port of the login node.
    port: NotRequired[pulumi.Input[int] | None]
    # Whether to run changing commands with `sudo`, without a password; true by default with ssh.
    sudo: NotRequired[pulumi.Input[bool] | None]
    # How nodes are drained: scontrol, or slinky for an annotation of the nodes' pods, which Slinky
    # 1.3 and newer follow.
    drain_by: NotRequired[pulumi.Input[DrainBy] | None]


class ClusterDrainArguments(TypedDict):
    """What to do about the jobs on a cluster's nodes, and which nodes are removed first."""

    # While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or evict
    # the jobs.
    on_busy: NotRequired[pulumi.Input[OnBusy] | None]
    # How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this time,
    # no node is removed.
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    # Names of all nodes to remove when the cluster shrinks; by default failed nodes first, then
    # cordoned or drained, then idle, then the newest ones.
    nodes: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    # How to reach the Slurm of a SLURM cluster: by default in the pod of Slinky's controller.
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]


class ClusterRolloutArguments(TypedDict):
    """How a cluster is replaced when a change cannot be made in place."""

    # replace_cluster: the new cluster is created first, if there is stock, and the old one is
    # deleted when no job runs on it any more.
    strategy: pulumi.Input[Strategy]
    # Whether the new cluster must mount the volume of the old one; requires volume_id.
    keep_volume: NotRequired[pulumi.Input[bool] | None]


class ClusterRepairArguments(TypedDict):
    """Which broken nodes are repaired, and how the nodes of a cluster may be repaired."""

    # reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or --allow
    # repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not declared.
    approve: NotRequired[pulumi.Input[Approve] | None]
    # Which reports count: platform (reports a broken node, or proposes a repair), not_ready (the
    # scheduler cannot use the node), overheated (measured by Lens), failed_certification (a
    # certification names this node alone). platform if not declared.
    on: NotRequired[pulumi.Input[Sequence[pulumi.Input[On]]] | None]
    # How long a scheduler must be unable to use a node before it counts as broken; 10m if not
    # declared.
    not_ready_for: NotRequired[pulumi.Input[str] | None]
    # Highest allowed temperature of a GPU in degrees Celsius, for on: overheated.
    max_temperature: NotRequired[pulumi.Input[int] | None]
    # How many nodes are repaired at a time; 1 when not declared.
    max_parallel: NotRequired[pulumi.Input[int] | None]
    # With more broken nodes than this, nothing is repaired, because the cause is then probably not
    # in the nodes. A number, or a share rounded down to at least 1; 25% if not declared.
    max_unhealthy: NotRequired[pulumi.Input[str | int] | None]
    # Allowed repairs: a new machine on another host (HOST_AWARE) or on any host (VM_ONLY), a
    # reboot, or a power cycle of the host. Together's proposal is used if it is listed, otherwise
    # the first one. All, HOST_AWARE first, if not declared.
    modes: NotRequired[pulumi.Input[Sequence[pulumi.Input[Modes]]] | None]


class ClusterArguments(TypedDict):
    """A GPU cluster: nodes with 8 GPUs each, or 4 with GB200."""

    # Name of the cluster. (replaces)
    cluster_name: pulumi.Input[str]
    # Region, such as us-central-8. (replaces)
    region: pulumi.Input[str]
    # Type of GPU, such as H100_SXM. (replaces)
    gpu_type: pulumi.Input[str]
    # Number of GPUs, a multiple of 8.
    num_gpus: pulumi.Input[int]
    # CUDA and driver version in one, such as CUDA_12_6_560. (as the fields it stands for)
    driver_version: NotRequired[pulumi.Input[str] | None]
    # CUDA version, such as 12.6; with nvidia_driver_version. (replaces)
    cuda_version: NotRequired[pulumi.Input[str] | None]
    # NVIDIA driver version, such as 560; with cuda_version. (replaces)
    nvidia_driver_version: NotRequired[pulumi.Input[str] | None]
    # Id of a version in the region's list, instead of the pair. (replaces, write-only)
    nvidia_version_id: NotRequired[pulumi.Input[str] | None]
    # ON_DEMAND, RESERVED (with duration_days) or SCHEDULED_CAPACITY. (replaces)
    billing_type: pulumi.Input[BillingType]
    # Days of a RESERVED cluster, 1 to 90. (replaces, write-only)
    duration_days: NotRequired[pulumi.Input[int] | None]
    # KUBERNETES, or SLURM on Kubernetes.
    cluster_type: NotRequired[pulumi.Input[ClusterType] | None]
    # Id of an existing shared volume of the same region to attach. (replaces, write-only)
    volume_id: NotRequired[pulumi.Input[str] | PlatformResource | None]
    # A shared volume to create with the cluster, instead of volume_id. (replaces, write-only)
    shared_volume: NotRequired[pulumi.Input[SharedVolumeArguments] | None]
    # Whether the number of nodes follows the load, up to auto_scale_max_gpus. (replaces,
    # write-only)
    auto_scale: NotRequired[pulumi.Input[bool] | None]
    # The most GPUs that automatic scaling may reach. (replaces, write-only)
    auto_scale_max_gpus: NotRequired[pulumi.Input[int] | None]
    # Capacity pool to draw GPUs from. (replaces)
    capacity_pool_id: NotRequired[pulumi.Input[str] | None]
    # GPUs from the capacity pool, part of num_gpus.
    num_capacity_pool_gpus: NotRequired[pulumi.Input[int] | None]
    # Desired additional GPUs, not part of num_gpus, which the platform adds and removes as stock
    # allows.
    num_preemptible_gpus: NotRequired[pulumi.Input[int] | None]
    # Prepaid GPUs of a RESERVED cluster; all when not declared.
    num_reserved_gpus: NotRequired[pulumi.Input[int] | None]
    # Start of SCHEDULED_CAPACITY, such as 2026-03-01T08:00:00Z. (replaces)
    reservation_start_time: NotRequired[pulumi.Input[str] | None]
    # End of SCHEDULED_CAPACITY, or of a RESERVED cluster.
    reservation_end_time: NotRequired[pulumi.Input[str] | None]
    # Project of the cluster. When not declared: that of the variable TOGETHER_PROJECT_ID when the
    # cluster is created, else the API key's own project. (replaces)
    project_id: NotRequired[pulumi.Input[str] | None]
    # Whether a KUBERNETES cluster gets the Traefik ingress. (replaces)
    install_traefik: NotRequired[pulumi.Input[bool] | None]
    # Sign-in through an OpenID Connect issuer. (replaces)
    oidc_config: NotRequired[pulumi.Input[OidcConfigArguments] | None]
    # What the platform installs in the cluster.
    cluster_config: NotRequired[pulumi.Input[ClusterConfigArguments] | None]
    # Add-ons by name.
    add_ons: NotRequired[pulumi.Input[Sequence[pulumi.Input[AddOnArguments]]] | None]
    # The tests that the new cluster has to pass. (replaces, write-only)
    acceptance_tests_params: NotRequired[pulumi.Input[AcceptanceTestsArguments] | None]
    # Image of a SLURM cluster. (replaces, write-only)
    slurm_image: NotRequired[pulumi.Input[str] | None]
    # Shared memory of a SLURM cluster in GiB; required for a SLURM cluster. (replaces)
    slurm_shm_size_gib: NotRequired[pulumi.Input[int] | None]
    # A setting of gpuform, never sent: what to do while Together is out of stock. The alternatives
    # are tried in order, then all again every minute for wait_minutes; growing a cluster waits,
    # too. (nothing)
    on_no_capacity: NotRequired[pulumi.Input[OnNoCapacityArguments] | None]
    # When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    # an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)
    expires: NotRequired[pulumi.Input[str] | None]
    # How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    # has 24 hours. A replacement starts again. (recorded, nothing is sent)
    ttl: NotRequired[pulumi.Input[str] | None]
    # A setting of gpuform, never sent: the jump host of the machines, as Together's page of the
    # cluster shows it (ssh -J). (recorded, nothing is sent)
    ssh_jump: NotRequired[pulumi.Input[str] | None]
    # A setting of gpuform, never sent: the OIDC issuer of a cluster with ssh_ca_enabled, as
    # Together's page of the cluster shows it. `gpuform connect` gets SSH certificates from this
    # issuer. (recorded, nothing is sent)
    ssh_issuer: NotRequired[pulumi.Input[str] | None]
    # A setting of gpuform, never sent: what to do about jobs on removed nodes, with the cluster or
    # without it, and which nodes to remove when num_gpus shrinks. Nodes are cordoned first, and
    # removed when no job runs on them. (nothing)
    drain: NotRequired[pulumi.Input[ClusterDrainArguments] | None]
    # A setting of gpuform, never sent. Together changes no driver and no GPU type in place: with
    # rollout, the new cluster is created before the old one is deleted, so that jobs can move;
    # without it, the old one is deleted first. (nothing)
    rollout: NotRequired[pulumi.Input[ClusterRolloutArguments] | None]
    # A setting of gpuform, never sent: which broken nodes are repaired, and how, each while no job
    # runs on it (see `drain`). (recorded, nothing is sent)
    repair: NotRequired[pulumi.Input[ClusterRepairArguments] | None]
    # The former name of drain. (as the fields it stands for)
    scale_down: NotRequired[pulumi.Input[ClusterDrainArguments] | None]


class VolumeClaimArguments(TypedDict):
    """A volume claim in a cluster's Kubernetes, on a shared volume or on a node's NVMe."""

    # Cluster whose pods use the claim. (replaces)
    cluster_id: pulumi.Input[str] | PlatformResource
    # Name by which pods mount the claim. (replaces)
    name: pulumi.Input[str]
    # Namespace of the pods that use the claim. (replaces)
    namespace: NotRequired[pulumi.Input[str] | None]
    # Size in Kubernetes' notation, such as 10Gi; it can only grow, and only when the claim is
    # bound. (in place, grow-only)
    storage: pulumi.Input[str]
    # Name of the cluster's shared volume to bind. (replaces)
    volume_name: NotRequired[pulumi.Input[str] | None]
    # Storage class that creates the volume: local-storage-class is local NVMe. (replaces)
    storage_class_name: NotRequired[pulumi.Input[str] | None]
    # Access modes. Default: ReadWriteMany with volume_name, else ReadWriteOnce. (replaces)
    access_modes: NotRequired[pulumi.Input[Sequence[pulumi.Input[AccessModes]]] | None]
    # Labels of the claim.
    labels: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]


class BatchJobArguments(TypedDict):
    """A batch job of Slurm that measures nodes, instead of the Cluster Readiness Engine."""

    # The batch script, with its first line `#!/bin/bash`. gpuform passes the nodes to sbatch, and
    # reserves them exclusively.
    script: pulumi.Input[str]
    # A regular expression for the line with the result, with the figure in parentheses. The last of
    # several matching lines counts.
    result: pulumi.Input[str]
    # each: one job for each node. all: one job for all nodes. each if not declared.
    nodes: NotRequired[pulumi.Input[Nodes] | None]


class CategoryArguments(TypedDict):
    """One test that nodes have to pass."""

    # Domain of the test.
    domain: pulumi.Input[str]
    # Variant of the test.
    variant: pulumi.Input[str]
    # Options of the Cluster Readiness Engine for this category, by the engine's names. `testScale:
    # intra-node` tests each node alone, `diagnose` finds faulty nodes.
    options: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[Any]]] | None]
    # The lowest result that passes, in the unit of `metric`.
    floor: NotRequired[pulumi.Input[float] | None]
    # How far below the floor a result still passes; 0% if not declared.
    tolerance: NotRequired[pulumi.Input[str] | None]
    # The metric of the floor; busBandwidthGBps for communication if not declared.
    metric: NotRequired[pulumi.Input[Metric] | None]
    # The batch job that runs the test on a Slurm cluster.
    job: NotRequired[pulumi.Input[BatchJobArguments] | None]


class CertificationArguments(TypedDict):
    """Tests that a cluster's nodes must pass before resources that depend on them are created."""

    # Name of the certification in Kubernetes, and of Slurm's jobs. (replaces)
    name: pulumi.Input[str]
    # Namespace of the certification in Kubernetes. (replaces)
    namespace: NotRequired[pulumi.Input[str] | None]
    # The tests that each node has to pass. With `job` a test is a batch job of the nodes' Slurm.
    # Without `job`, NVIDIA's Cluster Readiness Engine runs the test: it has to be installed in the
    # nodes' Kubernetes.
    categories: pulumi.Input[Sequence[pulumi.Input[CategoryArguments]]]
    # Which nodes to test when some are not certified: only the uncertified nodes (new, the
    # default), or all nodes again (all). (nothing)
    nodes: NotRequired[pulumi.Input[Nodes] | None]
    # How to reach the nodes' Slurm, for categories with `job`. (nothing)
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]
    # Absolute path of a folder that the nodes share with the machine that runs Slurm's commands; a
    # `job` writes its output there. The user's home if not declared; required with slurm: {via:
    # exec}. (nothing)
    folder: NotRequired[pulumi.Input[str] | None]
    # Highest number of minutes for all tests, including the wait for nodes in use by jobs; 180 if
    # not declared. (nothing)
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    # Cluster whose nodes are tested. (replaces)
    cluster_id: pulumi.Input[str] | PlatformResource
    # Number of GPUs of the cluster. When the number grows, the new nodes are tested.
    num_gpus: pulumi.Input[int]


class Cluster(PlatformResource, module="gpuform.together", name="Cluster"):
    """A GPU cluster: nodes with 8 GPUs each, or 4 with GB200."""

    _lifecycle = ClusterLifecycle

    cluster_name: pulumi.Output[str]
    region: pulumi.Output[str]
    gpu_type: pulumi.Output[str]
    num_gpus: pulumi.Output[int]
    cuda_version: pulumi.Output[str | None]
    nvidia_driver_version: pulumi.Output[str | None]
    nvidia_version_id: pulumi.Output[str | None]
    billing_type: pulumi.Output[str]
    duration_days: pulumi.Output[int | None]
    cluster_type: pulumi.Output[str | None]
    volume_id: pulumi.Output[str | None]
    shared_volume: pulumi.Output[dict[str, Any] | None]
    auto_scale: pulumi.Output[bool | None]
    auto_scale_max_gpus: pulumi.Output[int | None]
    capacity_pool_id: pulumi.Output[str | None]
    num_capacity_pool_gpus: pulumi.Output[int | None]
    num_preemptible_gpus: pulumi.Output[int | None]
    num_reserved_gpus: pulumi.Output[int | None]
    reservation_start_time: pulumi.Output[str | None]
    reservation_end_time: pulumi.Output[str | None]
    project_id: pulumi.Output[str | None]
    install_traefik: pulumi.Output[bool | None]
    oidc_config: pulumi.Output[dict[str, Any] | None]
    cluster_config: pulumi.Output[dict[str, Any] | None]
    add_ons: pulumi.Output[list[dict[str, Any]] | None]
    acceptance_tests_params: pulumi.Output[dict[str, Any] | None]
    slurm_image: pulumi.Output[str | None]
    slurm_shm_size_gib: pulumi.Output[int | None]
    on_no_capacity: pulumi.Output[dict[str, Any] | None]
    expires: pulumi.Output[str | None]
    ttl: pulumi.Output[str | None]
    ssh_jump: pulumi.Output[str | None]
    ssh_issuer: pulumi.Output[str | None]
    drain: pulumi.Output[dict[str, Any] | None]
    rollout: pulumi.Output[dict[str, Any] | None]
    repair: pulumi.Output[dict[str, Any] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    status: pulumi.Output[str]
    placed_region: pulumi.Output[str | None]
    placed_gpu_type: pulumi.Output[str | None]
    kube_config: pulumi.Output[str | None]
    control_plane_nodes: pulumi.Output[list[dict[str, Any]]]
    gpu_worker_nodes: pulumi.Output[list[dict[str, Any]]]
    node_events: pulumi.Output[list[dict[str, Any]]]
    workers_not_asked: pulumi.Output[str | None]
    faults: pulumi.Output[list[dict[str, Any]]]
    acceptance: pulumi.Output[list[dict[str, Any]]]
    ssh_ca_issuer: pulumi.Output[str | None]
    volumes: pulumi.Output[list[dict[str, Any]]]
    driver_version: pulumi.Output[str | None]
    installed_version_id: pulumi.Output[str | None]
    os_image: pulumi.Output[str | None]
    allocated_preemptible_gpus: pulumi.Output[int]
    duration_hours: pulumi.Output[int | None]
    created_at: pulumi.Output[str | None]
    first_ready_at: pulumi.Output[str | None]
    paused_at: pulumi.Output[str | None]
    reserved_until: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[ClusterArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)


class SharedVolume(PlatformResource, module="gpuform.together", name="SharedVolume"):
    """A volume that every node of a cluster mounts and that outlives the cluster."""

    _lifecycle = SharedVolumeLifecycle

    volume_name: pulumi.Output[str]
    size_tib: pulumi.Output[int]
    region: pulumi.Output[str]
    is_lifecycle_independent: pulumi.Output[bool | None]
    project_id: pulumi.Output[str | None]
    instance_cluster_id: pulumi.Output[str | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    status: pulumi.Output[str]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[SharedVolumeArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)


class VolumeClaim(PlatformResource, module="gpuform.together", name="VolumeClaim"):
    """A volume claim in a cluster's Kubernetes, on a shared volume or on a node's NVMe."""

    _lifecycle = VolumeClaimLifecycle

    cluster_id: pulumi.Output[str]
    name: pulumi.Output[str]
    namespace: pulumi.Output[str | None]
    storage: pulumi.Output[str]
    volume_name: pulumi.Output[str | None]
    storage_class_name: pulumi.Output[str | None]
    access_modes: pulumi.Output[list[str] | None]
    labels: pulumi.Output[dict[str, str] | None]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    status: pulumi.Output[str]
    uid: pulumi.Output[str]
    capacity: pulumi.Output[str | None]
    bound_volume: pulumi.Output[str | None]
    created_at: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[VolumeClaimArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)


class Certification(PlatformResource, module="gpuform.together", name="Certification"):
    """Tests that a cluster's nodes must pass before resources that depend on them are created."""

    _lifecycle = CertificationLifecycle

    name: pulumi.Output[str]
    namespace: pulumi.Output[str | None]
    categories: pulumi.Output[list[dict[str, Any]]]
    nodes: pulumi.Output[str | None]
    slurm: pulumi.Output[dict[str, Any] | None]
    folder: pulumi.Output[str | None]
    wait_minutes: pulumi.Output[int | None]
    cluster_id: pulumi.Output[str]
    num_gpus: pulumi.Output[int]
    ready: pulumi.Output[bool]
    not_ready_reason: pulumi.Output[str | None]
    status: pulumi.Output[str]
    evidence: pulumi.Output[list[dict[str, Any]]]
    results: pulumi.Output[list[dict[str, Any]]]
    failures: pulumi.Output[list[dict[str, Any]]]
    gaps: pulumi.Output[list[dict[str, Any]]]
    certified_at: pulumi.Output[str | None]
    run: pulumi.Output[str | None]
    by: pulumi.Output[str | None]

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[CertificationArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
