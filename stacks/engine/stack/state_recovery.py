"""Bringing back what a run did while the store of its state did not answer.

The store has the checkpoint and the first segments of the run's journal, this machine the others.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import (
    JournalError,
    Manifest,
    Readable,
    Recovered,
    Snapshot,
    integrity,
    journal,
    load_checkpoint,
)
from gpuform.stacks.engine.store import SEALED, Backend, Part, SegmentLog, Unsaved, read_sealed


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
    whole = _joined(log, found, path) if found and isinstance(log, SegmentLog) else None
    done = _replay(backend, project, stack, log if whole is None else whole)
    if whole is None or done.overtaken:
        _refuse_lost(backend, project, stack, found, path)
    if not done.overtaken:  # else the next run settles what it tells
        log.remove()
    unsaved.remove()
    return done.changes


def _joined(log: SegmentLog, found: list[Part], path: Path) -> _Joined | None:
    """The run's journal from its beginning; None when another run has gone on without `found`."""
    run, first = found[0].run, found[0].number
    stored = log.segments(run)
    if len(stored) < first or log.runs() - {run}:
        return None
    # A segment may be in both places: its answer was lost.
    return _Joined(str(path), b"".join([*stored[:first], *(part.lines for part in found)]))


def _refuse_lost(backend: Backend, project: str, stack: str, found: list[Part], path: Path) -> None:
    records = journal.records(str(path), b"".join(part.lines for part in found))
    snapshot = read_sealed(backend, project, stack).snapshot
    try:
        journal.refuse_lost_ids(str(path), snapshot, records)
    except JournalError as error:
        error.hint = "Compare with the platform: what exists can be imported. Then remove the file."
        raise


def _replay(backend: Backend, project: str, stack: str, log: Readable) -> Recovered:
    data = backend.read(project, stack)
    if data is None:
        raise EngineError(f"no stack named '{stack}' in {backend.url}")
    snapshot = Snapshot.from_json(load_checkpoint(data), SEALED)
    done = journal.recover(log, data, snapshot, SEALED)
    if done.changes:
        recovered = replace(done.snapshot, manifest=Manifest())
        integrity.check(recovered)
        backend.write(project, stack, recovered.to_json(SEALED))
    return done
