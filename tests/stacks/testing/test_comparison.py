"""Runs compared with expectations: right ones, and wrong ones of every kind."""

from pathlib import Path
from textwrap import indent

import pytest

from gpuform.stacks.testing.case_run import CaseRunSpec
from gpuform.stacks.testing.cases import RunReport, read_cases
from gpuform.stacks.testing.comparison import compare_run, format_duration, matches_expected
from gpuform.stacks.testing.processes import CaseProcess
from gpuform.stacks.testing.runner import find_free_ports

from .conftest import GATES, PRICES, TOPOLOGY


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunReport]:
    """Return a project's folder and the report of the project's first run."""
    folder = tmp_path_factory.mktemp("compared")
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (folder / "topology.yaml").write_text(TOPOLOGY)
    (folder / "gates.yaml").write_text(GATES)
    (folder / "prices.yaml").write_text(PRICES)
    (folder / "tests").mkdir()
    (folder / "tests" / "demo.yaml").write_text("cases: {first: {}}\n")
    (case,) = read_cases([folder], Path())
    work_folder = tmp_path_factory.mktemp("played")
    spec = CaseRunSpec(
        case.project.path, work_folder, next(find_free_ports()), case.inputs, has_predecessor=False
    )
    report = CaseProcess(spec).run()
    assert report is not None
    return folder, report


def list_differences(first_run: tuple[Path, RunReport], expect: str) -> list[str]:
    """Return the differences of the run from `expect`, as LINE:COLUMN: MESSAGE."""
    folder, report = first_run
    file = folder / "tests" / "demo.yaml"
    file.write_text(f"cases:\n  first:\n    expect:\n{indent(expect, '      ')}\n")
    (case,) = read_cases([file], Path())
    findings = compare_run(case, report)
    return [
        f"{finding.position.line}:{finding.position.column}: {finding.message}"
        for finding in findings
    ]


RIGHT = """\
result: succeeded
plan: {train: create, shared_volumes.data: create}
properties:
  train: {num_gpus: 16, region: us-central-8}
gates: {budget: passes, place: passes, few: passes}
hourly_cost: {USD: 47.84}
resources:
  clusters.train: {ready: true, num_gpus: 16, status: Ready}
absent: [scratch]
outputs: {status: Ready, token: planted-7d1f}
objects:
  together/clusters: [{name: training, status: Ready}]
  together/volumes: [{name: training-data}]
  scp/gpu_nodes: []
takes: {at_least: 5m, at_most: 1h}
"""


def test_a_run_as_expected_has_no_findings(first_run: tuple[Path, RunReport]) -> None:
    assert list_differences(first_run, RIGHT) == []


WRONG = [
    ("result: failed", "4:15: the run should have failed, but it has succeeded"),
    ("error: [stock]", "4:14: expected an error, but the run has succeeded"),
    ("warning: [careful]", "4:17: no warning contains 'careful'; the run reports nothing"),
    ("plan: {train: create}", "4:13: data: expected no change, planned create"),
    (
        "plan: {train: update, data: create}",
        "4:21: train: expected update, planned create",
    ),
    (
        "plan: {'*': create, trian: create}",
        "4:34: trian is not in the plan, which has shared_volumes.data, clusters.train",
    ),
    (
        "properties: {train: {num_gpus: 24}}",
        "4:38: train.num_gpus: expected 24, planned 16",
    ),
    ("properties: {trian: {num_gpus: 24}}", "4:27: trian is not in the plan"),
    ("properties: {'*': {num_gpus: 24}}", "4:25: * matches 2 resources"),
    (
        "properties: {train: {num_gpus: null}}",
        "4:38: train.num_gpus: expected null, planned 16",
    ),
    (
        "resources: {train: {ready: false}}",
        "4:34: train.ready: expected false, got true",
    ),
    ("properties: {train: {volume_id: x}}", "4:39: train.volume_id is only known after apply"),
    (
        "replaced_by: {train: [region]}",
        "4:28: train: expected replace, planned create",
    ),
    ("gates: {budget: stops}", "4:23: gate budget: expected stops, got passes"),
    (
        "gates: {buget: stops}",
        "4:22: unknown gate buget; the plan's gates are budget, place, few",
    ),
    (
        "hourly_cost: {USD: 23.92}",
        "4:26: hourly cost in USD: expected 23.92, planned 47.84",
    ),
    (
        "hourly_cost: {EUR: 47.84}",
        "4:26: hourly cost in EUR: expected 47.84, planned unknown",
    ),
    (
        "resources: {train: {status: Degraded}}",
        "4:35: train.status: expected 'Degraded', got 'Ready'",
    ),
    ("resources: {train: {staus: Ready}}", "4:34: train.staus does not exist"),
    (
        "resources: {scratch: {size_tib: 1}}",
        "4:28: scratch is not in the state, which has shared_volumes.data, clusters.train",
    ),
    ("absent: [train]", "4:16: train is in the state"),
    (
        "absent: [scratch, shared_volumes.scratch, tran]",
        "4:49: tran is absent, but it neither existed nor is declared",
    ),
    (
        "absent: [cluster.train]",
        "4:16: cluster.train is absent, but it neither existed nor is declared",
    ),
    ("outputs: {status: Gone}", "4:25: output status: expected 'Gone', got 'Ready'"),
    ("outputs: {state: Gone}", "4:24: output state does not exist"),
    (
        "objects: {together/clusters: []}",
        "4:36: unexpected object training (Ready)",
    ),
    (
        "objects: {together/clusters: [{name: training, status: Degraded}]}",
        "4:37: training: expected status Degraded, got Ready",
    ),
    (
        "objects: {together/clusters: [{name: training}, {name: training}]}",
        "4:55: training is listed more often than it exists",
    ),
    ("takes: {at_most: 20m}", "4:24: the run should take at most 20m, but took 21m"),
    ("takes: {at_least: 22m}", "4:25: the run should take at least 22m, but took 21m"),
]


@pytest.mark.parametrize(("expect", "finding"), WRONG)
def test_a_difference_is_reported_at_the_position_of_its_expectation(
    first_run: tuple[Path, RunReport], expect: str, finding: str
) -> None:
    assert list_differences(first_run, expect) == [finding]


def test_a_secret_is_compared_and_not_shown(first_run: tuple[Path, RunReport]) -> None:
    (finding,) = list_differences(first_run, "outputs: {token: guessed}")
    assert finding == "4:24: output token: expected 'guessed', got another value (secret)"


def test_an_unknown_kind_of_object_is_reported_with_the_known_kinds(
    first_run: tuple[Path, RunReport],
) -> None:
    (finding,) = list_differences(first_run, "objects: {together/nodes: []}")
    assert (
        "unknown kind together/nodes; the kinds are together/clusters, together/volumes" in finding
    )


@pytest.mark.parametrize(
    ("wanted", "given", "is_same"),
    [
        (16, 16.0, True),
        (True, 1, False),
        (1, True, False),
        ({"a": 1}, {"a": 1, "b": 2}, True),
        ({"a": 1}, {"b": 2}, False),
        ({"a": None}, {}, False),
        ([1, {"a": 1}], [1, {"a": 1, "b": 2}], True),
        ([1], [1, 2], False),
        ("1", 1, False),
    ],
)
def test_only_expected_keys_of_an_object_are_compared(
    wanted: object, given: object, is_same: bool
) -> None:
    assert matches_expected(wanted, given) is is_same


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (59.6, "1m"), (3600, "1h"), (3723, "1h2m3s")]
)
def test_durations_are_formatted_as_in_test_files(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
