"""Where stacks live: Pulumi's DIY backend, in its layout and file names, in any storage.

This module moves bytes; what is in a checkpoint is `state`'s concern.
"""

import os
import re
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.state import Log, format_timestamp
from gpuform.stacks.engine.store import backend_files, layout
from gpuform.stacks.engine.store.backend_files import MAKE_ROOM, BackendError
from gpuform.stacks.engine.store.credentials import current_url
from gpuform.stacks.engine.store.lock import Patience, StackLock
from gpuform.stacks.engine.store.runs import Runs
from gpuform.stacks.engine.store.storage.addresses import anchor, open_storage
from gpuform.stacks.engine.store.storage.files import Files
from gpuform.stacks.engine.store.storage.protocol import (
    ABSENT,
    ChangedMeanwhile,
    Entry,
    Exclusion,
    Storage,
    Unwritable,
    Version,
)

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_META = ".pulumi/meta.yaml"


def backend_url(environ: Mapping[str, str], project: Project | None) -> str:
    """PULUMI_BACKEND_URL, else the project's `backend.url`, else that of `login`, else home.

    A relative path in a project's file starts at the project, whatever the current folder is.
    """
    if project and project.backend_url and not environ.get("PULUMI_BACKEND_URL"):
        return anchor(project.backend_url, project.directory)
    return configured_url(environ, project)


def configured_url(environ: Mapping[str, str], project: Project | None) -> str:
    """The URL of `backend_url` as it was written: the Pulumi CLI knows a backend by this."""
    own = project.backend_url if project else ""
    return environ.get("PULUMI_BACKEND_URL") or own or current_url(environ) or "file://~"


def full_name(project: str, stack: str) -> str:
    """The stack's name in checkpoints and locks: the organisation is always the same word."""
    return f"organization/{project}/{stack}"


def _is_on(environ: Mapping[str, str], switch: str) -> bool:
    """A switch of Pulumi's, by its present or its former name."""
    names = (f"PULUMI_DIY_BACKEND_{switch}", f"PULUMI_SELF_MANAGED_STATE_{switch}")
    return any(environ.get(name, "").lower() in ("1", "true") for name in names)


