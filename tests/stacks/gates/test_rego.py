"""Gates in Rego: by a program that answers as opa does, and by opa itself where it is installed."""

import json
import shutil
from pathlib import Path

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.stacks.gates.evaluating import find_rego_problems

POLICY = """package gpuform

deny contains message if {
    some change in input.changes
    change.action == "delete"
    message := sprintf("%s would be deleted", [change.name])
}
"""


def create_plan(action: str = "delete") -> Plan:
    urn = "urn:pulumi:dev::demo::gpuform:together:Cluster::train"
    change = ResourceChange(
        urn=urn,
        type="gpuform:together:Cluster",
        name="train",
        action=PlanAction(action),
        reason=PlanReason.CHANGED,
    )
    return Plan.from_changes("demo", "dev", [change])


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a project with a policy, and a PATH that finds only the programs of `bin`."""
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "deletions.rego").write_text(POLICY)
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path


def install_opa(project: Path, answer: str, code: int = 0, stderr: str = "") -> None:
    """Install a program `opa` that keeps its arguments and its input, and gives this answer."""
    (project / "answer").write_text(answer)
    (project / "stderr").write_text(stderr)
    program = project / "bin" / "opa"
    program.write_text(
        f"#!/bin/sh\ncd '{project}'\nprintf '%s\\n' \"$@\" > arguments\n"
        f"/bin/cat > input\n/bin/cat answer\n/bin/cat stderr >&2\nexit {code}\n"
    )
    program.chmod(0o755)


def answer_with(value: object) -> str:
    expression = {"value": value, "text": "data.gpuform.deny", "location": {"row": 1, "col": 1}}
    return json.dumps({"result": [{"expressions": [expression]}]})


def test_the_messages_of_deny_are_the_findings(project: Path) -> None:
    install_opa(project, answer_with(["train would be deleted", {"msg": "no"}, {"a": 1}]))
    findings = list(find_rego_problems(create_plan(), "policies", project))
    assert findings == ["train would be deleted", "no", '{"a": 1}']
    assert (project / "arguments").read_text().split() == [
        *("eval", "--format", "json", "--stdin-input", "--strict-builtin-errors"),
        *("--data", str(project / "policies"), "data.gpuform.deny"),
    ]
    assert json.loads((project / "input").read_text())["changes"][0]["action"] == "delete"


@pytest.mark.parametrize(
    ("answer", "code", "stderr", "finding"),
    [
        ("{}", 0, "", "policies defines no set `deny` in the package gpuform"),
        (answer_with({"a": 1}), 0, "", "policies defines no set `deny` in the package gpuform"),
        (
            json.dumps(
                {
                    "errors": [
                        {
                            "message": "unexpected eof token",
                            "code": "rego_parse_error",
                            "location": {"file": "policies/deletions.rego", "row": 3, "col": 9},
                        }
                    ]
                }
            ),
            2,
            "",
            "policies: opa failed: deletions.rego:3: unexpected eof token",
        ),
        ("", 1, "Error: no\nusage", "policies: opa failed: usage"),
        ("panic", 0, "", "policies: opa failed: it gave no answer"),
        ("", 0, "", "policies defines no set `deny` in the package gpuform"),
    ],
)
def test_an_answer_without_a_decision_is_a_finding(
    project: Path, answer: str, code: int, stderr: str, finding: str
) -> None:
    install_opa(project, answer, code, stderr)
    (only,) = find_rego_problems(create_plan(), "policies", project)
    assert only.startswith(finding)


def test_missing_policies_and_a_missing_opa_are_findings(project: Path) -> None:
    (without_opa,) = find_rego_problems(create_plan(), "policies", project)
    (without_file,) = find_rego_problems(create_plan(), "rules", project)
    assert without_opa.startswith("policies needs the program opa, which is not in PATH: see http")
    assert without_file == f"rules does not exist in {project.name}"
    (with_impossible_path,) = find_rego_problems(create_plan(), "a" * 300, project)
    assert with_impossible_path.endswith(f"a does not exist in {project.name}")


REAL_OPA = shutil.which("opa")


@pytest.mark.skipif(REAL_OPA is None, reason="the program opa is not installed")
@pytest.mark.slow
@pytest.mark.parametrize(("action", "count"), [("delete", 1), ("create", 0)])
def test_the_real_opa_decides(
    project: Path, monkeypatch: pytest.MonkeyPatch, action: str, count: int
) -> None:
    monkeypatch.setenv("PATH", str(Path(REAL_OPA or "").parent))
    findings = list(find_rego_problems(create_plan(action), "policies", project))
    assert findings == ["train would be deleted"] * count


@pytest.mark.skipif(REAL_OPA is None, reason="the program opa is not installed")
@pytest.mark.slow
def test_the_real_opa_reports_the_line_of_a_mistake_and_an_error_of_a_builtin(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(Path(REAL_OPA or "").parent))
    policy = project / "policies" / "deletions.rego"
    policy.write_text("package gpuform\n\ndeny contains if {\n")
    (mistake,) = find_rego_problems(create_plan(), "policies", project)
    policy.write_text('package gpuform\n\ndeny contains "x" if to_number("a") > 1\n')
    (error,) = find_rego_problems(create_plan(), "policies", project)
    assert mistake.startswith("policies: opa failed: deletions.rego:3: ")
    assert error.startswith("policies: opa failed: deletions.rego:3: ")
