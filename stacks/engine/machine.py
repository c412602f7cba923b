"""Write and lock files, read parameters of URLs, and find versions of gpuform and the Pulumi CLI.

All packages of the engine write files with `replace_file`. gpuform counts as the newest Pulumi CLI
that its test suite ran with, since it behaves like that CLI.
"""

import errno
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import ClassVar, Final
from urllib.parse import unquote, urlsplit

from gpuform.schemas.errors import EngineError

USE_THE_CLI: Final = "run this stack with the Pulumi CLI (`pulumi up`), which uses the same state"
"""The hint for what the embedded engine refuses."""


def replace_file(path: Path, data: bytes | Iterable[bytes], *, mode: int | None = None) -> None:
    """Write the complete file in one step and wait until the data is on disk.

    `data` may come in pieces, which are never in memory together.

    An existing file keeps its permissions and a symbolic link stays one; a new file gets `mode`, or
    else only its owner can read it. Missing folders are created. When this raises OSError the old
    file is untouched, unless only the sync of its folder has failed.
    """
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists():
        mode = path.stat().st_mode & 0o7777
    # In the folder of the file, because a rename is atomic within one file system only.
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines((data,) if isinstance(data, bytes) else data)
            file.flush()
            os.fsync(file.fileno())
        if mode is not None:
            temporary.chmod(mode)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable, where the system can: Windows cannot open folders."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_UNSUPPORTED = {errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK, errno.EINVAL}


class LockAttempt(Enum):
    """The result of trying to take a lock."""

    TAKEN = "taken"
    HELD = "held"
    UNSUPPORTED = "unsupported"


class KernelLock:
    """A `flock` on a file of its own, which exists while the lock is held.

    Windows and some network file systems have no `flock`: there `take` returns UNSUPPORTED and
    locks nothing. A forked child of the owner shares the lock, but only the owner releases it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    everywhere = False

    def take(self) -> LockAttempt:
        """Try once, without waiting. Raises EngineError if the file cannot be created."""
        try:
            return self._try_take()
        except OSError as error:
            raise EngineError(
                f"the stack cannot be locked: {self.path} cannot be written: "
                f"{error.strerror or error}",
                hint="Nothing was changed. Fix the permissions, or free some disk space, and run "
                "the command again.",
            ) from error

    def check(self) -> None:
        """Do nothing: no process takes the lock from a living one."""

    def describe_holder(self) -> str:
        """Return "": the kernel does not name the holder; Pulumi's lock file does."""
        return ""

    def release(self) -> None:
        """Release the lock if held, and remove the lock's file."""
        handle, self._handle = self._handle, None
        if handle is None or sys.platform == "win32":
            return
        import fcntl  # noqa: PLC0415 - Windows has none

        # Removed while locked: after the release, another process may hold a lock on the file.
        self.path.unlink(missing_ok=True)
        fcntl.flock(handle, fcntl.LOCK_UN)
        os.close(handle)

    def _try_take(self) -> LockAttempt:
        """Try once to lock the file, which is created if needed.

        Returns TAKEN, HELD by another process, or UNSUPPORTED by the system. Raises OSError.
        """
        if sys.platform == "win32":
            return LockAttempt.UNSUPPORTED
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            handle = os.open(self.path, os.O_RDONLY | os.O_CREAT, 0o666)
            attempt = _try_flock(handle)
            # A lock on a file that its last owner has removed meanwhile excludes nobody.
            if attempt is LockAttempt.TAKEN and self._is_current_file(handle):
                self._handle = handle
                return attempt
            os.close(handle)
            if attempt is not LockAttempt.TAKEN:
                return attempt

    def _is_current_file(self, handle: int) -> bool:
        """Return False if another process removed the file after this process opened the handle."""
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(os.fstat(handle), there)


def _try_flock(handle: int) -> LockAttempt:
    """Lock the open file and return TAKEN, or else HELD (by another process) or UNSUPPORTED.

    Raises OSError, with the file closed.
    """
    if sys.platform == "win32":
        return LockAttempt.UNSUPPORTED
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return LockAttempt.HELD
    except OSError as error:
        if error.errno in _UNSUPPORTED:
            return LockAttempt.UNSUPPORTED
        os.close(handle)
        raise
    return LockAttempt.TAKEN


# As Go's ParseBool reads them.
_BOOLEANS: Final = {"1": True, "t": True, "true": True, "0": False, "f": False, "false": False}


IGNORED_AWS_PARAMETERS: Final = {
    "awssdk",  # the version of the Go library
    "hostname_immutable",
    "rate_limiter_capacity",
    "request_checksum_calculation",
    "response_checksum_validation",
}
"""The parameters of Pulumi's library for AWS that have no effect here."""


