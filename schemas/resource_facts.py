"""Describe facts about resources: usage, notices, certification, exposure and placement.

The platforms' lifecycles report them; prices, gates, reviews and the topology export read them
without knowing any platform. A fact that a platform does not report is absent, never guessed.
"""

from enum import StrEnum
from typing import Literal

from pydantic import Field, SecretStr

from gpuform.schemas.models import FrozenModel, optional_field
from gpuform.schemas.policies.drain import KubernetesInputs


class Billing(StrEnum):
    """How an amount is paid for."""

    ON_DEMAND = "on_demand"
    RESERVED = "reserved"
    SCHEDULED = "scheduled"
    CAPACITY_POOL = "capacity_pool"
    PREEMPTIBLE = "preemptible"
    STOPPED = "stopped"


class Expense(FrozenModel):
    """One part of a resource that costs money, with the cost of an hour where it is known."""

    what: Literal["gpus", "storage", "whole"] = Field(
        description="GPUs, storage, or the whole resource at one price."
    )
    amount: float | None = optional_field("Amount in `unit`; null: unknown.")
    unit: str = Field(default="GPU", description="GPU, TiB or GB.")
    platform: str = Field(description="The platform.")
    gpu_type: str = Field(default="", description="Type of GPU or server; empty: unknown or none.")
    region: str = Field(default="", description="Region; empty: unknown.")
    billing: Billing = Field(default=Billing.ON_DEMAND, description="How the amount is billed.")
    hourly: float | None = optional_field("Cost of an hour; null: unknown.")
    currency: str = Field(default="", description="Currency of the cost.")
    source: str = Field(
        default="", description="Source of the cost: the platform, or file:line:column of a price."
    )
    because: str = Field(default="", description="Why the cost is unknown.")
    outlives: bool = Field(
        default=False, description="The cost stays when the resource is deleted."
    )

    def __str__(self) -> str:
        """Return the amount in words: `16 H100_SXM GPUs, on_demand`; `5 TiB`."""
        number = "an unknown number of" if self.amount is None else f"{self.amount:,.15g}"
        if self.what == "whole":
            return str(self.billing)
        if self.what == "storage":
            return f"{number} {self.unit}"
        # the only unit whose plural differs
        noun = "GPU" if self.amount == 1 else "GPUs"
        return f"{number} {f'{self.gpu_type} {noun}'.strip()}, {self.billing}"


class ResourceUsage(FrozenModel):
    """Usage of one resource before or after a change."""

    region: str = Field(default="", description="Region; empty: none, or unknown.")
    gpu_types: tuple[str, ...] = Field(
        default=(), description="Types of the resource's GPUs or servers."
    )
    tags: tuple[str, ...] | None = optional_field(
        "Names of the resource's tags; null if the kind has no tags."
    )
    expires: bool | None = optional_field(
        "Whether the resource ends by itself; null if the kind cannot end."
    )
    running: bool = Field(
        default=False, description="Whether the resource was running when last observed."
    )
    reserved: bool = Field(default=False, description="Whether the resource is prepaid.")
    paid_until: str = Field(
        default="", description="Until when the resource is prepaid, in UTC; empty: unknown."
    )
    keeps_data: bool = Field(
        default=False, description="Whether stored data stays when the resource is deleted."
    )
    unknown: tuple[str, ...] = Field(
        default=(), description="Names of the facts above that are known only after apply."
    )
    expenses: tuple[Expense, ...] = Field(default=(), description="Expenses of the resource.")


class CreditState(StrEnum):
    """What lack of credit has done to a resource.

    Only an account without credit has the first two.
    """

    STOPPED = "stopped"
    REVOKED = "revoked"
    RUNS = "runs"


class Credit(FrozenModel):
    """What lack of credit has done, or may do, to one resource.

    `text` says what has happened, or until when the resource runs; empty if there is nothing to
    say. `next` says what the platform revokes next, if anything.
    """

    state: CreditState = Field(description="stopped, revoked or runs.")
    text: str = Field(default="", description="What has happened to the resource.")
    at: str = Field(
        default="",
        description="When the platform stopped or revoked the resource, or until when the "
        "resource runs; empty: unknown.",
    )
    next: str = Field(default="", description="What the platform revokes next.")


class NoticeKind(StrEnum):
    """The subject of a notice."""

    EXPIRY = "expiry"
    CREDIT = "credit"
    SELECTION = "selection"
    USE = "use"
    RENAMED = "renamed"
    MOVED = "moved"
    WORKERS = "workers"
    CHANGED = "changed"
    TEMPLATE = "template"
    IMAGE = "image"
    ROLLOUT = "rollout"
    REPAIR = "repair"
    FABRICS = "fabrics"
    OPTIONS = "options"
    CALENDAR = "calendar"


class Notice(FrozenModel):
    """A notice about a resource.

    `urn` and `name` are empty for a notice about the whole stack.
    """

    kind: NoticeKind = Field(
        description="Subject: expiry, credit, selection, use, renamed, moved, workers, "
        "changed, template, image, rollout, repair, fabrics, options or calendar."
    )
    text: str = Field(description="The notice, and what to do.")
    at: str = Field(
        default="", description="The moment that the notice is about, in UTC; empty: none."
    )
    urn: str = Field(default="", description="URN of the resource.")
    name: str = Field(default="", description="Name of the resource in the program.")


