"""docs/reference/crashes.md tells of every case that is tried, and of what runs have shown."""

import json

import pytest
from conformance.crash_table import (
    IN_A_BUCKET,
    PAGE,
    RESULTS,
    TRIED,
    collected,
    page,
    recorded,
)
from hostile.projects import PROJECTS

TESTS = json.loads(RESULTS.read_text())["tests"]
COURSES = json.loads(RESULTS.read_text())["courses"]


def test_the_page_is_what_was_recorded() -> None:
    assert PAGE.read_text() == page(json.loads(RESULTS.read_text()))


def test_what_has_failed_is_explained() -> None:
    for test, rows in TESTS.items():
        for what, counts in rows.items():
            assert counts["passed"] <= counts["run"] <= counts["cases"]
            assert counts["passed"] == counts["run"], (test, what)


def test_enough_random_courses_of_each_platform_have_passed() -> None:
    """As `PROJECTS` has the platforms."""
    assert set(COURSES) == set(PROJECTS)
    for platform, counts in COURSES.items():
        assert counts["played"] >= 400, platform
        assert counts["failed"] == 0, platform


def test_no_cell_is_left_out() -> None:
    assert "not run" not in PAGE.read_text()


def test_a_loop_that_was_run_has_points() -> None:
    loops = [rows for test, rows in TESTS.items() if "death" in test or "killed_at" in test]
    for counts in (each for rows in loops for each in rows.values()):
        assert (counts["points"] > 0) == (counts["run"] > 0)
    assert any(test.endswith(IN_A_BUCKET) for test in TESTS)


def test_every_word_is_of_a_test() -> None:
    names = {test.partition("::")[2] for test in TESTS}
    assert set(TRIED) <= names


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_every_case_that_there_is_was_recorded() -> None:
    """Otherwise: run what is new, and `python tests/conformance/crash_table.py RESULTS ...`."""
    now = recorded(collected(), {})
    assert _cases(TESTS) == _cases(now)


def _cases(tests: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    return {
        test: {what: counts["cases"] for what, counts in rows.items()}
        for test, rows in tests.items()
    }
