"""Run cases in parallel, dependent cases in their order, and report their results and coverage.

`gpuform test` calls `CaseRunner`; each case runs in a process of its own (see `processes`). Results
are also written as JUnit XML. `--coverage` measures which entries, branches of `when` and gates of
a project its passed cases have exercised.
"""

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

from gpuform.stacks.review.value_text import counted
from gpuform.stacks.testing.case_run import CaseRunSpec
from gpuform.stacks.testing.cases import Case, ExpandedEntry, RunReport, build_chains
from gpuform.stacks.testing.comparison import UnmetExpectation, compare_run, get_verdict
from gpuform.stacks.testing.processes import (
    TIME_LIMIT_S,
    CaseProcess,
    ProcessRegistry,
    start_fork_server,
)
from gpuform.stacks.testing.snapshots import Snapshots

_PORT_RANGE: Final = (20_000, 32_000)
"""Below the ports that systems give to clients: none takes a port between two cases."""
_HOST: Final = "127.0.0.1"


class CaseStatus(StrEnum):
    """The result of a case."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """The predecessor of the case did not pass."""
    BROKEN = "broken"
    """gpuform itself could not run the case."""


@dataclass(frozen=True, slots=True)
class CaseResult:
    """The result of one case.

    `seconds` are real seconds. `error` says why a broken case could not run; empty otherwise.
    `is_updated` is True if the case's snapshot is to be written.
    """

    case: Case
    status: CaseStatus
    findings: Sequence[UnmetExpectation] = ()
    seconds: float = 0.0
    report: RunReport | None = None
    error: str = ""
    is_updated: bool = False


@dataclass(slots=True)
class CaseRunner:
    """Runs cases, `jobs` at a time.

    Args:
        jobs: how many cases run in parallel; the number of processors by default.
        update: True to write snapshots that differ instead of reporting the differences.
        time_limit_s: real seconds that one case may take.
        on_result: called with each result, in the order of the cases.
    """

    jobs: int = field(default_factory=lambda: os.cpu_count() or 1)
    update: bool = False
    time_limit_s: float = TIME_LIMIT_S
    on_result: Callable[[CaseResult], None] = lambda _result: None
    _folder: Path = field(init=False)
    _ports: Iterator[int] = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _processes: ProcessRegistry = field(default_factory=ProcessRegistry)

    def run(self, cases: Sequence[Case]) -> list[CaseResult]:
        """Run all cases and return the results in the order of `cases`.

        `on_result` is called as soon as the case and all cases before it have ended. Snapshots are
        written at the end if `update` is True. An exception or Ctrl-C kills all processes of cases.
        """
        start_fork_server()
        self._ports = find_free_ports()
        snapshots = Snapshots(update=self.update)
        results_by_case: dict[tuple[Path, str], CaseResult] = {}
        unreported_cases = deque(cases)
        with tempfile.TemporaryDirectory(prefix="gpuform-test-") as folder:
            self._folder = Path(folder)

            def run_chain(chain: list[Case]) -> None:
                for result in self._run_chain(chain, snapshots):
                    with self._lock:
                        results_by_case[result.case.file, result.case.name] = result
                        while unreported_cases:
                            first = unreported_cases[0]
                            if (first.file, first.name) not in results_by_case:
                                break
                            next_case = unreported_cases.popleft()
                            self.on_result(results_by_case[next_case.file, next_case.name])

            pool = ThreadPoolExecutor(self.jobs)
            try:
                # Long chains first, so that none runs alone at the end.
                chains = sorted(build_chains(cases), key=len, reverse=True)
                for _ in pool.map(run_chain, chains):
                    pass
            # Also Ctrl-C, which the processes of cases do not receive: each leads a group of its
            # own.
            except BaseException:
                self._processes.kill_all()
                raise
            finally:
                pool.shutdown(cancel_futures=True)
        snapshots.save()
        return [results_by_case[case.file, case.name] for case in cases]

    def _run_chain(self, chain: list[Case], snapshots: Snapshots) -> Iterator[CaseResult]:
        """Run the cases of a chain one after another, and yield the results.

        A case whose predecessor did not pass is skipped.
        """
        with self._lock:
            # One port for the chain: the state names the emulator's address.
            port = next(self._ports)
        folders: dict[str, Path] = {}
        for index, case in enumerate(chain):
            if case.predecessor is not None and case.predecessor not in folders:
                yield CaseResult(case, CaseStatus.SKIPPED)
                continue
            folder = Path(tempfile.mkdtemp(dir=self._folder))
            if case.predecessor is not None:
                # A copy: several cases may start from the same one.
                shutil.copytree(folders[case.predecessor], folder, dirs_exist_ok=True)
            state_file = case.state_file.resolve() if case.state_file else None
            spec = CaseRunSpec(
                case.project.path, folder, port, case.inputs, bool(case.predecessor), state_file
            )
            started_at = time.monotonic()
            result = self._run_case(case, spec, snapshots, started_at)
            if result.status is CaseStatus.PASSED:
                folders[case.name] = folder
            # The emulator and the state are needed only by later cases of the chain.
            if not any(later_case.predecessor == case.name for later_case in chain[index + 1 :]):
                shutil.rmtree(folder, ignore_errors=True)
            yield result

    def _run_case(
        self, case: Case, spec: CaseRunSpec, snapshots: Snapshots, started_at: float
    ) -> CaseResult:
        """Run a case in a new process, and return the result with all findings.

        A run without report makes the case BROKEN; findings make it FAILED. With `update`, a run
        without other findings sets the snapshot. Raises RunsCancelled if all runs were cancelled.
        """
        process = CaseProcess(spec, self._processes, self.time_limit_s)
        report = process.run()
        if report is None:
            error = process.error
            return CaseResult(
                case, CaseStatus.BROKEN, (), time.monotonic() - started_at, None, error
            )
        findings = compare_run(case, report)
        if not (findings and self.update):  # a run with findings is not worth a snapshot
            findings += snapshots.find_differences(case, report)
        status = CaseStatus.FAILED if findings else CaseStatus.PASSED
        seconds = time.monotonic() - started_at
        return CaseResult(case, status, findings, seconds, report, "", snapshots.is_updated(case))


def find_free_ports() -> Iterator[int]:
    """Yield free ports of 127.0.0.1, beginning at a random port of the range.

    A port is only probed: another program may take it before its use. The random start keeps two
    test runs on one machine from trying the same ports.
    """
    first, end = _PORT_RANGE
    start = random.SystemRandom().randrange(first, end)
    for port in (*range(start, end), *range(first, start)):
        with socket.socket() as probe_socket:
            try:
                # Only a probe: the emulator binds the port later.
                probe_socket.bind((_HOST, port))
            except OSError:
                continue
        yield port


def render_junit(results: Sequence[CaseResult]) -> str:
    """Return the results as a JUnit XML document, with a test suite for each test file."""
    root = ET.Element("testsuites", {"name": "gpuform test", **_count_results(results)})
    for file, file_results in groupby(results, key=lambda case_result: case_result.case.file):
        results_of_file = list(file_results)
        suite = _add_element(root, "testsuite", name=str(file), **_count_results(results_of_file))
        for result in results_of_file:
            _add_testcase(suite, result)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _add_testcase(suite: ET.Element, result: CaseResult) -> None:
    case = result.case
    position = case.get_position()
    testcase = _add_element(
        suite,
        "testcase",
        name=case.name,
        classname=f"{case.project.name}.{case.file.stem}",
        file=position.file,
        line=str(position.line),
        time=f"{result.seconds:.3f}",
    )
    if result.status is CaseStatus.SKIPPED:
        _add_element(testcase, "skipped", message=f"{case.predecessor} did not pass")
    elif result.status is CaseStatus.BROKEN:
        _add_element(testcase, "error", result.error, message="gpuform could not run the case")
    elif result.findings:
        findings = [str(finding) for finding in result.findings]
        first_line, *_ = findings[0].splitlines()
        _add_element(testcase, "failure", "\n".join(findings), message=first_line)


def _add_element(parent: ET.Element, tag: str, content: str = "", **attributes: str) -> ET.Element:
    """Add an element with every character invalid in XML replaced.

    Names of files may contain any character.
    """
    valid_attributes = {
        name: _replace_invalid_characters(value) for name, value in attributes.items()
    }
    element = ET.SubElement(parent, tag, valid_attributes)
    element.text = _replace_invalid_characters(content) or None
    return element


def _count_results(results: Iterable[CaseResult]) -> dict[str, str]:
    """Return JUnit's attributes of a test suite: result counts by status, and total seconds."""
    results = list(results)
    counts = {status: sum(result.status is status for result in results) for status in CaseStatus}
    return {
        "tests": str(len(results)),
        "failures": str(counts[CaseStatus.FAILED]),
        "errors": str(counts[CaseStatus.BROKEN]),
        "skipped": str(counts[CaseStatus.SKIPPED]),
        "time": f"{sum(result.seconds for result in results):.3f}",
    }


