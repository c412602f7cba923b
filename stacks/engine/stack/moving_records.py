"""Records that a host could only keep beside the project: they join the stack's own."""

from collections.abc import Collection
from pathlib import Path

from gpuform.providers.calls import FOLDER
from gpuform.providers.records import (
    DRAIN_PREFIX,
    INTENT_PREFIX,
    Drain,
    Drains,
    Fields,
    Intent,
    Intents,
    parsed,
    typed,
)
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.records import errors_of_engine
from gpuform.stacks.engine.stack.stack import Stack

_EARLIER_INTENTS = Path(".gpuform", "intents")
_EARLIER_DRAINS = _EARLIER_INTENTS / "drains"


def is_anything_beside(project: Project) -> bool:
    """Whether a host has left records beside a project."""
    root = project.directory
    return bool(
        _files(root, INTENT_PREFIX, _EARLIER_INTENTS) or _files(root, DRAIN_PREFIX, _EARLIER_DRAINS)
    )


def move_records_into(stack: Stack) -> None:
    """Moves the project's records of this stack to its backend; the stack's lock is held.

    An intent says by its URN whose it is, a drain by the id of an object that the state has.
    """
    root = stack.project.directory
    kept = stack.intents()
    own = f"urn:pulumi:{stack.name}::{stack.project.name}::"
    for path in _files(root, INTENT_PREFIX, _EARLIER_INTENTS):
        fields = _read(path)
        if str(fields.get("urn") or "").startswith(own):
            with errors_of_engine():
                kept.record(typed(fields, Intent, str(path)))
            path.unlink(missing_ok=True)
    _take_drains(root, {entry.id for entry in stack.snapshot.resources}, kept)


def _take_drains(root: Path, ids: Collection[str], kept: Intents) -> None:
    for path in _files(root, DRAIN_PREFIX, _EARLIER_DRAINS):
        fields = _read(path)
        if fields.get("id") in ids:
            with errors_of_engine():
                Drains.beside(kept).record(typed(fields, Drain, str(path)))
            path.unlink(missing_ok=True)


def _files(root: Path, prefix: str, earlier: Path) -> list[Path]:
    found = [*(root / FOLDER).glob(f"{prefix}*.json"), *(root / earlier).glob("*.json")]
    return sorted(found)


def _read(path: Path) -> Fields:
    with errors_of_engine():
        return parsed(path.read_bytes(), str(path))
