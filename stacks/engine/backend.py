"""Where stacks live: Pulumi's DIY backend on a file system, in its layout and file names.

This module moves bytes; what is in a checkpoint is `state`'s concern.
"""

import gzip
import importlib
import os
import re
import shutil
import time
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from gpuform.stacks.engine.atomic import replace_file
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.lock import Patience, StackLock
from gpuform.stacks.engine.project import Project
from gpuform.stacks.engine.value_json import Json, dump

_SUFFIXES = (".json", ".json.gz", ".json.zst")
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_NO_BACKUPS = (
    "PULUMI_DIY_BACKEND_DISABLE_CHECKPOINT_BACKUPS",
    "PULUMI_SELF_MANAGED_STATE_DISABLE_CHECKPOINT_BACKUPS",
)
_SUPPORTED = "Use file://DIRECTORY, or file://~ for your home folder, or the Pulumi CLI."


class BackendError(EngineError):
    """The place of the stacks cannot be used."""


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """What one operation did, as `pulumi stack history` shows it. Times are Unix seconds.

    `config` is the stack file's, with its ciphertexts.
    """

    kind: str
    result: str
    start_time: int
    end_time: int
    resource_changes: Mapping[str, int] = field(default_factory=dict)
    config: Mapping[str, Json] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=lambda: {"exec.kind": "cli"})
    message: str = ""

    def to_json(self) -> bytes:
        return dump(
            {
                "kind": self.kind,
                "startTime": self.start_time,
                "message": self.message,
                "environment": dict(self.environment),
                "config": dict(self.config),
                "version": 0,
                "result": self.result,
                "endTime": self.end_time,
                "resourceChanges": dict(self.resource_changes),
            }
        )


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
        if path is None:
            return None
        try:
            return _unpacked(path.read_bytes(), path)
        except OSError as error:
            raise BackendError(f"{path} cannot be read: {error.strerror or error}") from error

    def write(self, project: str, stack: str, data: bytes) -> None:
        """Replace the checkpoint, in the format that its file has; the old one becomes `.bak`.

        At any time the file is whole, the old or the new one; on return the new one is on disk.
        """
        self._write_meta()
        path = self.path(project, stack)
        packed = _packed(data, path)
        if path.exists():
            _put(path.with_name(f"{path.name}.bak"), path.read_bytes())
        _put(path, packed)

    def remove(self, project: str, stack: str) -> None:
        """Forget a stack and its history; like the Pulumi CLI, a `.bak` and backups stay."""
        for path in self._variants(project, stack):
            if path.exists():
                path.replace(path.with_name(f"{path.name}.bak"))
            path.with_name(f"{path.name}.attrs").unlink(missing_ok=True)
        tags = self._folder("stacks", project, f"{stack}.pulumi-tags")
        tags.unlink(missing_ok=True)
        self.journal(project, stack).unlink(missing_ok=True)
        shutil.rmtree(self._folder("history", project, stack), ignore_errors=True)

    def journal(self, project: str, stack: str) -> Path:
        """Where gpuform keeps the journal of a run of the stack; Pulumi does not look there."""
        self._variants(project, stack)
        return self._folder("gpuform", project, f"{stack}.journal")

    def lock(self, project: str, stack: str, patience: Patience | None = None) -> StackLock:
        """The stack's lock, not yet taken; every operation that changes the stack holds it."""
        self._variants(project, stack)
        return StackLock(
            self._folder("locks", "organization", project, stack),
            self._folder("gpuform", project, f"{stack}.lock"),
            patience,
        )

    def backup(self, project: str, stack: str) -> None:
        """Keep a copy of the checkpoint, at the end of an operation; the user can turn it off."""
        path = self._find(project, stack)
        if path is not None and self.keeps_backups:
            suffix = path.name.removeprefix(stack)
            name = f"{stack}.{time.time_ns()}{suffix}"
            _put(self._folder("backups", project, stack, name), path.read_bytes())

    def add_history(self, project: str, stack: str, entry: HistoryEntry) -> None:
        """Record an operation with a copy of the checkpoint that it left."""
        prefix = f"{stack}-{time.time_ns()}"
        folder = self._folder("history", project, stack)
        _put(folder / f"{prefix}.history.json", entry.to_json())
        path = self._find(project, stack)
        if path is not None:
            suffix = path.name.removeprefix(stack)
            _put(folder / f"{prefix}.checkpoint{suffix}", path.read_bytes())

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

    def _check_layout(self) -> None:
        meta = self._folder("meta.yaml")
        if not meta.exists():
            legacy = any(
                path.name.endswith(_SUFFIXES) for path in self._folder("stacks").glob("*.json*")
            )
            version = "0" if legacy else "1"
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
            _put(meta, b"version: 1\n")


def _put(path: Path, data: bytes) -> None:
    try:
        replace_file(path, data)
    except OSError as error:
        raise BackendError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="What was there before is untouched. Make room or fix the permissions.",
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


def _unpacked(data: bytes, path: Path) -> bytes:
    if data.startswith(_GZIP):
        try:
            return gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise _damaged(path) from error
    if data.startswith(_ZSTD):
        zstd = _zstd(path)
        try:
            return bytes(zstd.decompress(data))
        except zstd.ZstdError as error:
            raise _damaged(path) from error
    return data


def _damaged(path: Path) -> BackendError:
    return BackendError(
        f"{path} is not a whole compressed file",
        hint="Restore it from the .bak file beside it or from .pulumi/backups.",
    )


def _packed(data: bytes, path: Path) -> bytes:
    if path.suffix == ".zst":
        return bytes(_zstd(path).compress(data))
    return gzip.compress(data) if path.suffix == ".gz" else data


def _zstd(path: Path) -> Any:
    """The standard library's zstd, which Python has from 3.14 on."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        raise BackendError(
            f"{path} is compressed with zstd, which this Python cannot read",
            hint="Run gpuform with Python 3.14 or newer, or let the Pulumi CLI write the state "
            "with PULUMI_DIY_BACKEND_ZSTD unset.",
        ) from None
