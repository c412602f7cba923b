"""Where stacks live: Pulumi's DIY backend on a file system, in its layout and file names.

This module moves bytes; what is in a checkpoint is `state`'s concern.
"""

import os
import re
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpuform.stacks.engine import backend_files
from gpuform.stacks.engine.backend_files import MAKE_ROOM, BackendError, DamagedFile
from gpuform.stacks.engine.history import HistoryEntry
from gpuform.stacks.engine.lock import Patience, StackLock
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.state import timestamp

_SUFFIXES = (".json", ".json.gz", ".json.zst")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_NO_BACKUPS = (
    "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS",
    "PULUMI_SELF_MANAGED_STATE_DISABLE_CHECKPOINT_BACKUPS",
)
_SUPPORTED = "Use file://DIRECTORY, or file://~ for your home folder, or the Pulumi CLI."


def backend_url(environ: Mapping[str, str], project: Project | None) -> str:
    """PULUMI_BACKEND_URL, else the project's `backend.url`, else the user's home."""
    url = environ.get("PULUMI_BACKEND_URL") or (project.backend_url if project else "")
    return url or "file://~"


def full_name(project: str, stack: str) -> str:
    """The stack's name in checkpoints and locks: the organisation is always the same word."""
    return f"organization/{project}/{stack}"


