"""Pulumi's `credentials.json`: which backend `login` chose. Both engines read and write it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import replace_file
from gpuform.stacks.engine.values import load

_NEVER = "0001-01-01T00:00:00Z"  # when the account was validated, as Pulumi writes it for none


def current_url(environ: Mapping[str, str]) -> str:
    """The URL of the backend that was logged in to last, or nothing. Raises EngineError."""
    return str(_read(_path(environ)).get("current") or "")


def log_in(url: str, environ: Mapping[str, str]) -> None:
    """Makes a URL the current one. Raises EngineError."""
    path = _path(environ)
    document = _read(path)
    document["current"] = url
    document.setdefault("accessTokens", {}).setdefault(url, "")
    document.setdefault("accounts", {}).setdefault(url, {"lastValidatedAt": _NEVER})
    _write(path, document)


def log_out(url: str, environ: Mapping[str, str]) -> bool:
    """Forgets a URL; False when it was not known. Raises EngineError."""
    path = _path(environ)
    document = _read(path)
    known = url in document.get("accounts", {}) or document.get("current") == url
    for table in ("accessTokens", "accounts"):
        document.get(table, {}).pop(url, None)
    if document.get("current") == url:
        del document["current"]
    if known:
        _write(path, document)
    return known


def log_out_of_all(environ: Mapping[str, str]) -> None:
    """Forgets every URL. Raises EngineError."""
    _write(_path(environ), {})


def _path(environ: Mapping[str, str]) -> Path:
    given = environ.get("PULUMI_CREDENTIALS_PATH") or environ.get("PULUMI_HOME")
    return (Path(given) if given else Path.home() / ".pulumi") / "credentials.json"


def _read(path: Path) -> dict[str, Any]:
    try:
        document = load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise EngineError(
            f"{path} cannot be read: {getattr(error, 'strerror', None) or error}",
            hint="It says where the state is. Put it right, remove it, or set PULUMI_BACKEND_URL.",
        ) from error
    return document if isinstance(document, dict) else {}


def _write(path: Path, document: Mapping[str, Any]) -> None:
    """As Pulumi does: without an account there is no file."""
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
