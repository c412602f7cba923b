"""Together AI's resources for programs.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict, Unpack

import pulumi

from gpuform.providers.resource import PlatformResource
from gpuform.providers.shared_types import (
    CategoryArguments,
    CategoryResultValues,
    CategoryValues,
    GapValues,
    NodeEvidenceValues,
    NodeFailureValues,
    NodeFaultValues,
    SlurmArguments,
    SlurmValues,
)
from gpuform.providers.together.certification import CertificationLifecycle
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle
from gpuform.providers.together.volume_claim import VolumeClaimLifecycle

__all__ = ["Certification", "Cluster", "SharedVolume", "VolumeClaim"]

LoadBalancer = Literal["NONE", "TRAEFIK", "NGINX", "ISTIO"]
DcgmDiagLevel = Literal[
    "DCGM_DIAG_LEVEL_SHORT",
    "DCGM_DIAG_LEVEL_MEDIUM",
    "DCGM_DIAG_LEVEL_LONG",
    "DCGM_DIAG_LEVEL_EXTENDED",
]
OnBusy = Literal["wait", "fail", "evict"]
Strategy = Literal["replace_cluster"]
Approve = Literal["reviewed", "automatic"]
On = Literal["platform", "not_ready", "overheated", "failed_certification"]
Modes = Literal["HOST_AWARE", "VM_ONLY", "REBOOT_VM", "HOST_POWER_CYCLE"]
BillingType = Literal["ON_DEMAND", "RESERVED", "SCHEDULED_CAPACITY"]
ClusterType = Literal["KUBERNETES", "SLURM"]
AccessModes = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
Nodes = Literal["new", "all"]


class SharedVolumeArguments(TypedDict):
    """A volume that every node of a cluster mounts and that outlives the cluster."""

    volume_name: pulumi.Input[str]
    """Name of the volume; Kubernetes claims bind to it by this name. (replaces)"""
    size_tib: pulumi.Input[int]
    """Size in whole TiB; it can only grow. (in place, grow-only)"""
    region: pulumi.Input[str]
    """Region of the volume and of the clusters that mount it, such as us-central-8. (replaces,
    write-only)"""
    is_lifecycle_independent: NotRequired[pulumi.Input[bool] | None]
    """Whether an inline volume outlives its cluster. (replaces, write-only)"""
    project_id: NotRequired[pulumi.Input[str] | None]
    """Project that owns the volume. When not declared: that of the variable TOGETHER_PROJECT_ID
    when the volume is created, else the API key's own project. (in place, or replaces: a volume
    stays in its project, write-only)"""
    instance_cluster_id: NotRequired[pulumi.Input[str] | PlatformResource | None]
    """Cluster near whose machines the platform places the volume. (replaces, write-only)"""


class OidcConfigArguments(TypedDict):
    """Sign-in to the cluster through an OpenID Connect issuer."""

    client_id: pulumi.Input[str]
    """Client id registered with the issuer."""
    group_claim: pulumi.Input[str]
    """Claim that holds a user's groups, such as groups."""
    group_prefix: pulumi.Input[str]
    """Prefix of each group's name, such as oidc:."""
    issuer_url: pulumi.Input[str]
    """URL of the issuer."""
    username_claim: pulumi.Input[str]
    """Claim that names the user, such as sub or email."""
    username_prefix: pulumi.Input[str]
    """Prefix of each user's name, such as oidc:."""
    ca_cert: NotRequired[pulumi.Input[str] | None]
    """PEM certificate of the issuer's authority, for a private authority."""


class SwitchArguments(TypedDict):
    """A component that is on or off."""

    enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the setting is on."""


class SlurmStartupScriptsArguments(TypedDict):
    """Scripts that Slurm runs at the stages of nodes and jobs; each begins with a shebang."""

    controller_prolog: NotRequired[pulumi.Input[str] | None]
    """Before a job, on the controller; the script calls no command of Slurm."""
    controller_epilog: NotRequired[pulumi.Input[str] | None]
    """After a job, on the controller."""
    worker_prolog: NotRequired[pulumi.Input[str] | None]
    """Before a job, on each worker; the script calls no command of Slurm."""
    worker_epilog: NotRequired[pulumi.Input[str] | None]
    """After a job, on each worker."""
    login_init_script: NotRequired[pulumi.Input[str] | None]
    """At the start of login nodes."""
    nodeset_init_script: NotRequired[pulumi.Input[str] | None]
    """At the start of node sets."""
    extra_slurm_conf: NotRequired[pulumi.Input[str] | None]
    """Lines added to slurm.conf."""


class ClusterConfigArguments(TypedDict):
    """The components that the platform installs in the cluster."""

    load_balancer: pulumi.Input[LoadBalancer]
    """Load balancer: NONE, TRAEFIK, NGINX, ISTIO."""
    gpu_operator_version: NotRequired[pulumi.Input[str] | None]
    """NVIDIA GPU Operator version, such as v24.6.2."""
    network_operator_version: NotRequired[pulumi.Input[str] | None]
    """NVIDIA Network Operator version, such as v24.7.0."""
    ingress: NotRequired[pulumi.Input[SwitchArguments] | None]
    """The ingress controller."""
    jumphost_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the cluster has a jump host."""
    kubernetes_dashboard_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the Kubernetes dashboard is installed."""
    observability: NotRequired[pulumi.Input[SwitchArguments] | None]
    """Metrics and logs."""
    slurm_startup_scripts: NotRequired[pulumi.Input[SlurmStartupScriptsArguments] | None]
    """Scripts of a SLURM cluster."""
    ssh_ca_enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether SSH uses certificates of the cluster's own authority."""