def _replace_invalid_characters(text: str) -> str:
    """Return the text with U+FFFD in place of characters invalid in XML."""
    return (
        "".join(
            character
            # Surrogates come from names of files that are not UTF-8.
            if character in "\t\n" or (character >= " " and not "\ud800" <= character <= "\udfff")
            else "\ufffd"
            for character in text
        )
        .replace("\ufffe", "\ufffd")
        .replace("\uffff", "\ufffd")
    )


@dataclass(slots=True)
class EntryCoverage:
    """The coverage of one entry or module of a topology; `position` is where it is declared.

    `was_left_out` is True once `when` was false for an instance of the entry in some plan.
    """

    address: str
    position: str
    is_conditional: bool
    instances: set[str] = field(default_factory=set)
    was_left_out: bool = False

    @property
    def gaps(self) -> Iterator[str]:
        """Yield a message for each part of the entry not exercised by any case."""
        if not self.instances:
            yield f"{self.address} ({self.position}) is in no plan"
        if self.is_conditional and not self.was_left_out:
            yield f"{self.address} ({self.position}): its `when` is never false"


@dataclass(slots=True)
class Coverage:
    """The coverage of one project.

    `entries` are by position, and None for a Python program, which does not say what it could
    declare. `gates` says of each gate by name whether it has ever stopped or warned.
    """

    project: str
    cases: int = 0
    entries: dict[str, EntryCoverage] | None = None
    gates: dict[str, bool] = field(default_factory=dict)

    def add_result(self, result: CaseResult) -> None:
        """Add the entries and gates of a case's run; cases not passed are ignored."""
        report = result.report
        if report is None or result.status is not CaseStatus.PASSED:
            return
        self.cases += 1
        for gate in (report.plan.gates if report.plan is not None else None) or ():
            has_reported = self.gates.get(gate.name, False)
            self.gates[gate.name] = has_reported or get_verdict(gate) != "passes"
        for expanded in report.entries or ():
            self._add_entry(expanded, is_planned=report.plan is not None)

    def _add_entry(self, expanded: ExpandedEntry, *, is_planned: bool) -> None:
        """Add an entry of a case to the coverage, with the entry's planned instances.

        Without a plan the entry is listed, but nothing of it counts as exercised.
        """
        self.entries = {} if self.entries is None else self.entries
        new_entry = EntryCoverage(expanded.address, expanded.position, expanded.is_conditional)
        entry = self.entries.setdefault(expanded.position, new_entry)
        # Without a plan nothing was exercised: the run failed before it.
        if is_planned:
            entry.instances.update(expanded.instances)
            entry.was_left_out = entry.was_left_out or bool(expanded.absent)

    @property
    def gaps(self) -> list[str]:
        """Return a message for each entry, branch of `when` and gate not exercised by any case."""
        entry_gaps = [gap for entry in (self.entries or {}).values() for gap in entry.gaps]
        silent_gates = [name for name, has_reported in self.gates.items() if not has_reported]
        return [*entry_gaps, *(f"gate {name} has never stopped or warned" for name in silent_gates)]

    def render(self) -> Iterator[str]:
        """Yield the lines for `gpuform test --coverage` about the project."""
        yield f"Coverage of {self.project} ({counted(self.cases, 'case')})"
        if not self.cases:
            yield "  nothing: no case passed"
            return
        yield f"  {self._summarize_entries()}"
        if self.gates:
            reporting_gates = sum(self.gates.values())
            yield f"  gates: {reporting_gates} of {len(self.gates)} have stopped or warned"
        for gap in self.gaps:
            yield f"  missing: {gap}"

    def _summarize_entries(self) -> str:
        """Return a line with the numbers of planned entries, instances and branches of `when`."""
        if self.entries is None:
            return "entries: unknown for a Python program"
        entries = self.entries.values()
        planned_count = sum(bool(entry.instances) for entry in entries)
        instance_count = sum(len(entry.instances) for entry in entries)
        summary = (
            f"entries: {planned_count} of {len(entries)}, as {counted(instance_count, 'instance')}"
        )
        conditional = [entry for entry in entries if entry.is_conditional]
        if not conditional:
            return summary
        # Each `when` has two branches: planned, and left out.
        branch_count = sum(bool(entry.instances) + entry.was_left_out for entry in conditional)
        return f"{summary}; branches of `when`: {branch_count} of {2 * len(conditional)}"


def measure_coverage(results: Iterable[CaseResult]) -> Sequence[Coverage]:
    """Return the coverage of each project of the results, in the order of the first cases."""
    coverage_by_path: dict[str, Coverage] = {}
    for result in results:
        project = result.case.project
        coverage_by_path.setdefault(str(project.path), Coverage(project.name)).add_result(result)
    return list(coverage_by_path.values())
