"""Reports of results: JUnit, coverage, and the command's text, JSON and exit code."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from processes.commands import run_gpuform

from gpuform.stacks.testing.cases import read_cases
from gpuform.stacks.testing.runner import CaseRunner, measure_coverage, render_junit

from .conftest import RunCases, WriteCases

MIXED = """\
    cases:
      comes_up: {description: It comes up., expect: {plan: {train: create, data: create}}}
      fails: {expect: {outputs: {status: "\\u0001Gone"}}}
      follows: {start: {case: fails}}
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_junit_has_every_case_once_with_its_findings(run_cases: RunCases) -> None:
    results = list(run_cases(MIXED).values())
    root = ET.fromstring(render_junit(results))
    assert root.attrib.items() >= {"tests": "3", "failures": "1", "skipped": "1"}.items()
    (suite,) = root
    testcases = {element.get("name"): element for element in suite}
    assert list(testcases) == ["comes_up", "fails", "follows"]
    assert list(testcases["comes_up"]) == []
    (failure,) = testcases["fails"]
    assert failure.tag == "failure"
    assert "output status: expected" in str(failure.text)
    assert [element.tag for element in testcases["follows"]] == ["skipped"]
    assert testcases["fails"].get("line") == "3"


def test_junit_is_valid_xml_for_any_file_name(project: Path) -> None:
    file = project / "tests" / "de\x01mo\x1b.yaml"
    file.write_text("cases: {wrong: {config: {gpsu: 1}}}")
    results = CaseRunner(1).run(read_cases([project], Path()))
    (suite,) = ET.fromstring(render_junit(results))
    assert str(suite.get("name")).endswith("de\ufffdmo\ufffd.yaml")


def test_a_case_that_fails_covers_nothing(run_cases: RunCases) -> None:
    cases = "cases: {refused: {config: {gpus: 24}}, up: {config: {spare: true, gpus: 8}}}"
    (covered,) = measure_coverage(run_cases(cases).values())
    assert "gate budget has never stopped or warned" in covered.gaps
    (covered,) = measure_coverage(run_cases("cases: {up: {config: {gpus: 24}}}").values())
    assert list(covered.render()) == [
        "Coverage of demo (0 cases)",
        "  nothing: no case passed",
    ]


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_coverage_lists_the_entries_and_gates_that_no_case_exercises(run_cases: RunCases) -> None:
    results = run_cases(
        "cases: {up: {}, refused: {config: {gpus: 24}, expect: {result: policy-violation}}}"
    )
    (covered,) = measure_coverage(results.values())
    assert covered.gaps == [
        "shared_volumes.scratch (topology.yaml:8:3) is in no plan",
        "gate place has never stopped or warned",
        "gate few has never stopped or warned",
    ]
    results = run_cases("cases: {with: {config: {spare: true, gpus: 8}}}")
    (covered,) = measure_coverage(results.values())
    assert "shared_volumes.scratch (topology.yaml:8:3): its `when` is never false" in covered.gaps


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_command_prints_the_status_of_each_case(write_cases: WriteCases, project: Path) -> None:
    write_cases(MIXED)
    junit = project / "build" / "tests.xml"
    done = run_gpuform(project, "test", "--junit", "build/tests.xml", "--coverage")
    assert done.code == 1
    out = done.stdout
    assert out.splitlines()[0] == "passed  demo/comes_up  21m"
    assert "  tests/demo.yaml:3:38: output status: expected" in out
    assert "skipped demo/follows\n  fails did not pass" in out
    assert "Coverage of demo (1 case)" in out
    assert out.splitlines()[-1] == "3 cases: 1 failed, 1 passed, 1 skipped"
    assert ET.parse(junit).getroot().get("failures") == "1"


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_the_command_prints_json_and_lists_cases(write_cases: WriteCases, project: Path) -> None:
    write_cases(MIXED)
    done = run_gpuform(project, "test", "-k", "comes_up", "--json")
    assert done.code == 0
    (entry,) = json.loads(done.stdout)["cases"]
    assert entry.items() >= {"name": "demo/comes_up", "status": "passed", "line": 2}.items()
    done = run_gpuform(project, "test", "--list")
    assert (done.code, done.stdout.splitlines()[0]) == (0, "demo/comes_up  It comes up.")


LEAKING = """\
import pulumi
config = pulumi.Config()
pulumi.export("leak", "it is " + config.require("token"))
if config.get_bool("dies"):
    raise Exception(config.require("token"))
"""
LEAKED = """\
    defaults: {secrets: {token: SEKRET-1234567}}
    cases:
      plain: {expect: {outputs: {leak: x}, snapshot: true}}
      fails: {config: {dies: true}}
      kept: {expect: {snapshot: true}}
"""


@pytest.mark.slow
def test_secrets_of_a_case_are_masked_in_all_output(write_cases: WriteCases, project: Path) -> None:
    """The program also publishes a secret as an output that is not secret."""
    (project / "topology.yaml").unlink()
    (project / "__main__.py").write_text(LEAKING)
    write_cases(LEAKED)
    files = {"--junit": project / "tests.xml", "--json": None}
    flags = [
        output for flag, file in files.items() for output in (flag, file and str(file)) if output
    ]
    outputs = [
        run_gpuform(project, "test", *more_flags).stdout for more_flags in (flags, ["--update"])
    ]
    outputs += [(project / "tests.xml").read_text()]
    outputs += [file.read_text() for file in (project / "tests" / "snapshots").iterdir()]
    assert "it is [secret]" in outputs[1]
    for output in outputs:
        assert "[secret]" in output
        assert "SEKRET" not in output


@pytest.mark.slow
def test_the_emulator_is_contacted_without_a_proxy(write_cases: WriteCases, project: Path) -> None:
    write_cases("cases: {up: {}}")
    proxy = dict.fromkeys(("HTTP_PROXY", "http_proxy", "ALL_PROXY"), "http://127.0.0.1:1")
    done = run_gpuform(project, "test", NO_PROXY="elsewhere.example", **proxy)
    assert done.code == 0, done.stdout
    environ = {"PULUMI_CONFIG_PASSPHRASE": "", "PULUMI_HOME": str(project / "home"), **proxy}
    environ["PULUMI_BACKEND_URL"] = f"file://{project}"
    for command in ("stack init dev --emulate", "up --emulate --yes"):
        done = run_gpuform(project, *command.split(), **environ)
        assert done.code == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_an_invalid_file_is_an_error_without_traceback(
    write_cases: WriteCases, project: Path
) -> None:
    write_cases("cases: {a: {expct: {}}}")
    done = run_gpuform(project, "test")
    assert (done.code, done.stdout) == (1, "")
    assert "tests/demo.yaml:1:13: cases.a.expct: is not known: did you mean expect?" in done.stderr
    assert "Traceback" not in done.stderr
