"""Read and write Pulumi's `credentials.json`, which names the backend that `login` chose.

Both engines read and write the file. `login`, `logout` and the search for the backend's URL call
this module.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.values import load

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
    """Remove all backends. Raises EngineError."""
    _write_credentials(_get_credentials_path(environ), {})


def _get_credentials_path(environ: Mapping[str, str]) -> Path:
    """Return the path of the Pulumi CLI's credentials.json."""
    folder = environ.get("PULUMI_CREDENTIALS_PATH") or environ.get("PULUMI_HOME")
    return (Path(folder) if folder else Path.home() / ".pulumi") / "credentials.json"


def _read_credentials(path: Path) -> dict[str, Any]:
    """Return the file's content, empty without a file and for JSON that is not an object.

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
    """Write the file or, without any account, remove the file, as the Pulumi CLI does.

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
