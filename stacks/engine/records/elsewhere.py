"""Which objects belong to other stacks of a backend: those are never adopted."""

import threading
from dataclasses import dataclass, field

from gpuform.stacks.engine.records.kept import all_intents, errors_of_providers
from gpuform.stacks.engine.store import Backend, full_name, owners


@dataclass(slots=True)
class Elsewhere:
    """The objects of all stacks beside one, read when somebody asks first; safe for threads."""

    backend: Backend
    project: str
    stack: str
    _ids: set[str] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def has(self, id_: str) -> bool:
        """Whether another stack has an object, or a record of having made it."""
        with self._lock:
            if self._ids is None:
                self._ids = self._read()
            return id_ in self._ids

    def _read(self) -> set[str]:
        own = f"urn:pulumi:{self.stack}::{self.project}::"
        with errors_of_providers():
            records = all_intents(self.backend)
            states = owners(self.backend, besides=full_name(self.project, self.stack))
        theirs = (each for each in records if not str(each.urn).startswith(own))
        made = {id_ for each in theirs for id_ in each.made}
        return made | {entry.id for _, entry in states.resources}
