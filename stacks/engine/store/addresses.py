"""Parse backend URLs and open their storages, and remember the URL that `login` chose.

URLs have the parameters of Pulumi and of its Go library. The chosen URL is in Pulumi's
`credentials.json`, which both engines read and write.
"""

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from gpuform.providers.context import READS_ONLY
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import (
    UrlWithParameters,
    get_pip_requirement,
    replace_file,
)
from gpuform.stacks.engine.store.storage import BackendError, Files, ReadOnlyStorage, Storage
from gpuform.stacks.engine.value_json import load

_BUCKETS = ("s3", "gs", "azblob")
_SUPPORTED = (
    "Use file://DIRECTORY, file://~ for your home folder, s3://BUCKET, gs://BUCKET or "
    "azblob://CONTAINER, or the Pulumi CLI."
)


@dataclass(frozen=True, slots=True)
class Address(UrlWithParameters):
    """A bucket's URL in parts."""

    kind = "backend"
    error = BackendError

    bucket: str
    prefix: str


def open_storage(url: str, environ: Mapping[str, str]) -> Storage:
    """Open the storage of a URL, read-only where the environment says so.

    Raises:
        BackendError: the URL names no usable storage, or the storage's library is not installed.
    """
    opened = _open_writable_storage(url, environ)
    return ReadOnlyStorage(opened) if environ.get(READS_ONLY) else opened


def _open_writable_storage(url: str, environ: Mapping[str, str]) -> Storage:
    """Open the folder or bucket of the URL. Raises BackendError."""
    scheme, separator, _ = url.partition("://")
    if separator and scheme == "file":
        return Files(_find_folder(url))
    if not separator or scheme not in _BUCKETS:
        raise BackendError(
            f"gpuform does not support the backend {strip_credentials(url)} "
            f"({urlsplit(url).scheme or 'no scheme'})",
            hint=_SUPPORTED,
        )
    try:
        # Clients of buckets are an optional dependency and slow to import.
        from gpuform.stacks.engine.store.buckets import OPENERS  # noqa: PLC0415
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package != "obstore":
            raise
        raise BackendError(
            f"the backend {strip_credentials(url)} requires the package {package}",
            hint=f"Install it: pip install '{get_pip_requirement('cloud')}'",
        ) from error
    return OPENERS[scheme](_parse_address(url), environ)


def anchor_file_url(url: str, folder: Path) -> str:
    """Return the URL with a relative `file://` path made absolute from `folder`."""
    path, is_query, query = url.removeprefix("file://").partition("?")
    if not url.startswith("file://") or path.startswith(("/", "~")):
        return url
    absolute_path = os.path.normpath(folder / unquote(path))
    return f"file://{quote(absolute_path)}{is_query}{query}"


def strip_credentials(url: str) -> str:
    """Return a URL without user, password and query, which may hold keys."""
    return re.sub(r"//[^/@]*@", "//", url.partition("?")[0])


def _parse_address(url: str) -> Address:
    """Parse the URL of a bucket. Raises BackendError without a bucket or with credentials in it."""
    parts = urlsplit(url)
    # Of several values the last one counts.
    parameters = {name: values[-1:] for name, values in parse_qs(parts.query).items()}
    prefix = "/".join(
        filter(None, [parts.path.strip("/"), parameters.pop("prefix", [""])[0].strip("/")])
    )
    display_url = strip_credentials(url).rstrip("/")
    if not parts.hostname or parts.username or parts.password:
        raise BackendError(
            f"the backend {display_url} has no bucket",
            hint=f"Write {parts.scheme}://BUCKET/PREFIX. Credentials do not belong in the URL.",
        )
    return Address(f"{parts.scheme}://{parts.netloc}/{prefix}", parameters, parts.netloc, prefix)


def _find_folder(url: str) -> Path:
    """Return the existing folder of a `file://` URL. Raises BackendError."""
    path = unquote(url.removeprefix("file://").partition("?")[0])
    home = path == "~" or path.startswith("~/")
    root = Path.home() / path[2:] if home else Path.cwd() / path
    if not root.is_dir():
        raise BackendError(
            f"the folder {root} of the backend {url} does not exist",
            hint="Create it, or check PULUMI_BACKEND_URL and backend.url in Pulumi.yaml.",
        )
    return root


# Pulumi's value of `lastValidatedAt` for an account that was never validated: Go's zero time.
_NEVER = "0001-01-01T00:00:00Z"


def get_current_url(environ: Mapping[str, str]) -> str:
    """Return the URL of the last login, or "". Raises EngineError for an unreadable file."""
    return str(_read_credentials(_get_credentials_path(environ)).get("current") or "")


def log_in(url: str, environ: Mapping[str, str]) -> None:
    """Make `url` the current backend in Pulumi's credentials file. Raises EngineError."""
    path = _get_credentials_path(environ)
    document = _read_credentials(path)
    document["current"] = url
    document.setdefault("accessTokens", {}).setdefault(url, "")
    document.setdefault("accounts", {}).setdefault(url, {"lastValidatedAt": _NEVER})
    _write_credentials(path, document)


def log_out(url: str, environ: Mapping[str, str]) -> bool:
    """Remove a backend from Pulumi's credentials file; return False for an unknown one.

    Raises EngineError if the file cannot be read or written.
    """
    path = _get_credentials_path(environ)
    document = _read_credentials(path)
    is_known = url in document.get("accounts", {}) or document.get("current") == url
    for table in ("accessTokens", "accounts"):
        document.get(table, {}).pop(url, None)
    if document.get("current") == url:
        del document["current"]
    if is_known:
        _write_credentials(path, document)
    return is_known


def log_out_of_all(environ: Mapping[str, str]) -> None:
    """Remove the access tokens of all backends from Pulumi's credentials. Raises EngineError."""
    _write_credentials(_get_credentials_path(environ), {})


def _get_credentials_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the Pulumi CLI's credentials.json."""
    folder = environ.get("PULUMI_CREDENTIALS_PATH") or environ.get("PULUMI_HOME")
    return (Path(folder) if folder else Path.home() / ".pulumi") / "credentials.json"


def _read_credentials(path: Path) -> dict[str, Any]:
    """Return the file's content; empty without a file and for JSON other than an object.

    Raises EngineError for an unreadable file.
    """
    try:
        document = load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EngineError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="The file names the backend. Correct it, remove it, or set PULUMI_BACKEND_URL.",
        ) from error
    return document if isinstance(document, dict) else {}


def _write_credentials(path: Path, document: Mapping[str, Any]) -> None:
    """Write the file or, without any account, remove it, as the Pulumi CLI does.

    Raises:
        EngineError: the file cannot be written.
    """
    try:
        if document.get("accounts"):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace_file(path, json.dumps(document, indent=4).encode())
        else:
            path.unlink(missing_ok=True)
    except OSError as error:
        raise EngineError(
            f"{path} cannot be written: {error.strerror or error}",
            hint="Fix the permissions, or set PULUMI_BACKEND_URL instead.",
        ) from error
