"""What the files say that Pulumi's DIY backend keeps for the locks of a stack."""

import getpass
import json
import os
import socket
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from gpuform.stacks.engine.state import timestamp
from gpuform.stacks.engine.values import load

_ENGINE = "gpuform"


def owner() -> dict[str, str | int]:
    """This process, as Pulumi tells it, and one field by which gpuform knows its own."""
    return {
        "pid": os.getpid(),
        "username": user(),
        "hostname": socket.gethostname(),
        "timestamp": timestamp(),
        "engine": _ENGINE,
    }


def content() -> bytes:
    """The text of this process's lock."""
    return json.dumps(owner()).encode()


@dataclass(frozen=True, slots=True)
class LockFile:
    """One lock: who made it, where and when. What it does not say is empty (`pid` 0).

    `fault` says why it tells nothing.
    """

    name: str
    where: str
    pid: int = 0
    user: str = ""
    host: str = ""
    time: str = ""
    engine: str = ""
    fault: str = ""

    @classmethod
    def read(cls, name: str, where: str, data: bytes | None) -> "LockFile":
        """The lock under a name, which may be gone; never fails."""
        if data is None:
            return cls(name, where, fault="released just now; try again")
        try:
            fields = load(data)
        except ValueError:
            return cls(name, where, fault="not a readable lock")
        if not isinstance(fields, dict) or not fields:
            return cls(name, where, fault="it does not say by whom")
        pid = fields.get("pid")
        texts = (
            str(fields.get(key) or "") for key in ("username", "hostname", "timestamp", "engine")
        )
        return cls(name, where, pid if isinstance(pid, int) else 0, *texts)

    @property
    def is_gpuforms(self) -> bool:
        """Whether gpuform made it, on any machine."""
        return self.engine == _ENGINE

    @property
    def runs_here(self) -> bool:
        """Whether its process runs on this machine."""
        return self._is_local and _runs(self.pid)

    @property
    def has_ended(self) -> bool:
        """Whether its process was one of this machine and runs no more."""
        return self._is_local and not _runs(self.pid)

    @property
    def is_left(self) -> bool:
        """Whether gpuform left it here, for who knows that no gpuform process of this machine is
        at work on the stack: this one may have got the number of the one that died."""
        ended = self.pid == os.getpid() or not _runs(self.pid)
        return self.is_gpuforms and self._is_local and ended

    @property
    def _is_local(self) -> bool:
        return self.pid > 0 and self.host == socket.gethostname()

    def describe(self) -> str:
        """Who holds it, since when, and whether the process still runs where that can be told."""
        if self.fault:
            return f"{self.where}: {self.fault}"
        ended = "; this process no longer runs" if self.has_ended else ""
        return f"{self.where}: {self._owner}{_age(self.time, datetime.now(UTC))}{ended}"

    @property
    def who(self) -> str:
        """Whose it is, and since when: `ada@build-7 (pid 4711) by gpuform, since ... UTC`."""
        since = _age(self.time, datetime.now(UTC)).removeprefix(", ")
        if not since:
            return self._owner
        moment = datetime.fromisoformat(self.time).astimezone(UTC)
        return f"{self._owner}, since {moment:%Y-%m-%d %H:%M:%S} UTC ({since}),"

    @property
    def _owner(self) -> str:
        by = f" by {_ENGINE}" if self.is_gpuforms else ""
        return f"{self.user or '?'}@{self.host or '?'} (pid {self.pid or '?'}){by}"


def _age(text: str, now: datetime) -> str:
    try:
        since = now - datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return ""
    return f", {timedelta(seconds=max(0, int(since.total_seconds())))} ago"


def user() -> str:
    """The account that this process runs as."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return str(os.getuid())


def _runs(pid: int) -> bool:
    """Whether the process is there; where that cannot be asked, it is taken to be."""
    if os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True
