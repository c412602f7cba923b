"""Test that a fast test with too much processor time fails, its children included."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.processor_time import limit_processor_time, limited_processor_time

BUSY = "import time\nwhile time.process_time() < 0.5: pass"


TESTS = """
import time
import pytest
from support import processor_time

processor_time.LIMIT_S = 0.05

def use_processor():
    ends = time.process_time() + 0.2
    while time.process_time() < ends: pass

@pytest.fixture(scope="module")
def costly(): use_processor()

def test_busy(): use_processor()

@pytest.mark.slow
def test_slow(): use_processor()

def test_of_a_costly_module(costly): pass
"""


def use_processor(seconds: float) -> None:
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass


def test_more_than_the_limit_fails_and_says_what_to_do() -> None:
    with pytest.raises(pytest.fail.Exception) as failed, limit_processor_time(0.05):
        use_processor(0.26)

    assert "used 0.3 s of processor time, and a fast test may use 0.1 s" in str(failed.value)
    assert "@pytest.mark.slow" in str(failed.value)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_what_a_child_process_uses_counts() -> None:
    with pytest.raises(pytest.fail.Exception), limit_processor_time(0.1):
        subprocess.run([sys.executable, "-S", "-c", BUSY], check=True)


def test_waiting_uses_nothing() -> None:
    with limit_processor_time(0.05):
        subprocess.run(["sleep", "0.1"], check=True)


def test_what_the_first_test_of_a_process_imports_is_not_held_against_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with limit_processor_time(0.05):
        for number in range(100):
            monkeypatch.setitem(sys.modules, f"imported_{number}", sys)
        use_processor(0.1)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_slow_test_alone_may_use_more(tmp_path: Path) -> None:
    (tmp_path / "test_busy.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "support.processor_time", tmp_path]
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }

    ran = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    assert ran.returncode == 1
    assert ".E.." in ran.stdout
    assert "ERROR at teardown of test_busy" in ran.stdout


def test_it_holds_here(request: pytest.FixtureRequest) -> None:
    assert limited_processor_time.name in request.fixturenames