class AddOnConfigArguments(TypedDict):
    """The settings of an add-on, under its type's name."""

    dashboard: NotRequired[pulumi.Input[SwitchArguments] | None]
    """Kubernetes dashboard."""
    headlamp: NotRequired[pulumi.Input[SwitchArguments] | None]
    """Headlamp dashboard."""
    ingress: NotRequired[pulumi.Input[SwitchArguments] | None]
    """Ingress."""
    slurm_web: NotRequired[pulumi.Input[SwitchArguments] | None]
    """Slurm web interface."""
    torchpass: NotRequired[pulumi.Input[SwitchArguments] | None]
    """No longer offered by Together."""


class AddOnArguments(TypedDict):
    """One add-on of a cluster, identified by its name."""

    add_on_type: pulumi.Input[str]
    """Type: dashboard, headlamp, ingress or slurm_web. (replaces)"""
    name: pulumi.Input[str]
    """Name of the add-on in this cluster."""
    config: NotRequired[pulumi.Input[AddOnConfigArguments] | None]
    """Settings of the add-on."""


class AcceptanceTestsArguments(TypedDict):
    """The tests that a new cluster has to pass."""

    enabled: NotRequired[pulumi.Input[bool] | None]
    """Whether the tests run."""
    dcgm_diag_level: NotRequired[pulumi.Input[DcgmDiagLevel] | None]
    """Depth of the DCGM diagnostics; MEDIUM when not declared."""
    dcgm_diag_skipped: NotRequired[pulumi.Input[bool] | None]
    """Skip DCGM diagnostics."""
    gpu_burn_duration: NotRequired[pulumi.Input[int] | None]
    """Duration of GPU burn in seconds; 0 is the default."""
    gpu_burn_skipped: NotRequired[pulumi.Input[bool] | None]
    """Skip GPU burn."""
    nccl_multi_node_skipped: NotRequired[pulumi.Input[bool] | None]
    """Skip NCCL over several nodes."""
    nccl_single_node_skipped: NotRequired[pulumi.Input[bool] | None]
    """Skip NCCL inside one node."""
    storage_skipped: NotRequired[pulumi.Input[bool] | None]
    """Skip storage performance."""


class AlternativeArguments(TypedDict):
    """Another region, another GPU type, or both. Omitted properties stay as declared."""

    region: NotRequired[pulumi.Input[str] | None]
    """The region to try."""
    gpu_type: NotRequired[pulumi.Input[str] | None]
    """The type of GPU to try."""


class OnNoCapacityArguments(TypedDict):
    """What to do while the platform has no free GPUs, instead of failing at once."""

    alternatives: NotRequired[pulumi.Input[Sequence[pulumi.Input[AlternativeArguments]]] | None]
    """The alternatives for a new cluster, in this order."""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """How long to keep trying, in minutes."""


class ClusterDrainArguments(TypedDict):
    """What to do about the jobs on a cluster's nodes, and which nodes are removed first."""

    on_busy: NotRequired[pulumi.Input[OnBusy] | None]
    """While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or evict
    the jobs."""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this time,
    no node is removed."""
    nodes: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """Names of all nodes to remove when the cluster shrinks; by default failed nodes first, then
    cordoned or drained, then idle, then the newest ones."""
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]
    """How to reach the Slurm of a SLURM cluster: by default in the pod of Slinky's controller."""


class ClusterRolloutArguments(TypedDict):
    """How a cluster is replaced when a change cannot be made in place."""

    strategy: pulumi.Input[Strategy]
    """replace_cluster: the new cluster is created first, if there is stock, and the old one is
    deleted when no job runs on it any more."""
    keep_volume: NotRequired[pulumi.Input[bool] | None]
    """Whether the new cluster must mount the volume of the old one; requires volume_id."""


class ClusterRepairArguments(TypedDict):
    """Which broken nodes are repaired, and how the nodes of a cluster may be repaired."""

    approve: NotRequired[pulumi.Input[Approve] | None]
    """reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or --allow
    repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not declared."""
    on: NotRequired[pulumi.Input[Sequence[pulumi.Input[On]]] | None]
    """Which reports count: platform (reports a broken node, or proposes a repair), not_ready (the
    scheduler cannot use the node), overheated (measured by Lens), failed_certification (a
    certification names this node alone). platform if not declared."""
    not_ready_for: NotRequired[pulumi.Input[str] | None]
    """How long a scheduler must be unable to use a node before it counts as broken; 10m if not
    declared."""
    max_temperature: NotRequired[pulumi.Input[int] | None]
    """Highest allowed temperature of a GPU in degrees Celsius, for on: overheated."""
    max_parallel: NotRequired[pulumi.Input[int] | None]
    """How many nodes are repaired at a time; 1 when not declared."""
    max_unhealthy: NotRequired[pulumi.Input[str | int] | None]
    """With more broken nodes than this, nothing is repaired, because the cause is then probably not
    in the nodes. A number, or a share rounded down to at least 1; 25% if not declared."""
    modes: NotRequired[pulumi.Input[Sequence[pulumi.Input[Modes]]] | None]
    """Allowed repairs: a new machine on another host (HOST_AWARE) or on any host (VM_ONLY), a
    reboot, or a power cycle of the host. Together's proposal is used if it is listed, otherwise the
    first one. All, HOST_AWARE first, if not declared."""


