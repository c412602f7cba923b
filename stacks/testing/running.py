"""Play cases side by side, dependent ones in their order, and write JUnit XML."""

import os
import random
import shutil
import socket
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Final

from gpuform.stacks.testing.cases import Case, in_chains
from gpuform.stacks.testing.comparing import Finding, findings_of
from gpuform.stacks.testing.playing import Part
from gpuform.stacks.testing.processes import LIMIT, Crew, Process, prepare
from gpuform.stacks.testing.report import Report
from gpuform.stacks.testing.snapshots import Snapshots

__all__ = ["Playing", "Process", "Result", "Status", "free_ports"]

_PORTS: Final = (20_000, 32_000)
"""Below those that systems give to clients, so that nobody takes one between two cases."""
_HOST: Final = "127.0.0.1"


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
    """How cases are played: so many at a time; with `update` snapshots are written anew.

    A case may take `limit` real seconds.
    """

    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    update: bool = False
    limit: float = LIMIT
    heard: Callable[[Result], None] = lambda _result: None
    _folder: Path = field(init=False)
    _ports: Iterator[int] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _crew: Crew = field(default_factory=Crew)

    def play(self, cases: Sequence[Case]) -> list[Result]:
        """All of them; `heard` is told of each in their order, as soon as it is its turn."""
        prepare()
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
            except BaseException:
                self._crew.end()
                raise
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
        process = Process(part, self._crew, self.limit)
        report = process.play()
        if report is None:
            told = process.told
            return Result(case, Status.BROKEN, (), time.monotonic() - begin, None, told)
        findings = findings_of(case, report)
        if not (findings and self.update):  # what is wrong is no snapshot to keep
            findings += snapshots.findings(case, report)
        status = Status.FAILED if findings else Status.PASSED
        seconds = time.monotonic() - begin
        return Result(case, status, findings, seconds, report, "", snapshots.is_updated(case))


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


def junit_text(results: Sequence[Result]) -> str:
    """The whole document."""
    root = ET.Element("testsuites", {"name": "gpuform test", **_counts(results)})
    for file, of_file in groupby(results, key=lambda each: each.case.file):
        group = list(of_file)
        suite = _element(root, "testsuite", name=str(file), **_counts(group))
        for result in group:
            _add(suite, result)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add(suite: ET.Element, result: Result) -> None:
    case = result.case
    place = case.place()
    entry = _element(
        suite,
        "testcase",
        name=case.name,
        classname=f"{case.project.name}.{case.file.stem}",
        file=place.file,
        line=str(place.line),
        time=f"{result.seconds:.3f}",
    )
    if result.status is Status.SKIPPED:
        _element(entry, "skipped", message=f"{case.first} did not pass")
    elif result.status is Status.BROKEN:
        _element(entry, "error", result.told, message="gpuform could not play it")
    elif result.findings:
        texts = [str(finding) for finding in result.findings]
        first, *_ = texts[0].splitlines()
        _element(entry, "failure", "\n".join(texts), message=first)


def _element(parent: ET.Element, tag: str, text: str = "", **attributes: str) -> ET.Element:
    """Every text of it as XML can have it: names of files may be anything."""
    shown = {name: _xml(value) for name, value in attributes.items()}
    element = ET.SubElement(parent, tag, shown)
    element.text = _xml(text) or None
    return element


def _counts(results: Iterable[Result]) -> dict[str, str]:
    results = list(results)
    count = {status: sum(each.status is status for each in results) for status in Status}
    return {
        "tests": str(len(results)),
        "failures": str(count[Status.FAILED]),
        "errors": str(count[Status.BROKEN]),
        "skipped": str(count[Status.SKIPPED]),
        "time": f"{sum(each.seconds for each in results):.3f}",
    }


def _xml(text: str) -> str:
    """The text without the characters that XML does not have."""
    return (
        "".join(
            each
            if each in "\t\n" or (each >= " " and not "\ud800" <= each <= "\udfff")
            else "\ufffd"
            for each in text
        )
        .replace("\ufffe", "\ufffd")
        .replace("\uffff", "\ufffd")
    )
