"""Run `gpuform test`: run the test cases of a project on the emulator.

`stacks/testing` reads and runs the cases; this module prints the results.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from gpuform.schemas.errors import EngineError
from gpuform.stacks.cli.failures import FAILED, SUCCESS
from gpuform.stacks.cli.flags import parse_duration
from gpuform.stacks.cli.session import Session, add_common_flags, open_session
from gpuform.stacks.cli.terminal.signals import raise_on_signals
from gpuform.stacks.review.paint import Paint

if TYPE_CHECKING:
    from gpuform.stacks.testing.cases import Case
    from gpuform.stacks.testing.runner import CaseResult, Coverage

_STYLES: Final = {"passed": "add", "failed": "error", "broken": "error", "skipped": "dim"}


@click.command()
@click.argument("paths", nargs=-1, type=click.Path(path_type=Path), metavar="[PATH]...")
@click.option(
    "--filter",
    "-k",
    "patterns",
    multiple=True,
    metavar="TEXT",
    help="Only cases whose FILE/NAME contains this text, with the cases that they start from.",
)
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(min=1),
    help="Number of cases that run in parallel; default: the number of processors.",
)
@click.option(
    "--timeout",
    "limit",
    callback=parse_duration,
    default="5m",
    show_default=True,
    metavar="DURATION",
    help="Real time that a case may take. A case that takes longer is ended and reported as "
    "broken.",
)
@click.option("--update", "-u", is_flag=True, help="Write the snapshots again.")
@click.option(
    "--coverage", is_flag=True, help="Show the parts of the stack that no case exercises."
)
@click.option(
    "--junit",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the results as JUnit XML into this file.",
)
@click.option("--list", "only_list", is_flag=True, help="List the cases and run none.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
@click.option(
    "--all",
    "every_project",
    is_flag=True,
    help="The cases of all projects of stacks.yaml, else of the projects in this folder.",
)
@add_common_flags
def test(  # noqa: PLR0913, PLR0917 - the flags
    paths: tuple[Path, ...],
    patterns: tuple[str, ...],
    jobs: int | None,
    limit: float,
    update: bool,
    coverage: bool,
    junit: Path | None,
    only_list: bool,
    as_json: bool,
    every_project: bool,
) -> int:
    """Run the test cases of a stack: no capacity, a node that dies, a run that is killed.

    PATH is a test file, or the folder of a project with tests/*.yaml; default: the current project.
    Each case runs the real engine with its own emulator and its own state. It sends no request to a
    platform and changes nothing in the project. A create of 20 minutes takes one second. Exits with
    1 when a case does not pass.

    \b
    Examples:
      gpuform test
      gpuform test -k comes_up --coverage
      gpuform test --all --junit build/tests.xml
    """
    from gpuform.stacks.operations.opening.emulator import require_emulator  # noqa: PLC0415 - not for help
    from gpuform.stacks.testing.cases import read_cases, select_cases  # noqa: PLC0415 - as above

    if every_project and paths:
        raise click.UsageError(
            "--all runs the cases of all projects: it cannot be combined with PATH"
        )
    with open_session() as session:
        require_emulator()
        if every_project:
            paths = _list_tested_projects(session)
        cases = select_cases(read_cases(paths, Path.cwd()), patterns)
        if only_list:
            _print_cases(session, cases, as_json=as_json)
            return SUCCESS
        if _is_continued_in_virtualenv(cases):
            return SUCCESS
        options = _PlayOptions(
            jobs, limit, update, coverage, junit, as_json, is_complete=not patterns
        )
        with raise_on_signals():
            return _play_cases(session, cases, options)


def _list_tested_projects(session: Session) -> tuple[Path, ...]:
    """Return the folders of the workspace's projects with test files.

    Raises:
        TestFilesError: no project has any.
        MultiStackError: the files of the workspace have problems, or it has no stack.
    """
    from gpuform.stacks.document.diagnostics import Diagnostics, format_text  # noqa: PLC0415 - the engine, not for help
    from gpuform.stacks.multi_stack import MultiStackError, find_workspace  # noqa: PLC0415 - as above
    from gpuform.stacks.testing.cases import TestFilesError, has_test_files  # noqa: PLC0415 - as above

    problems = Diagnostics()
    workspace = find_workspace(Path.cwd(), session.environ, problems)
    if problems:
        raise MultiStackError(f"cannot load the stacks:\n{format_text(list(problems))}")
    folders = dict.fromkeys(stack.project.directory for stack in workspace.stacks.values())
    tested = tuple(folder for folder in folders if has_test_files(folder))
    if not tested:
        raise TestFilesError(
            "no project of the workspace has tests",
            hint="write one; `gpuform help guides/test-a-stack` shows how",
        )
    return tested


@dataclass(frozen=True, slots=True)
class _PlayOptions:
    """The values of the command's flags."""

    jobs: int | None
    limit: float
    update: bool
    coverage: bool
    junit: Path | None
    as_json: bool
    is_complete: bool


def _is_continued_in_virtualenv(cases: Sequence["Case"]) -> bool:
    """Return True if the command continues in the project's own interpreter.

    Raises:
        EngineError: the cases are of several projects, and one needs another interpreter.
    """
    from gpuform.stacks.cli.stack_runs import is_continued_in_virtualenv  # noqa: PLC0415 - not for help
    from gpuform.stacks.operations.opening.interpreter import refuse_other_interpreter  # noqa: PLC0415 - as above

    projects = {case.project.path: case.project for case in cases}.values()
    # One process has one interpreter, which all projects of the cases must share.
    if len(projects) == 1:
        return any(is_continued_in_virtualenv(project) for project in projects)
    for project in projects:
        refuse_other_interpreter(project)
    return False


def _print_cases(session: Session, cases: Sequence["Case"], *, as_json: bool) -> None:
    """Print the names of the cases, without running any case."""
    if as_json:
        rows = [
            {"name": case.address, "file": str(case.file), "description": case.inputs.description}
            for case in cases
        ]
        session.screen.print(json.dumps(rows, indent=2))
        return
    for case in cases:
        description = case.inputs.description
        session.screen.print(f"{case.address}  {description}" if description else case.address)


def _play_cases(session: Session, cases: Sequence["Case"], options: _PlayOptions) -> int:
    """Run the cases and print or write the results; return FAILED unless all have passed.

    With `update` unused snapshots are removed, unless a pattern leaves cases out.
    """
    from gpuform.stacks.testing.runner import (  # noqa: PLC0415 - not for help
        CaseRunner,
        CaseStatus,
        measure_coverage,
    )
    from gpuform.stacks.testing.snapshots import list_unused_snapshots, remove_files  # noqa: PLC0415 - as above

    paint = session.screen.paint
    width = max(len(case.address) for case in cases)

    def print_result(result: "CaseResult") -> None:
        if not options.as_json:
            session.screen.print("\n".join(_render_result(result, width, paint)))

    # A case is work of this machine alone: no platform is waited for.
    jobs = options.jobs or os.cpu_count() or 1
    playing = CaseRunner(
        jobs, update=options.update, time_limit_s=options.limit, on_result=print_result
    )
    results = playing.run(cases)
    coverages = measure_coverage(results) if options.coverage else []
    # A snapshot of a case that a filter leaves out is not unused.
    unused_snapshots = list_unused_snapshots(cases) if options.is_complete else []
    if options.update:
        remove_files(unused_snapshots)
    if options.junit is not None:
        _write_junit(options.junit, results)
    if options.as_json:
        session.screen.print(
            json.dumps(_build_document(results, coverages, unused_snapshots), indent=2)
        )
    else:
        for coverage in coverages:
            session.screen.print("\n".join(coverage.render()))
        for path in unused_snapshots:
            session.screen.print(_describe_unused(path, is_removed=options.update))
        session.screen.print(_summarize(results))
    is_passed = all(result.status is CaseStatus.PASSED for result in results)
    return SUCCESS if is_passed else FAILED


def _render_result(result: "CaseResult", width: int, paint: Paint) -> Iterator[str]:
    """Yield the lines of a case's result: status, duration, findings or why it could not run.

    `width` is that of the column of addresses.
    """
    from gpuform.stacks.testing.comparison import format_duration  # noqa: PLC0415 - the engine, not for help

    style = _STYLES[result.status]
    line = f"{paint(style, f'{result.status:<8}')}{result.case.address:<{width}}"
    if result.report is not None:
        line += paint("dim", f"  {format_duration(result.report.final_state.seconds)}")
    if result.is_updated:
        line += "  snapshot written"
    yield line.rstrip()
    if result.status == "skipped":
        yield f"  {result.case.predecessor} did not pass"
    for finding in result.findings:
        yield from (f"  {line}" for line in str(finding).splitlines())
    yield from (f"  {line_text}" for line_text in result.error.splitlines())


def _describe_unused(path: Path, *, is_removed: bool) -> str:
    """Return the sentence about a snapshot without a case, removed now or by `--update`."""
    from gpuform.stacks.topology.files import format_path  # noqa: PLC0415 - the engine, not for help

    removal = "removed" if is_removed else "`gpuform test --update` removes it"
    return f"no case uses the snapshot {format_path(path)} any longer: {removal}"


def _summarize(results: Sequence["CaseResult"]) -> str:
    """Return the number of cases, and how many have each status: `3 cases: 1 failed, 2 passed`."""
    from gpuform.stacks.review.value_text import counted  # noqa: PLC0415 - the engine, not for help

    counts = Counter(result.status for result in results)
    counts_text = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
    return f"{counted(len(results), 'case')}: {counts_text}"


def _build_document(
    results: Iterable["CaseResult"], covered: Iterable["Coverage"], unused: Iterable[Path]
) -> dict[str, Any]:
    """Build the JSON of the results, with coverage and unused snapshots if there are any."""
    document: dict[str, Any] = {"cases": [_build_entry(result) for result in results]}
    if paths := [str(path) for path in unused]:
        document["unused_snapshots"] = paths
    if covered := list(covered):
        document["coverage"] = [
            {
                "project": coverage.project,
                "entries": {
                    entry.address: sorted(entry.instances)
                    for entry in (coverage.entries or {}).values()
                },
                "missing": coverage.gaps,
            }
            for coverage in covered
        ]
    return document


def _build_entry(result: "CaseResult") -> dict[str, Any]:
    """Return a case's result for the JSON document; `told` is there only after an error.

    `platform_seconds` are those of the emulator's clock, None without a report.
    """
    report = result.report
    return {
        "name": result.case.address,
        "file": str(result.case.file),
        "line": result.case.get_position().line,
        "status": result.status,
        "findings": [str(finding) for finding in result.findings],
        "seconds": round(result.seconds, 3),
        "platform_seconds": None if report is None else report.final_state.seconds,
        **({"told": result.error} if result.error else {}),
    }


def _write_junit(path: Path, results: Sequence["CaseResult"]) -> None:
    """Write the results as JUnit XML. Raises EngineError if the file cannot be written."""
    from gpuform.stacks.testing.runner import render_junit  # noqa: PLC0415 - not for help

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render_junit(results), encoding="utf-8")
    except OSError as error:
        raise EngineError(f"the results cannot be written to {path}: {error.strerror}") from error