class ClusterArguments(TypedDict):
    """A GPU cluster: nodes with 8 GPUs each, or 4 with GB200."""

    cluster_name: pulumi.Input[str]
    """Name of the cluster. (replaces)"""
    region: pulumi.Input[str]
    """Region, such as us-central-8. (replaces)"""
    gpu_type: pulumi.Input[str]
    """Type of GPU, such as H100_SXM. (replaces)"""
    num_gpus: pulumi.Input[int]
    """Number of GPUs, a multiple of 8."""
    driver_version: NotRequired[pulumi.Input[str] | None]
    """CUDA and driver version in one, such as CUDA_12_6_560. (as the fields it stands for)"""
    cuda_version: NotRequired[pulumi.Input[str] | None]
    """CUDA version, such as 12.6; with nvidia_driver_version. (replaces)"""
    nvidia_driver_version: NotRequired[pulumi.Input[str] | None]
    """NVIDIA driver version, such as 560; with cuda_version. (replaces)"""
    nvidia_version_id: NotRequired[pulumi.Input[str] | None]
    """Id of a version in the region's list, instead of the pair. (replaces, write-only)"""
    billing_type: pulumi.Input[BillingType]
    """ON_DEMAND, RESERVED (with duration_days) or SCHEDULED_CAPACITY. (replaces)"""
    duration_days: NotRequired[pulumi.Input[int] | None]
    """Days of a RESERVED cluster, 1 to 90. (replaces, write-only)"""
    cluster_type: NotRequired[pulumi.Input[ClusterType] | None]
    """KUBERNETES, or SLURM on Kubernetes."""
    volume_id: NotRequired[pulumi.Input[str] | PlatformResource | None]
    """Id of an existing shared volume of the same region to attach. (replaces, write-only)"""
    shared_volume: NotRequired[pulumi.Input[SharedVolumeArguments] | None]
    """A shared volume to create with the cluster, instead of volume_id. (replaces, write-only)"""
    auto_scale: NotRequired[pulumi.Input[bool] | None]
    """Whether the number of nodes follows the load, up to auto_scale_max_gpus. (replaces,
    write-only)"""
    auto_scale_max_gpus: NotRequired[pulumi.Input[int] | None]
    """The most GPUs that automatic scaling may reach. (replaces, write-only)"""
    capacity_pool_id: NotRequired[pulumi.Input[str] | None]
    """Capacity pool to draw GPUs from. (replaces)"""
    num_capacity_pool_gpus: NotRequired[pulumi.Input[int] | None]
    """GPUs from the capacity pool, part of num_gpus."""
    num_preemptible_gpus: NotRequired[pulumi.Input[int] | None]
    """Desired additional GPUs, not part of num_gpus, which the platform adds and removes as stock
    allows."""
    num_reserved_gpus: NotRequired[pulumi.Input[int] | None]
    """Prepaid GPUs of a RESERVED cluster; all when not declared."""
    reservation_start_time: NotRequired[pulumi.Input[str] | None]
    """Start of SCHEDULED_CAPACITY, such as 2026-03-01T08:00:00Z. (replaces)"""
    reservation_end_time: NotRequired[pulumi.Input[str] | None]
    """End of SCHEDULED_CAPACITY, or of a RESERVED cluster."""
    project_id: NotRequired[pulumi.Input[str] | None]
    """Project of the cluster. When not declared: that of the variable TOGETHER_PROJECT_ID when the
    cluster is created, else the API key's own project. (replaces)"""
    install_traefik: NotRequired[pulumi.Input[bool] | None]
    """Whether a KUBERNETES cluster gets the Traefik ingress. (replaces)"""
    oidc_config: NotRequired[pulumi.Input[OidcConfigArguments] | None]
    """Sign-in through an OpenID Connect issuer. (replaces)"""
    cluster_config: NotRequired[pulumi.Input[ClusterConfigArguments] | None]
    """What the platform installs in the cluster."""
    add_ons: NotRequired[pulumi.Input[Sequence[pulumi.Input[AddOnArguments]]] | None]
    """Add-ons by name."""
    acceptance_tests_params: NotRequired[pulumi.Input[AcceptanceTestsArguments] | None]
    """The tests that the new cluster has to pass. (replaces, write-only)"""
    slurm_image: NotRequired[pulumi.Input[str] | None]
    """Image of a SLURM cluster. (replaces, write-only)"""
    slurm_shm_size_gib: NotRequired[pulumi.Input[int] | None]
    """Shared memory of a SLURM cluster in GiB; required for a SLURM cluster. (replaces)"""
    on_no_capacity: NotRequired[pulumi.Input[OnNoCapacityArguments] | None]
    """A setting of gpuform, never sent: what to do while Together is out of stock. The alternatives
    are tried in order, then all again every minute for wait_minutes; growing a cluster waits, too.
    (nothing)"""
    expires: NotRequired[pulumi.Input[str] | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice. (recorded, nothing is sent)"""
    ttl: NotRequired[pulumi.Input[str] | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again. (recorded, nothing is sent)"""
    ssh_jump: NotRequired[pulumi.Input[str] | None]
    """A setting of gpuform, never sent: the jump host of the machines, as Together's page of the
    cluster shows it (ssh -J). (recorded, nothing is sent)"""
    ssh_issuer: NotRequired[pulumi.Input[str] | None]
    """A setting of gpuform, never sent: the OIDC issuer of a cluster with ssh_ca_enabled, as
    Together's page of the cluster shows it. `gpuform connect` gets SSH certificates from this
    issuer. (recorded, nothing is sent)"""
    drain: NotRequired[pulumi.Input[ClusterDrainArguments] | None]
    """A setting of gpuform, never sent: what to do about jobs on removed nodes, with the cluster or
    without it, and which nodes to remove when num_gpus shrinks. Nodes are cordoned first, and
    removed when no job runs on them. (nothing)"""
    rollout: NotRequired[pulumi.Input[ClusterRolloutArguments] | None]
    """A setting of gpuform, never sent. Together changes no driver and no GPU type in place: with
    rollout, the new cluster is created before the old one is deleted, so that jobs can move;
    without it, the old one is deleted first. (nothing)"""
    repair: NotRequired[pulumi.Input[ClusterRepairArguments] | None]
    """A setting of gpuform, never sent: which broken nodes are repaired, and how, each while no job
    runs on it (see `drain`). (recorded, nothing is sent)"""
    scale_down: NotRequired[pulumi.Input[ClusterDrainArguments] | None]
    """The former name of drain. (as the fields it stands for)"""


class VolumeClaimArguments(TypedDict):
    """A volume claim in a cluster's Kubernetes, on a shared volume or on a node's NVMe."""

    cluster_id: pulumi.Input[str] | PlatformResource
    """Cluster whose pods use the claim. (replaces)"""
    name: pulumi.Input[str]
    """Name by which pods mount the claim. (replaces)"""
    namespace: NotRequired[pulumi.Input[str] | None]
    """Namespace of the pods that use the claim. (replaces)"""
    storage: pulumi.Input[str]
    """Size in Kubernetes' notation, such as 10Gi; it can only grow, and only when the claim is
    bound. (in place, grow-only)"""
    volume_name: NotRequired[pulumi.Input[str] | None]
    """Name of the cluster's shared volume to bind. (replaces)"""
    storage_class_name: NotRequired[pulumi.Input[str] | None]
    """Storage class that creates the volume: local-storage-class is local NVMe. (replaces)"""
    access_modes: NotRequired[pulumi.Input[Sequence[pulumi.Input[AccessModes]]] | None]
    """Access modes. Default: ReadWriteMany with volume_name, else ReadWriteOnce. (replaces)"""
    labels: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[str]]] | None]
    """Labels of the claim."""