@dataclass(frozen=True, slots=True)
class Backend:
    """The stacks in one storage, which holds `.pulumi`.

    A checkpoint is written in the place of the version that this process has read or written last,
    and of no other.
    """

    storage: Storage
    url: str
    keeps_backups: bool = True
    gzips: bool = False
    _versions: dict[str, Version] = field(default_factory=dict, compare=False)
    _locks: dict[tuple[str, str], list[StackLock]] = field(default_factory=dict, compare=False)

    @classmethod
    def open(cls, url: str, environ: Mapping[str, str] | None = None) -> "Backend":
        """The backend of a URL; `file://` paths that are relative start at the current folder.

        BackendError for a URL that cannot be used, or a layout that is too old or new.
        """
        environ = os.environ if environ is None else environ
        backend = cls(
            open_storage(url, environ),
            url,
            keeps_backups=not _is_on(environ, "DISABLE_CHECKPOINT_BACKUPS"),
            gzips=_is_on(environ, "GZIP"),
        )
        backend._check_layout()
        return backend

    def stacks(self, project: str | None = None) -> list[str]:
        """The full names of all stacks, or of one project's, in alphabetical order."""
        found = set()
        folder = layout.folder("stacks", project) if project else layout.folder("stacks")
        for entry in self.storage.entries(folder):
            parts = entry.name.removeprefix(layout.folder("stacks") + "/").split("/")
            suffix = next((s for s in layout.SUFFIXES if parts[-1].endswith(s)), None)
            if suffix and len(parts) == 2:
                found.add(full_name(parts[0], parts[1].removesuffix(suffix)))
        return sorted(found)

    def exists(self, project: str, stack: str) -> bool:
        return self._find(project, stack) is not None

    def where(self, project: str, stack: str) -> str:
        """The stack's checkpoint as people find it, or the one that `write` would make."""
        return self.storage.where(self._current(project, stack))

    def read(self, project: str, stack: str) -> bytes | None:
        """The checkpoint's JSON, or None when there is no such stack."""
        name = self._find(project, stack)
        found = self.storage.read(name) if name else None
        if name is None or found is None:
            return None
        self._versions[name] = found.version
        return backend_files.decompress(found.data, self.storage.where(name))

    def write(self, project: str, stack: str, data: bytes) -> None:
        """Replace the checkpoint, in the format that it has; the old one becomes `.bak`.

        At any time it is whole, the old or the new one; on return the new one is kept. Raises
        Changed when another process has written it since.
        """
        self.check_lock(project, stack)
        self._write_meta()
        old = self._current(project, stack)
        zips = self.gzips and old.endswith(".json")
        name = f"{old}.gz" if zips else old
        packed = backend_files.compress(data, name)
        try:
            was_there = self.storage.copy(old, f"{old}.bak")
            expected = self._expected(name) if was_there and name == old else ABSENT
            self._versions[name] = self.storage.write(name, packed, replacing=expected)
        except Unwritable as error:
            left = next((e for e in self._entries(project, stack) if e.name == old), None)
            if left is not None:
                state = f"{self.storage.where(old)} of {format_timestamp(left.modified)}"
                error.hint = f"{state} is untouched and the last good state. {MAKE_ROOM}"
            raise
        if zips:
            self._versions.pop(old, None)
            self.storage.delete(old)

    def restore(self, project: str, stack: str, data: bytes) -> str | None:
        """Put a checkpoint in the place of one that may be damaged, and of its `.bak` nothing.

        What was there is kept beside it, as `NAME.NANOSECONDS`: where, is returned.
        """
        self.check_lock(project, stack)
        self._write_meta()
        name = self._current(project, stack)
        kept = f"{name}.{layout.later_than(self.storage, f'{name}.')}"
        was_there = self.storage.copy(name, kept)
        expected = self._expected(name) if was_there else ABSENT
        packed = backend_files.compress(data, name)
        self._versions[name] = self.storage.write(name, packed, replacing=expected)
        return self.storage.where(kept) if was_there else None

    def remove(self, project: str, stack: str) -> None:
        """Forget a stack and its history; like the Pulumi CLI, a `.bak` and backups stay."""
        self.check_lock(project, stack)
        names = self._variants(project, stack)
        for name in names:
            self._versions.pop(name, None)
            self.storage.copy(name, f"{name}.bak")
        history = self.storage.entries(layout.folder("history", project, stack))
        self.storage.delete(
            *names,
            *(f"{name}.attrs" for name in names),
            layout.folder("stacks", project, f"{stack}.pulumi-tags"),
            layout.own(project, stack, "secrets-change"),
            layout.own(project, stack, "expired"),
            *(entry.name for entry in history),
            *(entry.name for entry in self.storage.entries(self.folder_of_records(project, stack))),
        )
        self.journal(project, stack).remove()

    def move_side_files(self, old: tuple[str, str], new: tuple[str, str]) -> None:
        """Move the history, the tags and the records of a stack to its new project and name."""
        self._variants(*new)
        source, target = layout.folder("history", *old), layout.folder("history", *new)
        for entry in self.storage.entries(source):
            _, _, rest = entry.name.partition(f"{source}/{old[1]}-")
            if rest:
                self._move(entry.name, f"{target}/{new[1]}-{rest}")
        tags = layout.folder("stacks", old[0], f"{old[1]}.pulumi-tags")
        self._move(tags, layout.folder("stacks", new[0], f"{new[1]}.pulumi-tags"))
        self._move(layout.own(*old, "expired"), layout.own(*new, "expired"))
        records = self.folder_of_records(*old)
        for entry in self.storage.entries(records):
            _, _, rest = entry.name.partition(f"{records}/")
            self._move(entry.name, f"{self.folder_of_records(*new)}/{rest}")

    def folder_of_records(self, project: str, stack: str) -> str:
        """Where the records of what a stack's runs have begun are (see `records`)."""
        self._variants(project, stack)
        return layout.own(project, stack, "records")

    def read_own(self, project: str, stack: str, kind: str) -> bytes | None:
        """What gpuform keeps of its own about a stack; Pulumi does not look there."""
        self._variants(project, stack)
        found = self.storage.read(layout.own(project, stack, kind))
        return found.data if found else None

    def write_own(self, project: str, stack: str, kind: str, data: bytes | None) -> None:
        """Keeps it, or with None forgets it."""
        self.check_lock(project, stack)
        if data is None:
            self.storage.delete(layout.own(project, stack, kind))
        else:
            self.storage.write(layout.own(project, stack, kind), data)

    @property
    def import_lock(self) -> Exclusion:
        """The lock of who imports: for all stacks one, since an object has one owner."""
        return self.storage.exclusion(layout.folder("gpuform", "import.lock"))

    def where_own(self, project: str, stack: str, kind: str) -> str:
        return self.storage.where(layout.own(project, stack, kind))

    def journal(self, project: str, stack: str, unsaved: Path | None = None) -> Log:
        """The lines of a run's journal; `unsaved` is a file for those that cannot be kept here."""
        self._variants(project, stack)
        name = layout.own(project, stack, "journal")
        return self.storage.log(name, lambda: self.check_lock(project, stack), unsaved)

    def lock(self, project: str, stack: str, patience: Patience | None = None) -> StackLock:
        """The stack's lock, not yet taken; every operation that changes the stack holds it."""
        self._variants(project, stack)
        own = self.storage.exclusion(layout.own(project, stack, "lock"))
        folder = layout.folder("locks", "organization", project, stack)
        made = StackLock(self.storage, folder, own, patience)
        self._locks.setdefault((project, stack), []).append(made)
        return made

    def check_lock(self, project: str, stack: str) -> None:
        """Raises EngineError when this process held the stack's lock and another may now."""
        for lock in self._locks.get((project, stack), ()):
            lock.check()

    def backup(self, project: str, stack: str) -> None:
        """Keep a copy of the checkpoint, at the end of an operation; the user can turn it off."""
        name = self._find(project, stack)
        if name is not None and self.keeps_backups:
            folder = layout.folder("backups", project, stack)
            stem = f"{folder}/{stack}."
            self.storage.copy(
                name, f"{stem}{layout.later_than(self.storage, stem)}{layout.suffix(name, stack)}"
            )

    def backups(self, project: str, stack: str) -> list[Entry]:
        """The earlier checkpoints of a stack, whole or not, in no order."""
        kept = self.storage.entries(layout.folder("backups", project, stack))
        names = "|".join(re.escape(name) for name in self._variants(project, stack))
        pattern = re.compile(rf"({names})\.(bak|\d+)")
        beside = self.storage.entries(layout.folder("stacks", project))
        return [
            *(entry for entry in beside if pattern.fullmatch(entry.name)),
            *(entry for entry in kept if entry.name.endswith(layout.SUFFIXES)),
        ]

    def read_backup(self, where: str) -> bytes:
        """An earlier checkpoint, here or in a file of this machine. Raises BackendError."""
        name, storage = self.storage.name_of(where), self.storage
        if name is None:
            path = Path.cwd() / where
            storage, name = Files(path.parent), path.name
        found = storage.read(name)
        if found is None:
            raise BackendError(f"{where} cannot be read: No such file or directory")
        return backend_files.decompress(found.data, where)

    def runs(self, project: str, stack: str) -> Runs:
        """What was done to a stack."""
        self._variants(project, stack)
        return Runs(self.storage, project, stack, lambda: self._find(project, stack))

    def check_writable(self) -> None:
        """Raises BackendError when nothing can be written; leaves nothing behind."""
        own = f".gpuform-{uuid.uuid4()}"
        name = layout.folder("stacks", own) if self.stacks() else own
        self.storage.write(name, b"written to see whether it can be\n")
        self.storage.delete(name)

    def free_space(self) -> int | None:
        """How many bytes there is room for; None where nobody can tell."""
        storage = self.storage
        return shutil.disk_usage(storage.root).free if isinstance(storage, Files) else None

    def legacy_stacks(self) -> list[str]:
        """Checkpoints of Pulumi's first layout, which knew no projects, as people find them."""
        entries = self.storage.entries(layout.folder("stacks"))
        names = [entry.name for entry in entries if entry.name.count("/") == 2]
        return [self.storage.where(name) for name in names if name.endswith(layout.SUFFIXES)]

    def _move(self, source: str, target: str) -> None:
        if self.storage.copy(source, target):
            self.storage.delete(source)

    def _variants(self, project: str, stack: str) -> list[str]:
        for kind, name in (("project", project), ("stack", stack)):
            if not _NAME.fullmatch(name) or name in (".", ".."):
                raise BackendError(
                    f"{name!r} is not a {kind} name",
                    hint="Use 1 to 100 letters, digits, hyphens, underscores and dots.",
                )
        return [layout.folder("stacks", project, stack + suffix) for suffix in layout.SUFFIXES]

    def _find(self, project: str, stack: str) -> str | None:
        """The stack's checkpoint; when there are several variants, the newest."""
        found = self._entries(project, stack)
        return max(found, key=lambda entry: entry.modified).name if found else None

    def _entries(self, project: str, stack: str) -> list[Entry]:
        variants = self._variants(project, stack)
        there = self.storage.entries(layout.folder("stacks", project))
        return [entry for entry in there if entry.name in variants]

    def _current(self, project: str, stack: str) -> str:
        """The checkpoint that this process knows, else the one that is there or would be."""
        variants = self._variants(project, stack)
        known = [name for name in variants if name in self._versions]
        return known[0] if len(known) == 1 else self._find(project, stack) or variants[0]

    def _expected(self, name: str) -> Version:
        if name not in self._versions:
            found = self.storage.read(name)
            return found.version if found else ABSENT
        return self._versions[name]

    def _check_layout(self) -> None:
        meta = self.storage.read(_META)
        if meta is None:
            version = "0" if self.legacy_stacks() else "1"
        else:
            self._versions[_META] = meta.version
            text = meta.data.decode(errors="replace")
            match = re.search(r"^version:\s*(\d+)\s*$", text, re.MULTILINE)
            version = match[1] if match else ""
        if version == "1":
            return
        found = f"version {version}" if version else "no version"
        raise BackendError(
            f"the backend {self.url} has a layout that gpuform does not know ({found})",
            hint="Bring an old one up to date with `pulumi state upgrade`; a newer one needs a "
            "newer gpuform.",
        )

    def _write_meta(self) -> None:
        if _META in self._versions:
            return
        try:
            self._versions[_META] = self.storage.write(_META, b"version: 1\n", replacing=ABSENT)
        except ChangedMeanwhile:  # by somebody who did the same, or the layout is checked next time
            self._versions[_META] = ABSENT
