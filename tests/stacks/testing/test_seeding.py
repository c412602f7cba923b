"""Cases that start from a state: the emulator then has the objects that the state names."""

import json
import shutil
from pathlib import Path

import pytest
from processes.commands import run_gpuform

from gpuform.stacks.testing.cases import TestFilesError as FilesError
from gpuform.stacks.testing.cases import read_cases
from gpuform.stacks.testing.runner import CaseResult, CaseRunner

from .conftest import WriteCases, format_findings

EXAMPLES = Path(__file__).parents[3] / "examples"
CASES = """\
cases:
  stays:
    start: {state: prod.json}
    expect: {plan: {}}
  refreshed:
    start: {case: stays}
    run: refresh
    expect: {plan: {}}
  goes:
    start: {case: stays, later: 2h}
    run: destroy
"""


def export_state(folder: Path) -> Path:
    """Bring up a stack `prod` of the project, and return the file with its exported state."""
    environ = {"PULUMI_CONFIG_PASSPHRASE": "of prod", "PULUMI_HOME": str(folder / "home")}
    environ["PULUMI_BACKEND_URL"] = f"file://{folder}"
    for command in ("stack init prod --emulate", "up --emulate --yes"):
        done = run_gpuform(folder, *command.split(), **environ)
        assert done.code == 0, done.stdout + done.stderr
    file = folder / "tests" / "prod.json"
    file.parent.mkdir(exist_ok=True)
    done = run_gpuform(folder, "stack", "export", "--file", str(file), **environ)
    assert done.code == 0, done.stderr
    (folder / "Pulumi.prod.yaml").unlink()
    return file


def run_cases(file: Path, text: str) -> dict[str, CaseResult]:
    file.write_text(text)
    return {result.case.name: result for result in CaseRunner(2).run(read_cases([file], Path()))}


@pytest.mark.slow
@pytest.mark.parametrize(
    "example",
    [
        "01-together-training",
        "02-scp-fabric",
        "03-tensorone-dev",
        "04-aios-registry",
        "05-health-gated",
        "06-slurm-scale-down",
        "07-kubernetes-volumes",
        "08-modules",
        "09-certified-cluster",
    ],
)
def test_a_case_from_a_state_plans_no_change_and_can_be_destroyed(
    example: str, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    ignored = shutil.ignore_patterns("tests", ".*", "Pulumi.*.yaml")
    shutil.copytree(EXAMPLES / example, folder, ignore=ignored)
    export_state(folder)
    results = run_cases(folder / "tests" / "demo.yaml", CASES)
    assert {
        name: format_findings(result) for name, result in results.items() if format_findings(result)
    } == {}
    report = results["goes"].report
    assert report is not None
    assert report.final_state.resources == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_change_is_planned_against_the_state(project: Path) -> None:
    """The test run has neither the key of prod's secrets nor prod's ids."""
    state = export_state(project)
    secret = "planted-7d1f"
    assert secret not in state.read_text()
    results = run_cases(
        project / "tests" / "demo.yaml",
        """\
cases:
  grows:
    start: {state: prod.json}
    config: {gpus: 8}
    expect:
      plan: {train: update}
      properties: {train: {num_gpus: 8}}
      objects: {together/clusters: [{name: training, status: Ready}]}
""",
    )
    assert format_findings(results["grows"]) == []


def run_from_state(project: Path, document: object) -> str:
    (project / "tests" / "prod.json").write_text(json.dumps(document))
    results = run_cases(
        project / "tests" / "demo.yaml", "cases: {one: {start: {state: prod.json}}}"
    )
    return format_findings(results["one"])[0]


def test_a_file_that_is_not_a_state_of_the_project_is_refused(project: Path) -> None:
    assert "is not the state of a stack" in run_from_state(project, {})
    assert "has no resources" in run_from_state(project, {"version": 3, "deployment": {}})
    urn = "urn:pulumi:prod::other::pulumi:pulumi:Stack::other-prod"
    entry = {"urn": urn, "custom": False, "type": "pulumi:pulumi:Stack"}
    document = {"version": 3, "deployment": {"resources": [entry]}}
    assert "is a state of project other, not of demo" in run_from_state(project, document)


def test_a_missing_state_file_is_reported_at_its_position(write_cases: WriteCases) -> None:
    with pytest.raises(FilesError, match=r"demo\.yaml:1:30: file .*nothing\.json not found"):
        read_cases([write_cases("cases: {one: {start: {state: nothing.json}}}")], Path())
