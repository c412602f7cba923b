"""What is in the files of a backend: compressed or not; and what can be wrong with them."""

import gzip
import importlib
import zlib
from typing import Any

from gpuform.stacks.engine.errors import EngineError

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


MAKE_ROOM = "Make room or fix the permissions, and run the command again."
"""The hint for what cannot be written."""


class BackendError(EngineError):
    """The place of the stacks cannot be used."""

    help_page = "guides/state-for-a-team"


class DamagedFile(BackendError):
    """A file of the backend holds something else than it should."""


def decompress(data: bytes, where: str) -> bytes:
    """The content of a file, which its first bytes tell the compression of.

    DamagedFile when it is not whole; BackendError when this Python cannot read it.
    """
    if data.startswith(_GZIP):
        try:
            return gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise _damaged(where) from error
    if data.startswith(_ZSTD):
        zstd = _zstd(where)
        try:
            return bytes(zstd.decompress(data))
        except zstd.ZstdError as error:
            raise _damaged(where) from error
    return data


def _damaged(where: str) -> DamagedFile:
    return DamagedFile(
        f"{where} is not a whole compressed file",
        hint="Restore it from the .bak file beside it or from .pulumi/backups.",
    )


def compress(data: bytes, name: str) -> bytes:
    """The content as it stands in a file of that name."""
    if name.endswith(".zst"):
        return bytes(_zstd(name).compress(data))
    return gzip.compress(data) if name.endswith(".gz") else data


def _zstd(where: str) -> Any:
    """The standard library's zstd, which Python has from 3.14 on."""
    try:
        return importlib.import_module("compression.zstd")
    except ImportError:
        raise BackendError(
            f"{where} is compressed with zstd, which this Python cannot read",
            hint="Run gpuform with Python 3.14 or newer, or let the Pulumi CLI write the state "
            "with PULUMI_DIY_BACKEND_ZSTD unset.",
        ) from None
