"""Bringing back what a run did while the store of its state did not answer.

The store has the checkpoint and the first segments of the run's journal, this machine the others.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from gpuform.stacks.engine import integrity, journal
from gpuform.stacks.engine.backend import Backend
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.journal_log import JournalError
from gpuform.stacks.engine.sealed import SEALED, read_sealed
from gpuform.stacks.engine.segments import SegmentLog
from gpuform.stacks.engine.state import Manifest, Snapshot, load_checkpoint
from gpuform.stacks.engine.unsaved import Part, Unsaved


@dataclass(frozen=True, slots=True)
class _Joined:
    """The lines of both places, as one log."""

    where: str
    lines: bytes

    def read(self) -> bytes:
        return self.lines


def recover(backend: Backend, project: str, stack: str, path: Path) -> int:
    """Puts what a run left, in the store and in the file at `path`, into the checkpoint.

    The stack's lock is held. The number of changes; zero when the state has them all. Raises
    EngineError, and then both places stay as they are, where another run has gone on without them
    and the state does not know the objects that they tell of.
    """
    log = backend.journal(project, stack)
    unsaved = Unsaved(path, log.where)
    found = unsaved.parts()
    if found and found[0].journal != log.where:
        raise EngineError(
            f"{path} belongs to the journal {found[0].journal}, and this is {log.where}",
            hint="Set PULUMI_BACKEND_URL to the backend that the run had.",
        )
    if not found or not isinstance(log, SegmentLog):
        sealed = read_sealed(backend, project, stack)
        if sealed.recovered:
            _save(backend, project, stack, sealed.snapshot)
        log.remove()
        return sealed.recovered
    changes = _join(backend, project, stack, log, path, found)
    log.remove()
    unsaved.remove()
    return changes


def _join(
    backend: Backend, project: str, stack: str, log: SegmentLog, path: Path, found: list[Part]
) -> int:
    data = backend.read(project, stack)
    if data is None:
        raise EngineError(f"no stack named '{stack}' in {backend.url}")
    snapshot = Snapshot.from_json(load_checkpoint(data), SEALED)
    lines = _lines(log, found)
    if lines is None:  # another run has taken over, and what the store had of this one
        left = b"".join(part.lines for part in found)
        try:
            journal.refuse_lost_ids(str(path), snapshot, journal.records(left))
        except JournalError as error:
            error.hint = (
                "Compare with the platform: what exists can be imported. Then remove the file."
            )
            raise
        return 0
    done = journal.recover(_Joined(str(path), lines), data, snapshot, SEALED)
    if done is None:
        return 0
    _save(backend, project, stack, done.snapshot)
    return done.changes


def _lines(log: SegmentLog, found: list[Part]) -> bytes | None:
    """The journal from its beginning; None when the store no longer has what precedes `found`."""
    stored = log.segments(found[0].run)
    first = found[0].number
    if len(stored) < first:
        return None
    # A segment may be in both places: its answer was lost.
    return b"".join([*stored[:first], *(part.lines for part in found)])


def _save(backend: Backend, project: str, stack: str, snapshot: Snapshot) -> None:
    snapshot = replace(snapshot, manifest=Manifest())
    integrity.check(snapshot)
    backend.write(project, stack, snapshot.to_json(SEALED))