class CertificationArguments(TypedDict):
    """Tests that a cluster's nodes must pass before resources that depend on them are created."""

    name: pulumi.Input[str]
    """Name of the certification in Kubernetes, and of Slurm's jobs. (replaces)"""
    namespace: NotRequired[pulumi.Input[str] | None]
    """Namespace of the certification in Kubernetes. (replaces)"""
    categories: pulumi.Input[Sequence[pulumi.Input[CategoryArguments]]]
    """The tests that each node has to pass. With `job` a test is a batch job of the nodes' Slurm.
    Without `job`, NVIDIA's Cluster Readiness Engine runs the test: it has to be installed in the
    nodes' Kubernetes."""
    nodes: NotRequired[pulumi.Input[Nodes] | None]
    """Which nodes to test when some are not certified: only the uncertified nodes (new, the
    default), or all nodes again (all). (nothing)"""
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]
    """How to reach the nodes' Slurm, for categories with `job`. (nothing)"""
    folder: NotRequired[pulumi.Input[str] | None]
    """Absolute path of a folder that the nodes share with the machine that runs Slurm's commands; a
    `job` writes its output there. The user's home if not declared; required with slurm: {via:
    exec}. (nothing)"""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """Highest number of minutes for all tests, including the wait for nodes in use by jobs; 180 if
    not declared. (nothing)"""
    cluster_id: pulumi.Input[str] | PlatformResource
    """Cluster whose nodes are tested. (replaces)"""
    num_gpus: pulumi.Input[int]
    """Number of GPUs of the cluster. When the number grows, the new nodes are tested."""


