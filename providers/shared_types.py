"""The types of arguments and outputs that resources of several platforms have.

Generated from the input models: python -m gpuform.providers.codegen
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NotRequired, TypedDict

import pulumi

Via = Literal["exec", "ssh", "local"]
DrainBy = Literal["scontrol", "slinky"]
Nodes = Literal["each", "all"]
Metric = Literal["busBandwidthGBps", "algBandwidthGBps", "goodputRatio", "avgTFLOPsPerGPU"]
OnBusy = Literal["wait", "fail", "evict"]
OnFailure = Literal["stop", "continue"]
Approve = Literal["reviewed", "automatic"]
On = Literal["platform", "not_ready", "overheated", "failed_certification"]
Days = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Then = Literal["stop"]


class SlurmArguments(TypedDict):
    """How gpuform reaches a cluster's Slurm. A setting of gpuform, never sent to the platform."""

    via: NotRequired[pulumi.Input[Via] | None]
    """exec in a pod through the cluster's Kubernetes, ssh to a login node, or local where Slurm's
    commands are installed on this machine."""
    namespace: NotRequired[pulumi.Input[str] | None]
    """exec: namespace of Slurm."""
    pod_selector: NotRequired[pulumi.Input[str] | None]
    """exec: labels of the pods in which commands can be run; a running one is used."""
    container: NotRequired[pulumi.Input[str] | None]
    """exec: the container of the pod."""
    host: NotRequired[pulumi.Input[str] | None]
    """ssh: the login node, or a Host of your SSH configuration."""
    user: NotRequired[pulumi.Input[str] | None]
    """ssh: name to log in with; the name in your SSH configuration when not declared."""
    port: NotRequired[pulumi.Input[int] | None]
    """ssh: port of the login node."""
    sudo: NotRequired[pulumi.Input[bool] | None]
    """Whether to run changing commands with `sudo`, without a password; true by default with
    ssh."""
    drain_by: NotRequired[pulumi.Input[DrainBy] | None]
    """How nodes are drained: scontrol, or slinky for an annotation of the nodes' pods, which Slinky
    1.3 and newer follow."""


class BatchJobArguments(TypedDict):
    """A batch job of Slurm that measures nodes, instead of the Cluster Readiness Engine."""

    script: pulumi.Input[str]
    """The batch script, with its first line `#!/bin/bash`. gpuform passes the nodes to sbatch, and
    reserves them exclusively."""
    result: pulumi.Input[str]
    """A regular expression for the line with the result, with the figure in parentheses. The last
    of several matching lines counts."""
    nodes: NotRequired[pulumi.Input[Nodes] | None]
    """each: one job for each node. all: one job for all nodes. each if not declared."""


class CategoryArguments(TypedDict):
    """One test that nodes have to pass."""

    domain: pulumi.Input[str]
    """Domain of the test."""
    variant: pulumi.Input[str]
    """Variant of the test."""
    options: NotRequired[pulumi.Input[Mapping[str, pulumi.Input[Any]]] | None]
    """Options of the Cluster Readiness Engine for this category, by the engine's names. `testScale:
    intra-node` tests each node alone, `diagnose` finds faulty nodes."""
    floor: NotRequired[pulumi.Input[float] | None]
    """The lowest result that passes, in the unit of `metric`."""
    tolerance: NotRequired[pulumi.Input[str] | None]
    """How far below the floor a result still passes; 0% if not declared."""
    metric: NotRequired[pulumi.Input[Metric] | None]
    """The metric of the floor; busBandwidthGBps for communication if not declared."""
    job: NotRequired[pulumi.Input[BatchJobArguments] | None]
    """The batch job that runs the test on a Slurm cluster."""


class KubernetesArguments(TypedDict):
    """The Kubernetes that schedules jobs on the nodes. A node has the same name there."""

    kubeconfig: NotRequired[pulumi.Input[str] | None]
    """Path of a kubeconfig on this machine; ~/.kube/config when not declared."""
    context: NotRequired[pulumi.Input[str] | None]
    """Context in the kubeconfig; the current one if not declared."""


