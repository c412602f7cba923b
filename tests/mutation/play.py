"""Run the mutants of the most important rules: does a test fail for each?

    python tests/mutation/play.py creating FILE --minutes 20
    python tests/mutation/play.py creating FILE --again    # survivors, after new tests

pytest collects the tests once. One run of all tests records which lines each test reaches. Then
each mutant is put into a forked copy of this process, which runs the tests of its line, the
quickest first, until one fails. FILE keeps the results, so that the next call continues.
"""

import argparse
import contextlib
import hashlib
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml
from coverage import Coverage
from mutants import ROOT, Functions, Mutant, find_statement_lines, list_mutants

TARGETS = yaml.safe_load(Path(__file__).with_name("targets.yaml").read_text())
EQUIVALENT = Path(__file__).with_name("equivalent.yaml")
CANNOT_PLAY = 3
LONGEST_S = 3.0
"""The processor time after which a test of a mutant is endless, beside twice what it takes else."""
LOOK_S, IDLE_S = 30.0, 0.2
"""A process that waits for what never comes uses less processor time from one look to the next."""


@dataclass
class _Process:
    """A forked copy of this process that plays a mutant."""

    pid: int
    mutant: Mutant
    pipe: int
    folder: str
    used_s: float = 0.0
    looked_at: float = field(default_factory=time.monotonic)

    def is_hanging(self) -> bool:
        if time.monotonic() < self.looked_at + LOOK_S:
            return False
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        before = self.used_s
        self.used_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        self.looked_at = time.monotonic()
        return self.used_s < before + IDLE_S


