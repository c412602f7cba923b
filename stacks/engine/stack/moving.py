"""Move a stack to another name, or with all its files to another backend.

`gpuform stack rename` changes state, settings, history and records. Operations call
`move_local_records` for records that provider hosts and earlier versions left in the project's
folder.

`gpuform stack migrate` can be completed after a kill. The order of the writes:

1. a marker at the target: every command refuses the stack there;
2. all files at the target, the checkpoint last, each compared after reading it back;
3. a pointer at the source: every command refuses the stack there, and names the new place;
4. the target's marker is removed: from here on the stack is at the target;
5. the source's files are removed, the checkpoint first.

A kill before 3 leaves the source whole, and one after 3 leaves the target complete. The same
command continues in both cases. A Pulumi CLI, which knows no markers, finds the locks of the killed
process.
"""

import re
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

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
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import urn
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.records import move_intents, open_intents
from gpuform.stacks.engine.stack.foreign_states import recover
from gpuform.stacks.engine.stack.stack import Stack, Workspace, get_unsaved_path
from gpuform.stacks.engine.stack.workspace import (
    check_selectable,
    get_short_name,
    select_stack,
)
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.store import (
    ARRIVING,
    MOVED,
    Backend,
    BackendError,
    Files,
    LockTimeout,
    Storage,
    add_backup_hint,
    build_full_name,
    build_marker_name,
    build_moved_error,
    layout,
    read_marker,
    read_sealed,
    reject_unsaved_run,
    strip_credentials,
    write_marker,
)


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
    """Return True if the project's folder has records of creates or drains from a provider host."""
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


_PARALLEL_COPIES: Final = 16
_OWN_KIND = re.compile(r"(?!lock$)[a-z-]+|(records|journal|journal\.\d+)/.+|journal\.\d+")
"""The ends of the names of gpuform's own files about a stack; locks stay where they are."""


def migrate_stack(
    workspace: Workspace,
    name: str | None,
    target: Backend,
    timeout: LockTimeout | None = None,
) -> tuple[str, int]:
    """Move a stack to another backend and select it there; complete a killed move.

    Holds the stack's lock in both places. Changes of an interrupted run's journal are written into
    the checkpoint first; no passphrase is needed.

    Args:
        workspace: the project and the backend of the stack.
        name: the stack; None is the selected one.
        target: the other backend.
        timeout: how long to wait for each of the two locks.

    Returns:
        The stack's name, and the number of copied files; 0 if a former command had copied all.

    Raises:
        StackMoved: the stack is at a third place.
        StackNotFound: there is no such stack, or none is selected.
        EngineError: the target has a stack of this name; or the state cannot be moved yet.
            Nothing was changed.
    """
    project, source = workspace.project, workspace.backend
    stack = get_short_name(project, name) if name else workspace.find_selected()
    pointer = read_marker(source.storage, project.name, stack, MOVED) if stack else None
    if stack is None or pointer is None:
        stack = workspace.resolve(stack)
    move = _Move(source, target, project.name, stack, workspace.environ)
    move.reject_same_place()
    check_selectable(project, workspace.environ)
    reject_unsaved_run(get_unsaved_path(project, stack))
    with (
        source.create_lock(project.name, stack, timeout),
        target.create_lock(project.name, stack, timeout),
    ):
        copied = 0
        # Read again under the lock: another process may have moved the stack meanwhile.
        pointer = read_marker(source.storage, project.name, stack, MOVED)
        if pointer is None:
            _finish_interrupted_changes(workspace, stack)
            copied = move.copy_files()
            write_marker(source.storage, project.name, stack, MOVED, move.target_url)
        elif pointer != move.target_url:
            raise build_moved_error(source.storage, project.name, stack, pointer)
        move.remove_source()
    # The selection of the former place stays: a command there names the new place.
    select_stack(project, stack, {**workspace.environ, "PULUMI_BACKEND_URL": target.url})
    return stack, copied


