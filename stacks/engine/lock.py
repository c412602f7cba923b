"""The lock of a stack in Pulumi's DIY backend: one file for each process that holds one.

Pulumi's protocol, so that both engines respect each other's locks: list, write, list again.
"""

import atexit
import getpass
import json
import os
import socket
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gpuform.stacks.engine.atomic import replace_file
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import timestamp


class LockedError(EngineError):
    """Another process works on the stack, or one that died left its lock."""


class StackLock:
    """The lock of one stack, in its lock folder; a context manager.

    It is also released when the interpreter ends. A process that is killed leaves its file behind,
    which `pulumi cancel` or its removal by hand undoes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / f"{uuid.uuid4()}.json"

    def acquire(self) -> None:
        """Take the lock; LockedError tells who has it. Two that try at once may both fail."""
        self._refuse_others()
        content = {
            "pid": os.getpid(),
            "username": _user(),
            "hostname": socket.gethostname(),
            "timestamp": timestamp(),
        }
        try:
            replace_file(self._path, json.dumps(content).encode())
        except OSError as error:
            raise EngineError(
                f"the lock {self._path} cannot be written: {error.strerror}"
            ) from error
        atexit.register(self.release)
        try:
            self._refuse_others()
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give the lock back; without effect when it is not held."""
        atexit.unregister(self.release)
        self._path.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def _refuse_others(self) -> None:
        others = sorted(path for path in self._folder.glob("*.json") if path != self._path)
        if others:
            raise LockedError(
                "the stack is locked:\n  " + "\n  ".join(map(_describe, others)),
                hint="Wait until the other process has ended. If it is gone, remove the file "
                "or run `pulumi cancel`.",
            )


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # an account without a name, as in some containers
        return str(os.getuid())


def _describe(path: Path) -> str:
    """Who holds a lock, since when, and whether the process still runs where that can be told."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return f"{path}: released just now; try again"
    except (OSError, ValueError):
        return f"{path}: not a readable lock"
    if not isinstance(content, dict) or not content:
        return f"{path}: it does not say by whom"
    who = f"{content.get('username')}@{content.get('hostname')} (pid {content.get('pid')})"
    age = _age(str(content.get("timestamp")), datetime.now(UTC))
    return f"{path}: by {who}{age}{'' if _may_run(content) else '; this process no longer runs'}"


def _age(text: str, now: datetime) -> str:
    try:
        since = now - datetime.fromisoformat(text)
    except (ValueError, TypeError):
        return ""
    return f", {timedelta(seconds=max(0, int(since.total_seconds())))} ago"


def _may_run(content: dict[str, Any]) -> bool:
    pid = content.get("pid")
    if content.get("hostname") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
