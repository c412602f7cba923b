"""The processes that play cases: each is one run, ended with its children when it is time."""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.values import Redactor
from gpuform.schemas.plan import Plan
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.testing.comparing import durations_text
from gpuform.stacks.testing.playing import Part, look, play
from gpuform.stacks.testing.report import Report
from gpuform.stacks.testing.sealing import seal

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

LIMIT: Final = 300.0
"""How many real seconds a run may take: a program that hangs would never end."""
_OUTPUT: Final = "output"
_PRELOADED: Final = "gpuform.stacks.testing.preloading"
_BEGIN_OR_END: Final = threading.Lock()
"""`start` also reaps the processes of other threads: their `join` would miss the exit code."""


class CrewEnded(Exception):
    """All that is played was ended: there is nothing to tell of this run."""


@dataclass(slots=True)
class Crew:
    """Processes that end together, as on Ctrl-C."""

    _running: set[BaseProcess] = field(default_factory=set)
    _is_ended: bool = False

    def begin(self, process: BaseProcess) -> None:
        """Raises CrewEnded once nothing more is to begin."""
        with _BEGIN_OR_END:
            if self._is_ended:
                raise CrewEnded
            prepare()
            process.start()
            self._running.add(process)

    def finish(self, process: BaseProcess) -> int | None:
        """Waits for its end, and returns its exit code."""
        with _BEGIN_OR_END:
            process.join()
            code = process.exitcode
            self._running.discard(process)
            process.close()
        return code

    def end(self) -> None:
        """Kills those that run; no other begins."""
        with _BEGIN_OR_END:
            self._is_ended = True
            for process in self._running:
                kill(process)

    @property
    def is_ended(self) -> bool:
        return self._is_ended


class Process:
    """One process for one part, within `limit` real seconds. `told` is why it could not be played.

    It is one of a `crew`, or alone.
    """

    def __init__(self, part: Part, crew: Crew | None = None, limit: float = LIMIT) -> None:
        self._part = part
        self._crew = crew or Crew()
        self._limit = limit
        self._plan: Plan | None = None
        self.told = ""

    def play(self) -> Report | None:
        """The report of the run; of one that was killed, what it has left.

        Raises CrewEnded when the crew was ended meanwhile.
        """
        found, code = self._ask(play_in_process)
        if isinstance(found, Report):
            return found
        is_killed = code is not None and code < 0 and not self.told
        if is_killed and self._kills:
            seen, _ = self._ask(look_in_process)
            if isinstance(seen, Report):
                return replace(seen, plan=self._plan)
        told = self.told or f"its process exited with {code}{self._output()}"
        self.told = Redactor((self._part.inputs.secrets or {}).values()).redact(told)
        return None

    @property
    def _kills(self) -> bool:
        return any(event.kill for event in self._part.inputs.events or ())

    def _ask(self, what: Callable[[Part, Connection], None]) -> tuple[Any, int | None]:
        context = _context()
        here, there = context.Pipe()
        process = context.Process(target=what, args=(self._part, there), daemon=True)
        with here:
            try:
                self._crew.begin(process)
            finally:
                there.close()
            try:
                found = self._heard(here, process)
            except BaseException:
                kill(process)
                raise
            finally:
                code = self._crew.finish(process)
        if self._crew.is_ended:
            raise CrewEnded
        return found, code

    def _heard(self, answers: Connection, process: BaseProcess) -> Any:
        """What the process answers until it ends, or has taken too long."""
        found: Any = None
        end = time.monotonic() + self._limit
        with contextlib.suppress(EOFError, ConnectionResetError):
            while answers.poll(max(end - time.monotonic(), 0)):
                said = answers.recv()
                if isinstance(said, Plan):
                    self._plan = said
                elif isinstance(said, str):
                    self.told = said + self._output()
                else:
                    found = said
            kill(process)
            limit = durations_text(self._limit)
            self.told = f"it did not end within {limit} of real time{self._output()}"
        return found

    def _output(self) -> str:
        try:
            text = (self._part.folder / _OUTPUT).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return f"\n{text.rstrip()}" if text.strip() else ""


def kill(process: BaseProcess) -> None:
    """Kills it, with all that it has begun, where it leads a group of its own by now."""
    pid = process.pid
    if pid is None:
        return
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
            return
    process.kill()


def play_in_process(part: Part, answers: Connection) -> None:
    """The beginning of a process that plays a part."""
    _answer(part, answers, lambda: play(part, answers.send))


def look_in_process(part: Part, answers: Connection) -> None:
    """The beginning of a process that only looks at what a killed one has left."""
    _answer(part, answers, lambda: look(part))


def _answer(part: Part, answers: Connection, work: Callable[[], object]) -> None:
    if hasattr(os, "setsid"):
        os.setsid()  # Ctrl-C is for the process that waits, which ends this one
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    with (part.folder / _OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.chdir(part.project.parent)
    seal(part.port)
    try:
        found = work()
    except Exception:  # noqa: BLE001 - told by the process that waits
        answers.send(traceback.format_exc())
    else:
        answers.send(found)
    answers.close()
    sys.stdout.flush()
    os._exit(0)  # threads of a program may go on


def _end_with_parent() -> None:
    """Ends this process, and what it has begun, once nobody waits for it any more."""
    parent = multiprocessing.parent_process()
    if parent is None:
        return
    wait([parent.sentinel])
    if hasattr(os, "killpg"):
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


@contextlib.contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """What is begun in here ignores Ctrl-C. Only the main thread can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def prepare() -> None:
    """Begins the server that processes are forked from, unless it runs. Begun by the main thread,
    it is not ended by Ctrl-C before its processes are. Raises EngineError where it cannot begin."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        _context()
        from multiprocessing import forkserver  # noqa: PLC0415 - not on all systems

        try:
            with _without_ctrl_c():
                forkserver.ensure_running()
        except OSError as error:
            raise EngineError(
                f"the processes of cases cannot be begun in {tempfile.gettempdir()}: {error}",
                hint="set TMPDIR to a folder with a short path, which can be written",
            ) from error


def _context() -> "ForkServerContext | SpawnContext":
    """Processes that begin with everything loaded, and with no thread of another."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context
