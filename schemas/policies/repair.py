"""Declare node repairs, rollouts and alternatives: `repair`, `rollout`, `on_no_capacity`.

Settings of gpuform, never sent to a platform; `gpuform.providers.repairing` and the node pools
carry them out. Each platform defines what an alternative is when capacity is missing.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from gpuform.schemas.models import InputModel, OutputPart, Problem, optional_field
from gpuform.schemas.policies.lifetime import parse_duration
from gpuform.schemas.values import UNKNOWN, contains_unknown

_SHARE: Final = re.compile(r"([1-9][0-9]?|100)%", re.ASCII)


def _validate_node_number(value: str | int | None) -> str | int | None:
    """Return a number of nodes (1 or more), a share such as `25%`, or None, unchanged.

    Raises ValueError otherwise.
    """
    if isinstance(value, int) and value < 1:
        raise ValueError(f"{value} is not a number of nodes: write 1 or more")
    if isinstance(value, str) and not _SHARE.fullmatch(value):
        raise ValueError(
            f"{value} is not a number of nodes: write a number, such as 2, or a share, such as 25%"
        )
    return value


NodeCountOrShare = Annotated[str | int | None, AfterValidator(_validate_node_number)]


def resolve_node_count(declared: str | int, nodes: int) -> int:
    """Return a declared number of nodes; for a share such as "25%", the number out of ``nodes``.

    A share is rounded down, to 1 at least.
    """
    if isinstance(declared, str):
        # a share of a small pool still allows one node
        return max(1, nodes * int(declared.removesuffix("%")) // 100)
    return declared


DEFAULT_NOT_READY_S: Final = 600.0
"""How many seconds a node must be not ready to count as broken, if nothing is declared."""

DEFAULT_MAX_UNHEALTHY: Final = "25%"


class FaultCause(StrEnum):
    """Who reports that a node is broken."""

    PLATFORM = "platform"
    NOT_READY = "not_ready"
    OVERHEATED = "overheated"
    FAILED_CERTIFICATION = "failed_certification"
    ASKED = "asked"


def _validate_time(value: str | None) -> str | None:
    """Return a duration such as `10m`, or None. Raises ValueError for other text."""
    try:
        if value is not None:
            parse_duration(value)
    except ValueError:
        raise ValueError(
            f"{value} is not a duration: write hours and minutes, such as 10m"
        ) from None
    return value


class RepairPolicy(InputModel):
    """Who must have seen the plan of a repair, where only the platform reports broken nodes."""

    approve: Literal["reviewed", "automatic"] | None = optional_field(
        "reviewed: a person must see the plan first (by the prompt of `up`, a "
        "saved plan, or --allow repair). automatic: `up --yes` and `repair --yes` repair. "
        "reviewed if not declared.",
        examples=["reviewed"],
    )

    @property
    def causes(self) -> tuple[FaultCause, ...]:
        """The kinds of reports on which a node counts as broken: only the platform's own.

        Policies with more causes override this.
        """
        return (FaultCause.PLATFORM,)

    @property
    def is_automatic(self) -> bool:
        """True if nodes are repaired without a person who has reviewed the repair in a plan."""
        return self.approve == "automatic"

    @property
    def parallel(self) -> int:
        """Return the number of nodes to repair at a time: 1 unless overridden."""
        return 1

    @property
    def limit(self) -> str | int:
        """The most broken nodes with which repairs happen, as a number or a share: 25%.

        Policies with a declared limit override this.
        """
        return DEFAULT_MAX_UNHEALTHY

    def compute_max_unhealthy(self, nodes: int) -> int:
        """Return how many of ``nodes`` may be unhealthy before all repairs are refused.

        With more broken nodes, no node is repaired.
        """
        return resolve_node_count(self.limit, nodes)


class MachineRepairInputs(RepairPolicy):
    """When a broken machine is repaired, and who must have seen the plan."""

    on: list[Literal["platform", "not_ready", "overheated", "failed_certification"]] | None = (
        optional_field(
            "Which reports count: platform (reports a broken node, or proposes a "
            "repair), not_ready (the scheduler cannot use the node), overheated (measured by "
            "Lens), failed_certification (a certification names this node alone). platform if not "
            "declared.",
            min_length=1,
            examples=[["platform", "not_ready"]],
        )
    )
    not_ready_for: Annotated[str | None, AfterValidator(_validate_time)] = optional_field(
        "How long a scheduler must be unable to use a node before it counts as "
        "broken; 10m if not declared.",
        examples=["10m"],
    )
    max_temperature: int | None = optional_field(
        "Highest allowed temperature of a GPU in degrees Celsius, for on: overheated.",
        ge=60,
        le=120,
        examples=[90],
    )

    @property
    def causes(self) -> tuple[FaultCause, ...]:
        """The kinds of reports on which a node counts as broken, as declared or by default."""
        return tuple(map(FaultCause, self.on or ("platform",)))

    @property
    def not_ready_s(self) -> float:
        """Return the seconds for which a node may be not ready before the node counts as broken."""
        return parse_duration(self.not_ready_for) if self.not_ready_for else DEFAULT_NOT_READY_S

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem if `overheated` and `max_temperature` are not declared together."""
        on = values.get("on")
        is_measured = isinstance(on, list) and "overheated" in on
        # there is no limit that fits every type of GPU
        if is_measured and values.get("max_temperature") is None:
            yield Problem(
                "max_temperature",
                "is required with on: overheated: declare a temperature, such as 90",
            )
        # A list that is not known yet may contain overheated.
        is_unknown = contains_unknown(on)
        if values.get("max_temperature") is not None and not (is_measured or is_unknown):
            yield Problem("on", "lacks overheated, which max_temperature requires: add overheated")