class CertificationCheck(FrozenModel):
    """Whether the nodes of one resource with GPUs are certified once the plan is applied.

    `problem` says why they are not; empty if they are.
    """

    urn: str = Field(description="URN of the resource.")
    name: str = Field(description="Name of the resource in the program.")
    problem: str = Field(
        default="",
        description="Why the nodes of the resource are not certified; empty: the nodes are "
        "certified.",
    )


class Exposure(FrozenModel):
    """The ports of one resource that any address may reach, such as `22/tcp`.

    `unknown` says why the platform does not report them, or not all; empty if they are known.
    """

    ports: tuple[str, ...] = Field(default=(), description="Ports that any address reaches.")
    unknown: str = Field(
        default="", description="Why the ports are unknown; empty: the ports are known."
    )
    urn: str = Field(default="", description="URN of the resource.")
    name: str = Field(default="", description="Name of the resource in the program.")


class NodePlacement(FrozenModel):
    """One GPU node and its place in the network."""

    name: str = Field(description="Name of the node on the platform; a host name.")
    slurm: str = Field(
        default="", description="Name of the node in Slurm; empty: the same as on the platform."
    )
    address: str = Field(default="", description="Address of the node; empty: unknown.")
    fabric_id: str = Field(default="", description="Id of the node's fabric; empty: unknown.")
    fabric: str = Field(default="", description="Name of the node's fabric; empty: unknown.")
    zone: str = Field(default="", description="Availability zone of the node; empty: unknown.")

    @property
    def name_in_slurm(self) -> str:
        """The name of the node in Slurm."""
        return self.slurm or self.name


class NodeHealth(StrEnum):
    """Whether a GPU node works, as far as its platform and its scheduler have reported."""

    HEALTHY = "healthy"
    UNHEALTHY = "unhealthy"
    UNKNOWN = "unknown"


class NodeRecord(FrozenModel):
    """One GPU node in an inventory.

    The first ten fields are those of requirement CAP02 ("Resource Governance API Metrics") of
    NVIDIA's AI cloud validation, with the names that its test CAP02-01 reads. A fact that the
    platform does not report is empty or null.
    """

    node_id: str = Field(description="The platform's id of the node.")
    health_state: NodeHealth = Field(
        default=NodeHealth.UNKNOWN,
        description="healthy, unhealthy, or unknown: nobody has reported the health.",
    )
    instance_id: str = Field(
        default="", description="The machine or the workload on the node; empty: unknown or none."
    )
    created_at: str = Field(
        default="",
        description="When the node was created, or the cluster of a node without a time of its "
        "own; empty: unknown.",
    )
    hardware_type: str = Field(
        default="", description="Type of the GPUs or of the server; empty: unknown."
    )
    gpu_count: int | None = optional_field("Number of the node's GPUs; null: unknown.", ge=0)
    account_id: str = Field(
        default="", description="The account that owns the node; empty: not reported."
    )
    project_id: str = Field(
        default="", description="The project in the account; empty: not reported."
    )
    in_use: bool | None = optional_field(
        "Whether the node is switched on and part of a resource; null: unknown."
    )
    region: str = Field(default="", description="Region of the node; empty: unknown.")
    name: str = Field(default="", description="Name of the node on the platform.")
    platform: str = Field(default="", description="The platform.")
    resource: str = Field(
        default="", description="Name of the node's resource in the program; empty: none."
    )
    stack: str = Field(default="", description="The stack of the resource, as PROJECT/STACK.")


class NodeInventory(FrozenModel):
    """The GPU nodes of a stack, as `gpuform export-topology --format inventory-json` writes them.

    `success`, `platform`, `nodes_checked` and `nodes` are the fields that test CAP02-01 of NVIDIA's
    AI cloud validation reads.
    """

    format_version: Literal["1"] = Field(default="1", description="Version of this format.")
    success: bool = Field(
        description="Whether all resources with nodes were read; false: see unknown."
    )
    platform: Literal["gpuform"] = Field(default="gpuform", description="Always gpuform.")
    nodes_checked: int = Field(ge=0, description="Number of nodes.")
    nodes: tuple[NodeRecord, ...] = Field(default=(), description="The nodes.")
    unknown: tuple[str, ...] = Field(
        default=(), description="Resources that could not be read, and why."
    )


class ResourcePlacement(FrozenModel):
    """The nodes of one resource, and what they have in common."""

    name: str = Field(description="Name of the resource on the platform.")
    region: str = Field(default="", description="Region of the nodes; empty: unknown.")
    pool: str = Field(
        default="", description="The platform's own pool of nodes; empty: none or unknown."
    )
    nodes: tuple[NodePlacement, ...] = Field(
        default=(), description="Nodes of the resource, in any order."
    )
    has_own_scheduler: bool = Field(
        default=False,
        description="Whether the nodes of the resource, and no others, have a Kubernetes or a "
        "Slurm.",
    )
    kubeconfig: SecretStr | None = optional_field(
        "Credential (YAML) of the nodes' Kubernetes; absent: unknown."
    )
    kubernetes: KubernetesInputs | None = optional_field("The declared Kubernetes of the nodes.")
    untold: tuple[str, ...] = Field(
        default=(), description="Facts that the platform never reports, such as `switches`."
    )

    @property
    def fabrics(self) -> dict[str, str]:
        """Names of the fabrics of the nodes by id.

        A fabric without an id is identified by its name.
        """
        names_by_id = {
            node.fabric_id or node.fabric: node.fabric or node.fabric_id for node in self.nodes
        }
        return {key: name for key, name in names_by_id.items() if key}