class Player:
    """A plugin of pytest that runs mutants in place of the tests."""

    def __init__(self, paths: list[str], arguments: argparse.Namespace) -> None:
        self.paths = paths
        self.arguments = arguments
        self.results = _load(arguments.file)
        """Of each mutant, the test `by` which it was killed, or how its process was ended; empty
        when it survived. Of each test how long it takes, and which lines it reaches."""
        self.played = 0
        self.failure: int | None = None
        self.durations: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_sessionstart(self) -> None:
        from hypothesis import Phase, settings  # pytest wants to import its plugin itself

        # A find is enough: nobody looks at its smallest example.
        quick = settings(settings.default, phases=[Phase.explicit, Phase.generate])
        settings.register_profile("mutants", quick)
        settings.load_profile("mutants")
        # Each process opens a stack: a passphrase that is stretched as long would be half its time.
        stretch = hashlib.pbkdf2_hmac
        hashlib.pbkdf2_hmac = lambda kind, text, salt, _, size: stretch(kind, text, salt, 1, size)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Report the first failure of a mutant's process, and end the process."""
        if report.failed:
            self.failed.add(report.nodeid)
            if self.failure is not None:
                os.write(self.failure, report.nodeid.encode())
                os._exit(1)

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Play the mutants without a result."""
        items = {item.nodeid: item for item in session.items}
        if self.arguments.cover:
            self.results |= {"lines": {}, "durations": {}, "failed": []}
        known_durations = self.results["durations"]
        new = {name: item for name, item in items.items() if name not in known_durations}
        if new:
            self._record_coverage(new)
        functions = Functions(self.paths)
        mutants = self._choose()
        _print_line(f"{len(mutants)} mutants to play")
        end = time.monotonic() + 60 * self.arguments.minutes
        running: dict[int, _Process] = {}
        while running or (mutants and time.monotonic() < end):
            while mutants and len(running) < self.arguments.jobs and time.monotonic() < end:
                mutant = mutants.pop(0)
                chosen = [items[name] for name in self._find_tests(mutant) if name in items]
                process = self._fork(mutant, functions, chosen)
                running[process.pid] = process
            self._collect(running)
        _save(self.arguments.file, self.results)
        return True

    def _choose(self) -> list[Mutant]:
        """Return the mutants to play, and forget results of removed mutants."""
        everything = {f"{m.path}:{m.name}": m for path in self.paths for m in list_mutants(path)}
        if self.arguments.one_in > 1:
            share = self.arguments.one_in
            everything = {n: m for n, m in everything.items() if not _compute_checksum(n) % share}
        known_results = self.results["mutants"]
        for name in set(known_results) - set(everything):
            del known_results[name]
        is_due = {name: name not in known_results for name in everything}
        if self.arguments.again:
            is_due = {n: n not in known_results or not known_results[n]["by"] for n in everything}
            is_due |= dict.fromkeys(_load_equivalent(), False)
        # In no order of the source: what was played by any moment is a fair sample.
        due = sorted((name for name in everything if is_due[name]), key=_compute_checksum)
        return [everything[name] for name in due]

    def _record_coverage(self, items: dict[str, pytest.Item]) -> None:
        """Play tests once in a copy of this process, and keep which lines each one reaches."""
        with tempfile.NamedTemporaryFile() as file:
            if not (pid := os.fork()):
                _run_alone(lambda: self._write_coverage(items, Path(file.name)))
            os.waitpid(pid, 0)
            coverage = json.loads(Path(file.name).read_text())
        self.results["durations"] |= coverage["durations"]
        self.results["failed"] += coverage["failed"]
        for path, lines in coverage["lines"].items():
            known_lines = self.results["lines"].setdefault(path, {})
            for line, tests in lines.items():
                known_lines[line] = [*known_lines.get(line, ()), *tests]
        _print_line(f"{len(items)} tests; failed unchanged: {self.results['failed']}")
        _save(self.arguments.file, self.results)

    def _write_coverage(self, items: dict[str, pytest.Item], file: Path) -> None:
        coverage = Coverage(
            data_file=None, config_file=False, include=[str(ROOT / p) for p in self.paths]
        )
        # New tests may reach nothing that is mutated.
        coverage.set_option("run:disable_warnings", ["no-data-collected"])
        os.environ["PYTEST_DEBUG_TEMPROOT"] = tempfile.mkdtemp()
        coverage.start()
        for item in items.values():
            coverage.switch_context(item.nodeid)
            began = time.process_time()
            _play_tests([item])
            self.durations[item.nodeid] = time.process_time() - began
        coverage.stop()
        data = coverage.get_data()
        lines = {}
        for path in self.paths:
            reached = data.contexts_by_lineno(str(ROOT / path))
            lines[path] = {str(line): tests for line, tests in reached.items()}
        record = {"lines": lines, "durations": self.durations, "failed": sorted(self.failed)}
        file.write_text(json.dumps(record))

    def _find_tests(self, mutant: Mutant) -> list[str]:
        """Return the tests that reach the mutant, the ones that noticed others first."""
        lines = self.results["lines"].get(mutant.path, {})
        around = find_statement_lines((ROOT / mutant.path).read_text(), mutant.first + 1)
        tests = {test for line in around for test in lines.get(str(line), ())}
        tests -= {"", *self.results["failed"]}
        killers = [
            result["by"]
            for name, result in self.results["mutants"].items()
            if name.startswith(f"{mutant.path}:{mutant.function}:")
        ]
        durations = self.results["durations"]
        ordered = sorted(tests, key=lambda test: (test not in killers, durations.get(test, 0)))
        spent = 0.0
        chosen: list[str] = []
        for test in ordered:
            spent += durations.get(test, 0)
            if spent < self.arguments.seconds or not chosen:
                chosen.append(test)
        return chosen

    def _fork(self, mutant: Mutant, functions: Functions, items: list[pytest.Item]) -> "_Process":
        ours, theirs = os.pipe()
        folder = tempfile.mkdtemp()
        if not (pid := os.fork()):
            self.failure = theirs
            os.setpgid(0, 0)
            os.environ["PYTEST_DEBUG_TEMPROOT"] = folder
            _run_alone(lambda: self._play(mutant, functions, items))
        os.close(theirs)
        return _Process(pid, mutant, ours, folder)

    def _play(self, mutant: Mutant, functions: Functions, items: list[pytest.Item]) -> None:
        functions.replace(mutant)

        def limit_time(item: pytest.Item) -> None:
            longest = LONGEST_S + 2 * self.results["durations"][item.nodeid]
            soft = int(time.process_time() + longest) + 1
            resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))

        _play_tests(items, before=limit_time)

    def _collect(self, running: dict[int, "_Process"]) -> None:
        """Record the results of ended mutants, and end hanging ones."""
        time.sleep(0.01)
        for pid, process in list(running.items()):
            mutant = process.mutant
            if process.is_hanging():
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            ended, status, usage = os.wait4(pid, os.WNOHANG)
            if not ended:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
            killer = os.read(process.pipe, 10_000).decode()
            os.close(process.pipe)
            shutil.rmtree(process.folder, ignore_errors=True)
            del running[pid]
            if os.WIFEXITED(status) and os.WEXITSTATUS(status) == CANNOT_PLAY:
                _print_line(f"cannot be played: {mutant.path}: {mutant.name}")
                continue
            by = killer or ("" if status == 0 else f"ended with status {status}")
            cpu = round(usage.ru_utime + usage.ru_stime, 2)
            self.results["mutants"][f"{mutant.path}:{mutant.name}"] = {"by": by, "cpu": cpu}
            if not by:
                _print_line(f"survived ({cpu} s) {mutant.path}:{mutant.first + 1} {mutant.name}")
            self.played += 1
            if self.played % 10 == 0:
                _save(self.arguments.file, self.results)


def _play_tests(
    items: list[pytest.Item], before: Callable[[pytest.Item], None] = lambda _: None
) -> None:
    for number, item in enumerate(items, 1):
        before(item)
        following = items[number] if number < len(items) else None
        item.ihook.pytest_runtest_protocol(item=item, nextitem=following)


def _run_alone(action: Any) -> NoReturn:
    """Run `action` in this forked process, and end the process without the parent's cleanup."""
    code = CANNOT_PLAY
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        action()
        code = 0
    finally:
        if code:
            traceback.print_exc()
        os._exit(code)


