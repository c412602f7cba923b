"""Rename a stack in its state, its settings, its history and its records."""

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
from gpuform.stacks.engine.records import errors_of_engine, intents_follow, intents_of
from gpuform.stacks.engine.stack.stack import Stack
from gpuform.stacks.engine.stack.workspace import check_selectable, select_stack
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.store import LockTimeout, build_full_name, read_sealed


def parse_new_name(project: Project, name: str) -> tuple[str, str]:
    """Return the project and the stack that `name` asks for.

    Args:
        project: gives the project of `NAME` and `organization/NAME`; `organization/PROJECT/NAME`
            has its own.

    Raises:
        EngineError: the organization is another one, or `name` has more than three parts.
    """
    parts = name.split("/")
    if len(parts) > 3 or (len(parts) > 1 and parts[0] != "organization"):
        raise EngineError(
            f"'{name}' is not a stack name",
            hint="Write NAME, or organization/PROJECT/NAME to rename the project as well. The "
            "first word is always `organization`.",
        )
    return (parts[1] if len(parts) == 3 else project.name), parts[-1]


def rename_stack(
    stack: Stack,
    new_project: str,
    new: str,
    environ: Mapping[str, str],
    patience: LockTimeout | None = None,
) -> None:
    """Rename an open stack, whose lock is held, to `new` of `new_project`, and select it.

    The old state stays as a `.bak` file, as under the Pulumi CLI. An interrupted rename continues
    when it is repeated. With another project, Pulumi.yaml and the keys of the settings stay as they
    are, also as under the Pulumi CLI; the stack is then selected for both names of the project.
    Raises EngineError before anything is changed.
    """
    backend, project = stack.backend, stack.project
    check_selectable(project, environ)
    stack.refuse_overtaken()
    renamed = edits.rename_stack(stack.snapshot, build_full_name(new_project, new))
    old_settings, new_settings = project.settings_path(stack.name), project.settings_path(new)
    with backend.lock(new_project, new, patience):
        if backend.exists(new_project, new):
            _refuse_another(stack, new_project, new)
        if new_settings != old_settings:
            _refuse_other_settings(old_settings, new_settings)
        names = dict(zip(_urns(stack.snapshot), _urns(renamed), strict=True))
        before, after = stack.intents(), intents_of(backend, new_project, new)
        begun = (each.urn for each in before.list_all() if each.urn and urn.is_urn(each.urn))
        names |= {each: urn.in_stack(each, new, new_project) for each in begun}
        with intents_follow(before, after, names):
            if old_settings.exists() and new_settings != old_settings:
                replace_file(new_settings, old_settings.read_bytes(), mode=0o644)
            backend.write(new_project, new, renamed.to_json(stack.crypter))
        backend.move_side_files((project.name, stack.name), (new_project, new))
        backend.remove(project.name, stack.name)
        if new_settings != old_settings:
            old_settings.unlink(missing_ok=True)
        select_stack(project, new, environ, project_of_stack=new_project)
        if new_project != project.name:
            select_stack(replace(project, name=new_project), new, environ)


def _urns(snapshot: Snapshot) -> list[str]:
    return [
        *(entry.urn for entry in snapshot.resources),
        *(operation.resource.urn for operation in snapshot.pending_operations),
    ]


def _refuse_another(stack: Stack, new_project: str, new: str) -> None:
    """Refuse an existing stack, unless it is this one, from a rename that was interrupted."""
    backend, project = stack.backend, stack.project.name
    here = read_sealed(backend, project, stack.name).snapshot
    there = read_sealed(backend, new_project, new).snapshot
    expected = edits.rename_stack(here, build_full_name(new_project, new))
    if there.resources != expected.resources or not there.resources:
        name = new if new_project == project else build_full_name(new_project, new)
        raise EngineError(f"a stack named '{name}' exists already", hint="choose another name")


def _refuse_other_settings(old: Path, new: Path) -> None:
    if new.exists() and (not old.exists() or new.read_bytes() != old.read_bytes()):
        raise EngineError(
            f"{new.name} exists already", hint="remove it, or choose another name for the stack"
        )


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
                kept.record(build_record(fields, Intent, str(path)))
            path.unlink(missing_ok=True)
    _take_drains(root, {entry.id for entry in stack.snapshot.resources}, kept)


def _take_drains(root: Path, ids: Collection[str], kept: Intents) -> None:
    for path in _files(root, DRAIN_PREFIX, _EARLIER_DRAINS):
        fields = _read(path)
        if fields.get("id") in ids:
            with errors_of_engine():
                Drains.beside(kept).record(build_record(fields, Drain, str(path)))
            path.unlink(missing_ok=True)


def _files(root: Path, prefix: str, earlier: Path) -> list[Path]:
    found = [*(root / FOLDER).glob(f"{prefix}*.json"), *(root / earlier).glob("*.json")]
    return sorted(found)


def _read(path: Path) -> Fields:
    with errors_of_engine():
        return parse_record(path.read_bytes(), str(path))