if TYPE_CHECKING:

    class SharedVolumeValues(TypedDict):
        """A volume that every node of a cluster mounts and that outlives the cluster."""

        volume_name: str
        """Name of the volume; Kubernetes claims bind to it by this name."""
        size_tib: int
        """Size in whole TiB; it can only grow."""
        region: str
        """Region of the volume and of the clusters that mount it, such as us-central-8."""
        is_lifecycle_independent: NotRequired[bool]
        """Whether an inline volume outlives its cluster."""
        project_id: NotRequired[str]
        """Project that owns the volume. When not declared: that of the variable TOGETHER_PROJECT_ID
        when the volume is created, else the API key's own project."""
        instance_cluster_id: NotRequired[str]
        """Cluster near whose machines the platform places the volume."""

    class OidcConfigValues(TypedDict):
        """Sign-in to the cluster through an OpenID Connect issuer."""

        client_id: str
        """Client id registered with the issuer."""
        group_claim: str
        """Claim that holds a user's groups, such as groups."""
        group_prefix: str
        """Prefix of each group's name, such as oidc:."""
        issuer_url: str
        """URL of the issuer."""
        username_claim: str
        """Claim that names the user, such as sub or email."""
        username_prefix: str
        """Prefix of each user's name, such as oidc:."""
        ca_cert: NotRequired[str]
        """PEM certificate of the issuer's authority, for a private authority."""

    class SwitchValues(TypedDict):
        """A component that is on or off."""

        enabled: NotRequired[bool]
        """Whether the setting is on."""

    class SlurmStartupScriptsValues(TypedDict):
        """Scripts that Slurm runs at the stages of nodes and jobs; each begins with a shebang."""

        controller_prolog: NotRequired[str]
        """Before a job, on the controller; the script calls no command of Slurm."""
        controller_epilog: NotRequired[str]
        """After a job, on the controller."""
        worker_prolog: NotRequired[str]
        """Before a job, on each worker; the script calls no command of Slurm."""
        worker_epilog: NotRequired[str]
        """After a job, on each worker."""
        login_init_script: NotRequired[str]
        """At the start of login nodes."""
        nodeset_init_script: NotRequired[str]
        """At the start of node sets."""
        extra_slurm_conf: NotRequired[str]
        """Lines added to slurm.conf."""

    class ClusterConfigValues(TypedDict):
        """The components that the platform installs in the cluster."""

        load_balancer: str
        """Load balancer: NONE, TRAEFIK, NGINX, ISTIO."""
        gpu_operator_version: NotRequired[str]
        """NVIDIA GPU Operator version, such as v24.6.2."""
        network_operator_version: NotRequired[str]
        """NVIDIA Network Operator version, such as v24.7.0."""
        ingress: NotRequired[SwitchValues]
        """The ingress controller."""
        jumphost_enabled: NotRequired[bool]
        """Whether the cluster has a jump host."""
        kubernetes_dashboard_enabled: NotRequired[bool]
        """Whether the Kubernetes dashboard is installed."""
        observability: NotRequired[SwitchValues]
        """Metrics and logs."""
        slurm_startup_scripts: NotRequired[SlurmStartupScriptsValues]
        """Scripts of a SLURM cluster."""
        ssh_ca_enabled: NotRequired[bool]
        """Whether SSH uses certificates of the cluster's own authority."""

    class AddOnConfigValues(TypedDict):
        """The settings of an add-on, under its type's name."""

        dashboard: NotRequired[SwitchValues]
        """Kubernetes dashboard."""
        headlamp: NotRequired[SwitchValues]
        """Headlamp dashboard."""
        ingress: NotRequired[SwitchValues]
        """Ingress."""
        slurm_web: NotRequired[SwitchValues]
        """Slurm web interface."""
        torchpass: NotRequired[SwitchValues]
        """No longer offered by Together."""

    class AddOnValues(TypedDict):
        """One add-on of a cluster, identified by its name."""

        add_on_type: str
        """Type: dashboard, headlamp, ingress or slurm_web."""
        name: str
        """Name of the add-on in this cluster."""
        config: NotRequired[AddOnConfigValues]
        """Settings of the add-on."""

    class AcceptanceTestsValues(TypedDict):
        """The tests that a new cluster has to pass."""

        enabled: NotRequired[bool]
        """Whether the tests run."""
        dcgm_diag_level: NotRequired[str]
        """Depth of the DCGM diagnostics; MEDIUM when not declared."""
        dcgm_diag_skipped: NotRequired[bool]
        """Skip DCGM diagnostics."""
        gpu_burn_duration: NotRequired[int]
        """Duration of GPU burn in seconds; 0 is the default."""
        gpu_burn_skipped: NotRequired[bool]
        """Skip GPU burn."""
        nccl_multi_node_skipped: NotRequired[bool]
        """Skip NCCL over several nodes."""
        nccl_single_node_skipped: NotRequired[bool]
        """Skip NCCL inside one node."""
        storage_skipped: NotRequired[bool]
        """Skip storage performance."""

    class AlternativeValues(TypedDict):
        """Another region, another GPU type, or both."""

        region: NotRequired[str]
        """The region to try."""
        gpu_type: NotRequired[str]
        """The type of GPU to try."""

    class OnNoCapacityValues(TypedDict):
        """What to do while the platform has no free GPUs, instead of failing at once."""

        alternatives: NotRequired[list[AlternativeValues]]
        """The alternatives for a new cluster, in this order."""
        wait_minutes: NotRequired[int]
        """How long to keep trying, in minutes."""

    class ClusterDrainValues(TypedDict):
        """What to do about the jobs on a cluster's nodes, and which nodes are removed first."""

        on_busy: NotRequired[str]
        """While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or
        evict the jobs."""
        wait_minutes: NotRequired[int]
        """How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this
        time, no node is removed."""
        nodes: NotRequired[list[str]]
        """Names of all nodes to remove when the cluster shrinks; by default failed nodes first,
        then cordoned or drained, then idle, then the newest ones."""
        slurm: NotRequired[SlurmValues]
        """How to reach the Slurm of a SLURM cluster: by default in the pod of Slinky's
        controller."""

    class ClusterRolloutValues(TypedDict):
        """How a cluster is replaced when a change cannot be made in place."""

        strategy: str
        """replace_cluster: the new cluster is created first, if there is stock, and the old one is
        deleted when no job runs on it any more."""
        keep_volume: NotRequired[bool]
        """Whether the new cluster must mount the volume of the old one; requires volume_id."""

    class ClusterRepairValues(TypedDict):
        """Which broken nodes are repaired, and how the nodes of a cluster may be repaired."""

        approve: NotRequired[str]
        """reviewed: a person must see the plan first (by the prompt of `up`, a saved plan, or
        --allow repair). automatic: `up --yes` and `repair --yes` repair. reviewed if not
        declared."""
        on: NotRequired[list[str]]
        """Which reports count: platform (reports a broken node, or proposes a repair), not_ready
        (the scheduler cannot use the node), overheated (measured by Lens), failed_certification (a
        certification names this node alone). platform if not declared."""
        not_ready_for: NotRequired[str]
        """How long a scheduler must be unable to use a node before it counts as broken; 10m if not
        declared."""
        max_temperature: NotRequired[int]
        """Highest allowed temperature of a GPU in degrees Celsius, for on: overheated."""
        max_parallel: NotRequired[int]
        """How many nodes are repaired at a time; 1 when not declared."""
        max_unhealthy: NotRequired[Any]
        """With more broken nodes than this, nothing is repaired, because the cause is then probably
        not in the nodes. A number, or a share rounded down to at least 1; 25% if not declared."""
        modes: NotRequired[list[str]]
        """Allowed repairs: a new machine on another host (HOST_AWARE) or on any host (VM_ONLY), a
        reboot, or a power cycle of the host. Together's proposal is used if it is listed, otherwise
        the first one. All, HOST_AWARE first, if not declared."""

    class ControlPlaneNodeValues(TypedDict):
        node_id: str
        """Id of the node."""
        host_name: str
        """Host name of the node."""
        status: str
        """Status of the node, as the platform reports it."""
        network: str
        """Address of the node inside the cluster."""
        public_ipv4: NotRequired[str]
        """Public address of the node."""

    class RemediationValues(TypedDict):
        id: str
        """Id of the repair."""
        mode: str
        """Mode of the repair, such as HOST_AWARE."""
        state: str
        """Progress of the repair, such as PENDING_APPROVAL or SUCCEEDED."""
        reason: NotRequired[str]
        """Purpose of the repair."""
        error_message: NotRequired[str]
        """Why the repair failed."""
        requested_by: NotRequired[str]
        """Requester of the repair."""
        reviewed_by: NotRequired[str]
        """Who approved or rejected the repair."""
        review_comment: NotRequired[str]
        """Comment of the review."""
        reviewed_at: NotRequired[str]
        """When the repair was reviewed."""
        ended_at: NotRequired[str]
        """When the repair ended."""

    class GpuWorkerNodeValues(TypedDict):
        node_id: str
        """Id of the node."""
        host_name: str
        """Host name of the node; also `HOST-NAME.cloud.together.ai` for SSH."""
        status: str
        """Status of the node, as the platform reports it."""
        num_gpus: int
        """Number of the node's GPUs."""
        networks: list[str]
        """Addresses of the node inside the cluster."""
        instance_id: NotRequired[str]
        """Machine of the node, for remediations."""
        public_ipv4: NotRequired[str]
        """Public address of the node."""
        auto_remediation_enabled: NotRequired[bool]
        """Whether Together may repair the node without a request."""
        slurm_worker_hostname: NotRequired[str]
        """Name of the node in Slurm."""
        kubernetes: NotRequired[str]
        """Ready or not, as the cluster's Kubernetes reports the node; absent if Kubernetes was not
        asked."""
        slurm: NotRequired[str]
        """Whether Slurm can use the node; absent if Slurm was not asked."""
        unusable_since: NotRequired[str]
        """Since when the scheduler cannot use the node, in UTC."""
        remediation: NotRequired[RemediationValues]
        """Latest repair of the node, or the repair that Together proposes."""

    class NodeEventValues(TypedDict):
        node_id: str
        """Id of the node."""
        reason: str
        """What happened, such as TogetherPreempted."""
        message: str
        """What happened, in the platform's words."""
        at: str
        """When it happened."""

    class AttachedVolumeValues(TypedDict):
        volume_id: str
        """Id of the volume."""
        volume_name: str
        """Name for Kubernetes claims."""
        size_tib: int
        """Size in TiB."""
        status: str
        """Status of the volume, as the platform reports it."""

