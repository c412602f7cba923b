"""Define what a case's process reports about its run: the ending, the plan, and the final state.

`case_run` builds these records; they are pickled and sent to the process of `gpuform test`, which
compares them with the expectations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.schemas.plan import Plan
from gpuform.stacks.operations.runs.options import OutputValue

KILLED = "killed"

PlatformObjects = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""By platform and kind: `id`, `name` and `status` of each object."""


@dataclass(frozen=True, slots=True)
class ReportedResource:
    """A resource in the state; `address` is SECTION.NAME, and `outputs` are not encrypted."""

    name: str
    address: str
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExpandedEntry:
    """A topology's entry or module in one run, with its instances.

    `absent` are the keys of the instances that `when` left out. `position` is the file and line of
    the declaration. `is_conditional` is True if the entry has a `when`.
    """

    address: str
    position: str
    instances: tuple[str, ...]
    absent: tuple[str, ...]
    is_conditional: bool
    resource_names: tuple[str, ...] = ()
    """The names of the entry's resources, also of absent ones; `*` stands for unknown names."""


@dataclass(frozen=True, slots=True)
class FinalState:
    """The stack's resources and outputs and the platforms' objects after a run."""

    resources: Sequence[ReportedResource] = ()
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)
    objects: PlatformObjects = field(default_factory=dict)
    seconds: float = 0.0
    """How long the run took, by the platform's clock."""


@dataclass(frozen=True, slots=True)
class RunReport:
    """The result of one run of a case."""

    ending: str
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plan: Plan | None = None
    final_state: FinalState = field(default_factory=FinalState)
    pending_events: Sequence[int] = ()
    """The numbers of the events that had not happened when the run ended."""
    fault_mismatches: Mapping[int, str] = field(default_factory=dict)
    """By event number: how a fault met requests other than the case says."""
    failed_events: Mapping[int, str] = field(default_factory=dict)
    """By event number: why the event could not happen."""
    initial_names: Sequence[str] = ()
    """The names and addresses of the resources in the state before the run."""
    entries: Sequence[ExpandedEntry] | None = None
    """The entries of the topology; None for a Python program."""
    case_problems: Sequence[tuple[tuple[str | int, ...], str]] = ()
    """The path and the message of each invalid field of the case; with any, nothing was tested."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values to mask in everything that is printed."""