def build_lasting_url(backend: Backend) -> str:
    """Return the backend's URL; for a folder, with the absolute path.

    Without user, password and query: markers and messages must not contain keys.
    """
    storage = backend.storage
    if isinstance(storage, Files):
        return storage.root.resolve().as_uri()
    return strip_credentials(backend.url)


def _finish_interrupted_changes(workspace: Workspace, stack: str) -> None:
    """Finish an interrupted change of secrets, and write the journal into the checkpoint.

    The caller holds the stack's lock. Raises EngineError for a journal that cannot be applied.
    """
    backend, project = workspace.backend, workspace.project
    workspace.finish_secrets_change(stack, exclusive=True)
    with add_backup_hint(backend, project.name, stack):
        sealed = read_sealed(backend, project.name, stack)
    if sealed.fault is not None:
        raise sealed.fault
    if sealed.orphaned_journals:
        where = backend.open_journal(project.name, stack).where
        raise EngineError(
            f"a run was interrupted and left the journal {where}, and another program has written "
            "the state since",
            hint="`gpuform refresh` first recovers what that run created.",
        )
    recover(backend, project.name, stack, get_unsaved_path(project, stack))


@dataclass(frozen=True, slots=True)
class _Move:
    """The files of one stack in two backends, whose locks the caller holds."""

    source: Backend
    target: Backend
    project: str
    stack: str
    environ: Mapping[str, str]

    @property
    def target_url(self) -> str:
        """The URL of the target backend, for the marker left at the source."""
        return build_lasting_url(self.target)

    def reject_same_place(self) -> None:
        """Raise EngineError if both backends are the same folder or bucket."""
        locations = [
            str(storage.root.resolve()) if isinstance(storage, Files) else storage.locate("")
            for storage in (self.source.storage, self.target.storage)
        ]
        if locations[0] == locations[1]:
            raise EngineError(f"stack '{self.stack}' is already in {self.target.url}")

    def copy_files(self) -> int:
        """Copy all files to the target, the checkpoint last, and return the number of files.

        Raises EngineError if the target has a stack of this name, or returns other bytes than were
        written.
        """
        checkpoints, others = self._list_files(self.source.storage)
        if not checkpoints:
            raise BackendError(f"no stack named '{self.stack}' in {self.source.url}")
        self._prepare_target({*checkpoints, *others})
        with ThreadPoolExecutor(_PARALLEL_COPIES, thread_name_prefix="moving") as pool:
            list(pool.map(self._copy_file, others))
        # Of several variants the newest counts: only this one is copied.
        self._copy_file(checkpoints[-1])
        return len(others) + 1

    def remove_source(self) -> None:
        """Let commands use the stack at the target, and remove the source's files.

        Raises EngineError if the target does not have the stack: then nothing is removed.
        """
        names = [build_marker_name(self.project, self.stack, kind) for kind in (MOVED, ARRIVING)]
        if not self._list_files(self.target.storage)[0]:
            raise EngineError(
                f"stack '{self.stack}' is not in {self.target.url}, although "
                f"{self.source.storage.locate(names[0])} says so",
                hint="Nothing was removed. If the URL is right, remove that file: the stack is "
                "then in its former place again.",
            )
        # A stack that moves back finds the pointer that it left there.
        for name in names:
            self.target.storage.delete(name)
        checkpoints, others = self._list_files(self.source.storage)
        self.source.check_lock(self.project, self.stack)
        for group in (checkpoints, others):
            self.source.storage.delete(*group, *(f"{name}.attrs" for name in group))

    def _prepare_target(self, names: set[str]) -> None:
        """Mark the target as incomplete, and remove the leftovers of a killed move.

        `names` are the source's files. Raises EngineError if the target has a stack of this name.
        """
        storage = self.target.storage
        origin = read_marker(storage, self.project, self.stack, ARRIVING)
        former = read_marker(storage, self.project, self.stack, MOVED)
        source_url = build_lasting_url(self.source)
        if origin not in (None, source_url) and not self._is_given_up(origin):
            self.target.reject_relocated(self.project, self.stack)
        if former not in (None, source_url):
            raise build_moved_error(storage, self.project, self.stack, former or "")
        checkpoints, others = self._list_files(storage)
        leftovers = [name for name in (*checkpoints, *others) if not self._is_backup(name)]
        if origin is None:
            if leftovers:
                raise EngineError(
                    f"{self.target.url} has files of a stack '{self.stack}' already: "
                    f"{storage.locate(leftovers[0])}",
                    hint="Nothing was changed. Choose another URL, or rename one of the stacks.",
                )
            self.target.write_meta()
        if origin != source_url:
            write_marker(storage, self.project, self.stack, ARRIVING, source_url)
        # Records that the source has removed since must not come back.
        storage.delete(*(name for name in leftovers if name not in names))

    def _is_given_up(self, origin: str | None) -> bool:
        """Return True if the move from `origin` to this target was given up.

        That is so if the stack of `origin` has moved to another backend since: the copy at this
        target is then incomplete and of no use. A backend that does not answer, or that a URL
        without its query does not name, counts as one that still has the stack.
        """
        if origin is None:
            return False
        try:
            storage = Backend.open(origin, self.environ).storage
            pointer = read_marker(storage, self.project, self.stack, MOVED)
        except EngineError:
            return False
        return pointer not in (None, self.target_url)

    def _copy_file(self, name: str) -> None:
        """Copy a file to the target, read the copy back, and compare the bytes."""
        blob = self.source.storage.read(name)
        if blob is None:
            raise BackendError(f"{self.source.storage.locate(name)} was removed meanwhile")
        for backend in (self.source, self.target):
            backend.check_lock(self.project, self.stack)
        self.target.storage.write(name, blob.data)
        copied = self.target.storage.read(name)
        if copied is None or copied.data != blob.data:
            raise BackendError(
                f"{self.target.storage.locate(name)} has other bytes than were written",
                hint="The stack is unchanged in its former place. Check the store, and run the "
                "command again.",
            )

    def _list_files(self, storage: Storage) -> tuple[list[str], list[str]]:
        """Return the names of the stack's checkpoints, the newest last, and of all other files."""
        beside = layout.build_name("stacks", self.project)
        stem = f"{beside}/{self.stack}"
        own_stem = layout.build_own_name(self.project, self.stack, "")
        entries = storage.list_entries(beside)
        variants = {f"{stem}{suffix}" for suffix in layout.SUFFIXES}
        checkpoints = sorted(
            (entry for entry in entries if entry.name in variants),
            key=lambda entry: entry.modified,
        )
        copies = re.compile(
            rf"{re.escape(stem)}(\.pulumi-tags|({'|'.join(map(re.escape, layout.SUFFIXES))})"
            r"\.(bak|\d+))"
        )
        others = [entry.name for entry in entries if copies.fullmatch(entry.name)]
        for kind in ("history", "backups"):
            folder = layout.build_name(kind, self.project, self.stack)
            others += [entry.name for entry in storage.list_entries(folder)]
        own = storage.list_entries(layout.build_name("gpuform", self.project))
        others += [
            entry.name
            for entry in own
            if entry.name.startswith(own_stem)
            and _OWN_KIND.fullmatch(entry.name.removeprefix(own_stem))
        ]
        # Go's library for folders keeps facts about a file beside it; it needs none.
        others = [name for name in others if not name.endswith(".attrs")]
        return [entry.name for entry in checkpoints], others

    def _is_backup(self, name: str) -> bool:
        """Return True for an earlier state, which stays when a stack is removed."""
        folder = layout.build_name("backups", self.project, self.stack)
        return name.startswith(f"{folder}/") or bool(re.search(r"\.(bak|\d{15,})$", name))