@dataclass(frozen=True, slots=True)
class Backend:
    """The stacks under one folder; `root` is the folder that holds `.pulumi`."""

    root: Path
    url: str
    keeps_backups: bool = True

    @classmethod
    def open(cls, url: str, environ: Mapping[str, str] | None = None) -> "Backend":
        """The backend of a `file://` URL; relative ones start at the current folder.

        BackendError for other kinds of URL, a missing folder, or a layout that is too old or new.
        """
        environ = os.environ if environ is None else environ
        root = _root_of(url)
        if not root.is_dir():
            raise BackendError(
                f"the backend {url} names the folder {root}, which does not exist",
                hint="Create it, or check PULUMI_BACKEND_URL and backend.url in Pulumi.yaml.",
            )
        switches = (environ.get(name, "").lower() for name in _NO_BACKUPS)
        backend = cls(root, url, not any(switch in ("1", "true") for switch in switches))
        backend._check_layout()
        return backend

    def stacks(self, project: str | None = None) -> list[str]:
        """The full names of all stacks, or of one project's, in alphabetical order."""
        found = set()
        for path in self._folder("stacks").glob("*/*"):
            suffix = next((s for s in _SUFFIXES if path.name.endswith(s)), None)
            if suffix and project in (None, path.parent.name):
                found.add(full_name(path.parent.name, path.name.removesuffix(suffix)))
        return sorted(found)

    def exists(self, project: str, stack: str) -> bool:
        return self._find(project, stack) is not None

    def path(self, project: str, stack: str) -> Path:
        """The stack's checkpoint file, or the one that `write` would make."""
        return self._find(project, stack) or self._variants(project, stack)[0]

    def read(self, project: str, stack: str) -> bytes | None:
        """The checkpoint's JSON, or None when there is no such stack."""
        path = self._find(project, stack)
        return None if path is None else backend_files.read(path)

    def write(self, project: str, stack: str, data: bytes) -> None:
        """Replace the checkpoint, in the format that its file has; the old one becomes `.bak`.

        At any time the file is whole, the old or the new one; on return the new one is on disk.
        """
        self._write_meta()
        path = self.path(project, stack)
        packed = backend_files.packed(data, path)
        try:
            if path.exists():
                backend_files.copy(path, path.with_name(f"{path.name}.bak"))
            backend_files.write(path, packed)
        except BackendError as error:
            if path.exists():
                state = f"{path} of {_changed(path)} is untouched and the last good state."
                error.hint = f"{state} {MAKE_ROOM}"
            raise

    def restore(self, project: str, stack: str, data: bytes) -> Path | None:
        """Put a checkpoint in the place of one that may be damaged, and of its `.bak` nothing.

        What was there is kept beside it, as `NAME.NANOSECONDS`, which is returned.
        """
        self._write_meta()
        path = self.path(project, stack)
        kept = None
        if path.exists():
            kept = path.with_name(f"{path.name}.{_later_than(path.parent, path.name)}")
            backend_files.copy(path, kept)
        backend_files.write(path, backend_files.packed(data, path))
        return kept

    def remove(self, project: str, stack: str) -> None:
        """Forget a stack and its history; like the Pulumi CLI, a `.bak` and backups stay."""
        for path in self._variants(project, stack):
            if path.exists():
                path.replace(path.with_name(f"{path.name}.bak"))
            path.with_name(f"{path.name}.attrs").unlink(missing_ok=True)
        tags = self._folder("stacks", project, f"{stack}.pulumi-tags")
        tags.unlink(missing_ok=True)
        for kind in ("journal", "passphrase-change"):
            self.own_file(project, stack, kind).unlink(missing_ok=True)
        shutil.rmtree(self._folder("history", project, stack), ignore_errors=True)

    def move_side_files(self, project: str, old: str, new: str) -> None:
        """Give the history and the tags of one stack to another, as a renamed stack has them."""
        self._variants(project, new)
        target = self._folder("history", project, new)
        for path in sorted(self._folder("history", project, old).glob(f"{old}-*")):
            target.mkdir(parents=True, exist_ok=True)
            path.replace(target / f"{new}{path.name.removeprefix(old)}")
        tags = self._folder("stacks", project, f"{old}.pulumi-tags")
        if tags.exists():
            tags.replace(tags.with_name(f"{new}.pulumi-tags"))

    def own_file(self, project: str, stack: str, kind: str) -> Path:
        """Where gpuform keeps something of its own about a stack; Pulumi does not look there."""
        self._variants(project, stack)
        return self._folder("gpuform", project, f"{stack}.{kind}")

    def journal(self, project: str, stack: str) -> Path:
        """Where the journal of a run is kept."""
        return self.own_file(project, stack, "journal")

    @property
    def import_lock(self) -> Path:
        """The lock of who imports: for all stacks one, since an object has one owner."""
        return self._folder("gpuform", "import.lock")

    def set_journal_aside(self, project: str, stack: str) -> Path | None:
        """Give up a journal that is left; it is kept beside its place, which is returned."""
        path = self.journal(project, stack)
        if not path.exists():
            return None
        kept = path.with_name(f"{path.name}.{_later_than(path.parent, path.name)}")
        path.replace(kept)
        return kept

    def lock(self, project: str, stack: str, patience: Patience | None = None) -> StackLock:
        """The stack's lock, not yet taken; every operation that changes the stack holds it."""
        own = self.own_file(project, stack, "lock")
        return StackLock(self._folder("locks", "organization", project, stack), own, patience)

    def backup(self, project: str, stack: str) -> None:
        """Keep a copy of the checkpoint, at the end of an operation; the user can turn it off."""
        path = self._find(project, stack)
        if path is not None and self.keeps_backups:
            suffix = path.name.removeprefix(stack)
            folder = self._folder("backups", project, stack)
            name = f"{stack}.{_later_than(folder, stack)}{suffix}"
            backend_files.copy(path, folder / name)

    def backups(self, project: str, stack: str) -> list[Path]:
        """The files that hold earlier checkpoints of a stack, whole or not, in no order."""
        kept = self._folder("backups", project, stack).glob(f"{stack}.*")
        names = "|".join(re.escape(path.name) for path in self._variants(project, stack))
        pattern = re.compile(rf"({names})\.(bak|\d+)")
        beside = self._folder("stacks", project).glob(f"{stack}.*")
        return [
            *(path for path in beside if pattern.fullmatch(path.name)),
            *(path for path in kept if path.name.endswith(_SUFFIXES)),
        ]

    def history(
        self, project: str, stack: str, skip: int = 0, limit: int | None = None
    ) -> list[HistoryEntry]:
        """What was done to a stack, the latest first: all of it, or `limit` after `skip`.

        DamagedFile names an entry that cannot be read.
        """
        self._variants(project, stack)
        folder = self._folder("history", project, stack)
        found = sorted(folder.glob("*.history.json*"), reverse=True)
        paths = [path for path in found if path.name.endswith(_SUFFIXES)]
        stop = None if limit is None else skip + limit
        return [_history_entry(path) for path in paths[skip:stop]]

    def add_history(self, project: str, stack: str, entry: HistoryEntry) -> None:
        """Record an operation with a copy of the checkpoint that it left."""
        folder = self._folder("history", project, stack)
        prefix = f"{stack}-{_later_than(folder, stack)}"
        backend_files.write(folder / f"{prefix}.history.json", entry.to_json())
        path = self._find(project, stack)
        if path is not None:
            suffix = path.name.removeprefix(stack)
            backend_files.copy(path, folder / f"{prefix}.checkpoint{suffix}")

    def _folder(self, *parts: str) -> Path:
        return self.root.joinpath(".pulumi", *parts)

    def _variants(self, project: str, stack: str) -> list[Path]:
        for kind, name in (("project", project), ("stack", stack)):
            if not _NAME.fullmatch(name) or name in (".", ".."):
                raise BackendError(
                    f"{name!r} is not a {kind} name",
                    hint="Use 1 to 100 letters, digits, hyphens, underscores and dots.",
                )
        return [self._folder("stacks", project, stack + suffix) for suffix in _SUFFIXES]

    def _find(self, project: str, stack: str) -> Path | None:
        """The stack's file; when there are several variants, the newest."""
        found = [path for path in self._variants(project, stack) if path.is_file()]
        return max(found, key=lambda path: path.stat().st_mtime_ns, default=None)

    def legacy_stacks(self) -> list[Path]:
        """Checkpoints of Pulumi's first layout, which knew no projects."""
        found = self._folder("stacks").glob("*.json*")
        return sorted(path for path in found if path.name.endswith(_SUFFIXES) and path.is_file())

    def _check_layout(self) -> None:
        meta = self._folder("meta.yaml")
        if not meta.exists():
            version = "0" if self.legacy_stacks() else "1"
        else:
            text = meta.read_text(encoding="utf-8", errors="replace")
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
        meta = self._folder("meta.yaml")
        if not meta.exists():
            backend_files.write(meta, b"version: 1\n")


