"""Hold stacks in Pulumi's DIY backend: the layout and file names of Pulumi, in any storage.

Commands and operations call `Backend`, which reads and writes bytes through a `Storage`. The
content of checkpoints belongs to `engine.state`.
"""

import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuform.providers.context import get_run_context
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.state import Log, format_timestamp
from gpuform.stacks.engine.store import layout
from gpuform.stacks.engine.store.addresses import anchor_file_url, get_current_url, open_storage
from gpuform.stacks.engine.store.layout import RunHistory, is_marked, reject_relocated
from gpuform.stacks.engine.store.lock import LockTimeout, StackLock
from gpuform.stacks.engine.store.storage import (
    ABSENT,
    MAKE_ROOM,
    BackendError,
    BlobEntry,
    BlobVersion,
    ChangedMeanwhile,
    Exclusion,
    Files,
    Storage,
    Unwritable,
    compress,
    decompress,
)

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_META = ".pulumi/meta.yaml"


def get_backend_url(environ: Mapping[str, str], project: Project | None) -> str:
    """Return the URL of the backend for the stacks.

    It is the first URL that is set: PULUMI_BACKEND_URL, the URL in Pulumi.yaml, the URL chosen by
    `login`; else the user's home folder. A relative path in Pulumi.yaml starts at the project's
    folder, whatever the current folder is. None as `project` means that there is no Pulumi.yaml.
    """
    if project and project.backend_url and not environ.get("PULUMI_BACKEND_URL"):
        return anchor_file_url(project.backend_url, project.directory)
    return get_configured_url(environ, project)


def get_configured_url(environ: Mapping[str, str], project: Project | None) -> str:
    """Return the backend's URL as in `get_backend_url`, but as written by the user.

    A relative path stays relative, as the Pulumi CLI stores it.
    """
    own = project.backend_url if project else ""
    return environ.get("PULUMI_BACKEND_URL") or own or get_current_url(environ) or "file://~"


def build_full_name(project: str, stack: str) -> str:
    """Return the stack's name in checkpoints and locks: `organization/PROJECT/STACK`.

    The word `organization` is constant: only Pulumi's service has organizations.
    """
    return f"organization/{project}/{stack}"


def _is_switch_on(environ: Mapping[str, str], switch: str) -> bool:
    """Return True if a switch of Pulumi's is on, under the present or the former name."""
    names = (f"PULUMI_DIY_BACKEND_{switch}", f"PULUMI_SELF_MANAGED_STATE_{switch}")
    return any(environ.get(name, "").lower() in ("1", "true") for name in names)


