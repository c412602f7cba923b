"""Play the exhaustive tests in as many runs as necessary: `python tests/exhaustive/play.py FILE`.

These are all slow tests, and all tests that docs/reference/crashes.md is made of; the latter come
first. FILE, outside of the project, gets a line of JSON for each test. The next run with FILE
continues behind the last line, with the same list of tests, which is kept beside FILE as long as
the commit is the same. A test that hangs or ends its process fails, and the others continue. SIGINT
and SIGTERM end a run without a result of the test in progress. The exit code is 1 while a test
fails or has no result.
"""

import argparse
import contextlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from exhaustive.results_plugin import STARTED  # noqa: E402

FIRST: Final = (
    "tests/conformance/test_crashes.py",
    "tests/conformance/test_gone.py",
    "tests/conformance/test_faults.py",
    "tests/conformance/test_many_gone.py",
    "tests/conformance/test_processes.py",
    "tests/conformance/test_interrupted_removals.py",
    "tests/conformance/test_importing.py",
    "tests/hostile/test_courses.py",
)
"""The modules of docs/reference/crashes.md, in the order in which they are played."""

CHUNK: Final = 150
"""Tests that one pytest process plays, or all tests of a module.

A crash loses at most one chunk.
"""

PYTEST: Final = (sys.executable, HERE / "results_plugin.py", "-q", "-m", "")
STOPPED: Final = 130
CHANGED: Final = "+"


@dataclass
class Run:
    """One run: where results go, when it ends, and how tests are played."""

    results: Path
    root: Path
    commit: str
    until: float
    processes: int
    timeout: float
    profile: str
    child: subprocess.Popen[bytes] | None = None
    is_stopped: bool = False

    def request_stop(self, *_: object) -> None:
        """Begin no other test, and interrupt the current one; kill it at the second call."""
        if self.child is not None:
            if self.is_stopped:
                kill_group(self.child)
            else:
                self.child.send_signal(signal.SIGINT)
        self.is_stopped = True

    @property
    def is_over(self) -> bool:
        return self.is_stopped or time.time() >= self.until


def main() -> int:
    options = parse_options()
    run = Run(
        options.results.resolve(),
        options.root.resolve(),
        find_commit(options.root),
        time.time() + options.minutes * 60,
        options.n,
        options.timeout,
        options.hypothesis_profile,
    )
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, run.request_stop)
    remove_incomplete_line(run.results)
    tests = [test for test in list_tests(run) if test.startswith(tuple(options.paths))]
    results = read_results(run.results)
    remaining_tests = [
        test for test in tests if should_play(results.get(test), again=options.again)
    ]
    for chunk in split_into_chunks(remaining_tests):
        if run.is_over:
            break
        play_chunk(run, chunk)
    results = read_results(run.results)
    print(summarize(tests, results))  # noqa: T201 - its purpose
    if run.is_stopped:
        return STOPPED
    return int(
        any(results.get(test, {}).get("outcome") not in ("passed", "skipped") for test in tests)
    )


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path, metavar="FILE")
    parser.add_argument("paths", nargs="*", default=[""], help="play the tests under these only")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin nothing after that")
    parser.add_argument("--again", action="store_true", help="play once more what failed")
    parser.add_argument("-n", type=int, default=0, help="processes that play at the same time")
    parser.add_argument("--timeout", type=float, default=1800.0, help="seconds for each test")
    parser.add_argument("--hypothesis-profile", default="thorough", metavar="PROFILE")
    parser.add_argument("--root", type=Path, default=HERE.parents[1], help="the project's folder")
    return parser.parse_intermixed_args()


def find_commit(root: Path) -> str:
    """Return the short commit, with CHANGED if tracked files differ; "" without a repository."""

    def git(*arguments: str) -> str:
        command = ("git", "-C", str(root), *arguments)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.stdout.strip()

    is_changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short=8", "HEAD") + (CHANGED if is_changed else "")


def list_tests(run: Run) -> list[str]:
    """Return the ids of all tests to play, in order.

    Collecting takes long: the list is saved beside the results, for its commit.
    """
    path = run.results.with_suffix(".tests")
    saved_list = json.loads(path.read_text()) if path.exists() else {}
    if saved_list.get("commit") != run.commit or not run.commit or run.commit.endswith(CHANGED):
        collected = run.results.with_suffix(".collected")
        command = (*PYTEST, "--collect-only", "-p", "no:xdist", "--list-into", str(collected))
        done = start(run, command, stdout=subprocess.PIPE)
        output, _ = done.communicate()
        if done.returncode:
            raise SystemExit(output.decode(errors="replace")[-4000:])
        saved_list = {
            "commit": run.commit,
            "tests": choose_tests(json.loads(collected.read_text())),
        }
        path.write_text(json.dumps(saved_list))
        collected.unlink()
    return list(saved_list["tests"])


