"""Write docs/reference/crashes.md from results of the tests that kill, lose and lie.

python tests/exhaustive/play.py RESULTS
python tests/hostile/sweep.py PLATFORM 0 499 COURSES
python tests/conformance/crash_table.py RESULTS COURSES ...

The results are kept beside this file, in crash_results.json. Tests and platforms that are in none
of the given files keep the results that they have there, unless there are more or fewer cases now.
"""

import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT)]

from tools.reference.markdown import render_table  # noqa: E402

PAGE: Final = ROOT / "docs" / "reference" / "crashes.md"
RESULTS: Final = HERE / "crash_results.json"
FILES: Final = (
    "tests/conformance/test_crashes.py",
    "tests/conformance/test_importing.py",
    "tests/conformance/test_processes.py",
    "tests/conformance/test_interrupted_removals.py",
    "tests/conformance/test_faults.py",
    "tests/conformance/test_gone.py",
    "tests/conformance/test_many_gone.py",
    "tests/hostile/test_courses.py",
)
KILLED_RUNS: Final = "test_a_run_killed_at_any_point_is_recovered"
KILLED_RUNS_WITH_A_BUCKET: Final = "test_a_run_killed_at_any_point_with_a_bucket_is_recovered"
KILLED_IMPORTS: Final = "test_an_import_killed_at_any_point_can_be_repeated"
KILLED_NODE_REMOVALS: Final = "test_a_node_removal_killed_at_any_point_hurts_no_job"
COUNTED: Final = ("cases", "run", "passed", "points")
OPERATIONS: Final = ("create", "abandon", "update", "replace", "destroy")
FAULT_LABELS: Final[Mapping[str, str]] = {
    "test_a_signal_during_the_wait_of_an_up_keeps_the_id": (
        "Ctrl-C or SIGTERM while `up` waits for a created object"
    ),
    "test_a_signal_during_the_create_request_lets_it_finish": (
        "Ctrl-C while the create request is sent"
    ),
    "test_a_second_signal_ends_the_process_at_once_and_keeps_a_record": (
        "a second Ctrl-C, which ends the command at once"
    ),
    "test_a_signal_during_the_wait_of_a_destroy_keeps_the_resource": (
        "Ctrl-C or SIGTERM while `destroy` waits"
    ),
    "test_an_up_killed_while_it_sends_is_recovered": (
        "SIGKILL of `up` while the platform serves its request"
    ),
    "test_an_up_killed_while_it_waits_is_recovered": "SIGKILL of `up` while it waits",
    "test_a_killed_destroy_is_recovered": "SIGKILL of `destroy`",
    "test_a_node_removal_left_by_a_killed_run_is_finished": (
        "a shrink that was killed after it had cordoned a node: the next `up`, `refresh` or "
        "further shrink finishes it"
    ),
    "test_a_fault_of_the_changing_request_loses_and_doubles_no_object": (
        "the changing request: its answer is lost, its connection breaks, or the answer is 408, "
        "429, 500, 503 or a web page"
    ),
    "test_an_outage_during_a_run_loses_and_doubles_no_object": (
        "from the second or the fourth request on: an outage, lost connections, lost answers, 429"
    ),
    "test_a_failed_poll_loses_no_object": (
        "a poll during the wait is answered with 403, 404 or garbage"
    ),
    "test_a_failed_destroy_is_finished_by_the_next": (
        "the delete request: its answer or the request is lost, or the answer is 503"
    ),
    "test_an_object_that_fails_during_the_wait_is_kept_and_recovered": (
        "the object fails while gpuform waits for it"
    ),
    "test_an_object_not_ready_in_time_is_kept_and_waited_for_again": (
        "the object does not become ready in time"
    ),
    "test_an_object_deleted_by_others_during_its_create_is_created_again": (
        "somebody deletes the object between its create and its readiness"
    ),
    "test_an_object_deleted_by_others_before_an_update_is_recreated_after_a_refresh": (
        "somebody deletes the object before an update"
    ),
    "test_a_create_without_capacity_leaves_no_object_and_no_intent": (
        "the platform is out of capacity"
    ),
    "test_answers_of_strangers_make_no_object_gone": (
        "a proxy or another service answers everything: pages, 404, 410, empty answers, lists, "
        "health checks"
    ),
    "test_a_contradicted_404_makes_no_object_gone": (
        "the platform says that an object is gone, but its list shows the object, fails or has "
        "another form"
    ),
    "test_an_empty_list_alone_makes_no_object_gone": (
        "the list is empty, but the object still answers"
    ),
    "test_no_run_with_refresh_recreates_an_object_denied_by_strangers": (
        "the same answers, in `preview --refresh`, `up --refresh` and `destroy --refresh`"
    ),
    "test_the_error_about_a_stranger_names_the_request_and_the_base_url": (
        "the same answers: the error names who answered"
    ),
    "test_answers_of_strangers_open_no_health_gate": (
        "another server answers for Lens: the health gate stays closed"
    ),
    "test_three_deleted_objects_are_kept_in_the_state_and_reported": (
        "three objects are gone at once"
    ),
    "test_three_deleted_objects_are_forgotten_with_permission": (
        "three objects are gone, with `--allow forget-many`"
    ),
    "test_two_deleted_objects_are_forgotten_without_permission": "two objects are gone",
}
"""What each test does to gpuform, in words."""

