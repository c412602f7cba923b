"""Cases played side by side, each in a process of its own."""

import contextlib
import multiprocessing
import os
import random
import shutil
import socket
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from enum import StrEnum
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.values import Redactor
from gpuform.schemas.plan import Plan
from gpuform.stacks.testing.cases import Case, in_chains
from gpuform.stacks.testing.comparing import Finding, findings_of
from gpuform.stacks.testing.playing import Part, look, play
from gpuform.stacks.testing.report import Report
from gpuform.stacks.testing.snapshots import Snapshots

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext

_PORTS: Final = (20_000, 32_000)
"""Below those that systems give to clients, so that nobody takes one between two cases."""
_HOST: Final = "127.0.0.1"
_OUTPUT: Final = "output"
_PRELOADED: Final = "gpuform.stacks.testing.preloading"
_BEGIN_OR_END: Final = threading.Lock()
"""`start` also reaps the processes of other threads: their `join` would miss the exit code."""


class Status(StrEnum):
    """What became of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The case that it starts from did not pass."""
    BROKEN = "broken"
    """gpuform itself could not play it."""


@dataclass(frozen=True, slots=True)
class Result:
    """One case played; `seconds` are real ones, `told` is what a broken one has said."""

    case: Case
    status: Status
    findings: Sequence[Finding] = ()
    seconds: float = 0.0
    report: Report | None = None
    told: str = ""
    is_updated: bool = False


@dataclass(slots=True)
class Playing:
    """How cases are played: so many at a time; with `update` snapshots are written anew."""

    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    update: bool = False
    heard: Callable[[Result], None] = lambda _result: None
    _folder: Path = field(init=False)
    _ports: Iterator[int] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def play(self, cases: Sequence[Case]) -> list[Result]:
        """All of them; `heard` is told of each in their order, as soon as it is its turn."""
        self._ports = free_ports()
        snapshots = Snapshots(update=self.update)
        found: dict[tuple[Path, str], Result] = {}
        untold = deque(cases)
        with tempfile.TemporaryDirectory(prefix="gpuform-test-") as folder:
            self._folder = Path(folder)

            def run(chain: list[Case]) -> None:
                for result in self._chain(chain, snapshots):
                    with self._lock:
                        found[result.case.file, result.case.name] = result
                        while untold and (untold[0].file, untold[0].name) in found:
                            told = untold.popleft()
                            self.heard(found[told.file, told.name])

            pool = ThreadPoolExecutor(self.jobs)
            try:
                # Long chains first: nothing is left to do alone at the end.
                chains = sorted(in_chains(cases), key=len, reverse=True)
                for _ in pool.map(run, chains):
                    pass
            finally:
                pool.shutdown(cancel_futures=True)
        snapshots.save()
        return [found[case.file, case.name] for case in cases]

    def _chain(self, chain: list[Case], snapshots: Snapshots) -> Iterator[Result]:
        with self._lock:
            port = next(self._ports)
        folders: dict[str, Path] = {}
        for number, case in enumerate(chain):
            if case.first is not None and case.first not in folders:
                yield Result(case, Status.SKIPPED)
                continue
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            if case.first is not None:
                shutil.copytree(folders[case.first], folder, dirs_exist_ok=True)
            state = case.state.resolve() if case.state else None
            part = Part(case.project.path, folder, port, case.inputs, bool(case.first), state)
            begin = time.monotonic()
            result = self._result(case, part, snapshots, begin)
            if result.status is Status.PASSED:
                folders[case.name] = folder
            if not any(later.first == case.name for later in chain[number + 1 :]):
                shutil.rmtree(folder, ignore_errors=True)
            yield result

    def _result(self, case: Case, part: Part, snapshots: Snapshots, begin: float) -> Result:
        process = Process(part)
        report = process.play()
        if report is None:
            told = process.told
            return Result(case, Status.BROKEN, (), time.monotonic() - begin, None, told)
        findings = [*findings_of(case, report), *snapshots.findings(case, report)]
        status = Status.FAILED if findings else Status.PASSED
        seconds = time.monotonic() - begin
        return Result(case, status, findings, seconds, report, "", snapshots.is_updated(case))


class Process:
    """One process for one part. `told` is why it could not be played."""

    def __init__(self, part: Part) -> None:
        self._part = part
        self._plan: Plan | None = None
        self.told = ""

    def play(self) -> Report | None:
        """The report of the run; of one that was killed, what it has left."""
        found, code = self._ask(play_in_process)
        if isinstance(found, Report):
            return found
        is_killed = code is not None and code < 0 and not self.told
        if is_killed and self._kills:
            seen, _ = self._ask(look_in_process)
            if isinstance(seen, Report):
                return replace(seen, plan=self._plan)
        told = self.told or f"its process ended with {code}{self._output()}"
        self.told = Redactor((self._part.inputs.secrets or {}).values()).redact(told)
        return None

    @property
    def _kills(self) -> bool:
        return any(event.kill for event in self._part.inputs.events or ())

    def _ask(self, what: Callable[[Part, Connection], None]) -> tuple[Any, int | None]:
        context = _context()
        here, there = context.Pipe()
        process = context.Process(target=what, args=(self._part, there), daemon=True)
        with _BEGIN_OR_END:
            process.start()
        there.close()
        found: Any = None
        with contextlib.suppress(EOFError), here:
            while True:
                said = here.recv()
                if isinstance(said, Plan):
                    self._plan = said
                elif isinstance(said, str):
                    self.told = said + self._output()
                else:
                    found = said
        with _BEGIN_OR_END:
            process.join()
            code = process.exitcode
            process.close()
        return found, code

    def _output(self) -> str:
        try:
            text = (self._part.folder / _OUTPUT).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return f"\n{text.rstrip()}" if text.strip() else ""


def play_in_process(part: Part, answers: Connection) -> None:
    """The beginning of a process that plays a part."""
    _answer(part, answers, lambda: play(part, answers.send))


def look_in_process(part: Part, answers: Connection) -> None:
    """The beginning of a process that only looks at what a killed one has left."""
    _answer(part, answers, lambda: look(part))


def _answer(part: Part, answers: Connection, work: Callable[[], object]) -> None:
    with (part.folder / _OUTPUT).open("ab") as output:
        for stream in (1, 2):
            os.dup2(output.fileno(), stream)
    os.chdir(part.project.parent)
    try:
        found = work()
    except Exception:  # noqa: BLE001 - told by the process that waits
        answers.send(traceback.format_exc())
    else:
        answers.send(found)
    answers.close()
    sys.stdout.flush()
    os._exit(0)  # threads of a program may go on


def _context() -> "ForkServerContext | SpawnContext":
    """Processes that begin with everything loaded, and with no thread of another."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([_PRELOADED])
    return context


def free_ports() -> Iterator[int]:
    first, end = _PORTS
    start = random.SystemRandom().randrange(first, end)
    for port in (*range(start, end), *range(first, start)):
        with socket.socket() as probe:
            try:
                probe.bind((_HOST, port))
            except OSError:
                continue
        yield port