def choose_tests(is_slow: Mapping[str, bool]) -> list[str]:
    """Return the slow tests and the tests of the crash page, in the order of playing."""
    modules = {module: number for number, module in enumerate(FIRST)}
    chosen = [test for test in is_slow if is_slow[test] or get_module(test) in modules]
    return sorted(chosen, key=lambda test: modules.get(get_module(test), len(modules)))


def get_module(test: str) -> str:
    return test.partition("::")[0]


def read_results(path: Path) -> dict[str, dict[str, Any]]:
    """Return the last result of each test."""
    if not path.exists():
        return {}
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {line["id"]: line for line in lines if line["outcome"] != STARTED}


def remove_incomplete_line(path: Path) -> None:
    """Remove the last line of a results file if a killed run has not completed it."""
    if path.exists():
        content = path.read_bytes()
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def should_play(result: Mapping[str, Any] | None, *, again: bool) -> bool:
    if again:
        return result is not None and result["outcome"] == "failed"
    return result is None


def split_into_chunks(tests: Sequence[str]) -> Iterator[list[str]]:
    """Yield the tests in order, as chunks of whole modules with at least `CHUNK` tests."""
    chunk: list[str] = []
    for test in tests:
        if len(chunk) >= CHUNK and get_module(test) != get_module(chunk[-1]):
            yield chunk
            chunk = []
        chunk.append(test)
    if chunk:
        yield chunk


def play_chunk(run: Run, chunk: Sequence[str]) -> None:
    """Play tests until each has a result or the time is over, also after crashes of pytest."""
    remaining_tests = list(chunk)
    while remaining_tests and not run.is_over:
        size = run.results.stat().st_size if run.results.exists() else 0
        run_pytest(run, remaining_tests)
        with run.results.open("rb") as file:
            file.seek(size)
            lines = [json.loads(line) for line in file]
        ended = {line["id"] for line in lines if line["outcome"] != STARTED}
        broken = [line["id"] for line in lines if line["id"] not in ended]
        if broken and not run.is_stopped:
            report_crash(run, broken)
        if not lines:
            raise SystemExit("no test was played: see above")
        remaining_tests = [test for test in remaining_tests if test not in {*ended, *broken}]


def run_pytest(run: Run, tests: Sequence[str]) -> None:
    """Run one pytest process until its tests have ended, or until no test ends any more."""
    list_file = run.results.with_suffix(".selected")
    list_file.write_text("\n".join(tests))
    modules = sorted({get_module(test) for test in tests})
    options = ("--tests-from", list_file, "--results", run.results, "--commit", run.commit)
    limits = ("--until", run.until, "--timeout", run.timeout)
    workers = ("-n", run.processes) if run.processes else ("-p", "no:xdist")
    examples = ("--hypothesis-profile", run.profile)
    command = (*PYTEST, *options, *limits, *workers, *examples, *modules)
    run.results.touch()
    run.child = start(run, [str(word) for word in command])
    try:
        while run.child.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.child.wait(5)
            # pytest's own limit cannot end a test that hangs outside of Python.
            silence = time.time() - run.results.stat().st_mtime
            if silence > run.timeout * 1.2 + 60:
                kill_group(run.child)
    finally:
        kill_group(run.child)
        run.child = None
        list_file.unlink()


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """Kill a process and its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def start(run: Run, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
    environ = {**os.environ}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.Popen(command, cwd=run.root, env=environ, start_new_session=True, **options)


def report_crash(run: Run, tests: Sequence[str]) -> None:
    """Write a failed result for tests during which the pytest process ended or hung."""
    why = "the process that played it ended, or hung and was killed"
    with run.results.open("a", encoding="utf-8") as file:
        for test in tests:
            line = {"id": test, "outcome": "failed", "why": why, "commit": run.commit}
            file.write(json.dumps(line) + "\n")


def summarize(tests: Sequence[str], results: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the counts of outcomes, the failed tests, and the processor time."""
    played = [results[test] for test in tests if test in results]
    outcomes = Counter(result["outcome"] for result in played)
    failed = [f"failed: {result['id']}" for result in played if result["outcome"] == "failed"]
    spent = sum(result.get("processor", 0.0) for result in played)
    ours = resource.getrusage(resource.RUSAGE_CHILDREN)
    minutes = (ours.ru_utime + ours.ru_stime) / 60
    counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items()))
    total = f"{len(played)} of {len(tests)} tests played: {counts or 'none'}"
    times = f"{spent / 60:.0f} minutes of processor time in all, {minutes:.0f} in this run"
    return "\n".join([*failed, f"{total}; {times}"])


if __name__ == "__main__":
    raise SystemExit(main())