REMOVAL_LABELS: Final[Mapping[str, str]] = {
    "shrink-cluster": "Together: fewer GPUs",
    "replace-cluster": "Together: a replaced cluster, the old one deleted first",
    "roll-out-cluster": "Together: a replaced cluster, the new one created first",
    "destroy-cluster": "Together: a destroyed cluster",
    "shrink-pool": "SCP pool: fewer nodes",
    "replace-pool-node": "SCP pool: another address of a node",
    "stop-pool-node": "SCP pool: a stopped node",
    "roll-out-pool": "SCP pool: another image, node by node",
    "replace-pool": "SCP pool: another image, all at once",
    "destroy-pool": "SCP pool: destroyed",
    "stop-node": "SCP node: stopped",
    "move-node": "SCP node: moved to another fabric",
    "destroy-node": "SCP node: destroyed",
    "destroy-entry": "AIOS node: its entry is removed",
    "repair-proposed-node": "Together: a node whose repair the platform proposes",
    "repair-not-ready-node": "Together: a node that its scheduler cannot use",
    "repair-pool-node": "SCP pool: a broken node",
    "repair-node": "SCP node: broken",
}
"""What removes the node in each scenario, in words."""

SECTIONS: Final = (
    ("Signals and kills of real processes", ("test_processes", "test_interrupted_removals")),
    ("Faults of the network and of the platform", ("test_faults",)),
    ("What counts as gone", ("test_gone", "test_many_gone")),
)

HONEST: Final = "test_honest_courses_succeed"

Case = tuple[str, str]
"""The module and the name of a test with its parameters."""


def main(files: Sequence[str]) -> None:
    """Collect the results of these files, and write the page."""
    lines = [json.loads(line) for file in files for line in Path(file).read_text().splitlines()]
    before = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    tests = count_results(
        collect_cases(), collect_results(line for line in lines if "outcome" in line)
    )
    courses = count_courses(line for line in lines if "seed" in line)
    results = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "tests": merge_results(before.get("tests", {}), tests),
        "courses": {**before.get("courses", {}), **courses},
    }
    RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    PAGE.write_text(render_page(results), encoding="utf-8")


def collect_results(lines: Iterable[Mapping[str, Any]]) -> dict[Case, Mapping[str, Any]]:
    """Return the last complete result of each case."""
    cases: dict[Case, Mapping[str, Any]] = {}
    for line in lines:
        match = re.search(r"/(\w+)\.py::(.*)$", line["id"])
        if match and line["outcome"] in ("passed", "failed"):
            cases[match[1], match[2]] = line
    return cases