def _later_than(folder: Path, stack: str) -> int:
    """Now in nanoseconds, but later than any name in the folder: a clock may have been put back."""
    pattern = re.compile(rf"{re.escape(stack)}[.-](\d+)(\.|$)")
    found = (pattern.match(path.name) for path in folder.glob(f"{stack}*"))
    latest = max((int(match[1]) for match in found if match), default=0)
    return max(time.time_ns(), latest + 1)


def _changed(path: Path) -> str:
    return timestamp(datetime.fromtimestamp(path.stat().st_mtime, UTC))


def _history_entry(path: Path) -> HistoryEntry:
    try:
        return HistoryEntry.from_json(backend_files.read(path))
    except ValueError as error:
        raise DamagedFile(
            f"{path} is damaged: {error}",
            hint="Remove it: it only tells what was done, nothing depends on it.",
        ) from error


def _root_of(url: str) -> Path:
    if not url.startswith("file://"):
        scheme = urlsplit(url).scheme or "no scheme"
        raise BackendError(
            f"the backend {_without_credentials(url)} is of a kind that gpuform cannot use "
            f"({scheme})",
            hint=_SUPPORTED,
        )
    path = unquote(url.removeprefix("file://").partition("?")[0])
    if path == "~" or path.startswith("~/"):
        return Path.home() / path[2:]
    return Path.cwd() / path


def _without_credentials(url: str) -> str:
    """A URL as it may be shown: what stands before an @ is a password, a query may hold keys."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])
