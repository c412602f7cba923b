"""Define the plan as data: what an operation would do to each resource, and why.

The engine builds the plan; reviews, gates and saved plans read it, and its JSON is an interface for
other programs. Secret values are masked before they enter a plan. Action and reason are separate:
only the action decides what is done.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, Literal, Self

from pydantic import Field, model_validator

from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.models import FrozenModel, optional_field, share_field_names
from gpuform.schemas.policies.drain import RemovedNodes
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.resource_facts import (
    Billing,
    CertificationCheck,
    Exposure,
    Notice,
    ResourceUsage,
)
from gpuform.schemas.safe_text import MASK
from gpuform.schemas.values import (
    UNKNOWN,
    RemovalCount,
    contains_unknown,
    convert_leaves,
    is_secret_object,
)

FORMAT_VERSION: Final = "1"
"""Increased when a reader of the old form would misread the new one."""


class PlanAction(StrEnum):
    """The action of the operation on a resource."""

    SAME = "same"
    CREATE = "create"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    IMPORT = "import"
    READ = "read"
    REFRESH = "refresh"

    @property
    def is_change(self) -> bool:
        """Return False for actions without an effect on the object: same, read and refresh."""
        return self not in (PlanAction.SAME, PlanAction.READ, PlanAction.REFRESH)


class PlanReason(StrEnum):
    """The reason of an action, only for display."""

    NEW = "new"
    IMPORTED = "imported"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    FIELD_FORCES_REPLACEMENT = "field_forces_replacement"
    DEPENDENCY_REPLACED = "dependency_replaced"
    REPLACEMENT_REQUESTED = "replacement_requested"
    NOT_READY = "not_ready"
    NOT_IN_PROGRAM = "not_in_program"
    REPLACED_EARLIER = "replaced_earlier"
    DESTROYED = "destroyed"
    DRIFT = "drift"
    GONE = "gone"
    READ_BY_PROGRAM = "read_by_program"
    EXPIRED = "expired"


class _ValueChange(FrozenModel):
    """A change from ``before`` to ``after`` that masks secrets, whatever the model is made from."""

    @model_validator(mode="before")
    @classmethod
    def _mask(cls, fields: Any) -> Any:
        """Return the fields with secret values masked, before the validation of any field.

        With `secret` in the fields, all of `before` and `after` is masked, else only secrets
        inside.
        """
        if not isinstance(fields, Mapping):
            return fields
        # The fields are not validated yet: a value of any other form counts as true.
        secret = fields.get("secret") not in (None, False)
        values = {
            name: _mask_value(fields[name], secret) for name in _VALUE_FIELDS if name in fields
        }
        return {**fields, **values}


class PropertyChange(_ValueChange):
    """The change of one property. Values are plain JSON; a secret value is masked."""

    path: str = Field(description="Property path, such as cluster_config.load_balancer.")
    action: Action = Field(description="The action on the property; keep means no change.")
    before: Any = optional_field("The value last observed; null if no value exists.")
    after: Any = optional_field(
        "The value afterwards; null if no value exists or the value is unknown."
    )
    unknown: bool = Field(default=False, description="The value is known only after apply.")
    secret: bool = Field(default=False, description="The values are masked.")
    forces_replacement: bool = Field(default=False, description="The change replaces the resource.")
    because: str = Field(default="", description="Why the property changes, in words.")

    @property
    def is_sent(self) -> bool:
        """True if the change is sent to the platform.

        True for every change of a plan that was read from JSON.
        """
        return True

    @classmethod
    def from_field_change(cls, change: FieldChange, *, secret: bool = False) -> "PropertyChange":
        """Return a field's change in the form of the plan.

        With ``secret`` the program has declared the value secret, whatever the field's rules say.
        An unknown new value becomes None, with ``unknown`` set. `is_sent` of the result is that of
        ``change``.
        """
        secret = secret or change.secret
        all_fields = {
            "before": _to_shown_value(change.before, secret=secret),
            "after": _to_shown_value(change.after, secret=secret),
            "unknown": contains_unknown(change.after),
            "secret": secret,
            "forces_replacement": change.replaces,
            "because": change.because,
        }
        # pydantic stores which fields were set: a plan has thousands of changes, and most of them
        # have mostly default values
        fields = cls.model_fields
        set_fields = {
            name: value for name, value in all_fields.items() if value is not fields[name].default
        }
        change_class = cls if change.is_sent else _StateOnlyChange
        return change_class(path=change.path, action=change.action, **set_fields)


class _StateOnlyChange(PropertyChange):
    """A change that only updates the state.

    A class of its own: a flag in thousands of objects costs memory.
    """

    @property
    def is_sent(self) -> bool:
        """False: the change is written to the state alone."""
        return False


class ResourceChange(FrozenModel):
    """The action on one resource. A replacement is one change."""

    urn: str = Field(description="URN of the resource.")
    type: str = Field(description="Type token of the resource.")
    name: str = Field(description="Name of the resource in the program.")
    action: PlanAction = Field(description="The action on the resource.")
    reason: PlanReason = Field(description="The reason of the action.")
    replace_paths: tuple[str, ...] = Field(
        default=(), description="The properties that force the replacement of the resource."
    )
    changes: tuple[PropertyChange, ...] = Field(
        default=(), description="Property changes of the resource."
    )
    gpus_added: int | None = optional_field("Added GPUs; null: unknown.", ge=0)
    gpus_removed: int | None = optional_field("Removed GPUs; null: unknown.", ge=0)
    parent: str = Field(default="", description="URN of the resource's parent; empty: none.")
    dependencies: tuple[str, ...] = Field(
        default=(), description="URNs of the resources that this resource depends on."
    )
    before: ResourceUsage | None = optional_field("Resource usage now; null if unknown.")
    after: ResourceUsage | None = optional_field("Resource usage afterwards; null if unknown.")
    retained: bool = Field(
        default=False,
        description="The object of the resource stays on the platform, but the stack no "
        "longer manages it.",
    )
    in_use: str = Field(
        default="",
        description="Present use of the resource as the platform reports it, if the plan "
        "removes capacity.",
    )
    leaving: RemovedNodes | None = optional_field(
        "The nodes that the action removes, with their GPUs and jobs, as the platform shows them; "
        "null if it removes none, or if they are unknown."
    )
    others: tuple[str, ...] = Field(
        default=(), description="Parts of a deleted object that belong to other people or stacks."
    )
    repairs: tuple[NodeRepair, ...] = Field(
        default=(), description="The broken nodes that an update repairs, in this order."
    )

    @property
    def removal(self) -> RemovalCount:
        """How many nodes and GPUs the action removes. The limit of a run that applies the plan.

        Nodes that an update repairs do not count: the plan's repairs limit them. Nor does what a
        refresh has found: it is gone already.
        """
        if self.reason in (PlanReason.DRIFT, PlanReason.GONE):
            return RemovalCount(0, 0)
        # A replacement deletes all nodes, those with a due repair, too.
        repairs = self.repairs if self.action is PlanAction.UPDATE else ()
        repaired_names = {node_repair.node for node_repair in repairs}
        # Of an object that grows by itself only the most GPUs are known.
        if self.leaving is None or self.may_remove_fewer_gpus:
            return RemovalCount(None, self.gpus_removed)
        return RemovalCount(self.leaving.count_nodes(repaired_names), self.gpus_removed)

    @property
    def may_remove_fewer_gpus(self) -> bool:
        """True if `gpus_removed` is a maximum, which automatic scaling may not have reached."""
        return self.leaving is not None and self.leaving.may_grow


class ResourceDrift(FrozenModel):
    """What the refresh before a plan has found of one resource, and the state does not have."""

    urn: str = Field(description="URN of the resource.")
    is_gone: bool = Field(default=False, description="The platform no longer has the object.")
    changes: tuple[PropertyChange, ...] = Field(
        default=(), description="Properties that the platform has changed, from the state's value."
    )
    nodes: int | None = optional_field("Number of GPU nodes; null if the resource has none.", ge=0)
    failed_nodes: tuple[str, ...] = Field(
        default=(), description="Names of the GPU nodes that do not work."
    )


class OutputChange(_ValueChange):
    """The change of one output of the stack. Values are plain JSON; a secret value is masked."""

    name: str = Field(description="Name of the output.")
    action: Action = Field(description="The action on the output.")
    before: Any = optional_field("Value of the output now; null if the output does not exist.")
    after: Any = optional_field(
        "Value of the output afterwards; null if the plan removes the output or "
        "the value is unknown."
    )
    unknown: bool = Field(default=False, description="The value is known only after apply.")
    secret: bool = Field(default=False, description="The values are masked.")


class Amount(FrozenModel):
    """The known cost of an hour in one currency and one way of paying."""

    billing: Billing = Field(description="How the cost is billed.")
    currency: str = Field(description="Currency of the cost.")
    hourly: float = Field(description="Cost of an hour.")


class StackCost(FrozenModel):
    """The cost of a whole stack. Unknown costs are in none of the amounts."""

    amounts: tuple[Amount, ...] = Field(default=(), description="The known costs.")
    unknown: tuple[str, ...] = Field(
        default=(), description="Parts with an unknown cost, and why the cost is unknown."
    )

    def sum_hourly_costs(self) -> Mapping[str, float]:
        """Return the known cost of an hour by currency, rounded to six digits after the point."""
        sums: dict[str, float] = {}
        for amount in self.amounts:
            sums[amount.currency] = round(sums.get(amount.currency, 0.0) + amount.hourly, 6)
        return dict(sorted(sums.items()))

    @property
    def hourly(self) -> float:
        """The known cost of an hour; 0.0 without any. ValueError for costs in two currencies."""
        costs = self.sum_hourly_costs()
        if len(costs) > 1:
            raise ValueError(
                f"the cost is in {' and '.join(costs)}: read it with sum_hourly_costs()"
            )
        return next(iter(costs.values()), 0.0)


class PlanCost(FrozenModel):
    """The cost of the whole stack before and after the plan, including what does not change."""

    before: StackCost = Field(description="Now.")
    after: StackCost = Field(description="After the plan is applied.")


class GateLevel(StrEnum):
    """Whether the findings of a gate block a plan or are only shown."""

    ADVISORY = "advisory"
    MANDATORY = "mandatory"


class Waiver(FrozenModel):
    """A dated exception: until its last day, the findings of a gate do not block a plan."""

    until: str = Field(description="The last day of the waiver in UTC, as YYYY-MM-DD.")
    by: str = Field(description="Who granted the waiver.")
    reason: str = Field(description="Why.")
    is_over: bool = Field(
        default=False, description="The last day had passed when the gate was evaluated."
    )


class GateResult(FrozenModel):
    """The result of evaluating one gate on a plan."""

    name: str = Field(description="Name of the gate.")
    rule: str = Field(description="Rule of the gate, such as max_destroyed_gpus.")
    level: GateLevel = Field(description="mandatory blocks the plan, advisory does not.")
    findings: tuple[str, ...] = Field(
        default=(), description="The objections to the plan; empty if it passes."
    )
    allowed: bool = Field(default=False, description="A permission of this run lifts the gate.")
    reason: str = Field(default="", description="The reason of the gate.")
    permission: str = Field(
        description="The permission that lifts the gate for one run, with --allow."
    )
    source: str = Field(default="", description="Where the gate is declared: file:line:column.")
    note: str = Field(
        default="", description="What the gate has examined, if it passes; empty: the plan alone."
    )
    waiver: Waiver | None = optional_field("The waiver of the gate in gates.yaml; null: none.")

    @property
    def is_waived(self) -> bool:
        """True if the gate has a waiver whose last day has not passed."""
        return self.waiver is not None and not self.waiver.is_over

    @property
    def is_blocking(self) -> bool:
        """True if the plan must not be applied: a mandatory gate has findings not allowed."""
        is_lifted = self.allowed or self.is_waived
        return bool(self.findings) and self.level is GateLevel.MANDATORY and not is_lifted


class Basis(FrozenModel):
    """Digests of everything that a saved plan was made from. A plan is outdated if one differs.

    Digests are keyed with the stack's secret key, so that they reveal nothing about a value. The
    digest of a value with unknown parts begins with a question mark.
    """

    state: Mapping[str, str] = Field(description="Digest of each resource in the state, by URN.")
    config: Mapping[str, str] = Field(description="Digest of each configuration value, by key.")
    program: Mapping[str, Mapping[str, str]] = Field(
        description="Digests of the parts of each registration, such as inputs.region, by URN."
    )
    options: Mapping[str, Any] = Field(
        default_factory=dict, description="The options of the run that decide what the run may do."
    )
    effects: Mapping[str, tuple[str, ...]] = Field(
        default_factory=dict, description="The operations on the objects of each resource, by URN."
    )
    key: str = Field(default="", description="Digest of an empty text, which identifies the key.")
    seal: str = Field(default="", description="Digest of everything else in the plan.")


class Plan(FrozenModel):
    """Everything that one operation would do to one stack."""

    format_version: str = Field(default=FORMAT_VERSION, description="Version of this format.")
    project: str = Field(description="Name of the Pulumi project.")
    stack: str = Field(description="Name of the stack.")
    operation: Literal["update", "refresh", "destroy", "expire", "repair"] = Field(
        default="update", description="The planned operation: `up` plans an update."
    )
    emulated: bool = Field(
        default=False,
        description="Whether the stack is on the emulator, so that no real object is affected.",
    )
    made_at: str = Field(
        default="", description="When the plan was made, in UTC: 2026-03-01T08:00:00Z."
    )
    made_by: str = Field(default="", description="The release that made the plan: gpuform 0.1.0.")
    pull_request: str = Field(
        default="",
        description="Number of the pull request whose CI job saved the plan; empty: none.",
    )
    basis: Basis | None = optional_field(
        "The digests that the plan is based on; null in a plan that was not saved."
    )
    # A failed preview still yields a plan, so that people see the part that is known.
    errors: tuple[str, ...] = Field(
        default=(),
        description="Errors of the preview. A plan with errors is incomplete: do not use it for "
        "decisions.",
    )
    stack_references: tuple[str, ...] = Field(
        default=(),
        description="The stacks whose outputs this stack reads, as organization/PROJECT/STACK.",
    )
    planned_with: Mapping[str, str] = Field(
        default_factory=dict,
        description="Seals of the plans that predict the outputs of other stacks, by "
        "organization/PROJECT/STACK.",
    )
    stacks_digest: str = Field(
        default="",
        description="SHA-256 of the commit and of the names of all stacks that were planned "
        "together; empty in a plan of one stack.",
    )
    outputs: tuple[OutputChange, ...] = Field(
        default=(), description="The outputs of the stack that change."
    )
    changes: tuple[ResourceChange, ...] = Field(
        default=(), description="The changes, in the planned order."
    )
    drift: tuple[ResourceDrift, ...] = Field(
        default=(), description="What the refresh before the plan has found; empty without one."
    )
    summary: Mapping[PlanAction, int] = Field(description="Number of resources by action.")
    unchecked: tuple[str, ...] = Field(
        default=(), description="Checks that were impossible while planning, and why."
    )

    notices: tuple[Notice, ...] = Field(
        default=(), description="Notices about resources, changed or not."
    )
    exposures: tuple[Exposure, ...] | None = optional_field(
        "The resources with ports that any address reaches, or with unknown "
        "ports, once the plan is applied; null if not examined."
    )
    proofs: tuple[CertificationCheck, ...] | None = optional_field(
        "Whether the nodes of each resource with GPUs are certified once the plan "
        "is applied; null if no gate asks for it."
    )
    cost: PlanCost | None = optional_field(
        "The cost of the whole stack; null if it was not computed."
    )
    rehearsal: Rehearsal | None = optional_field(
        "What the plan does when something goes wrong; null if it was not rehearsed."
    )
    gates: tuple[GateResult, ...] | None = optional_field(
        "The results of the gates; null without gates."
    )
    weakened_gates: tuple[str, ...] = Field(
        default=(),
        description="How the change removes or weakens gates of the revision of --gates-from.",
    )

    @classmethod
    def from_changes(
        cls,
        project: str,
        stack: str,
        changes: Iterable[ResourceChange],
        *,
        unchecked: Iterable[str] = (),
    ) -> Self:
        """Return the plan of a stack with `changes`, counted by action in `summary`.

        `unchecked` are texts about checks that could not be made.
        """
        changes = tuple(changes)
        counts = Counter(change.action for change in changes)
        return cls(
            project=project,
            stack=stack,
            changes=changes,
            summary={action: counts[action] for action in PlanAction if counts[action]},
            unchecked=tuple(unchecked),
        )

    def drop_digests(self) -> Self:
        """Return the plan without the digests of its basis, which only an apply needs.

        They are the largest part of a plan. Seal, key and options stay. The result needs as little
        memory as possible, for a process that has the plans of many stacks.
        """
        plan = self
        if self.basis is not None:
            emptied: dict[str, Any] = {"state": {}, "config": {}, "program": {}, "effects": {}}
            plan = self.model_copy(update={"basis": self.basis.model_copy(update=emptied)})
        share_field_names(plan)
        return plan

    @property
    def project_stack(self) -> str:
        """Return the stack's name with the project: PROJECT/STACK."""
        return f"{self.project}/{self.stack}"

    @property
    def has_changes(self) -> bool:
        """True if applying the plan would do anything."""
        actions = {change.action for change in self.changes}
        actions |= {action for action, count in self.summary.items() if count}
        return any(action.is_change for action in actions)


_VALUE_FIELDS: Final = ("before", "after")


def _mask_value(value: Any, secret: bool) -> Any:
    """Return a value with secrets replaced by `MASK` at any depth, or `MASK` alone if `secret`.

    None stays None. NaN and infinity become text, because JSON has neither.
    """
    if secret and value is not None:
        return MASK
    return convert_leaves(value, _mask_leaf, is_secret_object)


def _mask_leaf(leaf: Any) -> Any:
    """Return `MASK` for a secret, a text for NaN and infinity, else the leaf itself."""
    if isinstance(leaf, Mapping):
        return MASK
    # JSON has no NaN and no infinity
    is_json = not isinstance(leaf, float) or math.isfinite(leaf)
    return leaf if is_json else str(leaf)


def _to_shown_value(value: Any, *, secret: bool) -> Any:
    """Return a property's value for a plan: None for UNKNOWN, `MASK` for a secret, else JSON."""
    if value is None or value is UNKNOWN:
        return None
    return MASK if secret else _to_json(value)


def _to_json(value: Any) -> Any:
    """Return a property's value as JSON values, with a text in place of unknown parts."""
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    return repr(value) if value is UNKNOWN else value