def count_courses(lines: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for each platform the counts of played and failed courses, and the commit."""
    last = {(line["platform"], line["seed"]): line for line in lines}
    counts: dict[str, dict[str, Any]] = {}
    for (platform, _), line in sorted(last.items()):
        count = counts.setdefault(platform, {"played": 0, "failed": 0, "commit": ""})
        count["played"] += 1
        count["failed"] += bool(line["found"])
        count["commit"] = line.get("commit", "") or count["commit"]
    return counts


def collect_cases() -> list[Case]:
    """Return all cases collected by pytest."""
    argv = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-m", ""]
    finished = subprocess.run(
        [*argv, "-p", "no:xdist", *FILES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    cases = re.findall(r"(?m)/(\w+)\.py::(.*)$", finished.stdout)
    return [
        (module, name)
        for module, name in cases
        if module != "test_importing" or _is_killed_import(name)
    ]


def count_results(
    cases: Iterable[Case], played: Mapping[Case, Mapping[str, Any]]
) -> dict[str, dict[str, dict[str, Any]]]:
    """Return for each test and subject the counts of cases, with the commit.

    They are the cases, how many of them were run and passed, and the crash points.
    """
    counts: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    commits: dict[tuple[str, str], str] = {}
    for module, name in cases:
        test, _, parameters = name.partition("[")
        key = f"{module}::{test}", get_subject(test, parameters.removesuffix("]"))
        count = counts[key[0]][key[1]]
        count["cases"] += 1
        if (module, name) in played:
            result = played[module, name]
            count["run"] += 1
            count["passed"] += result["outcome"] == "passed"
            count["points"] += int(result.get("points", 0))
            commits[key] = result["commit"]
    return {
        test: {
            subject: {item: count[item] for item in COUNTED}
            | {"commit": commits.get((test, subject), "")}
            for subject, count in sorted(rows.items())
        }
        for test, rows in sorted(counts.items())
    }


def merge_results(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return new counts, or old ones if more of the same cases ran then.

    A failure of now stays.
    """

    def choose_newer(test: str, subject: str, counts: Mapping[str, Any]) -> Mapping[str, Any]:
        earlier: Mapping[str, Any] = before.get(test, {}).get(subject, {})
        is_same = earlier.get("cases") == counts["cases"] and counts["passed"] == counts["run"]
        return earlier if is_same and earlier["run"] > counts["run"] else counts

    return {
        test: {subject: choose_newer(test, subject, counts) for subject, counts in rows.items()}
        for test, rows in now.items()
    }


def get_subject(test: str, parameters: str) -> str:
    """Return a platform's kind, or the parameters of a loop that kills at every point."""
    if test in (KILLED_RUNS, KILLED_RUNS_WITH_A_BUCKET, KILLED_IMPORTS, KILLED_NODE_REMOVALS):
        return parameters
    kind = re.search(
        r"(together|scp|pool|fleet|slurm|tensorone|aios|lens)(-[A-Z][A-Za-z]+)?", parameters
    )
    return kind[0] if kind else "-"


def _is_killed_import(name: str) -> bool:
    return name.startswith(KILLED_IMPORTS)


def render_page(results: Mapping[str, Any]) -> str:
    """Return the page with these results."""
    return "\n\n".join(part.strip("\n") for part in _render_parts(results) if part.strip()) + "\n"


def _render_parts(results: Mapping[str, Any]) -> Iterator[str]:
    tests = results["tests"]
    yield "# Crashes and faults"
    yield "<!-- Generated: python tests/conformance/crash_table.py RESULTS ... -->"
    yield (
        "This page shows how often tests killed gpuform, lost an answer or returned a wrong "
        "answer. It also shows the results."
    )
    everything = [counts for rows in tests.values() for counts in rows.values()]
    total = {name: sum(counts[name] for counts in everything) for name in COUNTED}
    played = sum(counts["played"] for counts in results["courses"].values())
    yield (
        f"The numbers are of runs until {results['date']}: {total['run']:,} of {total['cases']:,} "
        f"cases were run, and {total['passed']:,} of them passed. These cases killed runs at "
        f"{total['points']:,} points. In addition, {played:,} random courses were run. "
        "The platforms are simulated on one machine: by the emulator, and for the random courses "
        "by other simulations that share no code with the emulator. CI runs a part of the cases "
        "for each commit, and the rest every night."
    )
    yield _describe_commits(everything, results["courses"])
    yield from _render_demands()
    yield from _render_kills(tests)
    for title, modules in SECTIONS:
        yield f"## {title}"
        yield _render_matrix(
            {
                test.partition("::")[2]: rows
                for test, rows in tests.items()
                if test.partition("::")[0] in modules and test.partition("::")[2] in FAULT_LABELS
            }
        )
    yield from _render_courses(tests, results["courses"])


def _describe_commits(
    cases: Iterable[Mapping[str, Any]], courses: Mapping[str, Mapping[str, Any]]
) -> str:
    """Return how many cases and courses were run on which commit."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for count in cases:
        counts[count.get("commit", "")]["cases"] += count["run"]
    for count in courses.values():
        counts[count["commit"]]["courses"] += count["played"]
    descriptions = [
        f"{f'`{commit}`' if commit else 'not recorded'} "
        f"({', '.join(f'{number:,} {noun}' for noun, number in sorted(count.items()) if number)})"
        for commit, count in sorted(counts.items(), reverse=True)
        if count.total()
    ]
    return f"Commits: {', '.join(descriptions)}."


def _render_demands() -> Iterator[str]:
    yield "## What the tests check after each case"
    yield (
        "* **No object is lost.** Every object on the platform is in the state, or an "
        "[intent](../concepts/intents.md) tells the next run how to find it.\n"
        "* **The state is true.** Every object in the state exists.\n"
        "* **No object is duplicated.** The next run creates no second object.\n"
        "* **The next run succeeds,** and the plan after it is empty. A `destroy` leaves "
        "nothing.\n"
        "* **Objects of others are not touched.** A colleague's object with the same name stays "
        "unchanged. The random courses have such a colleague.\n"
        "* **No file has a secret.** The random courses look for every secret in every file.\n"
        "* **No job is hurt.** When nodes are removed or stopped, no node stays cordoned, and no "
        "job is killed."
    )


def _render_kills(tests: Mapping[str, Any]) -> Iterator[str]:
    yield "## Killed at every point"
    yield (
        "A test kills a run (SIGKILL) after its first request or its first write to disk. The next "
        "run must recover. Then the test starts again, kills the run after the second request or "
        "write, and so on, until a run ends by itself. The tables have the number of these points. "
        "During a wait, only the first three polls count. *abandon* is a killed create, "
        "followed by a `destroy` instead of another `up`."
    )
    yield _render_points(tests[f"test_crashes::{KILLED_RUNS}"])
    yield (
        "`-` means no run: the rows of the single kinds cover an update and a replacement of a "
        "volume or a cluster."
    )
    yield (
        "Here a job runs on a node that the run removes, stops or repairs. The test kills the run "
        "in the same way. No job may end because of this, no node may stay cordoned, and no node "
        "may be lost or duplicated:"
    )
    yield _render_evictions(tests[f"test_crashes::{KILLED_NODE_REMOVALS}"])
    yield "The same operations as in the first table, with the state in a bucket:"
    yield _render_points(tests[f"test_crashes::{KILLED_RUNS_WITH_A_BUCKET}"])
    yield "`gpuform import --all`, killed in the same way, for each file that it can write to:"
    rows = tests[f"test_importing::{KILLED_IMPORTS}"]
    yield render_table(
        ["file", "points"], [[f"`{file}`", _format_points(rows[file])] for file in rows]
    )


def _render_points(rows: Mapping[str, Mapping[str, int]]) -> str:
    kinds: dict[str, dict[str, str]] = defaultdict(dict)
    others: list[list[str]] = []
    for scenario, counts in rows.items():
        operation, _, kind = scenario.partition("-")
        name = "a volume and a cluster on it" if kind == "topology" else _format_kind(kind)
        if operation in OPERATIONS and name:
            kinds[name][operation] = _format_points(counts)
        else:
            others.append([scenario.replace("-", " "), _format_points(counts)])
    cells = [[name, *(row.get(item, "-") for item in OPERATIONS)] for name, row in kinds.items()]
    table = render_table(["kind", *OPERATIONS], cells)
    return f"{table}\n{render_table(['other runs', 'points'], others)}" if others else table


def _render_evictions(rows: Mapping[str, Mapping[str, int]]) -> str:
    cells = [
        [words, *(_format_points(rows[f"{path}-{name}"]) for name in ("kubernetes", "slurm"))]
        for path, words in REMOVAL_LABELS.items()
    ]
    return render_table(
        ["why the node is removed, stopped or repaired", "Kubernetes", "Slurm"], cells
    )


def _format_kind(kind: str) -> str:
    """Return a kind such as `together:Cluster`, or an empty text."""
    match = re.fullmatch(r"(together|scp|tensorone|aios|lens)-([A-Z]\w+)", kind)
    return f"{match[1]}:{match[2]}" if match else ""


def _format_points(counts: Mapping[str, int]) -> str:
    if not counts["run"]:
        return "not run"
    return str(counts["points"]) if counts["passed"] == counts["run"] else "**fails**"


def _render_matrix(tests: Mapping[str, Mapping[str, Mapping[str, int]]]) -> str:
    rows = []
    for test, words in FAULT_LABELS.items():
        if test in tests:
            match = tests[test].values()
            total = {name: sum(counts[name] for counts in match) for name in ("cases", "run")}
            passed = sum(counts["passed"] for counts in match)
            result = "all pass" if passed == total["run"] else f"{passed} pass"
            result = result if total["run"] else "not run"
            rows.append([words, _format_count(total), _format_kinds(tests[test]), result])
    return render_table(["what goes wrong", "cases", "on", "result"], rows)


def _format_kinds(rows: Mapping[str, Mapping[str, int]]) -> str:
    """Return the kinds, with numbers where results differ."""
    kinds = {
        _format_kind(kind) or kind: _format_count(counts)
        for kind, counts in rows.items()
        if kind != "-"
    }
    if len(set(kinds.values())) <= 1:
        return ", ".join(kinds)
    return ", ".join(f"{kind} {number}" for kind, number in kinds.items())


def _format_count(counts: Mapping[str, int]) -> str:
    if counts["run"] in (0, counts["cases"]):
        return str(counts["cases"])
    return f"{counts['run']} of {counts['cases']}"


def _render_courses(
    tests: Mapping[str, Any], courses: Mapping[str, Mapping[str, Any]]
) -> Iterator[str]:
    yield "## Random courses on hostile platforms"
    yield (
        "A course is a random sequence of commands on two machines, of faults, and of actions of a "
        "colleague. It kills runs at any request, and loses answers before or after their effect. "
        "Lists lag, statuses go back to earlier ones, deletions have no effect, and other servers "
        "answer. The colleague creates and deletes objects of the same names. After each step, "
        "the tests check everything listed above. The state is in files or in a bucket, and "
        "resources are in both forms. `python tests/hostile/play.py PLATFORM SEED` runs a course "
        "again, and `python tests/hostile/sweep.py` runs many. In an honest course nothing goes "
        "wrong, and each command must succeed."
    )
    honest = tests[f"test_courses::{HONEST}"]
    rows = []
    for platform in sorted({*courses, *honest}):
        count = courses.get(platform, {"played": 0, "failed": 0})
        cell = _format_result(count["played"], count["failed"])
        runs = honest.get(platform, dict.fromkeys(COUNTED, 0))
        rows.append([platform, cell, _format_result(runs["run"], runs["run"] - runs["passed"])])
    yield render_table(["platform", "random courses", "honest courses"], rows)


def _format_result(played: int, failed: int) -> str:
    if not played:
        return "not run"
    return f"{played}, **{failed} fail**" if failed else f"{played}, all pass"


if __name__ == "__main__":
    main(sys.argv[1:])
