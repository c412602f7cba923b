"""`gpuform review` as a person runs it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange

Run = Callable[..., Any]

TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"


@pytest.fixture
def saved_plan(project: Path) -> Path:
    change = ResourceChange(
        urn=f"urn:pulumi:prod::demo::{TYPE}::train",
        type=TYPE,
        name="train",
        action=PlanAction.DELETE,
        reason=PlanReason.NOT_IN_PROGRAM,
        gpus_added=0,
        gpus_removed=16,
    )
    path = project / "prod.json"
    path.write_text(Plan.from_changes("demo", "prod", [change]).model_dump_json())
    (project / "idle.json").write_text(Plan.from_changes("demo", "idle", []).model_dump_json())
    return path


@pytest.mark.parametrize("form", ["text", "markdown", "github", "gitlab", "html", "json"])
def test_review_writes_every_format_to_stdout_or_a_file(
    run: Run, saved_plan: Path, form: str
) -> None:
    ran = run("review", "prod.json", "--format", form)
    assert (ran.code, ran.err) == (0, "")
    assert "destroys 16 GPUs" in ran.out
    written = run("review", "prod.json", "--format", form, "--output", "out")
    assert (written.code, written.out) == (0, "")
    assert Path("out").read_text() == ran.out


def test_review_of_several_plans_has_a_line_for_each(run: Run, saved_plan: Path) -> None:
    out = run("review", "prod.json", "idle.json").out
    assert "demo/prod  1 to delete; GPUs: 16 destroyed, none added; 1 dangerous change\n" in out
    assert "demo/idle  nothing to do\n" in out
    assert "    gpuform up --stack prod\n" in out


def test_review_lists_the_stacks_of_plans_for_scripts(run: Run, saved_plan: Path) -> None:
    plans = ("review", "prod.json", "idle.json", "--format")
    assert run(*plans, "stacks").out == "demo/prod\ndemo/idle\n"
    assert run(*plans, "changed-stacks").out == "demo/prod\n"
    assert run("review", "idle.json", "--format", "changed-stacks").out == ""


def test_review_reads_a_preview_from_stdin(dev: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    preview = dev("preview", "--emulate", "--json")
    assert preview.code == 0, preview.err
    output = dev("preview", "--emulate").out
    reviewed = dev("review", "-", answers=preview.out)
    assert reviewed.code == 0, reviewed.err
    plan = output.split("\n\n", 1)[1].split("\n\nOutputs")[0]
    assert "train  together:Cluster  create" in plan
    assert plan in reviewed.out, "the same words as the preview's own"


def test_detailed_exitcode_of_review_tells_whether_something_changes(
    run: Run, saved_plan: Path
) -> None:
    assert run("review", "prod.json", "--detailed-exitcode").code == 2
    assert run("review", "idle.json", "--detailed-exitcode").code == 0
    assert run("review", "idle.json", "prod.json", "--detailed-exitcode").code == 2
    assert run("review", "prod.json").code == 0
    assert run("review").code == 2


def test_review_fails_for_unreadable_plans_and_unwritable_files(run: Run, saved_plan: Path) -> None:
    missing = run("review", "prod.json", "none.json")
    assert (missing.code, missing.out) == (1, "")
    assert "none.json" in missing.err
    Path("cli.json").write_text(json.dumps({"resourcePlans": {}}))
    refused = run("review", "cli.json")
    assert refused.code == 1
    assert "error: cli.json is a plan file of the Pulumi CLI" in refused.err
    assert "  pass a plan that `gpuform preview --save-plan FILE` saved" in refused.err
    assert run("review", "prod.json", "-o", "no/such/folder").code == 1
    assert "error: stdin is not a plan: it is empty" in run("review", "-").err


def test_review_is_colored_only_for_terminals(run: Run, saved_plan: Path) -> None:
    assert "\x1b[" not in run("review", "prod.json").out
    assert "\x1b[31m" in run("review", "prod.json", "--color", "always").out
    run("review", "prod.json", "--color", "always", "-o", "out")
    assert "\x1b[" not in Path("out").read_text()


@pytest.mark.slow
def test_review_of_a_saved_plan_names_the_command_that_applies_it(dev: Run) -> None:
    assert dev("preview", "--emulate", "--save-plan", "plan.json").code == 0
    out = dev("review", "plan.json").out
    assert "Plan of demo/dev (emulated): update, made 20" in out
    assert "    gpuform up --plan plan.json --digest " in out
    assert "  + status:     [known after apply]\n" in out
    assert '{region: "us-central-8", token: [secret]}' in out
    assert "refuses a saved plan, before the first change" in out
    for form in ("github", "html", "json"):
        output = dev("review", "plan.json", "--format", form).out
        assert "gpuform up --plan plan.json --digest " in output
        assert "hunter2" not in output
    applied = dev("up", "--emulate", "--plan", "plan.json", "--stack", "dev", "--yes")
    assert applied.code == 0, applied.err
