"""A stack gets another name: in its state, its settings and its history."""

from collections.abc import Mapping
from pathlib import Path

from gpuform.stacks.engine import urn
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.records import intents_follow, intents_of
from gpuform.stacks.engine.stack.stack import Stack
from gpuform.stacks.engine.stack.workspace import check_selectable, select_stack
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.store import Patience, full_name, read_sealed


def rename_stack(
    stack: Stack, new: str, environ: Mapping[str, str], patience: Patience | None = None
) -> None:
    """Renames an open stack, whose lock is held, and selects it.

    The old state stays as a `.bak` file, as under the Pulumi CLI. What was cut off is gone on with
    when it is done again. Raises EngineError before anything is changed.
    """
    backend, project = stack.backend, stack.project
    check_selectable(project, environ)
    stack.refuse_overtaken()
    renamed = edits.rename_stack(stack.snapshot, full_name(project.name, new))
    old_settings, new_settings = project.settings_path(stack.name), project.settings_path(new)
    with backend.lock(project.name, new, patience):
        if backend.exists(project.name, new):
            _refuse_another(stack, new)
        _refuse_other_settings(old_settings, new_settings)
        names = dict(zip(_urns(stack.snapshot), _urns(renamed), strict=True))
        before, after = stack.intents(), intents_of(backend, project.name, new)
        begun = (each.urn for each in before.all() if each.urn and urn.is_urn(each.urn))
        names |= {each: urn.in_stack(each, new, project.name) for each in begun}
        with intents_follow(before, after, names):
            if old_settings.exists():
                replace_file(new_settings, old_settings.read_bytes(), mode=0o644)
            backend.write(project.name, new, renamed.to_json(stack.crypter))
        backend.move_side_files(project.name, stack.name, new)
        backend.remove(project.name, stack.name)
        old_settings.unlink(missing_ok=True)
        select_stack(project, new, environ)


def _urns(snapshot: Snapshot) -> list[str]:
    return [
        *(entry.urn for entry in snapshot.resources),
        *(operation.resource.urn for operation in snapshot.pending_operations),
    ]


def _refuse_another(stack: Stack, new: str) -> None:
    """Unless the stack there is this one, from a renaming that was cut off."""
    backend, project = stack.backend, stack.project.name
    here = read_sealed(backend, project, stack.name).snapshot
    there = read_sealed(backend, project, new).snapshot
    expected = edits.rename_stack(here, full_name(project, new))
    if there.resources != expected.resources or not there.resources:
        raise EngineError(f"a stack named '{new}' exists already", hint="choose another name")


def _refuse_other_settings(old: Path, new: Path) -> None:
    if new.exists() and (not old.exists() or new.read_bytes() != old.read_bytes()):
        raise EngineError(
            f"{new.name} exists already", hint="remove it, or choose another name for the stack"
        )
