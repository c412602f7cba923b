"""Resources that are gone from their platforms although nobody of this stack has deleted them.

Some may go behind the stack's back. That many are gone at once says rather that the run looks at
another place than the one where they are.
"""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.providers import permissions
from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import Permission
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning import Step
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of

MANY: Final = 3
"""So many of them are forgotten only with permission."""

SHOWN: Final = 20


@dataclass(frozen=True, slots=True)
class DeletedOutside:
    """An entry whose object was found gone by a step, after so many seconds.

    `cause` is the id of what has to be explained: its own, or that of the object that it was a part
    of.
    """

    step: Step
    entry: ResourceState
    cause: str
    seconds: float


@dataclass(slots=True)
class DeletionsOutside:
    """Those that one run finds, held back until it is known how many they are; thread-safe.

    Those that are replaced cannot be held back, for what replaces them is made at once.
    """

    _held: dict[int, DeletedOutside] = field(default_factory=dict)
    _names: dict[str, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def hold(self, found: DeletedOutside) -> None:
        """Keeps it until `take`."""
        with self._lock:
            self._held[id(found.step)] = found
            self._note(found.entry, found.cause)

    def holds(self, step: Step) -> bool:
        """Whether the step has found its object gone, and nothing is decided yet."""
        with self._lock:
            return id(step) in self._held

    @property
    def entries(self) -> Sequence[ResourceState]:
        """Those that are held."""
        with self._lock:
            return [each.entry for each in self._held.values()]

    def note_replaced(self, entry: ResourceState, cause: str) -> None:
        """Counts one that is about to be replaced. Raises EngineError when it is one too many."""
        with self._lock:
            self._note(entry, cause)
        refusal = self._refusal()
        if refusal is not None:
            raise refusal

    def take(self) -> tuple[Sequence[DeletedOutside], EngineError | None]:
        """Those that are held, and why none of them may be forgotten, if so."""
        with self._lock:
            found = list(self._held.values())
            self._held.clear()
        return found, self._refusal() if found else None

    def _note(self, entry: ResourceState, cause: str) -> None:
        # A part of another object goes by that one's name, where it has one.
        if cause == entry.id or cause not in self._names:
            self._names[cause] = name_of(entry.urn)

    def _refusal(self) -> EngineError | None:
        with self._lock:
            names = sorted(self._names.values())
        if len(names) < MANY:
            return None
        shown = ", ".join(names[:SHOWN])
        shown += f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        try:
            permissions.require_permission(
                Permission.FORGET_MANY,
                f"{len(names)} resources are gone from their platforms, and this run has not "
                f"deleted them: {shown}. The state keeps them all. Is it the key of another "
                "account or of another project, or another base URL",
            )
        except GpuformError as error:
            return EngineError(f"{error.message}?", hint=error.hint)
        return None
