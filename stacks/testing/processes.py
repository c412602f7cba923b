"""Start the processes of cases, seal them, receive reports, and kill processes with their children.

Each run has a process of its own, because a case may kill its run, and because a sealed process
stays sealed. `runner` and the pytest plugin call `CaseProcess`. A process is sealed before anything
of the project is read, so that it can contact only its emulator. Schedulers that a topology names
are refused earlier, with their names (`gpuform.providers.environment`); the seal holds for every
other way: clients, gates and programs in Python, whatever library they use.
"""

import contextlib
import ipaddress
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.errors import GpuformError
from gpuform.providers.values import Redactor
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.stacks.testing.case_run import CaseRunSpec, inspect_killed_run, run_case
from gpuform.stacks.testing.cases import RunReport
from gpuform.stacks.testing.comparison import format_duration

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext


TIME_LIMIT_S: Final = 300.0
"""How many real seconds a run may take: a program that hangs would never end."""
_OUTPUT_FILE: Final = "output"
PRELOADED_MODULE: Final = "gpuform.stacks.testing.preloading"
_START_OR_JOIN: Final = threading.Lock()
"""Held while a process starts or is joined.

multiprocessing's `start` also reaps the processes of other threads, and their `join` would then
miss the exit code.
"""


class RunsCancelled(Exception):
    """All runs were cancelled, so this run has no report."""


@dataclass(slots=True)
class ProcessRegistry:
    """The running processes of cases, which are killed together, as on Ctrl-C."""

    _running: set[BaseProcess] = field(default_factory=set)
    _is_cancelled: bool = False

    def start(self, process: BaseProcess) -> None:
        """Start the process.

        Raises:
            RunsCancelled: `kill_all` was called.
            EngineError: the fork server cannot start.
        """
        with _START_OR_JOIN:
            if self._is_cancelled:
                raise RunsCancelled
            start_fork_server()
            process.start()
            # Still under the lock, so that `kill_all` misses no process.
            self._running.add(process)

    def wait_for(self, process: BaseProcess) -> int | None:
        """Wait until the process ends, release all resources, and return the exit code.

        No other process can start meanwhile: call it for a process that is ending.
        """
        with _START_OR_JOIN:
            process.join()
            code = process.exitcode
            self._running.discard(process)
            process.close()
        return code

    def kill_all(self) -> None:
        """Kill all running processes; from now on `start` raises RunsCancelled."""
        with _START_OR_JOIN:
            self._is_cancelled = True
            for process in self._running:
                kill_with_children(process)

    @property
    def is_cancelled(self) -> bool:
        """Return True once `kill_all` has cancelled all runs."""
        return self._is_cancelled


EntryPoint = Callable[[Any, Connection], None]
"""What a new process calls, with its argument and the connection for its answers."""


class SealedProcess:
    """A process in the folder of `spec`, with at most `time_limit_s` real seconds.

    `error` is the traceback that the process has sent, or that its time is over; empty otherwise.
    `processes` kills the process together with others; None means that nobody does.
    """

    def __init__(
        self,
        spec: CaseRunSpec,
        processes: ProcessRegistry | None = None,
        time_limit_s: float = TIME_LIMIT_S,
    ) -> None:
        self._spec = spec
        self._processes = processes or ProcessRegistry()
        self._time_limit_s = time_limit_s
        self.error = ""

    def handle_message(self, answer: Any) -> bool:
        """Return True if the answer of the process is a message, rather than the result."""
        del answer
        return False

    def run_in_process(self, entry_point: EntryPoint, argument: Any) -> tuple[Any, int | None]:
        """Return the last answer of a new process, or None, and the process's exit code.

        Raises RunsCancelled if all processes were cancelled meanwhile.
        """
        context = _get_start_context()
        receiver, sender = context.Pipe()
        process = context.Process(target=entry_point, args=(argument, sender), daemon=True)
        with receiver:
            try:
                self._processes.start(process)
            finally:
                sender.close()
            try:
                answer = self._receive_answer(receiver, process)
            except BaseException:
                kill_with_children(process)
                raise
            finally:
                code = self._processes.wait_for(process)
        if self._processes.is_cancelled:
            raise RunsCancelled
        return answer, code

    def _receive_answer(self, receiver: Connection, process: BaseProcess) -> Any:
        """Return the last answer of the process, or None; kill the process after the time limit.

        Messages are handled; a traceback sent by the process goes into `error`.
        """
        last_answer: Any = None
        deadline = time.monotonic() + self._time_limit_s
        with contextlib.suppress(EOFError, ConnectionResetError):
            while receiver.poll(max(deadline - time.monotonic(), 0)):
                answer = receiver.recv()
                if isinstance(answer, str):
                    self.error = answer + self.read_output()
                elif not self.handle_message(answer):
                    last_answer = answer
            # Reached only when `poll` has timed out: at the process's end `recv` raises EOFError.
            kill_with_children(process)
            time_limit = format_duration(self._time_limit_s)
            self.error = f"the run did not end within {time_limit} of real time{self.read_output()}"
        return last_answer

    def read_output(self) -> str:
        """Return a newline and the output of the process; "" without output or a readable file."""
        try:
            output = (self._spec.folder / _OUTPUT_FILE).read_text(
                encoding="utf-8", errors="replace"
            )
        except OSError:
            return ""
        return f"\n{output.rstrip()}" if output.strip() else ""


