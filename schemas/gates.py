"""Define the gates of a project (gates.yaml): rules that a plan must pass before it is applied.

Evaluated by `gpuform.stacks.gates`.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.models import InputModel, Problem
from gpuform.schemas.prices import Currency

_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_PLAIN_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def _validate_function_name(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        raise ValueError("must name a function as MODULE:NAME, such as policies:not_on_fridays")
    return text


_Function = Annotated[str, AfterValidator(_validate_function_name)]


def _require_true(value: bool) -> bool:
    if not value:
        raise ValueError("must be true: remove the gate to be without it")
    return value


class MaxCostInputs(InputModel):
    """The highest cost of a stack."""

    amount: float = Field(ge=0, description="The most that an hour may cost.", examples=[120])
    currency: Currency = Field(description="Currency of the amount.", examples=["USD"])


class NotBusyInputs(InputModel):
    """When capacity counts as in use."""

    above: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="GPUs are in use when more of them than this is used, from 0 to 1; 0.05 when "
        "not given.",
        examples=[0.05],
    )


class NoOpenPortsInputs(InputModel):
    """The ports that may be open nevertheless."""

    allowed: list[Annotated[int, Field(ge=0, le=65535)]] | None = Field(
        default=None,
        description="Ports that may be open to the whole world; none when not given.",
        examples=[[443]],
    )


class GateInputs(InputModel):
    """One gate: exactly one rule, and how to apply it."""

    rules: ClassVar[tuple[str, ...]] = (
        *("max_destroyed_gpus", "not_replaced", "allowed_regions", "allowed_gpu_types"),
        *("max_hourly_cost", "required_tags", "protected", "expiry_required"),
        *("not_busy", "no_open_ports", "max_repaired_nodes", "certified", "python"),
    )

    max_destroyed_gpus: int | None = Field(
        default=None, ge=0, description="The most GPUs that one plan may take away.", examples=[8]
    )
    not_replaced: list[Literal["running", "reserved"]] | None = Field(
        default=None,
        min_length=1,
        description="What is not replaced: running, reserved, or both.",
        examples=[["running", "reserved"]],
    )
    allowed_regions: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The regions in which something may be made.",
        examples=[["us-central-8"]],
    )
    allowed_gpu_types: list[str] | None = Field(
        default=None,
        min_length=1,
        description="The types of GPU that may be made (for scp: what is declared, gpu_type or "
        "server_type_id).",
        examples=[["H100_SXM", "H200_SXM"]],
    )
    max_hourly_cost: MaxCostInputs | None = Field(
        default=None,
        description="The most that an hour of the whole stack may cost once the plan is applied. "
        "A plan that makes it cheaper or only lowers capacity passes; one that makes something "
        "grow does not pass with unknown costs.",
        examples=[{"amount": 120, "currency": "USD"}],
    )
    required_tags: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Tags that whatever can have tags must have.",
        examples=[["team"]],
    )
    protected: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Names or URNs, with * for any text, of what is neither deleted nor replaced.",
        examples=[["prod-*"]],
    )
    expiry_required: Annotated[bool, AfterValidator(_require_true)] | None = Field(
        default=None,
        description="Whatever is made must end by itself: expires, ttl, auto_terminate, "
        "duration_days, reservation_end_time, or a tag expires.",
        examples=[True],
    )
    not_busy: NotBusyInputs | None = Field(
        default=None,
        description="Nothing is taken away, replaced or repaired that is in use, by TensorOne's "
        "own word or by Lens's; and nothing of which that cannot be told.",
        examples=[{"above": 0.05}],
    )
    no_open_ports: NoOpenPortsInputs | None = Field(
        default=None,
        description="Nothing stays or is made whose ports the whole world reaches, by the firewall "
        "rules that TensorOne shows; and nothing of which that cannot be told. Of a new cluster it "
        "can be told only with ssh_enabled: false, and without port_mappings and security_groups.",
        examples=[{"allowed": [443]}],
    )
    max_repaired_nodes: int | None = Field(
        default=None,
        ge=0,
        description="The most broken nodes that one plan may repair.",
        examples=[1],
    )
    certified: Annotated[bool, AfterValidator(_require_true)] | None = Field(
        default=None,
        description="Whatever has GPUs is certified: by a certification that has passed and is not "
        "stale, or that the plan makes or repeats; or by Together's own acceptance tests, where "
        "they are declared and all nodes have passed them.",
        examples=[True],
    )
    python: _Function | None = Field(
        default=None,
        description="A function of the project, MODULE:NAME: it is given the plan and yields a "
        "text for all that is against it.",
        examples=["policies:not_on_fridays"],
    )
    resources: list[str] | None = Field(
        default=None,
        min_length=1,
        description="Names or URNs, with * for any text: the rule is about these alone.",
        examples=[["train*"]],
    )
    level: Literal["mandatory", "advisory"] | None = Field(
        default=None,
        description="mandatory stops a plan, advisory only tells; mandatory when not given.",
        examples=["advisory"],
    )
    reason: str | None = Field(
        default=None,
        min_length=1,
        description="Why there is such a gate, for those whom it stops.",
        examples=["The budget of 2026: ask the owner of the project."],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        declared_rules = [name for name in cls.rules if values.get(name) is not None]
        if not declared_rules:
            yield Problem("", f"has no rule: give one of {', '.join(cls.rules)}")
        for name in declared_rules[1:]:
            yield Problem(
                name, f"is a second rule beside {declared_rules[0]}: make it a gate of its own"
            )
        stack_rules = {"max_hourly_cost", "python"} & {*declared_rules}
        if stack_rules and values.get("resources") is not None:
            yield Problem("resources", f"cannot go with {stack_rules.pop()}: it is about the plan")


class GatesInputs(InputModel):
    """The file of gates."""

    gates: dict[str, GateInputs] = Field(
        description="Each gate under a name of its own: small letters, digits and hyphens. "
        "--allow gate:NAME lifts it for one run.",
        examples=[{"few-at-a-time": {"max_destroyed_gpus": 8}}],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        gates = values.get("gates")
        yield from find_gate_name_problems(gates if isinstance(gates, Mapping) else ())


def find_gate_name_problems(names: Iterable[str]) -> Iterator[Problem]:
    """Yield a problem for each name of a gate that a command line would not take as it is."""
    for name in names:
        if not _PLAIN_NAME.fullmatch(name):
            yield Problem(f"gates.{name}", "is not known as a name: use a-z, 0-9 and hyphens")