@dataclass(frozen=True, slots=True)
class UrlWithParameters:
    """A URL of a backend or key with the values of each parameter, of which the first one counts.

    `display_url` is the URL without parameters and password, for messages.
    """

    kind: ClassVar[str]
    """What the URL names, for messages."""
    error: ClassVar[type[EngineError]]
    """The class of errors in the parameters."""

    display_url: str
    parameters: Mapping[str, Sequence[str]]

    def get_text(self, *names: str) -> str | None:
        """Return the value of the first of these URL parameters that is present, or None."""
        return next((self.parameters[name][0] for name in names if name in self.parameters), None)

    def get_bool(self, *names: str) -> bool:
        """Return True if the first given parameter is true, False if none is given.

        Raises:
            EngineError: the parameter is no boolean.
        """
        setting = self.get_text(*names)
        if setting is None:
            return False
        if setting.lower() not in _BOOLEANS:
            raise self.error(
                f"the {self.kind} {self.display_url} has {names[0]}={setting}",
                hint="Write true or false.",
            )
        return _BOOLEANS[setting.lower()]

    def reject_unknown_parameters(self, known: Collection[str]) -> None:
        """Raise EngineError for a parameter missing in `known`."""
        for name in self.parameters:
            if name not in known:
                close_matches = get_close_matches(name, known, n=1)
                suggestion = f"Did you mean {close_matches[0]}? " if close_matches else ""
                raise self.error(
                    f"the {self.kind} {self.display_url} has an unknown parameter: {name}",
                    hint=f"{suggestion}Parameters: {', '.join(sorted(known))}.",
                )


def get_pip_requirement(extra: str = "") -> str:
    """Return the requirement by which pip installs this gpuform: folder, file, URL or name.

    Of an installation without a URL it is the name, which an index must have.
    """
    extras = f"[{extra}]" if extra else ""
    direct_url = importlib.metadata.distribution("gpuform").read_text("direct_url.json")
    url = str(json.loads(direct_url)["url"]) if direct_url else ""
    if url.startswith("file:"):
        return f"{unquote(urlsplit(url).path)}{extras}"
    return f"gpuform{extras} @ {url}" if url else f"gpuform{extras}"


TRIED_VERSION: Final = (3, 274, 1)
"""The newest Pulumi CLI that the suite of docs/reference/pulumi-cli.md was run with."""
LAST_TRIED: Final = TRIED_VERSION[:2]


def read_cli_version(environ: Mapping[str, str]) -> tuple[int, int] | None:
    """Return major and minor version of the `pulumi` on PATH, or None without a working one."""
    cli = shutil.which("pulumi", path=environ.get("PATH"))
    if cli is None:
        return None
    try:
        version_output = subprocess.run(  # noqa: S603 - the program that the user would start
            [cli, "version"],
            env={**environ, "PULUMI_SKIP_UPDATE_CHECK": "1"},
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"v(\d+)\.(\d+)", version_output)
    return (int(version[1]), int(version[2])) if version else None


_Version = tuple[int, int, int]

_COMPARED: Final[dict[str, Callable[[_Version, _Version], bool]]] = {
    ">=": lambda ours, theirs: ours >= theirs,
    "<=": lambda ours, theirs: ours <= theirs,
    ">": lambda ours, theirs: ours > theirs,
    "<": lambda ours, theirs: ours < theirs,
    "!=": lambda ours, theirs: ours != theirs,
    "!": lambda ours, theirs: ours != theirs,
    "==": lambda ours, theirs: ours == theirs,
    "=": lambda ours, theirs: ours == theirs,
    "": lambda ours, theirs: ours == theirs,
}
_CONDITION: Final = re.compile(r"(>=|<=|!=|==|>|<|!|=)?\s*v?(\d+)\.(\d+)\.(\d+)")


def describe_release() -> str:
    """Return the release of this process in the form of plans: gpuform 0.1.0."""
    return f"gpuform {importlib.metadata.version('gpuform')}"


def require_version(version_range: str, source: str) -> None:
    """Reject a range without the Pulumi version followed by gpuform.

    Args:
        version_range: in Pulumi's syntax: `>=3.5.0 !3.7.7`, `<3.4.0 || >3.8.0`.
        source: who requires the range, for the message.

    Raises:
        EngineError: the version is outside, or the text is not a range.
    """
    if not is_in_range(TRIED_VERSION, version_range, source):
        ours = ".".join(map(str, TRIED_VERSION))
        raise EngineError(
            f"{source} requires Pulumi {version_range}, and gpuform behaves as Pulumi {ours}",
            hint=f"{USE_THE_CLI}, or widen the range",
        )


def is_in_range(version: _Version, version_range: str, source: str) -> bool:
    """Return True if one of the alternatives of `version_range` contains `version`.

    Raises EngineError for text that is not a range; alternatives after the first fit are not read.
    """
    return any(
        _matches_all_conditions(version, conditions, source)
        for conditions in version_range.split("||")
    )


def _matches_all_conditions(version: _Version, conditions: str, source: str) -> bool:
    """Return True if the version fulfills all conditions, such as `>=3.5.0 <4.0.0`.

    Raises EngineError for conditions in another form; `source` names their place.
    """
    matches = list(_CONDITION.finditer(conditions))
    if not matches or _CONDITION.sub("", conditions).strip():
        raise EngineError(
            f"{source}: {conditions.strip()!r} is not a version range",
            hint="write a range such as >=3.5.0 <4.0.0",
        )
    return all(
        _COMPARED[match[1] or ""](version, (int(match[2]), int(match[3]), int(match[4])))
        for match in matches
    )
