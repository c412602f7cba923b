"""Runs of GitHub's workflows that somebody cancels, and expressions, without gpuform commands."""

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from support.servers.ci_runners import GitHubRunner
from support.servers.code_host import FakeCodeHost
from support.servers.github_expressions import evaluate, fill, is_met
from support.servers.github_workflow_run import WorkflowRun

from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_stacks import render_stacks_workflows
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings, render_workflows
from gpuform.stacks.new_project import write_files

SETTINGS = WorkflowSettings("github", "prod", "main", Clouds())
WORKFLOWS = {
    "one stack": SETTINGS,
    "all stacks": replace(SETTINGS, every_stack=True),
    "many runners": replace(SETTINGS, every_stack=True, runners=8),
}


def create_runner(folder: Path, settings: WorkflowSettings) -> tuple[GitHubRunner, str]:
    """Return the runner of a repository with one stack, and the commit of its workflows."""
    root, work = folder / "repository", folder / "work"
    root.mkdir()
    work.mkdir()
    (root / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (root / "__main__.py").write_text("import pulumi\n")
    (root / "stacks.yaml").write_text("stacks: [{folder: ., stack: prod}]\n")
    render = render_stacks_workflows if settings.every_stack else render_workflows
    write_files(root, render(Repository(root, root), settings), force=False)
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "Begin"]):
        subprocess.run(["git", *identity, *command], cwd=root, check=True)
    runner = GitHubRunner(root, work, FakeCodeHost(), {}, {}, "file://nowhere")
    return runner, runner.find_main()


@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("settings", WORKFLOWS.values(), ids=list(WORKFLOWS))
def test_the_required_check_fails_in_a_cancelled_run(
    tmp_path: Path, settings: WorkflowSettings
) -> None:
    """A check that is skipped counts as passed, and the change could be merged without a plan."""
    runner, commit = create_runner(tmp_path, settings)
    pull = {"number": 12, "head": {"sha": commit, "repo": {"full_name": "o/r"}}}
    run = WorkflowRun(runner, "pull_request", commit, pull, is_cancelled=True)
    run.play()
    assert run.started == ["fresh"]
    assert run.list_results()["fresh"] == "failure"
    assert "There is no" in runner.output[-1]


CONTEXT = {
    "needs": {"a": {"result": "failure", "outputs": {"wave-1": '[{"part": "1-1"}]'}}},
    "github": {"event_name": "push", "head_ref": "gpuform-destroy/x"},
    "status": {"success": False, "failure": True, "cancelled": False},
}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("needs.a.outputs.wave-1 != ''", True),
        ("needs.a.outputs.wave-2 != ''", False),
        ("fromJSON(needs.a.outputs.wave-1)", [{"part": "1-1"}]),
        ("!startsWith(github.head_ref, 'gpuform-destroy/')", False),
        ("github.event_name == 'push' && !cancelled() || false", True),
        ("github.base || github.event_name", "push"),
        ("'it''s'", "it's"),
    ],
)
def test_expressions_have_the_values_of_github(expression: str, value: object) -> None:
    assert evaluate(expression, CONTEXT) == value


def test_a_condition_without_a_status_needs_success() -> None:
    assert not is_met("github.event_name == 'push'", CONTEXT)
    assert is_met("github.event_name == 'push' && always()", CONTEXT)
    assert not is_met("${{ !failure() && !cancelled() }}", CONTEXT)
    assert fill({"a": "x-${{ github.event_name }}-${{ true }}", "b": [1]}, CONTEXT) == {
        "a": "x-push-true",
        "b": [1],
    }