class RepairInputs(MachineRepairInputs):
    """Which broken nodes are repaired, how many at a time, and who must have seen the plan."""

    max_parallel: int | None = optional_field(
        "How many nodes are repaired at a time; 1 when not declared.", ge=1, examples=[1]
    )
    max_unhealthy: NodeCountOrShare = optional_field(
        "With more broken nodes than this, nothing is repaired, because the cause is then probably "
        "not in the nodes. A number, or a share rounded down to at least 1; 25% if not declared.",
        examples=["25%", 2],
    )

    @property
    def parallel(self) -> int:
        """Return the number of nodes to repair at a time: as declared, or 1."""
        return self.max_parallel or 1

    @property
    def limit(self) -> str | int:
        """The most broken nodes with which repairs happen: the declared number or share, or 25%."""
        return self.max_unhealthy or DEFAULT_MAX_UNHEALTHY


NO_REPAIR: Final = "NONE"
"""The advised mode of a fault that no repair of the node would remove."""


REJECT: Final = "REJECT"
CANCEL: Final = "CANCEL"
WITHDRAWALS: Final = (REJECT, CANCEL)
"""Modes of a requested repair that end the platform's open repair of a node before its run."""


class NodeFault(OutputPart):
    """A broken node, as last observed."""

    node: str = Field(description="Name of the node on the platform.")
    cause: str = Field(
        description="Source of the report: platform, not_ready, overheated or failed_certification."
    )
    because: str = Field(description="The fault, in the words of its source.")
    since: str = Field(default="", description="When the fault began, in UTC; empty: unknown.")
    mode: str = Field(default="", description="The repair that the platform proposes, if any.")
    id: str = Field(default="", description="The platform's id of the proposed repair, if any.")
    instance: str = Field(default="", description="The machine of the node.")
    advised: str = Field(
        default="",
        description="The repair that the rule for the evidence asks for; NONE: no repair. Empty: "
        "there is no rule.",
    )
    rule: str = Field(default="", description="The rule for the evidence, if there is one.")