class PoolDrainArguments(TypedDict):
    """What to do about the jobs on a pool's removed nodes, and which nodes to remove first."""

    on_busy: NotRequired[pulumi.Input[OnBusy] | None]
    """While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or evict
    the jobs."""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this time,
    no node is removed."""
    nodes: NotRequired[pulumi.Input[Sequence[pulumi.Input[str]]] | None]
    """Names of all nodes to remove when the cluster shrinks; by default failed nodes first, then
    cordoned or drained, then idle, then the newest ones."""
    kubernetes: NotRequired[pulumi.Input[KubernetesArguments] | None]
    """The Kubernetes to ask for jobs; without kubernetes and slurm, gpuform does not look for
    jobs."""
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]
    """The Slurm to ask for jobs; exec needs kubernetes, too."""


class RolloutArguments(TypedDict):
    """How nodes are replaced when their image or type changes, or when they have failed."""

    max_unavailable: NotRequired[pulumi.Input[str | int] | None]
    """How many nodes may be unavailable at the same time: a number, or a share such as 25%, rounded
    down to at least 1. 1 if not declared. Failed nodes count."""
    pause: NotRequired[pulumi.Input[str] | None]
    """How long to wait after each step, such as 5m; no pause if not declared."""
    on_failure: NotRequired[pulumi.Input[OnFailure] | None]
    """When a new node fails: stop before the next step (default), or continue while fewer than
    max_unavailable nodes are unavailable."""


class RepairArguments(TypedDict):
    """Which broken nodes are repaired, how many at a time, and who must have seen the plan."""

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


class ScheduleArguments(TypedDict):
    """The hours in which a resource runs. Outside of them `gpuform expire` stops it."""

    days: NotRequired[pulumi.Input[Sequence[pulumi.Input[Days]]] | None]
    """The days on which the resource starts; all when not declared."""
    start: pulumi.Input[str]
    """When the resource starts, in time_zone."""
    stop: pulumi.Input[str]
    """When the resource stops: on the next day if the time is not after start; 24:00 is
    midnight."""
    time_zone: pulumi.Input[str]
    """IANA name of the time zone. When daylight saving time skips a time, the moment of the change
    counts; when a time occurs twice, start is the first and stop the second."""


IdleArguments = TypedDict(
    "IdleArguments",
    {
        # Utilization in percent below which a GPU is idle.
        "below": pulumi.Input[str],
        # How long the GPUs must be idle without a break, 30m to 7d.
        "for": pulumi.Input[str],
        # The action of `gpuform expire`: stop, the default.
        "then": NotRequired[pulumi.Input[Then] | None],
    },
)
"""When the GPUs of the resource count as idle; then `gpuform expire` stops the resource."""


class ScheduledDrainArguments(TypedDict):
    """What to do about the jobs on removed nodes, and which scheduler to ask."""

    on_busy: NotRequired[pulumi.Input[OnBusy] | None]
    """While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or evict
    the jobs."""
    wait_minutes: NotRequired[pulumi.Input[int] | None]
    """How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this time,
    no node is removed."""
    kubernetes: NotRequired[pulumi.Input[KubernetesArguments] | None]
    """The Kubernetes to ask for jobs; without kubernetes and slurm, gpuform does not look for
    jobs."""
    slurm: NotRequired[pulumi.Input[SlurmArguments] | None]
    """The Slurm to ask for jobs; exec needs kubernetes, too."""


class MachineRepairArguments(TypedDict):
    """When a broken machine is repaired, and who must have seen the plan."""

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


if TYPE_CHECKING:

    class SlurmValues(TypedDict):
        """How gpuform reaches a cluster's Slurm."""

        via: NotRequired[str]
        """exec in a pod through the cluster's Kubernetes, ssh to a login node, or local where
        Slurm's commands are installed on this machine."""
        namespace: NotRequired[str]
        """exec: namespace of Slurm."""
        pod_selector: NotRequired[str]
        """exec: labels of the pods in which commands can be run; a running one is used."""
        container: NotRequired[str]
        """exec: the container of the pod."""
        host: NotRequired[str]
        """ssh: the login node, or a Host of your SSH configuration."""
        user: NotRequired[str]
        """ssh: name to log in with; the name in your SSH configuration when not declared."""
        port: NotRequired[int]
        """ssh: port of the login node."""
        sudo: NotRequired[bool]
        """Whether to run changing commands with `sudo`, without a password; true by default with
        ssh."""
        drain_by: NotRequired[str]
        """How nodes are drained: scontrol, or slinky for an annotation of the nodes' pods, which
        Slinky 1.3 and newer follow."""

    class NodeFaultValues(TypedDict):
        """A broken node, as last observed."""

        node: str
        """Name of the node on the platform."""
        cause: str
        """Source of the report: platform, not_ready, overheated or failed_certification."""
        because: str
        """The fault, in the words of its source."""
        since: str
        """When the fault began, in UTC; empty: unknown."""
        mode: str
        """The repair that the platform proposes, if any."""
        id: str
        """The platform's id of the proposed repair, if any."""
        instance: str
        """The machine of the node."""
        advised: str
        """The repair that the rule for the evidence asks for; NONE: no repair. Empty: there is no
        rule."""
        rule: str
        """The rule for the evidence, if there is one."""

    class CategoryResultValues(TypedDict):
        """The result of one job of a category."""

        category: str
        """Domain and variant of the category."""
        nodes: list[str]
        """The nodes that the job ran on."""
        measured: NotRequired[float]
        """The result, if anything was measured."""
        unit: str
        """Unit of the result."""
        required: NotRequired[float]
        """The lowest result that passes."""
        passed: bool
        """Whether the nodes have passed the category."""
        at: str
        """When the test ended, in UTC; empty: unknown."""

    class BatchJobValues(TypedDict):
        """A batch job of Slurm that measures nodes, instead of the Cluster Readiness Engine."""

        script: str
        """The batch script, with its first line `#!/bin/bash`. gpuform passes the nodes to sbatch,
        and reserves them exclusively."""
        result: str
        """A regular expression for the line with the result, with the figure in parentheses. The
        last of several matching lines counts."""
        nodes: NotRequired[str]
        """each: one job for each node. all: one job for all nodes. each if not declared."""

    class CategoryValues(TypedDict):
        """One test that nodes have to pass."""

        domain: str
        """Domain of the test."""
        variant: str
        """Variant of the test."""
        options: NotRequired[dict[str, Any]]
        """Options of the Cluster Readiness Engine for this category, by the engine's names.
        `testScale: intra-node` tests each node alone, `diagnose` finds faulty nodes."""
        floor: NotRequired[float]
        """The lowest result that passes, in the unit of `metric`."""
        tolerance: NotRequired[str]
        """How far below the floor a result still passes; 0% if not declared."""
        metric: NotRequired[str]
        """The metric of the floor; busBandwidthGBps for communication if not declared."""
        job: NotRequired[BatchJobValues]
        """The batch job that runs the test on a Slurm cluster."""

    class NodeEvidenceValues(TypedDict):
        """The tests that one node has passed."""

        node: str
        """Name of the node."""
        machine: str
        """The machine that was tested."""
        driver: str
        """NVIDIA driver of the node; empty: unknown."""
        image: str
        """Operating system of the node; empty: unknown."""
        categories: list[str]
        """The categories that the node has passed."""
        declared: str
        """Digest of the declared tests."""
        at: str
        """When the node passed, in UTC."""

    class NodeFailureValues(TypedDict):
        """A node that has not passed a test."""

        node: str
        """Name of the node."""
        machine: str
        """The machine that was tested."""
        category: str
        """The category that the node failed."""
        because: str
        """Why the node failed, with the figure."""
        is_alone: bool
        """Whether the test blames this node alone: the node was tested alone, or the test names it
        as the cause."""
        at: str
        """When the node failed, in UTC."""

    class GapValues(TypedDict):
        """A node that the evidence does not cover."""

        node: str
        """Name of the node."""
        because: str
        """Why the evidence does not cover the node: a new node, another machine, another driver
        ..."""

    class KubernetesValues(TypedDict):
        """The Kubernetes that schedules jobs on the nodes."""

        kubeconfig: NotRequired[str]
        """Path of a kubeconfig on this machine; ~/.kube/config when not declared."""
        context: NotRequired[str]
        """Context in the kubeconfig; the current one if not declared."""

    class PoolDrainValues(TypedDict):
        """What to do about the jobs on a pool's removed nodes, and which nodes to remove first."""

        on_busy: NotRequired[str]
        """While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or
        evict the jobs."""
        wait_minutes: NotRequired[int]
        """How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this
        time, no node is removed."""
        nodes: NotRequired[list[str]]
        """Names of all nodes to remove when the cluster shrinks; by default failed nodes first,
        then cordoned or drained, then idle, then the newest ones."""
        kubernetes: NotRequired[KubernetesValues]
        """The Kubernetes to ask for jobs; without kubernetes and slurm, gpuform does not look for
        jobs."""
        slurm: NotRequired[SlurmValues]
        """The Slurm to ask for jobs; exec needs kubernetes, too."""

    class RolloutValues(TypedDict):
        """How nodes are replaced when their image or type changes, or when they have failed."""

        max_unavailable: NotRequired[Any]
        """How many nodes may be unavailable at the same time: a number, or a share such as 25%,
        rounded down to at least 1. 1 if not declared. Failed nodes count."""
        pause: NotRequired[str]
        """How long to wait after each step, such as 5m; no pause if not declared."""
        on_failure: NotRequired[str]
        """When a new node fails: stop before the next step (default), or continue while fewer than
        max_unavailable nodes are unavailable."""

    class RepairValues(TypedDict):
        """Which broken nodes are repaired, how many at a time, and who must have seen the plan."""

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

    class ScheduleValues(TypedDict):
        """The hours in which a resource runs."""

        days: NotRequired[list[str]]
        """The days on which the resource starts; all when not declared."""
        start: str
        """When the resource starts, in time_zone."""
        stop: str
        """When the resource stops: on the next day if the time is not after start; 24:00 is
        midnight."""
        time_zone: str
        """IANA name of the time zone. When daylight saving time skips a time, the moment of the
        change counts; when a time occurs twice, start is the first and stop the second."""

    IdleValues = TypedDict(
        "IdleValues",
        {
            "below": str,
            "for": str,
            "then": NotRequired[str],
        },
    )
    """When the GPUs of the resource count as idle; then `gpuform expire` stops the resource."""

    class ScheduledDrainValues(TypedDict):
        """What to do about the jobs on removed nodes, and which scheduler to ask."""

        on_busy: NotRequired[str]
        """While jobs run on the nodes: wait until the jobs have ended (default), fail at once, or
        evict the jobs."""
        wait_minutes: NotRequired[int]
        """How long to wait for jobs, in minutes; 60 if not declared. If jobs still run after this
        time, no node is removed."""
        kubernetes: NotRequired[KubernetesValues]
        """The Kubernetes to ask for jobs; without kubernetes and slurm, gpuform does not look for
        jobs."""
        slurm: NotRequired[SlurmValues]
        """The Slurm to ask for jobs; exec needs kubernetes, too."""

    class MachineRepairValues(TypedDict):
        """When a broken machine is repaired, and who must have seen the plan."""

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

else:
    SlurmValues = dict[str, Any]
    NodeFaultValues = dict[str, Any]
    CategoryResultValues = dict[str, Any]
    BatchJobValues = dict[str, Any]
    CategoryValues = dict[str, Any]
    NodeEvidenceValues = dict[str, Any]
    NodeFailureValues = dict[str, Any]
    GapValues = dict[str, Any]
    KubernetesValues = dict[str, Any]
    PoolDrainValues = dict[str, Any]
    RolloutValues = dict[str, Any]
    RepairValues = dict[str, Any]
    ScheduleValues = dict[str, Any]
    IdleValues = dict[str, Any]
    ScheduledDrainValues = dict[str, Any]
    MachineRepairValues = dict[str, Any]
