"""Test that files other than a plan of this stack are refused, and that plans hide secrets."""

import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Basis, Plan
from gpuform.stacks.engine.machine import describe_release
from gpuform.stacks.operations.runs.plan_file import read_plan

GPUFORM = [sys.executable, "-m", "gpuform.stacks.cli"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a plan: it is empty"),
        ('{\n  "a": 1\n  "b": 2}', "plan.json:3:3: this is not JSON: Expecting ','"),
        ("[" * 100_000, "it is nested too deeply"),
        ("[]", "is not a plan: it is not an object"),
        ("{}", "is not a plan: project: Field required"),
        ('{"format_version": 1}', "format_version: Input should be a valid string"),
        ('{"format_version": "1", "project": 3}', "project: Input should be a valid string"),
        ('{"config": {}, "changeSummary": {}}', "is the output of a preview, not a saved plan"),
    ],
)
def test_no_plan_at_all(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "plan.json"
    file.write_text(text)
    with pytest.raises(EngineError) as error:
        read_plan(file)
    assert message in str(error.value)
    assert error.value.hint == (
        "save a plan with `gpuform preview --save-plan FILE`, or with `gpuform destroy` or "
        "`refresh`"
    )


def test_a_plan_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_bytes(b'{"a": "\xff"}')
    with pytest.raises(EngineError, match=r"it is not UTF-8 text \(byte 7\)"):
        read_plan(file)


def test_a_missing_plan_file_is_refused(planned_project: PlannedProject) -> None:
    assert "the plan plan.json cannot be read: No such file" in planned_project.apply_refused_plan()


def test_a_plan_of_the_pulumi_cli_is_refused_with_a_hint(planned_project: PlannedProject) -> None:
    plan = {"manifest": {"version": "v3.260.0"}, "config": {}, "resourcePlans": {}}
    (planned_project.project / "plan.json").write_text(json.dumps(plan))
    error = planned_project.apply_refused_plan()
    assert "plan.json is a plan file of the Pulumi CLI" in error
    assert "`pulumi up --plan plan.json` applies it" in error


def test_a_plan_of_a_newer_format_is_refused(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    planned_project.edit_plan(lambda plan: plan.update(format_version="2"))
    assert (
        "plan.json has format_version '2': this gpuform reads '1'"
        in planned_project.apply_refused_plan()
    )


def test_a_plan_with_a_field_of_a_newer_release_is_refused_by_both_releases(
    tmp_path: Path,
) -> None:
    file = tmp_path / "plan.json"
    plan = Plan.from_changes("lab", "dev", []).model_copy(
        update={"basis": Basis(state={}, config={}, program={}), "made_by": "gpuform 99.1.0"}
    )
    document = json.loads(plan.model_dump_json())
    for text in (
        json.dumps({**document, "later": []}),
        json.dumps({"plans": [{**document, "later": []}]}),
    ):
        file.write_text(text)
        with pytest.raises(EngineError) as error:
            read_plan(file)
        assert (
            f"{file} was saved by gpuform 99.1.0, and this is {describe_release()}, which"
            in str(error.value)
        )
        assert "later: unknown field" in str(error.value)
    file.write_text(json.dumps({**document, "made_by": describe_release(), "later": []}))
    with pytest.raises(EngineError, match="is not a plan: later: Extra inputs are not permitted"):
        read_plan(file)


def test_a_plan_with_an_option_of_a_newer_release_is_refused_by_both_releases(
    planned_project: PlannedProject,
) -> None:
    planned_project.save_plan()
    planned_project.edit_plan(lambda plan: plan["basis"]["options"].update(later=True))
    planned_project.edit_plan(lambda plan: plan.update(made_by="gpuform 99.1.0"))
    error = planned_project.apply_refused_plan()
    assert f"plan.json was saved by gpuform 99.1.0, and this is {describe_release()}" in error
    assert "cannot read it: basis.options.later: unknown field" in error


EDITS: list[tuple[dict[str, Any], str]] = [
    ({"stack": "prod"}, "a plan for stack prod of project demo, but this is stack dev"),
    ({"project": "other"}, "a plan for stack dev of project other, but this is stack dev"),
    ({"operation": "destroy"}, "plan.json was edited after it was saved"),
    ({"operation": "expire"}, "plan.json is a plan of another operation: expire"),
    ({"basis": None}, "it does not record the state that it is based on"),
    ({"made_by": "me"}, "plan.json was edited after it was saved"),
]


def test_a_plan_for_another_stack_or_environment_is_refused(
    planned_project: PlannedProject,
) -> None:
    planned_project.save_plan()
    saved = planned_project.plan_document
    for changed, message in EDITS:
        (planned_project.project / "plan.json").write_text(json.dumps({**saved, **changed}))
        assert message in planned_project.apply_refused_plan(), changed


def test_an_edited_plan_is_refused(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    planned_project.edit_plan(lambda plan: plan["basis"]["effects"].update({"urn": ["delete"]}))
    assert "plan.json was edited after it was saved" in planned_project.apply_refused_plan()


def test_a_plan_is_refused_for_another_selected_stack(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    assert planned_project.run("stack", "init", "prod").code == 0
    assert (
        "a plan for stack dev of project demo, but this is stack prod"
        in planned_project.apply_refused_plan()
    )


def test_a_plan_is_refused_with_a_wrong_passphrase(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_project.save_plan()
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "wrong")
    assert "incorrect passphrase" in planned_project.apply_refused_plan()


def test_a_plan_is_refused_after_a_change_of_the_passphrase(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned_project.save_plan()
    monkeypatch.setenv("GPUFORM_NEW_PASSPHRASE", "new")
    assert planned_project.run("stack", "change-secrets-provider", "passphrase").code == 0
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "new")
    assert "the passphrase of the stack changed" in planned_project.apply_refused_plan()


def test_a_plan_is_refused_with_other_options(planned_project: PlannedProject) -> None:
    planned_project.save_plan("--target", "data", "--target", "**::data")
    assert planned_project.plan_document["basis"]["options"]["target"] == ["**::data", "data"]
    for flags, message in [
        (("--target", "train"), "plan.json was made with --target **::data, data"),
        (("--target", "data", "--target", "train"), "plan.json was made with --target "),
        (("--exclude", "train"), "plan.json was made without --exclude"),
        (("--emulate",), "plan.json was made without --emulate"),
        (("--replace", "data"), "plan.json was made without --replace"),
        (("--target-dependents",), "plan.json was made without --target-dependents"),
    ]:
        error = planned_project.apply_refused_plan(*flags)
        assert message in error
        assert f"leave {flags[0]} out" in error
    same = ("--target", "**::data", "--target", "data")
    assert planned_project.apply_plan(*same, "--continue-on-error").code == 0
    assert len(planned_project.sent_changes) == 1


@pytest.mark.slow
def test_an_emulated_plan_is_applied_to_the_emulator(dev: Any) -> None:
    assert dev("preview", "--emulate", "--save-plan", "plan.json").code == 0
    ran = dev("up", "--plan", "plan.json", "--yes")
    assert ran.code == 0
    assert "by the platform's clock" in ran.out


def test_up_cannot_save_a_plan(dev: Any) -> None:
    assert dev("up", "--save-plan", "x").code == 2


PLANTED = {
    "config": "config-sEcret-1",
    "input": "input-sEcret-2",
    "output": "output-sEcret-3",
    "plainly": "plainly-sEcret-4",
}


def test_a_saved_plan_contains_no_secret(planned_project: PlannedProject) -> None:
    planned_project.run("config", "set", "--secret", "token", PLANTED["config"])
    planned_project.run("config", "set", "--secret", "used", PLANTED["plainly"])
    (planned_project.project / "__main__.py").write_text(
        f"""
import pulumi
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Things(ResourceProvider):
    def create(self, props):
        return CreateResult("t-1", dict(props, made={PLANTED["output"]!r}))

class Thing(Resource):
    def __init__(self, name, **props):
        super().__init__(
            Things(), name, props, pulumi.ResourceOptions(additional_secret_outputs=["made"])
        )

config = pulumi.Config()
thing = Thing(
    "thing",
    made=None,
    token=pulumi.Output.secret({PLANTED["input"]!r}),
    parts=[1, dict(deep=config.require_secret("token"))],
    plain="x" + config.require("used"),
)
pulumi.export("token", thing.token)
pulumi.export("made", thing.made)
pulumi.export("plain", config.require("used"))
"""
    )
    texts = []
    for size in (1, 2):
        planned_project.save_plan()
        texts.append((planned_project.project / "plan.json").read_text())
        assert planned_project.apply_plan().code == 0
        file = planned_project.project / "__main__.py"
        file.write_text(file.read_text().replace("sEcret-2", f"sEcret-2-{size}"))
    for message in texts:
        assert "sEcret" not in message
        assert '"[secret]"' in message
        for planted in PLANTED.values():
            for spelling in (planted, json.dumps(planted)):
                digest = hashlib.sha256(spelling.encode())
                assert base64.b64encode(spelling.encode()).decode()[:-4] not in message
                assert digest.hexdigest()[:32] not in message


# It never answers; the process is killed in it.
DEAF = """
import time
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Deaf(ResourceProvider):
    def create(self, props):
        print("in create", flush=True)
        time.sleep(600)
        return CreateResult("m-1", {})

class Machine(Resource):
    def __init__(self, name):
        super().__init__(Deaf(), name, {})

Machine("a")
"""


@pytest.mark.slow
def test_a_plan_is_refused_after_a_killed_apply(planned_project: PlannedProject) -> None:
    (planned_project.project / "__main__.py").write_text(DEAF)
    planned_project.save_plan()
    command = [*GPUFORM, "up", "--plan", "plan.json", "--yes", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
        assert process.stdout is not None
        while "in create" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGKILL)
    assert planned_project.run("cancel", "--yes").code == 0
    error = planned_project.apply_refused_plan()
    assert "::a is new since the plan" in error
