"""What a case's run has done, as the process that played it tells it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuform.schemas.plan import Plan
from gpuform.stacks.operations.runs.results import OutputValue

KILLED = "killed"

PlatformObjects = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]
"""By platform and kind: `id`, `name` and `status` of each object."""


@dataclass(frozen=True, slots=True)
class ResourceSeen:
    """A resource in the state; `address` is SECTION.NAME, `outputs` are in plain text."""

    name: str
    address: str
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EntrySeen:
    """An entry or module of a topology in one run: its instances, and those that `when` left out.

    `place` is where it is declared. `is_conditional` says whether it has a `when` at all.
    """

    address: str
    place: str
    instances: tuple[str, ...]
    absent: tuple[str, ...]
    is_conditional: bool
    names: tuple[str, ...] = ()
    """Of its resources, left out or not; * stands for what is not known."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is there after a run."""

    resources: Sequence[ResourceSeen] = ()
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)
    objects: PlatformObjects = field(default_factory=dict)
    seconds: float = 0.0
    """How long the run took, by the platform's clock."""


@dataclass(frozen=True, slots=True)
class Report:
    """A whole run."""

    ending: str
    errors: Sequence[str] = ()
    warnings: Sequence[str] = ()
    plan: Plan | None = None
    left: Left = field(default_factory=Left)
    unplayed: Sequence[int] = ()
    """The numbers of the events that it has not lived to see."""
    misses: Mapping[int, str] = field(default_factory=dict)
    """The faults that requests met otherwise than said, by the events' numbers, and how."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """The events that could not happen, and why."""
    before: Sequence[str] = ()
    """The names and addresses of the resources that were in the state at the start."""
    entries: Sequence[EntrySeen] | None = None
    """None where the program is Python."""
    wrong: Sequence[tuple[tuple[str | int, ...], str]] = ()
    """What the case itself has that cannot be, so that nothing was tested: where, and why."""
    secrets: Sequence[str] = field(default=(), repr=False)
    """Values that nobody may be shown."""