class NodeRepair(OutputPart):
    """A node that a plan repairs, and why."""

    node: str = Field(description="Name of the node on the platform.")
    mode: str = Field(
        description="Kind of repair, as the platform names it; REJECT or CANCEL ends the "
        "platform's own repair instead."
    )
    cause: str = Field(
        description="Source of the report: platform, not_ready, overheated, "
        "failed_certification or asked."
    )
    because: str = Field(description="What is wrong with the node.")
    since: str = Field(default="", description="When the fault began, in UTC; empty: unknown.")
    proposed: str = Field(default="", description="The repair that the platform proposes, if any.")
    id: str = Field(default="", description="The platform's id of the proposed repair, if any.")
    instance: str = Field(default="", description="The machine of the node.")
    rule: str = Field(default="", description="The rule that chose the repair, if there is one.")

    @property
    def is_withdrawal(self) -> bool:
        """True if the plan ends the platform's open repair of the node, and repairs nothing."""
        return self.mode in WITHDRAWALS

    @property
    def evidence(self) -> str:
        """The node's fault, since when the fault exists, and the rule for the repair, in words."""
        fault = f"{self.because}, since {self.since}" if self.since else self.because
        return f"{fault}; {self.rule}" if self.rule else fault


def _validate_pause(value: str) -> str:
    """Return a duration such as `5m`. Raises ValueError for other text."""
    try:
        parse_duration(value)
    except ValueError:
        raise ValueError(
            f"{value} is not a duration: write hours and minutes, such as 5m or 1h"
        ) from None
    return value


class RolloutInputs(InputModel):
    """How nodes are replaced when their image or type changes, or when they have failed."""

    max_unavailable: NodeCountOrShare = optional_field(
        "How many nodes may be unavailable at the same time: a number, or a share "
        "such as 25%, rounded down to at least 1. 1 if not declared. Failed nodes count.",
        examples=[1, "25%"],
    )
    pause: Annotated[str, AfterValidator(_validate_pause)] | None = optional_field(
        "How long to wait after each step, such as 5m; no pause if not declared.", examples=["5m"]
    )
    on_failure: Literal["stop", "continue"] | None = optional_field(
        "When a new node fails: stop before the next step (default), or continue "
        "while fewer than max_unavailable nodes are unavailable.",
        examples=["stop"],
    )

    def compute_max_unavailable(self, nodes: int) -> int:
        """Return how many of ``nodes`` a rollout may take out of service at the same time."""
        return resolve_node_count(self.max_unavailable or 1, nodes)

    @property
    def pause_s(self) -> float:
        """The declared pause after each step of a rollout, in seconds."""
        return parse_duration(self.pause) if self.pause else 0.0


Values = Mapping[str, Any]

WaitMinutes = Annotated[
    int | None, Field(ge=1, description="How long to keep trying, in minutes.", examples=[30])
]


def find_no_capacity_problems(values: Values) -> Iterator[Problem]:
    """Yield a problem for an empty `on_no_capacity`, and each alternative equal to the inputs."""
    search = values.get("on_no_capacity")
    if not isinstance(search, Mapping):
        return
    if not search.get("alternatives") and search.get("wait_minutes") is None:
        yield Problem("on_no_capacity", "is empty: declare alternatives, wait_minutes, or both")
    for path, alternative in iterate_alternatives(values):
        # the declared region and type are tried first anyway
        if all(_is_as_declared(values, *field) for field in alternative.items()):
            reason = (
                "repeats the declared values: declare another region, another gpu_type, or both"
            )
            yield Problem(path, reason)


def iterate_alternatives(values: Values) -> Iterator[tuple[str, Values]]:
    """Yield property path and values of each alternative declared in `on_no_capacity`."""
    search = values.get("on_no_capacity")
    alternatives = search.get("alternatives") if isinstance(search, Mapping) else None
    if isinstance(alternatives, Sequence):
        for index, alternative in enumerate(alternatives):
            if isinstance(alternative, Mapping):
                yield f"on_no_capacity.alternatives[{index}]", alternative


def _is_as_declared(values: Values, name: str, value: Any) -> bool:
    """Return True if an alternative's value is known and equals the declared input `name`."""
    return value is not None and value is not UNKNOWN and value == values.get(name)
