"""Seal a process that plays a case, so that it reaches its emulator and nothing else.

`processes` seals every process that it starts, before anything of the project is read. Schedulers
that a topology names are refused earlier, with their names (`gpuform.providers.environment`); the
seal holds for every other way: clients, gates and programs in Python, whatever library they use.
"""

import ipaddress
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from gpuform.providers.errors import GpuformError

HOST: Final = "127.0.0.1"
_ALONE: Final = "a case reaches its emulator alone"
_LOCAL_NAMES: Final = ("", HOST, "localhost")


class OutsideOfCase(GpuformError):
    """A case would reach something real; nothing was sent or started."""

    help_page = "guides/test-a-stack"


class ProgramRefused(OutsideOfCase, PermissionError):
    """A case would start a program.

    It is a PermissionError, too: who can do without the program, as without `git`, goes on.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.strerror = message


def seal(port: int) -> None:
    """Refuse every connection but those to the emulator at `port`, and every program, for good.

    What is refused raises OutsideOfCase where it is tried. There is no way back: Python removes no
    audit hook before the process ends.
    """
    guards = _Guards(port).by_event()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        guard = guards.get(event)
        if guard is not None:
            guard(arguments)

    sys.addaudithook(audit)


class _Guards:
    """The audit events of Python that lead out of a process; each guard raises OutsideOfCase."""

    def __init__(self, port: int) -> None:
        self._port = port

    def by_event(self) -> Mapping[str, Callable[[tuple[Any, ...]], None]]:
        programs = (
            *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"),
            *("os.startfile", "os.startfile/2", "_winapi.CreateProcess"),
        )
        names = ("socket.gethostbyname", "socket.gethostbyaddr", "socket.getaddrinfo")
        return {
            **dict.fromkeys(("socket.connect", "socket.sendto", "socket.sendmsg"), self._address),
            **dict.fromkeys(names, self._name),
            "socket.getnameinfo": lambda arguments: self._name(arguments[0]),
            **dict.fromkeys(programs, self._program),
            "subprocess.Popen": self._process,
        }

    def _address(self, arguments: tuple[Any, ...]) -> None:
        connection, address = arguments[:2]
        if address is None:  # sent over a connection that was let through
            return
        is_internet = connection.family == socket.AF_INET
        if is_internet and address[0] in _LOCAL_NAMES and address[1] == self._port:
            return
        place = ":".join(map(str, address[:2])) if isinstance(address, tuple) else address
        raise _refusal(f"connect to {_text(place)}")

    def _name(self, arguments: tuple[Any, ...]) -> None:
        """Refuse to look a name up: the question alone would tell it to a server."""
        name = _text(arguments[0] or "")
        if name in _LOCAL_NAMES or _is_number(name):
            return
        raise _refusal(f"look up {name}")

    def _process(self, arguments: tuple[Any, ...]) -> None:
        from gpuform.providers.slurm.results import SEARCH_COMMAND  # noqa: PLC0415 - few cases need it

        program, words = arguments[:2]
        is_ours = isinstance(words, list) and tuple(words) == SEARCH_COMMAND
        if is_ours and program == SEARCH_COMMAND[0]:  # reads a text, and has no modules (-I -S)
            return
        self._program(arguments[1:] if arguments[0] is None else arguments)

    def _program(self, arguments: tuple[Any, ...]) -> None:
        raise ProgramRefused(
            f"{_ALONE}: it may not start {_text(arguments[0])}",
            "a program could reach anything: give the case what it would print, under `config`",
        )


def _refusal(action: str) -> OutsideOfCase:
    return OutsideOfCase(
        f"{_ALONE}: it may not {action}",
        hint="leave out the address; the platforms and their clusters are on the emulator",
    )


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _text(value[0]) if value else ""
    return str(value)


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
