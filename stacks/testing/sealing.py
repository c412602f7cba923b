"""Seal a process that runs a case, so that the process can contact only its emulator.

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
_RULE: Final = "a case may only contact its emulator"
_LOCAL_NAMES: Final = ("", HOST, "localhost")


class AccessBlocked(GpuformError):
    """A case tried to contact something other than its emulator; nothing was sent or started."""

    help_page = "guides/test-a-stack"


class ProgramBlocked(AccessBlocked, PermissionError):
    """A case tried to start a program.

    The class is a PermissionError as well, so that code which can do without the program, such as
    `git`, continues as if the program could not be started.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message, hint)
        self.strerror = message


def seal_process(port: int) -> None:
    """Block every program and every connection except to the emulator at `port`, for good.

    A blocked attempt raises AccessBlocked where it is made. The seal cannot be removed: Python
    removes
    no audit hook before the process ends.
    """
    guards = _Guards(port).build_by_event()

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        # The hook runs for every audit event of the process: it has to be quick.
        guard = guards.get(event)
        if guard is not None:
            guard(arguments)

    sys.addaudithook(audit)


class _Guards:
    """Checks for the audit events of Python that can lead out of a process.

    Each check raises AccessBlocked.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def build_by_event(self) -> Mapping[str, Callable[[tuple[Any, ...]], None]]:
        """Return the check for each guarded audit event, by the event's name.

        A check takes the arguments of the event.
        """
        programs = (
            *("os.system", "os.exec", "os.posix_spawn", "os.spawn", "pty.spawn"),
            *("os.startfile", "os.startfile/2", "_winapi.CreateProcess"),
        )
        lookups = ("socket.gethostbyname", "socket.gethostbyaddr", "socket.getaddrinfo")
        return {
            **dict.fromkeys(
                ("socket.connect", "socket.sendto", "socket.sendmsg"), self._check_address
            ),
            **dict.fromkeys(lookups, self._check_name),
            "socket.getnameinfo": lambda arguments: self._check_name(arguments[0]),
            **dict.fromkeys(programs, self._block_program),
            "subprocess.Popen": self._check_subprocess,
        }

    def _check_address(self, arguments: tuple[Any, ...]) -> None:
        """Raise AccessBlocked for a socket event with an address other than the emulator's.

        `arguments` begin with the socket and the address; None as address is a connection in use.
        """
        connection, address = arguments[:2]
        if address is None:
            # Sent over a connection that was checked when it was made.
            return
        # Unix sockets and IPv6 are blocked too: the emulator listens on IPv4 only.
        is_internet = connection.family == socket.AF_INET
        if is_internet and address[0] in _LOCAL_NAMES and address[1] == self._port:
            return
        endpoint = ":".join(map(str, address[:2])) if isinstance(address, tuple) else address
        raise _create_error(f"connect to {_to_text(endpoint)}")

    def _check_name(self, arguments: tuple[Any, ...]) -> None:
        """Block the lookup of a name: the lookup alone would reveal the name to a DNS server."""
        name = _to_text(arguments[0] or "")
        if name in _LOCAL_NAMES or _is_ip_address(name):
            return
        raise _create_error(f"look up {name}")

    def _check_subprocess(self, arguments: tuple[Any, ...]) -> None:
        """Raise ProgramBlocked for a subprocess other than gpuform's own search of a text."""
        from gpuform.providers.slurm.results import SEARCH_COMMAND  # noqa: PLC0415 - few cases need it

        program, command = arguments[:2]
        is_ours = isinstance(command, list) and tuple(command) == SEARCH_COMMAND
        if (
            is_ours and program == SEARCH_COMMAND[0]
        ):  # only searches a text, without imports (-I -S)
            return
        self._block_program(arguments[1:] if arguments[0] is None else arguments)

    def _block_program(self, arguments: tuple[Any, ...]) -> None:
        """Raise ProgramBlocked in every case; `arguments` begin with the program."""
        raise ProgramBlocked(
            f"{_RULE}: it cannot start {_to_text(arguments[0])}",
            "a program could contact anything: set its output under `config` instead",
        )


def _create_error(action: str) -> AccessBlocked:
    """Return the error for a blocked action, such as `look up example.org`."""
    return AccessBlocked(
        f"{_RULE}: it cannot {action}",
        hint="remove the address; the platforms and their clusters are on the emulator",
    )


def _to_text(value: Any) -> str:
    """Return a value as text; for a list or tuple the first item, or "" if it is empty."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Sequence) and not isinstance(value, str):
        return _to_text(value[0]) if value else ""
    return str(value)


def _is_ip_address(name: str) -> bool:
    """Return True for an IPv4 or IPv6 address; a zone after `%` is ignored."""
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
