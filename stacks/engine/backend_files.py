"""Files of a backend: read whole, compressed or not, and written in one step."""

import gzip
import importlib
import zlib
from pathlib import Path
from typing import Any

from gpuform.stacks.engine.atomic import replace_file
from gpuform.stacks.engine.errors import EngineError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


MAKE_ROOM = "Make room or fix the permissions, and run the command again."
"""The hint for what cannot be written."""


class BackendError(EngineError):
    """The place of the stacks cannot be used."""


class DamagedFile(BackendError):
    """A file of the backend holds something else than it should."""


def read(path: Path) -> bytes:
    """The content of a backend's file, which may be compressed. Raises BackendError."""
    try:
        return _unpacked(path.read_bytes(), path)
    except OSError as error:
        raise BackendError(f"{path} cannot be read: {error.strerror or error}") from error


def write(path: Path, data: bytes) -> None:
    """Replaces a file's bytes. Raises BackendError."""
    try:
        replace_file(path, data)
    except OSError as error:
        raise BackendError(
            f"{path} cannot be written: {error.strerror or error}",
            hint=f"What was there before is untouched. {MAKE_ROOM}",
        ) from error


def copy(source: Path, target: Path) -> None:
    """Makes a file hold the same bytes as another. Raises BackendError."""
    try:
        data = source.read_bytes()
    except OSError as error:
        raise BackendError(f"{source} cannot be read: {error.strerror or error}") from error
    write(target, data)


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


def _damaged(path: Path) -> DamagedFile:
    return DamagedFile(
        f"{path} is not a whole compressed file",
        hint="Restore it from the .bak file beside it or from .pulumi/backups.",
    )


def packed(data: bytes, path: Path) -> bytes:
    """The content as it stands in a file of that name."""
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
