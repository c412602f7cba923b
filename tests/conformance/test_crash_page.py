"""Test that docs/reference/crashes.md has every case, and the results of the recorded runs."""

import json

import pytest
from conformance.crash_table import (
    FAULT_LABELS,
    KILLED_RUNS_WITH_A_BUCKET,
    PAGE,
    RESULTS,
    collect_cases,
    count_results,
    render_page,
)
from hostile.projects import PROJECTS

TESTS = json.loads(RESULTS.read_text())["tests"]
COURSES = json.loads(RESULTS.read_text())["courses"]


def test_the_page_equals_the_recorded_results() -> None:
    assert PAGE.read_text() == render_page(json.loads(RESULTS.read_text()))


def test_failed_cases_are_explained() -> None:
    for test, rows in TESTS.items():
        for subject, counts in rows.items():
            assert counts["passed"] <= counts["run"] <= counts["cases"]
            assert counts["passed"] == counts["run"], (test, subject)


def test_enough_random_courses_passed_on_each_platform() -> None:
    """Take the platforms from `PROJECTS`."""
    assert set(COURSES) == set(PROJECTS)
    for platform, counts in COURSES.items():
        assert counts["played"] >= 400, platform
        assert counts["failed"] == 0, platform


def test_no_cell_is_missing() -> None:
    assert "not run" not in PAGE.read_text()


def test_every_executed_loop_has_points() -> None:
    loops = [rows for test, rows in TESTS.items() if "killed_at_any_point" in test]
    for counts in (row for rows in loops for row in rows.values()):
        assert (counts["points"] > 0) == (counts["run"] > 0)
    assert any(test.endswith(KILLED_RUNS_WITH_A_BUCKET) for test in TESTS)


def test_every_description_belongs_to_a_test() -> None:
    names = {test.partition("::")[2] for test in TESTS}
    assert set(FAULT_LABELS) <= names


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_every_collected_case_was_recorded() -> None:
    """After a failure, run the new cases, then `tests/conformance/crash_table.py RESULTS ...`."""
    now = count_results(collect_cases(), {})
    assert _count_cases(TESTS) == _count_cases(now)


def _count_cases(tests: dict[str, dict[str, dict[str, int]]]) -> dict[str, dict[str, int]]:
    return {
        test: {subject: counts["cases"] for subject, counts in rows.items()}
        for test, rows in tests.items()
    }
