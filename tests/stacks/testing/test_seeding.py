"""Cases that start from a state: the emulator then holds what the state names."""

import json
import shutil
from pathlib import Path

import pytest
from processes.commands import run_gpuform

from gpuform.stacks.testing.cases import TestFilesError as FilesError
from gpuform.stacks.testing.cases import read_cases
from gpuform.stacks.testing.runner import CaseResult, CaseRunner

from .conftest import Written, told

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


def exported(folder: Path) -> Path:
    """The state of a stack `prod` that came up in a project."""
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


def played(file: Path, text: str) -> dict[str, CaseResult]:
    file.write_text(text)
    return {each.case.name: each for each in CaseRunner(2).run(read_cases([file], Path()))}


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
def test_a_state_starts_a_case_as_it_is(example: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    ignored = shutil.ignore_patterns("tests", ".*", "Pulumi.*.yaml")
    shutil.copytree(EXAMPLES / example, folder, ignore=ignored)
    exported(folder)
    results = played(folder / "tests" / "demo.yaml", CASES)
    assert {name: told(each) for name, each in results.items() if told(each)} == {}
    left = results["goes"].report
    assert left is not None
    assert left.final_state.resources == []


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_change_is_planned_against_the_state(project: Path) -> None:
    """Not the secrets of prod, whose key nobody has here, nor its ids."""
    state = exported(project)
    secret = "planted-7d1f"
    assert secret not in state.read_text()
    results = played(
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
    assert told(results["grows"]) == []


def refused(project: Path, document: object) -> str:
    (project / "tests" / "prod.json").write_text(json.dumps(document))
    results = played(project / "tests" / "demo.yaml", "cases: {one: {start: {state: prod.json}}}")
    return told(results["one"])[0]


def test_what_is_no_state_of_the_project_is_refused(project: Path) -> None:
    assert "is not the state of a stack" in refused(project, {})
    assert "has no resources" in refused(project, {"version": 3, "deployment": {}})
    urn = "urn:pulumi:prod::other::pulumi:pulumi:Stack::other-prod"
    entry = {"urn": urn, "custom": False, "type": "pulumi:pulumi:Stack"}
    whole = {"version": 3, "deployment": {"resources": [entry]}}
    assert "is a state of project other, not of demo" in refused(project, whole)


def test_a_file_that_is_not_there_is_told_at_its_place(written: Written) -> None:
    with pytest.raises(FilesError, match=r"demo\.yaml:1:30: file .*nothing\.json not found"):
        read_cases([written("cases: {one: {start: {state: nothing.json}}}")], Path())
