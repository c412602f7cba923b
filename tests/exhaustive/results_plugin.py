"""Make pytest play a list of tests and record each result, for `play.py`."""

import json
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

if __name__ == "__main__":
    # Not by PYTHONPATH, with which no command could be forked from the warm process.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from support.processor_time import measure_processor_time

STARTED: Final = "started"
REASON_LENGTH: Final = 4000

_began: dict[str, float] = {}
_outcomes: dict[str, dict[str, Any]] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("exhaustive")
    group.addoption("--tests-from", type=Path, help="the file with the ids of the tests to play")
    group.addoption("--list-into", type=Path, help="the file that gets the ids of all slow tests")
    group.addoption("--results", type=Path, help="the file that gets a line of JSON for each test")
    group.addoption("--commit", default="", help="the commit that is tested")
    group.addoption("--until", type=float, help="begin no test after this Unix time")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    list_file = config.getoption("--tests-from")
    if list_file is None:
        return
    order = {test: number for number, test in enumerate(list_file.read_text().splitlines())}
    chosen = sorted(
        (item for item in items if item.nodeid in order), key=lambda it: order[it.nodeid]
    )
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in order])
    items[:] = chosen


def pytest_collection_finish(session: pytest.Session) -> None:
    list_into = session.config.getoption("--list-into")
    if list_into is not None:
        tests = {item.nodeid: is_slow(item) for item in session.items}
        list_into.write_text(json.dumps(tests))


def is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    _began[item.nodeid] = measure_processor_time()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Iterator[pytest.TestReport]:
    report: pytest.TestReport = yield
    if call.when == "teardown":
        began = _began.pop(item.nodeid, None)
        spent = 0.0 if began is None else measure_processor_time() - began
        report.user_properties.append(("processor", round(spent, 2)))
    return report


class ResultWriter:
    """Write the results of a session's tests; of several processes, only the controller writes."""

    def __init__(self, config: pytest.Config) -> None:
        self._path: Path = config.getoption("--results")
        self._commit: str = config.getoption("--commit")
        self._until: float | None = config.getoption("--until")
        self._results: dict[str, dict[str, Any]] = {}
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._results[nodeid] = {"outcome": "passed", "seconds": 0.0, "why": ""}
        self._write({"id": nodeid, "outcome": STARTED})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        result = self._results[report.nodeid]
        result["seconds"] = round(result["seconds"] + report.duration, 2)
        if report.outcome != "passed" and result["outcome"] != "failed":
            result["outcome"] = report.outcome
            result["why"] = describe_reason(report)
        if report.when == "teardown":
            result.update(dict(report.user_properties))

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        result = self._results.pop(nodeid)
        date = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._write({"id": nodeid, **result, "commit": self._commit, "date": date})
        if self._session is not None and self._until is not None and time.time() > self._until:
            self._session.shouldstop = "the time is over"

    def _write(self, line: dict[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def describe_reason(report: pytest.TestReport) -> str:
    """Return why a test failed or was skipped, shortened to the end of the message."""
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2]
    return report.longreprtext[-REASON_LENGTH:]


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--results") is not None and not hasattr(config, "workerinput"):
        config.pluginmanager.register(ResultWriter(config))


if __name__ == "__main__":
    raise SystemExit(pytest.main([*sys.argv[1:], "-p", "exhaustive.results_plugin"]))
