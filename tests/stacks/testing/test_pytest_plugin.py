"""The pytest fixture `gpuform_stack`, in a pytest that finds the plugin by its entry point."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """\
import pytest

def test_runs_follow_each_other(gpuform_stack):
    stack = gpuform_stack("..", config={"spare": True, "gpus": 8})
    first = stack.up()
    assert first.ending == "succeeded"
    assert first.actions == {"data": "create", "scratch": "create", "train": "create"}
    assert first.outputs["status"] == "Ready"
    assert first.seconds > 60
    second = stack.up(config={"spare": False})
    assert second.actions["scratch"] == "delete"
    assert second.outputs["status"] == first.outputs["status"]
    assert [each["name"] for each in second.objects["together/volumes"]] == ["training-data"]
    assert stack.destroy().resources == {}

def test_events(gpuform_stack):
    run = gpuform_stack().up(events=[{"stock_out": "together"}])
    assert run.ending == "failed"
    assert "has no 16 H100_SXM GPUs free" in run.errors[0]

def test_two_stacks_do_not_meet(gpuform_stack):
    one, other = gpuform_stack(), gpuform_stack()
    one.up()
    assert other.preview().objects["together/clusters"] == []

def test_a_state_is_the_start_of_the_first_run(gpuform_stack):
    stack = gpuform_stack(start={"state": "prod.json"}, stack="prod")
    assert stack.preview().outputs == {"kept": "from prod"}
    first = stack.up()
    assert "kept" not in first.outputs
    assert set(stack.up(start={"later": "2h"}).actions.values()) == {"same"}

@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"nope": 1}, "nope: is not known"),
        ({"expect": {"result": "failed"}}, "expect: write assertions about the run"),
        ({"run": "destroy"}, "run: call the method of this name"),
        ({"start": {"case": "zzz"}}, "start.case: each run starts where"),
        ({"start": {"state": "zzz.json"}}, "start.state: file .*zzz.json not found"),
        ({"stack": "nope"}, "stack: Pulumi.nope.yaml not found; stacks with settings: prod"),
    ],
)
def test_what_has_no_meaning_is_refused(gpuform_stack, inputs, message):
    with pytest.raises(Exception, match=message):
        gpuform_stack(**inputs)
    with pytest.raises(Exception, match=message):
        gpuform_stack().preview(**inputs)

def test_wrong_inputs(gpuform_stack):
    with pytest.raises(Exception, match="evnts: is not known: did you mean events"):
        gpuform_stack().up(evnts=[])
    with pytest.raises(Exception, match="event 0 did not happen"):
        gpuform_stack().up(events=[{"at": "30h", "stock_out": "together"}])
    begun = gpuform_stack()
    begun.preview()
    with pytest.raises(Exception, match="start.state: this run starts where"):
        begun.up(start={"state": "prod.json"})
"""


_OUTPUTS = {"outputs": {"kept": "from prod"}}
_ROOT = "urn:pulumi:prod::demo::pulumi:pulumi:Stack::demo-prod"
STATE = {
    "version": 3,
    "deployment": {
        "resources": [{"urn": _ROOT, "custom": False, "type": "pulumi:pulumi:Stack", **_OUTPUTS}]
    },
}


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_pytest_finds_the_fixture_by_its_entry_point(project: Path) -> None:
    (project / "tests" / "test_demo.py").write_text(TESTS)
    (project / "tests" / "prod.json").write_text(json.dumps(STATE))
    (project / "Pulumi.prod.yaml").write_text("config: {}\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "11 passed" in done.stdout


FAILING = """\
def test_ending(gpuform_stack):
    run = gpuform_stack().up(events=[{"stock_out": "together"}])
    assert run.ending == "succeeded"

def test_kind(gpuform_stack):
    gpuform_stack().preview().objects["together/cluster"]

def test_output(gpuform_stack):
    run = gpuform_stack().up()
    assert run.outputs["stauts"] == "Ready"

def test_secret(gpuform_stack):
    stack = gpuform_stack(secrets={"token": "SEKRET-" + str(1234567)})
    run = stack.up()
    assert run.outputs["token"] == "SEKRET-1234567"
    assert not (stack, run)

def test_inputs(gpuform_stack):
    gpuform_stack().up(evnts=[])
"""


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_a_failed_assertion_shows_the_errors_of_the_run(project: Path) -> None:
    """The traceback has no frames of gpuform, and the errors no secrets."""
    (project / "tests" / "test_demo.py").write_text(FAILING)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(project)]
    done = subprocess.run(command, cwd=project, capture_output=True, text=True, check=False)
    assert done.stdout.rstrip().splitlines()[-1].startswith("5 failed"), done.stdout
    assert "assert 'failed' == 'succeeded'" in done.stdout
    assert "has no 16 H100_SXM GPUs free" in done.stdout
    assert "unknown kind together/cluster; known: together/clusters, " in done.stdout
    assert "unknown output stauts; known: status, token" in done.stdout
    assert "(<stack of demo>, <run succeeded>)" in done.stdout
    assert "evnts: is not known" in done.stdout
    assert "stacks/testing/" not in done.stdout
    assert done.stdout.count("SEKRET-1234567") == 1  # in the test's own lines


def test_the_plugin_imports_nothing_heavy() -> None:
    """Everybody who has gpuform installed imports the plugin in every pytest run."""
    code = (
        "import sys, gpuform.stacks.testing.pytest_plugin\n"
        "print(sorted({'pulumi', 'flask', 'httpx', 'pydantic', 'grpc'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