@dataclass(frozen=True, slots=True)
class Backend:
    """The stacks in one storage, which holds `.pulumi`.

    A checkpoint replaces only the version that this process has read or written last.
    """

    storage: Storage
    url: str
    keeps_backups: bool = True
    gzips: bool = False
    _versions: dict[str, BlobVersion] = field(default_factory=dict, compare=False)
    _locks: dict[tuple[str, str], list[StackLock]] = field(default_factory=dict, compare=False)

    @classmethod
    def open(cls, url: str, environ: Mapping[str, str] | None = None) -> "Backend":
        """Open the backend of a URL; relative `file://` paths start at the current folder.

        Raises:
            BackendError: the URL cannot be used, or the layout is older or newer than this engine
                reads.
        """
        environ = get_run_context().environ if environ is None else environ
        backend = cls(
            open_storage(url, environ),
            url,
            keeps_backups=not _is_switch_on(environ, "DISABLE_CHECKPOINT_BACKUPS"),
            gzips=_is_switch_on(environ, "GZIP"),
        )
        backend._check_layout()
        return backend

    def list_stacks(self, project: str | None = None) -> list[str]:
        """List the full names of all stacks, or of one project's stacks, in alphabetical order.

        Stacks that moved to another backend are left out, and those whose move here is incomplete.
        """
        full_names = set()
        folder = layout.build_name("stacks", project) if project else layout.build_name("stacks")
        entries = self.storage.list_entries(folder)
        names = {entry.name for entry in entries}
        for entry in entries:
            parts = entry.name.removeprefix(layout.build_name("stacks") + "/").split("/")
            # The Pulumi CLI puts a side file NAME.attrs beside each file of a folder: no stack.
            suffix = next((s for s in layout.SUFFIXES if parts[-1].endswith(s)), None)
            if suffix and len(parts) == 2:
                stack = parts[1].removesuffix(suffix)
                if not is_marked(names, parts[0], stack):
                    full_names.add(build_full_name(parts[0], stack))
        return sorted(full_names)

    def exists(self, project: str, stack: str) -> bool:
        """Return True if the stack has a checkpoint. Raises StackMoved as `reject_relocated`."""
        return self._find_checkpoint_name(project, stack) is not None

    def reject_relocated(self, project: str, stack: str) -> None:
        """Raise StackMoved if the stack moved away, or if the move here is incomplete."""
        entries = self.storage.list_entries(layout.build_name("stacks", project))
        reject_relocated(self.storage, entries, project, stack)

    def locate_checkpoint(self, project: str, stack: str) -> str:
        """Return the location of the stack's checkpoint, existing or future, for messages."""
        return self.storage.locate(self._choose_checkpoint_name(project, stack))

    def read(self, project: str, stack: str) -> bytes | None:
        """Return the checkpoint's JSON, or None if the stack does not exist.

        Its version is remembered: a later `write` fails if another process has changed it.
        """
        name = self._find_checkpoint_name(project, stack)
        blob = self.storage.read(name) if name else None
        if name is None or blob is None:
            return None
        self._versions[name] = blob.version
        return decompress(blob.data, self.storage.locate(name))

    def write(self, project: str, stack: str, data: bytes) -> None:
        """Replace the checkpoint in the present format, after copying the old one to `.bak`.

        The write is atomic: readers find the old or the new checkpoint, and on return the new one
        is stored.

        Raises:
            ChangedMeanwhile: another process has written the checkpoint in the bucket since.
            Unwritable: the old checkpoint is untouched.
            EngineError: this process has lost the stack's lock.
        """
        # A process that has lost its lock must not overwrite the state of its successor.
        self.check_lock(project, stack)
        self.write_meta()
        old = self._choose_checkpoint_name(project, stack)
        starts_gzip = self.gzips and old.endswith(".json")
        name = f"{old}.gz" if starts_gzip else old
        packed = compress(data, name)
        try:
            # The copy comes first, as in Pulumi: `.bak` is complete whatever happens to the write.
            was_there = self.storage.copy(old, f"{old}.bak")
            expected = self._get_expected_version(name) if was_there and name == old else ABSENT
            self._versions[name] = self.storage.write(name, packed, replacing=expected)
        except Unwritable as error:
            old_entry = next(
                (e for e in self._find_checkpoint_entries(project, stack) if e.name == old), None
            )
            if old_entry is not None:
                state = f"{self.storage.locate(old)} of {format_timestamp(old_entry.modified)}"
                error.hint = f"{state} is the last good state and is unchanged. {MAKE_ROOM}"
            raise
        if starts_gzip:
            # Of two variants the newest counts, for the Pulumi CLI too: only one may stay.
            self._versions.pop(old, None)
            self.storage.delete(old)

    def restore(self, project: str, stack: str, data: bytes) -> str | None:
        """Replace a possibly damaged checkpoint without touching the `.bak` file.

        Copies the old checkpoint to `NAME.NANOSECONDS` beside it, and returns the location of the
        copy; None if there was no checkpoint. Raises EngineError if this process has lost the
        stack's lock.
        """
        self.check_lock(project, stack)
        self.write_meta()
        name = self._choose_checkpoint_name(project, stack)
        backup_name = f"{name}.{layout.create_timestamp(self.storage, f'{name}.')}"
        was_there = self.storage.copy(name, backup_name)
        expected = self._get_expected_version(name) if was_there else ABSENT
        packed = compress(data, name)
        self._versions[name] = self.storage.write(name, packed, replacing=expected)
        return self.storage.locate(backup_name) if was_there else None

    def remove(self, project: str, stack: str) -> None:
        """Remove a stack with history, records and journal, after copying the checkpoint to `.bak`.

        The `.bak` file and the backups stay, as under the Pulumi CLI. A missing checkpoint is no
        error.
        """
        self.check_lock(project, stack)
        names = self._list_checkpoint_names(project, stack)
        for name in names:
            # A stack created again under this name begins with a version of its own.
            self._versions.pop(name, None)
            self.storage.copy(name, f"{name}.bak")
        history = self.storage.list_entries(layout.build_name("history", project, stack))
        self.storage.delete(
            *names,
            *(f"{name}.attrs" for name in names),
            layout.build_name("stacks", project, f"{stack}.pulumi-tags"),
            layout.build_own_name(project, stack, "secrets-change"),
            layout.build_own_name(project, stack, "expired"),
            *(entry.name for entry in history),
            *(
                entry.name
                for entry in self.storage.list_entries(self.get_records_folder(project, stack))
            ),
        )
        self.open_journal(project, stack).remove()

    def move_side_files(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        """Move the history, tags and records of a stack to a new project and name.

        `old` and `new` are pairs of project and stack. Also moves the list of expired resources,
        but neither the checkpoint nor the journal.
        """
        # Called for its check of the new names.
        self._list_checkpoint_names(*new)
        source, target = layout.build_name("history", *old), layout.build_name("history", *new)
        for entry in self.storage.list_entries(source):
            _, _, rest = entry.name.partition(f"{source}/{old[1]}-")
            if rest:
                self._move_file(entry.name, f"{target}/{new[1]}-{rest}")
        tags = layout.build_name("stacks", old[0], f"{old[1]}.pulumi-tags")
        self._move_file(tags, layout.build_name("stacks", new[0], f"{new[1]}.pulumi-tags"))
        self._move_file(
            layout.build_own_name(*old, "expired"), layout.build_own_name(*new, "expired")
        )
        records = self.get_records_folder(*old)
        for entry in self.storage.list_entries(records):
            _, _, rest = entry.name.partition(f"{records}/")
            self._move_file(entry.name, f"{self.get_records_folder(*new)}/{rest}")

    def get_records_folder(self, project: str, stack: str) -> str:
        """Return the folder of the records of started operations (see `records`)."""
        self._list_checkpoint_names(project, stack)
        return layout.build_own_name(project, stack, "records")

    def read_own(self, project: str, stack: str, kind: str) -> bytes | None:
        """Read one of gpuform's own files about a stack; None if the file does not exist.

        `kind` is as in `describe_own_location`, also for `write_own`.
        """
        self._list_checkpoint_names(project, stack)
        blob = self.storage.read(layout.build_own_name(project, stack, kind))
        return blob.data if blob else None

    def write_own(self, project: str, stack: str, kind: str, data: bytes | None) -> None:
        """Write one of gpuform's own files about a stack, or remove the file if `data` is None.

        Raises EngineError if this process has lost the stack's lock.
        """
        self.check_lock(project, stack)
        if data is None:
            self.storage.delete(layout.build_own_name(project, stack, kind))
        else:
            self.storage.write(layout.build_own_name(project, stack, kind), data)

    @property
    def import_lock(self) -> Exclusion:
        """The lock for imports: one for all stacks, since an object has one owner."""
        return self.storage.create_exclusion(layout.build_name("gpuform", "import.lock"))

    def describe_own_location(self, project: str, stack: str, kind: str) -> str:
        """Return the path or URL of one of gpuform's own files about a stack, for messages.

        `kind` is the end of the file's name, such as `secrets-change`. The file need not exist.
        """
        return self.storage.locate(layout.build_own_name(project, stack, kind))

    def open_journal(self, project: str, stack: str, unsaved: Path | None = None) -> Log:
        """Open the journal log of a stack.

        `unsaved` is the local file for lines that the storage does not take; None for no file.
        """
        self._list_checkpoint_names(project, stack)
        name = layout.build_own_name(project, stack, "journal")
        return self.storage.open_log(name, lambda: self.check_lock(project, stack), unsaved)

    def create_lock(
        self, project: str, stack: str, timeout: LockTimeout | None = None
    ) -> StackLock:
        """Create the stack's lock, not yet taken; operations with changes take the lock."""
        self._list_checkpoint_names(project, stack)
        own = self.storage.create_exclusion(layout.build_own_name(project, stack, "lock"))
        # Only the folder of locks has the level of the organization in Pulumi's layout.
        folder = layout.build_name("locks", "organization", project, stack)
        lock = StackLock(self.storage, folder, own, timeout)
        self._locks.setdefault((project, stack), []).append(lock)
        return lock

    def check_lock(self, project: str, stack: str) -> None:
        """Raise EngineError if this process held a lock of the stack and may have lost the lock."""
        for lock in self._locks.get((project, stack), ()):
            lock.check()

    def create_backup(self, project: str, stack: str) -> None:
        """Copy an existing checkpoint to the backups, unless the user turned backups off."""
        name = self._find_checkpoint_name(project, stack)
        if name is not None and self.keeps_backups:
            folder = layout.build_name("backups", project, stack)
            stem = f"{folder}/{stack}."
            timestamp = layout.create_timestamp(self.storage, stem)
            self.storage.copy(name, f"{stem}{timestamp}{layout.get_suffix(name, stack)}")

    def list_backups(self, project: str, stack: str) -> list[BlobEntry]:
        """List the earlier checkpoints of a stack, usable or not, unsorted."""
        backup_entries = self.storage.list_entries(layout.build_name("backups", project, stack))
        names = "|".join(re.escape(name) for name in self._list_checkpoint_names(project, stack))
        pattern = re.compile(rf"({names})\.(bak|\d+)")
        stack_entries = self.storage.list_entries(layout.build_name("stacks", project))
        return [
            *(entry for entry in stack_entries if pattern.fullmatch(entry.name)),
            *(entry for entry in backup_entries if entry.name.endswith(layout.SUFFIXES)),
        ]

    def read_backup(self, where: str) -> bytes:
        """Read an earlier checkpoint from the storage or from a local file. Raises BackendError."""
        name, storage = self.storage.get_name(where), self.storage
        if name is None:
            path = Path.cwd() / where
            storage, name = Files(path.parent), path.name
        blob = storage.read(name)
        if blob is None:
            raise BackendError(f"{where} cannot be read: No such file or directory")
        return decompress(blob.data, where)

    def open_history(self, project: str, stack: str) -> RunHistory:
        """Open the run history of a stack."""
        self._list_checkpoint_names(project, stack)
        return RunHistory(
            self.storage, project, stack, lambda: self._find_checkpoint_name(project, stack)
        )

    def check_writable(self) -> None:
        """Write and remove a probe. Raises BackendError if the storage refuses."""
        own = f".gpuform-{uuid.uuid4()}"
        name = layout.build_name("stacks", own) if self.list_stacks() else own
        self.storage.write(name, b"written to see whether it can be\n")
        self.storage.delete(name)

    def free_space(self) -> int | None:
        """Return the free bytes of a folder's disk; None for a bucket."""
        storage = self.storage
        return shutil.disk_usage(storage.root).free if isinstance(storage, Files) else None

    def list_legacy_stacks(self) -> list[str]:
        """List the locations of checkpoints in Pulumi's first layout, which had no projects."""
        entries = self.storage.list_entries(layout.build_name("stacks"))
        names = [entry.name for entry in entries if entry.name.count("/") == 2]
        return [self.storage.locate(name) for name in names if name.endswith(layout.SUFFIXES)]

    def _move_file(self, source: str, target: str) -> None:
        """Move a file in the storage; a missing one is ignored."""
        if self.storage.copy(source, target):
            self.storage.delete(source)

    def _list_checkpoint_names(self, project: str, stack: str) -> list[str]:
        """List the possible names of the checkpoint. Raises BackendError for a wrong name."""
        for kind, name in (("project", project), ("stack", stack)):
            if not _NAME.fullmatch(name) or name in (".", ".."):
                raise BackendError(
                    f"{name!r} is not a valid {kind} name",
                    hint="Use 1 to 100 letters, digits, hyphens, underscores and dots.",
                )
        return [layout.build_name("stacks", project, stack + suffix) for suffix in layout.SUFFIXES]

    def _find_checkpoint_name(self, project: str, stack: str) -> str | None:
        """Return the name of the stack's checkpoint, the newest of several, or None."""
        entries = self._find_checkpoint_entries(project, stack)
        # Pulumi's rule for several variants (.json, .json.gz, .json.zst).
        return max(entries, key=lambda entry: entry.modified).name if entries else None

    def _find_checkpoint_entries(self, project: str, stack: str) -> list[BlobEntry]:
        """List the existing files of the checkpoint, compressed or not.

        Raises StackMoved if the stack moved away, or if its move here is not complete.
        """
        variants = self._list_checkpoint_names(project, stack)
        entries = self.storage.list_entries(layout.build_name("stacks", project))
        reject_relocated(self.storage, entries, project, stack)
        return [entry for entry in entries if entry.name in variants]

    def _choose_checkpoint_name(self, project: str, stack: str) -> str:
        """Return the name of the checkpoint's file, compressed or not.

        It is the name that this process has read or written, else the name of the existing file,
        else the name under which the file will be written.
        """
        variants = self._list_checkpoint_names(project, stack)
        known_names = [name for name in variants if name in self._versions]
        return (
            known_names[0]
            if len(known_names) == 1
            else self._find_checkpoint_name(project, stack) or variants[0]
        )

    def _get_expected_version(self, name: str) -> BlobVersion:
        """Return the version last read or written by this process, else the stored one."""
        if name not in self._versions:
            blob = self.storage.read(name)
            return blob.version if blob else ABSENT
        return self._versions[name]

    def _check_layout(self) -> None:
        """Raise BackendError if the layout of the backend is not of version 1.

        The version is in meta.yaml. Without this file, the backend is new and has version 1, or it
        has stacks in Pulumi's first layout, which has version 0 and is refused.
        """
        meta = self.storage.read(_META)
        if meta is None:
            # Pulumi's first layout had checkpoints in `stacks` itself, and no meta.yaml.
            version = "0" if self.list_legacy_stacks() else "1"
        else:
            self._versions[_META] = meta.version
            meta_yaml = meta.data.decode(errors="replace")
            match = re.search(r"^version:\s*(\d+)\s*$", meta_yaml, re.MULTILINE)
            version = match[1] if match else ""
        if version == "1":
            return
        found_version = f"version {version}" if version else "no version"
        raise BackendError(
            f"the backend {self.url} has a layout that gpuform does not support ({found_version})",
            hint="Upgrade an older layout with `pulumi state upgrade`; for a newer one, upgrade "
            "gpuform.",
        )

    def write_meta(self) -> None:
        """Write the file with the layout's version, unless there is one."""
        if _META in self._versions:
            return
        try:
            self._versions[_META] = self.storage.write(_META, b"version: 1\n", replacing=ABSENT)
        except ChangedMeanwhile:
            # Another process has written the file first. A file of another layout is refused when
            # the backend is opened the next time.
            self._versions[_META] = ABSENT
