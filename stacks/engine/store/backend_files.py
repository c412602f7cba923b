"""Compress and decompress the files of a backend, and define the errors of backends.

`Backend` and `RunHistory` call this module.
"""

import gzip
import importlib
import zlib
from typing import Any

from gpuform.stacks.engine.errors import EngineError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


MAKE_ROOM = "Free some disk space or fix the permissions, and run the command again."
"""The hint for files that cannot be written."""


class BackendError(EngineError):
    """The storage of the stacks cannot be used."""

    help_page = "guides/state-for-a-team"


class DamagedFile(BackendError):
    """A file of the backend whose content is not valid."""


def decompress(data: bytes, where: str) -> bytes:
    """Decompress a file's content by the compression shown in the first bytes.

    Args:
        data: the content as stored; returned unchanged if it is not compressed.
        where: the file's location for errors.

    Raises:
        DamagedFile: the file is cut off or damaged.
        BackendError: this Python lacks the compression (zstd before 3.14).
    """
    if data.startswith(_GZIP):
        try:
            return gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise _build_damaged_error(where) from error
    if data.startswith(_ZSTD):
        zstd = _import_zstd(where)
        try:
            return bytes(zstd.decompress(data))
        except zstd.ZstdError as error:
            raise _build_damaged_error(where) from error
    return data


def _build_damaged_error(where: str) -> DamagedFile:
    """Build the error of a compressed file that is incomplete."""
    return DamagedFile(
        f"{where} is not a complete compressed file",
        hint="Restore it from the .bak file beside it or from .pulumi/backups.",
    )


def compress(data: bytes, name: str) -> bytes:
    """Compress the content by the ending of `name`: .zst, .gz, or none.

    Raises BackendError for .zst if this Python has no zstd (before 3.14).
    """
    if name.endswith(".zst"):
        return bytes(_import_zstd(name).compress(data))
    return gzip.compress(data) if name.endswith(".gz") else data


def _import_zstd(where: str) -> Any:
    """Import the standard library's zstd module, which exists from Python 3.14 on."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        raise BackendError(
            f"{where} is compressed with zstd, which this Python cannot read",
            hint="Run gpuform with Python 3.14 or newer, or let the Pulumi CLI write the state "
            "with PULUMI_DIY_BACKEND_ZSTD unset.",
        ) from None