else:
    SharedVolumeValues = dict[str, Any]
    OidcConfigValues = dict[str, Any]
    SwitchValues = dict[str, Any]
    SlurmStartupScriptsValues = dict[str, Any]
    ClusterConfigValues = dict[str, Any]
    AddOnConfigValues = dict[str, Any]
    AddOnValues = dict[str, Any]
    AcceptanceTestsValues = dict[str, Any]
    AlternativeValues = dict[str, Any]
    OnNoCapacityValues = dict[str, Any]
    ClusterDrainValues = dict[str, Any]
    ClusterRolloutValues = dict[str, Any]
    ClusterRepairValues = dict[str, Any]
    ControlPlaneNodeValues = dict[str, Any]
    RemediationValues = dict[str, Any]
    GpuWorkerNodeValues = dict[str, Any]
    NodeEventValues = dict[str, Any]
    AttachedVolumeValues = dict[str, Any]


class Cluster(PlatformResource, module="gpuform.together", name="Cluster"):
    """A GPU cluster: nodes with 8 GPUs each, or 4 with GB200."""

    _lifecycle = ClusterLifecycle

    cluster_name: pulumi.Output[str]
    """Name of the cluster."""
    region: pulumi.Output[str]
    """Region, such as us-central-8."""
    gpu_type: pulumi.Output[str]
    """Type of GPU, such as H100_SXM."""
    num_gpus: pulumi.Output[int]
    """Number of GPUs, a multiple of 8."""
    cuda_version: pulumi.Output[str | None]
    """CUDA version, such as 12.6; with nvidia_driver_version."""
    nvidia_driver_version: pulumi.Output[str | None]
    """NVIDIA driver version, such as 560; with cuda_version."""
    nvidia_version_id: pulumi.Output[str | None]
    """Id of a version in the region's list, instead of the pair."""
    billing_type: pulumi.Output[str]
    """ON_DEMAND, RESERVED (with duration_days) or SCHEDULED_CAPACITY."""
    duration_days: pulumi.Output[int | None]
    """Days of a RESERVED cluster, 1 to 90."""
    cluster_type: pulumi.Output[str | None]
    """KUBERNETES, or SLURM on Kubernetes."""
    volume_id: pulumi.Output[str | None]
    """Id of an existing shared volume of the same region to attach."""
    shared_volume: pulumi.Output[SharedVolumeValues | None]
    """A shared volume to create with the cluster, instead of volume_id."""
    auto_scale: pulumi.Output[bool | None]
    """Whether the number of nodes follows the load, up to auto_scale_max_gpus."""
    auto_scale_max_gpus: pulumi.Output[int | None]
    """The most GPUs that automatic scaling may reach."""
    capacity_pool_id: pulumi.Output[str | None]
    """Capacity pool to draw GPUs from."""
    num_capacity_pool_gpus: pulumi.Output[int | None]
    """GPUs from the capacity pool, part of num_gpus."""
    num_preemptible_gpus: pulumi.Output[int | None]
    """Desired additional GPUs, not part of num_gpus, which the platform adds and removes as stock
    allows."""
    num_reserved_gpus: pulumi.Output[int | None]
    """Prepaid GPUs of a RESERVED cluster; all when not declared."""
    reservation_start_time: pulumi.Output[str | None]
    """Start of SCHEDULED_CAPACITY, such as 2026-03-01T08:00:00Z."""
    reservation_end_time: pulumi.Output[str | None]
    """End of SCHEDULED_CAPACITY, or of a RESERVED cluster."""
    project_id: pulumi.Output[str | None]
    """Project of the cluster. When not declared: that of the variable TOGETHER_PROJECT_ID when the
    cluster is created, else the API key's own project."""
    install_traefik: pulumi.Output[bool | None]
    """Whether a KUBERNETES cluster gets the Traefik ingress."""
    oidc_config: pulumi.Output[OidcConfigValues | None]
    """Sign-in through an OpenID Connect issuer."""
    cluster_config: pulumi.Output[ClusterConfigValues | None]
    """What the platform installs in the cluster."""
    add_ons: pulumi.Output[list[AddOnValues] | None]
    """Add-ons by name."""
    acceptance_tests_params: pulumi.Output[AcceptanceTestsValues | None]
    """The tests that the new cluster has to pass."""
    slurm_image: pulumi.Output[str | None]
    """Image of a SLURM cluster."""
    slurm_shm_size_gib: pulumi.Output[int | None]
    """Shared memory of a SLURM cluster in GiB; required for a SLURM cluster."""
    on_no_capacity: pulumi.Output[OnNoCapacityValues | None]
    """A setting of gpuform, never sent: what to do while Together is out of stock. The alternatives
    are tried in order, then all again every minute for wait_minutes; growing a cluster waits,
    too."""
    expires: pulumi.Output[str | None]
    """When `gpuform expire` destroys the resource: at the end of a date in UTC, or at a moment with
    an offset. Every plan of the week before shows a notice."""
    ttl: pulumi.Output[str | None]
    """How long after the creation `gpuform expire` destroys the resource, instead of expires; a day
    has 24 hours. A replacement starts again."""
    ssh_jump: pulumi.Output[str | None]
    """A setting of gpuform, never sent: the jump host of the machines, as Together's page of the
    cluster shows it (ssh -J)."""
    ssh_issuer: pulumi.Output[str | None]
    """A setting of gpuform, never sent: the OIDC issuer of a cluster with ssh_ca_enabled, as
    Together's page of the cluster shows it. `gpuform connect` gets SSH certificates from this
    issuer."""
    drain: pulumi.Output[ClusterDrainValues | None]
    """A setting of gpuform, never sent: what to do about jobs on removed nodes, with the cluster or
    without it, and which nodes to remove when num_gpus shrinks. Nodes are cordoned first, and
    removed when no job runs on them."""
    rollout: pulumi.Output[ClusterRolloutValues | None]
    """A setting of gpuform, never sent. Together changes no driver and no GPU type in place: with
    rollout, the new cluster is created before the old one is deleted, so that jobs can move;
    without it, the old one is deleted first."""
    repair: pulumi.Output[ClusterRepairValues | None]
    """A setting of gpuform, never sent: which broken nodes are repaired, and how, each while no job
    runs on it (see `drain`)."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    status: pulumi.Output[str]
    """Status of the cluster, as the platform reports it."""
    placed_region: pulumi.Output[str | None]
    """Region of the cluster: the declared one, or an alternative."""
    placed_gpu_type: pulumi.Output[str | None]
    """Type of the cluster's GPUs: the declared one, or an alternative."""
    kube_config: pulumi.Output[str | None]
    """Kubeconfig (YAML) of an administrator; absent until Together has one."""
    control_plane_nodes: pulumi.Output[list[ControlPlaneNodeValues]]
    """The nodes that run Kubernetes."""
    gpu_worker_nodes: pulumi.Output[list[GpuWorkerNodeValues]]
    """The nodes with GPUs."""
    node_events: pulumi.Output[list[NodeEventValues]]
    """The last nodes that Together has added, removed or preempted, the newest last."""
    workers_not_asked: pulumi.Output[str | None]
    """Why Kubernetes or Slurm could not report the workers, if it could not."""
    faults: pulumi.Output[list[NodeFaultValues]]
    """The broken nodes, as last observed."""
    acceptance: pulumi.Output[list[CategoryResultValues]]
    """Results of Together's own tests, by the phases of the cluster."""
    ssh_ca_issuer: pulumi.Output[str | None]
    """OIDC issuer of the cluster's SSH certificates, if Together reports it."""
    volumes: pulumi.Output[list[AttachedVolumeValues]]
    """The attached volumes."""
    driver_version: pulumi.Output[str | None]
    """CUDA and driver version in one, such as CUDA_12_6_560."""
    installed_version_id: pulumi.Output[str | None]
    """Id of the installed version in the region's list."""
    os_image: pulumi.Output[str | None]
    """Operating system of the nodes, such as ubuntu-22.04."""
    allocated_preemptible_gpus: pulumi.Output[int]
    """Running GPUs that the platform may take back."""
    duration_hours: pulumi.Output[int | None]
    """Length of the reservation."""
    created_at: pulumi.Output[str | None]
    """When the cluster was created."""
    first_ready_at: pulumi.Output[str | None]
    """When the cluster was first Ready."""
    paused_at: pulumi.Output[str | None]
    """Since when the cluster is paused for lack of credit; absent if not paused."""
    reserved_until: pulumi.Output[str | None]
    """When the reservation of the cluster ends, if the cluster has one."""

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
    """Name of the volume; Kubernetes claims bind to it by this name."""
    size_tib: pulumi.Output[int]
    """Size in whole TiB; it can only grow."""
    region: pulumi.Output[str]
    """Region of the volume and of the clusters that mount it, such as us-central-8."""
    is_lifecycle_independent: pulumi.Output[bool | None]
    """Whether an inline volume outlives its cluster."""
    project_id: pulumi.Output[str | None]
    """Project that owns the volume. When not declared: that of the variable TOGETHER_PROJECT_ID
    when the volume is created, else the API key's own project."""
    instance_cluster_id: pulumi.Output[str | None]
    """Cluster near whose machines the platform places the volume."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    status: pulumi.Output[str]
    """Status of the volume, as the platform reports it."""

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
    """Cluster whose pods use the claim."""
    name: pulumi.Output[str]
    """Name by which pods mount the claim."""
    namespace: pulumi.Output[str | None]
    """Namespace of the pods that use the claim."""
    storage: pulumi.Output[str]
    """Size in Kubernetes' notation, such as 10Gi; it can only grow, and only when the claim is
    bound."""
    volume_name: pulumi.Output[str | None]
    """Name of the cluster's shared volume to bind."""
    storage_class_name: pulumi.Output[str | None]
    """Storage class that creates the volume: local-storage-class is local NVMe."""
    access_modes: pulumi.Output[list[str] | None]
    """Access modes. Default: ReadWriteMany with volume_name, else ReadWriteOnce."""
    labels: pulumi.Output[dict[str, str] | None]
    """Labels of the claim."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    status: pulumi.Output[str]
    """Pending, Bound or Lost, as Kubernetes reports it."""
    uid: pulumi.Output[str]
    """Kubernetes' id of the claim."""
    capacity: pulumi.Output[str | None]
    """Size of the bound volume."""
    bound_volume: pulumi.Output[str | None]
    """Name of the bound PersistentVolume."""
    created_at: pulumi.Output[str | None]
    """When the claim was created."""

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
    """Name of the certification in Kubernetes, and of Slurm's jobs."""
    namespace: pulumi.Output[str | None]
    """Namespace of the certification in Kubernetes."""
    categories: pulumi.Output[list[CategoryValues]]
    """The tests that each node has to pass. With `job` a test is a batch job of the nodes' Slurm.
    Without `job`, NVIDIA's Cluster Readiness Engine runs the test: it has to be installed in the
    nodes' Kubernetes."""
    nodes: pulumi.Output[str | None]
    """Which nodes to test when some are not certified: only the uncertified nodes (new, the
    default), or all nodes again (all)."""
    slurm: pulumi.Output[SlurmValues | None]
    """How to reach the nodes' Slurm, for categories with `job`."""
    folder: pulumi.Output[str | None]
    """Absolute path of a folder that the nodes share with the machine that runs Slurm's commands; a
    `job` writes its output there. The user's home if not declared; required with slurm: {via:
    exec}."""
    wait_minutes: pulumi.Output[int | None]
    """Highest number of minutes for all tests, including the wait for nodes in use by jobs; 180 if
    not declared."""
    cluster_id: pulumi.Output[str]
    """Cluster whose nodes are tested."""
    num_gpus: pulumi.Output[int]
    """Number of GPUs of the cluster. When the number grows, the new nodes are tested."""
    ready: pulumi.Output[bool]
    """Whether the resource is usable now."""
    not_ready_reason: pulumi.Output[str | None]
    """Why the resource is not usable; absent if it is."""
    status: pulumi.Output[str]
    """Number of certified nodes, in words."""
    evidence: pulumi.Output[list[NodeEvidenceValues]]
    """The tests that each node has passed."""
    results: pulumi.Output[list[CategoryResultValues]]
    """The results of the last run."""
    failures: pulumi.Output[list[NodeFailureValues]]
    """The nodes that have not passed."""
    gaps: pulumi.Output[list[GapValues]]
    """The nodes that the evidence does not cover."""
    certified_at: pulumi.Output[str | None]
    """When the last run ended, in UTC."""
    run: pulumi.Output[str | None]
    """Id of the last run."""
    by: pulumi.Output[str | None]
    """The tester: an API group of Kubernetes, or Slurm."""

    def __init__(
        self,
        resource_name: str,
        opts: pulumi.ResourceOptions | None = None,
        **arguments: Unpack[CertificationArguments],
    ) -> None:
        super().__init__(resource_name, opts, **arguments)
