"""Entries that leave a record: not while jobs run on their nodes.

The registry knows no scheduler, and the hardware goes on. What ends is the work that the network
gives the nodes, so that a node takes jobs again as soon as its entry is gone.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import (
    DrainedObject,
    Draining,
    NodeEviction,
    Scheduler,
    Worker,
    undo,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.records import Drains
from gpuform.providers.slurm import declared_scheduler
from gpuform.schemas.policies.drain import RemovedNodes, ScheduledDrainInputs


class EntryTaking:
    """What takes entries of one resource; `declared` are its canonical inputs.

    `what` is for people, as `cluster west`.
    """

    def __init__(
        self, call: ProviderContext, id_: str, what: str, declared: Mapping[str, Any]
    ) -> None:
        self._call = call
        self._id = id_
        self._what = what
        self._wanted = ScheduledDrainInputs.model_validate(declared.get("drain") or {})

    @contextmanager
    def taken(self, names: Sequence[str]) -> Iterator[None]:
        """A block that removes the entries of these nodes, on which no job runs any more.

        Raises GpuformError before it when they must not go; after it the nodes take jobs again.
        """
        if names and self._wanted.has_scheduler:
            with self._draining(names).taken(NodeEviction(dict.fromkeys(names, "deleted"))):
                yield
        else:
            yield
        self.release()

    def leaving(self, names: Sequence[str]) -> RemovedNodes | None:
        """The nodes whose entries would go, for a plan; None where nobody tells their jobs.

        That is not told: without a scheduler the registry's entries are records alone.
        """
        if not names or not self._wanted.has_scheduler:
            return None
        return self._draining(names).leaving(NodeEviction(dict.fromkeys(names, "deleted")))

    def release(self) -> None:
        """Uncordons what was taken. Raises GpuformError when nodes may stay cordoned."""
        drain = Drains.beside(self._call.intents).find(self._id)
        if drain is not None and not undo(self._call, drain, self._find_scheduler):
            raise GpuformError(
                f"{', '.join(drain.cordoned)} may still be cordoned",
                hint="run it again to uncordon",
            )

    def _draining(self, names: Sequence[str]) -> Draining:
        subject = DrainedObject(self._id, self._what, [Worker(name) for name in names])
        return Draining(self._call, subject, self._find_scheduler, self._wanted)

    def _find_scheduler(self) -> Scheduler:
        return declared_scheduler(self._wanted, self._what)