def _load_equivalent() -> dict[str, str]:
    """Return the reason why each equivalent mutant changes nothing."""
    by_path = yaml.safe_load(EQUIVALENT.read_text()) if EQUIVALENT.exists() else {}
    return {
        f"{path}:{name}": group["reason"]
        for path, groups in (by_path or {}).items()
        for group in groups
        for name in group["mutants"]
    }


def _compute_checksum(name: str) -> int:
    return zlib.crc32(name.encode())


def _print_line(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _load(file: Path) -> dict[str, Any]:
    empty: dict[str, Any] = {"lines": {}, "durations": {}, "failed": [], "mutants": {}}
    return json.loads(file.read_text()) if file.exists() else empty


def _save(file: Path, results: dict[str, Any]) -> None:
    file.with_suffix(".new").write_text(json.dumps(results))
    file.with_suffix(".new").replace(file)


def report(results: dict[str, Any]) -> None:
    """Print the score and the surviving, not equivalent mutants."""
    mutants = results["mutants"]
    paths = {name.partition(":")[0] for name in mutants}
    equivalent = {name for name in _load_equivalent() if name.partition(":")[0] in paths}
    unnoticed = {name for name, result in mutants.items() if not result["by"]}
    for name in mutants:
        if name in unnoticed - equivalent:
            _print_line(f"survived: {name}")
    for name in sorted(equivalent - unnoticed):
        _print_line(f"not equivalent, or no mutant any more: {name}")
    counted = len(mutants) - len(unnoticed & equivalent)
    killed = len(mutants) - len(unnoticed)
    score = 100 * killed / max(1, counted)
    hung = sum(result["by"].startswith("ended") for result in mutants.values())
    cpu = sum(result["cpu"] for result in mutants.values())
    _print_line(
        f"{killed} of {counted} killed ({hung} at a limit): {score:.1f} %, "
        f"{len(unnoticed & equivalent)} equivalent, {cpu:.0f} s of processor time"
    )


def main() -> None:
    """Play the mutants of one target."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("file", type=Path, help="keeps the results; outside of the repository")
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests for one mutant")
    parser.add_argument("--one-in", type=int, default=1, help="play a sample, drawn by the names")
    parser.add_argument("--again", action="store_true", help="play what survived once more")
    parser.add_argument("--cover", action="store_true", help="see anew which test reaches what")
    parser.add_argument("--report", action="store_true", help="print the result alone")
    arguments = parser.parse_args()
    arguments.file = arguments.file.absolute()
    if not arguments.report:
        os.chdir(ROOT)
        target = TARGETS[arguments.target]
        modules = [path for source in target["sources"] for path in _list_modules(ROOT / source)]
        paths = [str(path.relative_to(ROOT)) for path in modules]
        options = ["-qq", "-p", "no:cacheprovider", "--capture=sys"]
        pytest.main([*options, *target["tests"]], plugins=[Player(paths, arguments)])
    report(_load(arguments.file))


def _list_modules(source: Path) -> list[Path]:
    return sorted(source.rglob("*.py")) if source.is_dir() else [source]


if __name__ == "__main__":
    main()
