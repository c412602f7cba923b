"""Test that `play.py` plays each slow test once, over several runs and after crashes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from processes.limits import LAST_RESORT

pytestmark = [pytest.mark.slow, pytest.mark.sampled(3)]

RUNNER = Path(__file__).with_name("play.py")
PROJECT = """
[tool.pytest.ini_options]
addopts = ["-m", "not slow"]
markers = ["slow: is slow"]
"""
SLOW = "import pytest, os, time, pathlib\npytestmark = pytest.mark.slow\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


@pytest.fixture
def results(tmp_path: Path) -> Path:
    return tmp_path / "results.jsonl"


def start(project: Path, results: Path, *arguments: str) -> subprocess.Popen[str]:
    options = ["--root", project, "--hypothesis-profile", "default"]
    command = [sys.executable, RUNNER, results, *options, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def play(project: Path, results: Path, *arguments: str) -> tuple[int, str]:
    runner = start(project, results, *arguments)
    output, _ = runner.communicate(timeout=LAST_RESORT)
    return runner.returncode, output


def read_outcomes(results: Path) -> list[tuple[str, str]]:
    """Return names and outcomes of the tests, ordered by their ends."""
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    ended = [line for line in lines if line["outcome"] != "started"]
    return [(line["id"].partition("::")[2], line["outcome"]) for line in ended]


def read_result(results: Path, name: str) -> dict[str, Any]:
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    (result,) = [
        line for line in lines if line["id"].endswith(f"::{name}") and line["outcome"] != "started"
    ]
    return result


def test_slow_tests_are_played_with_outcome_reason_and_numbers(
    project: Path, results: Path
) -> None:
    (project / "test_some.py").write_text(
        SLOW + "def test_good(record_property): record_property('points', 43)\n"
        "def test_bad(): assert 1 == 2\n"
        "def test_left_out(): pytest.skip('no cluster')\n"
    )
    (project / "test_fast.py").write_text("def test_fast(): pass\n")

    code, output = play(project, results)

    assert code == 1
    assert read_outcomes(results) == [
        ("test_good", "passed"),
        ("test_bad", "failed"),
        ("test_left_out", "skipped"),
    ]
    assert read_result(results, "test_good")["points"] == 43
    assert "assert 1 == 2" in read_result(results, "test_bad")["why"]
    assert "no cluster" in read_result(results, "test_left_out")["why"]
    assert "failed: test_some.py::test_bad" in output
    assert "3 of 3 tests played: 1 failed, 1 passed, 1 skipped" in output


def test_a_second_run_plays_what_is_missing_and_again_what_failed(
    project: Path, results: Path
) -> None:
    (project / "test_some.py").write_text(
        SLOW + "def test_a(): pass\n"
        "def test_b(): assert pathlib.Path('mended').exists()\n"
        "def test_c(): pass\n"
    )
    assert play(project, results, "test_some.py::test_a")[0] == 0
    assert play(project, results)[0] == 1
    (project / "mended").touch()

    code, output = play(project, results, "--again")

    assert code == 0
    assert "3 of 3 tests played: 3 passed" in output
    assert read_outcomes(results) == [
        ("test_a", "passed"),
        ("test_b", "failed"),
        ("test_c", "passed"),
        ("test_b", "passed"),
    ]


@pytest.mark.parametrize("processes", ["0", "2"])
def test_one_that_ends_its_process_fails_and_the_others_are_played(
    project: Path, results: Path, processes: str
) -> None:
    (project / "test_some.py").write_text(
        SLOW + "def test_a(): pass\ndef test_b(): os._exit(3)\ndef test_c(): pass\n"
    )

    code, _ = play(project, results, "-n", processes)

    assert code == 1
    assert dict(read_outcomes(results)) == {
        "test_a": "passed",
        "test_b": "failed",
        "test_c": "passed",
    }


def test_one_that_hangs_fails_after_its_time(project: Path, results: Path) -> None:
    (project / "test_some.py").write_text(
        SLOW + "def test_a(): time.sleep(1700)\n@pytest.mark.timeout(0)\ndef test_b(): pass\n"
    )

    code, _ = play(project, results, "--timeout", "1")

    assert code == 1
    assert read_outcomes(results) == [("test_a", "failed"), ("test_b", "passed")]
    assert "Timeout" in read_result(results, "test_a")["why"]


def test_nothing_begins_when_the_time_is_over(project: Path, results: Path) -> None:
    (project / "test_some.py").write_text(SLOW + "def test_a(): pass\n")

    code, output = play(project, results, "--minutes", "0")

    assert code == 1
    assert "0 of 1 tests played: none" in output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_and_the_test_under_way_is_played_next_time(
    project: Path, results: Path, number: signal.Signals
) -> None:
    (project / "test_some.py").write_text(
        SLOW + "def test_a(): pass\n"
        "def test_b():\n"
        "    if not pathlib.Path('begun').exists():\n"
        "        pathlib.Path('begun').touch()\n"
        "        time.sleep(1700)\n"
    )
    runner = start(project, results)
    while not (project / "begun").exists():
        assert runner.poll() is None
        time.sleep(0.05)

    os.kill(runner.pid, number)
    output, _ = runner.communicate(timeout=LAST_RESORT)

    assert runner.returncode == 130
    assert "1 of 2 tests played: 1 passed" in output
    assert play(project, results)[0] == 0
    assert read_outcomes(results) == [("test_a", "passed"), ("test_b", "passed")]


def test_a_line_that_was_written_by_half_is_played_once_more(project: Path, results: Path) -> None:
    (project / "test_some.py").write_text(SLOW + "def test_a(): pass\ndef test_b(): pass\n")
    assert play(project, results)[0] == 0
    results.write_text(results.read_text()[:-40])

    code, output = play(project, results)

    assert code == 0
    assert "2 of 2 tests played: 2 passed" in output
    assert [name for name, _ in read_outcomes(results)] == ["test_a", "test_b"]