class CaseProcess(SealedProcess):
    """The process of one case's run. After `run`, `error` says why the run has no report."""

    _plan: Plan | None = None

    def handle_message(self, answer: Any) -> bool:
        """Store the plan sent by the run before the first change."""
        if isinstance(answer, Plan):
            self._plan = answer
        return isinstance(answer, Plan)

    def run(self) -> RunReport | None:
        """Run the case in a new process and return the report, or None without one.

        If an event of the case killed the process, a second process reports the final state. For
        None, `error` says why. Raises RunsCancelled if all runs were cancelled meanwhile.
        """
        answer, code = self.run_in_process(run_case_in_process, self._spec)
        if isinstance(answer, RunReport):
            return answer
        # A negative exit code is the number of the signal.
        is_killed = code is not None and code < 0 and not self.error
        if is_killed and self._has_kill_event:
            report, _ = self.run_in_process(inspect_killed_run_in_process, self._spec)
            if isinstance(report, RunReport):
                return replace(report, plan=self._plan)
        error = self.error or f"the process of the run exited with {code}{self.read_output()}"
        self.error = Redactor((self._spec.inputs.secrets or {}).values()).redact(error)
        return None

    @property
    def _has_kill_event(self) -> bool:
        return any(event.kill for event in self._spec.inputs.events or ())


def kill_with_children(process: BaseProcess) -> None:
    """Kill the process, with all children once the process leads a new group."""
    pid = process.pid
    if pid is None:
        return
    # Before `setsid` there is no such group, and on Windows there are none.
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
            return
    process.kill()


def run_case_in_process(spec: CaseRunSpec, sender: Connection) -> None:
    """Run the case in this new process, and send the plan and then the report."""
    send_result(spec, sender, lambda: run_case(spec, sender.send))


def inspect_killed_run_in_process(spec: CaseRunSpec, sender: Connection) -> None:
    """Send a report about the state and objects left by a killed run, from this new process."""
    send_result(spec, sender, lambda: inspect_killed_run(spec))


def send_result(spec: CaseRunSpec, sender: Connection, work: Callable[[], object]) -> None:
    """Seal this process, send the result of `work`, and end the process without returning.

    If `work` raises an exception, its traceback is sent as text. Before `work`, the process leads a
    group of its own, prints to a file in the run's folder, and is in the project's folder.
    """
    if hasattr(os, "setsid"):
        # Ctrl-C reaches only the process that waits, which kills this one.
        os.setsid()
    threading.Thread(target=_exit_with_parent, name="parent", daemon=True).start()
    with (spec.folder / _OUTPUT_FILE).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.chdir(spec.project.parent)
    # Before any code of the project runs, and never undone.
    seal_process(spec.port)
    try:
        result = work()
    except Exception:  # noqa: BLE001 - reported by the process that waits
        sender.send(traceback.format_exc())
    else:
        sender.send(result)
    sender.close()
    sys.stdout.flush()
    # Threads of the program may still run, and must not delay the end.
    os._exit(0)


def _exit_with_parent() -> None:
    """Kill this process and its children as soon as the parent process has ended."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    if hasattr(os, "killpg"):
        # 0 is this process's own group, with everything that the program has started.
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


@contextlib.contextmanager
def _ignore_ctrl_c() -> Iterator[None]:
    """Let processes started in this context ignore Ctrl-C.

    Does nothing outside of the main thread: Python allows only the main thread to set signal
    handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def start_fork_server() -> None:
    """Start the fork server for the processes of cases, unless one runs.

    The first call is to come from the main thread: Ctrl-C would otherwise end the server before the
    processes of the cases. Does nothing on systems without fork servers.

    Raises:
        EngineError: the server cannot start.
    """
    if "forkserver" in multiprocessing.get_all_start_methods():
        _get_start_context()
        from multiprocessing import forkserver  # noqa: PLC0415 - not on all systems

        try:
            with _ignore_ctrl_c():
                forkserver.ensure_running()
        except OSError as error:
            raise EngineError(
                f"cannot start the processes of cases in {tempfile.gettempdir()}: {error}",
                hint="set TMPDIR to a writable folder with a short path",
            ) from error


def _get_start_context() -> "ForkServerContext | SpawnContext":
    """Return how processes start: forked from the preloaded server, or else spawned."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([PRELOADED_MODULE])
    return context


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
    removes no audit hook before the process ends.
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
        # The command only searches a text, without imports (-I -S).
        if is_ours and program == SEARCH_COMMAND[0]:
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
    """Return a value as text; for a list or tuple the first item, or "" if empty."""
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
