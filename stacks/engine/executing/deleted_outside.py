"""Track resources that no longer exist on their platforms although this stack did not delete them.

A few may have been deleted outside of gpuform. Many at once suggest that the run uses another
account, project or base URL than the one where they exist. Refreshes and deletions report missing
objects here; the step executor asks for permission before it removes them from the state.
"""

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.providers.context import RunContext
from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import Permission
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.planning import Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of

CONFIRMATION_THRESHOLD: Final = 3
"""Removing this many missing resources from the state needs explicit permission."""

MAX_LISTED_NAMES: Final = 20


@dataclass(frozen=True, slots=True)
class OutsideDeletion:
    """A state entry whose object a step found missing on its platform.

    `cause` is the id of the missing object that explains the deletion: the id of the entry itself,
    or of the object that contained the entry's object. `seconds` is the time the step took.
    """

    step: Step
    entry: ResourceState
    cause: str
    seconds: float


@dataclass(slots=True)
class OutsideDeletions:
    """The missing objects that one run finds; thread-safe.

    Their state entries stay until the end of the run, when the number is known. Entries that are
    replaced cannot wait, because their replacements are created at once. `interrupted` holds URN
    and id of each object that an interrupted run was deleting: its absence is expected.
    """

    run_context: RunContext
    interrupted: Collection[tuple[str, str]] = ()
    _undecided: dict[int, OutsideDeletion] = field(default_factory=dict)  # by number of the step
    _names_by_cause: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, deletion: OutsideDeletion) -> None:
        """Add a missing object; the entry stays in the state until `take_all`."""
        with self._lock:
            self._undecided[deletion.step.number] = deletion
            self._record_name(deletion.entry, deletion.cause)

    def is_expected(self, entry: ResourceState) -> bool:
        """Return True if an interrupted run was deleting the object of `entry`."""
        return (entry.urn, entry.id) in self.interrupted

    def contains_step(self, step: Step) -> bool:
        """Return True if `step` found no object and the entry is still undecided."""
        with self._lock:
            return step.number in self._undecided

    @property
    def entries(self) -> Sequence[ResourceState]:
        """State entries of the missing objects that are still undecided."""
        with self._lock:
            return [deletion.entry for deletion in self._undecided.values()]

    def count_replaced(self, entry: ResourceState, cause: str) -> None:
        """Count a missing object whose entry is about to be replaced.

        `cause` is as in `OutsideDeletion`: entries with the same cause count once.

        Raises:
            EngineError: CONFIRMATION_THRESHOLD or more objects are missing, and the user has not
                permitted to remove them from the state.
        """
        with self._lock:
            self._record_name(entry, cause)
        permission_error = self._find_permission_error()
        if permission_error is not None:
            raise permission_error

    def take_all(self) -> tuple[Sequence[OutsideDeletion], EngineError | None]:
        """Remove and return the undecided deletions, with an error if the user has to permit them.

        The error is None when their entries may be removed from the state: fewer than
        CONFIRMATION_THRESHOLD objects were missing in the whole run, or the user gave the
        permission.
        """
        with self._lock:
            deletions = list(self._undecided.values())
            self._undecided.clear()
        return deletions, self._find_permission_error() if deletions else None

    def _record_name(self, entry: ResourceState, cause: str) -> None:
        """Record the missing object's name under `cause`: parts of one object count once."""
        # A missing part of another object is listed under the name of the containing object, if
        # the state has this object.
        if cause == entry.id or cause not in self._names_by_cause:
            self._names_by_cause[cause] = name_of(entry.urn)

    def _find_permission_error(self) -> EngineError | None:
        """Return an error, or None if the missing entries may be removed from the state.

        They may if fewer than CONFIRMATION_THRESHOLD objects are missing, or if the user has
        permitted it.
        """
        with self._lock:
            names = sorted(self._names_by_cause.values())
        if len(names) < CONFIRMATION_THRESHOLD:
            return None
        listed_names = ", ".join(names[:MAX_LISTED_NAMES])
        listed_names += (
            f" and {len(names) - MAX_LISTED_NAMES} more" if len(names) > MAX_LISTED_NAMES else ""
        )
        try:
            self.run_context.require_permission(
                Permission.FORGET_MANY,
                f"{len(names)} resources no longer exist on their platforms, and this run "
                f"did not delete them: {listed_names}. The state keeps all of them. Does "
                "this run use the key of another account or project, or another base URL",
            )
        except GpuformError as error:
            return EngineError(f"{error.message}?", hint=error.hint)
        return None
