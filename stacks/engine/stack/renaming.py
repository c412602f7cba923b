"""Rename a stack in its state, its settings, its history and its records.

`gpuform stack rename` calls `rename_stack`. Operations call `move_local_records` for records that
provider hosts and earlier versions left in the project's folder.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

from gpuform.providers.context import FOLDER
from gpuform.providers.records import (
    DRAIN_PREFIX,
    INTENT_PREFIX,
    Drain,
    Drains,
    Fields,
    Intent,
    Intents,
    build_record,
    parse_record,
)
from gpuform.stacks.engine import urn
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.records import move_intents, open_intents
from gpuform.stacks.engine.stack.stack import Stack
from gpuform.stacks.engine.stack.workspace import check_selectable, select_stack
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.store import LockTimeout, build_full_name, read_sealed


def parse_new_name(project: Project, name: str) -> tuple[str, str]:
    """Return project and stack of the name given to `stack rename`.

    Args:
        project: gives the project of `NAME` and `organization/NAME`; `organization/PROJECT/NAME`
            has its own.
        name: the name.

    Raises:
        EngineError: the organization is another one, or `name` has more than three parts.
    """
    parts = name.split("/")
    if len(parts) > 3 or (len(parts) > 1 and parts[0] != "organization"):
        raise EngineError(
            f"'{name}' is not a valid stack name",
            hint="Write NAME, or organization/PROJECT/NAME to move the stack to another project. "
            "The first word is always `organization`.",
        )
    return (parts[1] if len(parts) == 3 else project.name), parts[-1]


def rename_stack(
    stack: Stack,
    new_project: str,
    new: str,
    environ: Mapping[str, str],
    timeout: LockTimeout | None = None,
) -> None:
    """Rename an open stack, locked by the caller, to `new` of `new_project`, and select it.

    The old state stays as a `.bak` file, as under the Pulumi CLI. An interrupted rename continues
    when the command is repeated. With another project, Pulumi.yaml and the keys of the settings
    stay as they are, also as under the Pulumi CLI; the stack is then selected for both names of the
    project.

    Raises:
        EngineError: the rename is impossible; nothing is changed.
    """
    backend, project = stack.backend, stack.project
    check_selectable(project, environ)
    stack.reject_orphaned_journals()
    renamed = edits.rename_stack(stack.snapshot, build_full_name(new_project, new))
    old_settings, new_settings = (
        project.get_settings_path(stack.name),
        project.get_settings_path(new),
    )
    # The new name is locked too: another process may be creating this stack.
    with backend.create_lock(new_project, new, timeout):
        if backend.exists(new_project, new):
            _reject_other_stack(stack, new_project, new)
        if new_settings != old_settings:
            _reject_other_settings(old_settings, new_settings)
        new_urn_by_urn = dict(zip(_list_urns(stack.snapshot), _list_urns(renamed), strict=True))
        old_intents, new_intents = stack.get_intents(), open_intents(backend, new_project, new)
        started_urns = (
            intent.urn for intent in old_intents.list_all() if intent.urn and urn.is_urn(intent.urn)
        )
        new_urn_by_urn |= {
            started_urn: urn.with_stack(started_urn, new, new_project)
            for started_urn in started_urns
        }
        with move_intents(old_intents, new_intents, new_urn_by_urn):
            if old_settings.exists() and new_settings != old_settings:
                replace_file(new_settings, old_settings.read_bytes(), mode=0o644)
            backend.write(new_project, new, renamed.to_json(stack.crypter))
        # The new state exists by now: after a crash the repeated command takes it for its own and
        # goes on from here.
        backend.move_side_files((project.name, stack.name), (new_project, new))
        backend.remove(project.name, stack.name)
        if new_settings != old_settings:
            old_settings.unlink(missing_ok=True)
        select_stack(project, new, environ, project_of_stack=new_project)
        if new_project != project.name:
            select_stack(replace(project, name=new_project), new, environ)


def _list_urns(snapshot: Snapshot) -> list[str]:
    """Return the URNs of all entries and pending operations in the state."""
    return [
        *(entry.urn for entry in snapshot.resources),
        *(operation.resource.urn for operation in snapshot.pending_operations),
    ]


def _reject_other_stack(stack: Stack, new_project: str, new: str) -> None:
    """Raise EngineError if the existing stack `new` does not come from an interrupted rename.

    A rename wrote it if it has exactly the renamed resources, at least one.
    """
    backend, project = stack.backend, stack.project.name
    old_snapshot = read_sealed(backend, project, stack.name).snapshot
    new_snapshot = read_sealed(backend, new_project, new).snapshot
    expected = edits.rename_stack(old_snapshot, build_full_name(new_project, new))
    if new_snapshot.resources != expected.resources or not new_snapshot.resources:
        name = new if new_project == project else build_full_name(new_project, new)
        raise EngineError(f"a stack named '{name}' exists already", hint="choose another name")


def _reject_other_settings(old: Path, new: Path) -> None:
    """Raise EngineError if the new settings file exists with another content than the old one."""
    if new.exists() and (not old.exists() or new.read_bytes() != old.read_bytes()):
        raise EngineError(
            f"{new.name} exists already",
            hint="remove the file, or choose another name for the stack",
        )


_FORMER_INTENTS_FOLDER = Path(".gpuform", "intents")
_FORMER_DRAINS_FOLDER = _FORMER_INTENTS_FOLDER / "drains"


def has_local_records(project: Project) -> bool:
    """Return True if a provider host has left records in the project's folder."""
    root = project.directory
    return bool(
        _find_record_files(root, INTENT_PREFIX, _FORMER_INTENTS_FOLDER)
        or _find_record_files(root, DRAIN_PREFIX, _FORMER_DRAINS_FOLDER)
    )


def move_local_records(stack: Stack) -> None:
    """Move the stack's records from the project's folder to the backend.

    The caller holds the stack's lock. Records of other stacks stay: an intent (of an interrupted
    create) is the stack's if its URN is, and a drain (of nodes) if the state has its object.
    """
    root = stack.project.directory
    intents = stack.get_intents()
    own = f"urn:pulumi:{stack.name}::{stack.project.name}::"
    for path in _find_record_files(root, INTENT_PREFIX, _FORMER_INTENTS_FOLDER):
        fields = _read_record(path)
        if str(fields.get("urn") or "").startswith(own):
            intents.record(build_record(fields, Intent, str(path)))
            path.unlink(missing_ok=True)
    _move_drains(root, {entry.id for entry in stack.snapshot.resources}, intents)


def _move_drains(root: Path, ids: Collection[str], intents: Intents) -> None:
    """Move the records of drains whose object is among `ids` to the backend."""
    for path in _find_record_files(root, DRAIN_PREFIX, _FORMER_DRAINS_FOLDER):
        fields = _read_record(path)
        if fields.get("id") in ids:
            Drains.from_intents(intents).record(build_record(fields, Drain, str(path)))
            path.unlink(missing_ok=True)


def _find_record_files(root: Path, prefix: str, earlier: Path) -> list[Path]:
    """Find the project's record files with `prefix`, and all in the folder `earlier`."""
    files = [*(root / FOLDER).glob(f"{prefix}*.json"), *(root / earlier).glob("*.json")]
    return sorted(files)


def _read_record(path: Path) -> Fields:
    """Return the fields of a record's file. Raises EngineError for an invalid one."""
    return parse_record(path.read_bytes(), str(path))
