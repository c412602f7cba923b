"""The pipelines of `gpuform new ci --all` for GitLab, played from the plan to the apply."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from processes.commands import PASSPHRASE, build_path_with_gpuform
from support.servers.code_host import TOKEN, serve_code_host
from support.servers.gitlab_pipelines import GitLabProject, Pipeline, Variable
from support.stacks.workspace import create_workspace

from gpuform.providers.emulator.server import serve
from gpuform.providers.emulator.together import MEMBER_KEY
from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_stacks import render_stacks_workflows
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings
from gpuform.stacks.new_project import write_files

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux"),
]

STACKS = """\
stacks:
  - {folder: volumes, stack: dev, environment: base, approve: automatic}
  - {folder: training, stack: dev, environment: prod}
  - {folder: told, stack: dev, environment: prod}
gates:
  few: {max_destroyed_gpus: 8}
"""
READING, APPLYING = ("gpuform-plan", "gpuform-watch"), ("base", "prod")


@pytest.fixture
def project(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[GitLabProject]:
    """Yield a project of GitLab with three stacks, each of which reads the one before.

    The parameter is the number of runners of the workflows.
    """
    root, work = tmp_path / "repository", tmp_path / "work"
    work.mkdir()
    state = f"file://{tmp_path / 'repository/state'}"
    backends = dict.fromkeys(("volumes", "training", "told"), state)
    with serve(seed="gitlab") as server, serve_code_host() as code_host:
        workspace = create_workspace(root, server.url, {}, backends)
        names = ("TOGETHER_BASE_URL", "GPUFORM_CLOCK", "PULUMI_HOME")
        outside = {name: workspace.variables[name] for name in names}
        (root / "stacks.yaml").write_text(STACKS)
        (root / "requirements.txt").write_text("# gpuform is there already\n")
        (root / ".gitignore").write_text("state/\nhome/\nparts/\n*.json\n")
        runners = request.param
        settings = WorkflowSettings(
            "gitlab", "dev", "main", Clouds(), every_stack=True, runners=runners
        )
        write_files(root, render_stacks_workflows(Repository(root, root), settings), force=False)
        outside["PATH"] = f"{create_path_without_pip(tmp_path)}:{build_path_with_gpuform()}"
        project = GitLabProject(root, work, code_host, outside, {}, "")
        key = workspace.variables["TOGETHER_API_KEY"]
        project.settings = [
            Variable("TOGETHER_API_KEY_READ_ONLY", MEMBER_KEY, "gpuform-plan"),
            *(Variable("TOGETHER_API_KEY", key, it, is_protected=True) for it in APPLYING),
            *(
                Variable(name, value, it, is_protected=it != "gpuform-plan")
                for name, value in (
                    ("PULUMI_CONFIG_PASSPHRASE", PASSPHRASE),
                    ("GITLAB_TOKEN", TOKEN),
                )
                for it in READING + APPLYING
            ),
        ]
        git(root, "init", "-q", "-b", "main")
        commit_all(root, "Begin")
        yield project


def create_path_without_pip(folder: Path) -> Path:
    """Return a folder with a `python` that installs nothing: everything is there."""
    own = folder / "bin"
    own.mkdir()
    script = '#!/bin/sh\n[ "$2" = pip ] && exit 0\nexec python3 "$@"\n'
    (own / "python").write_text(script)
    (own / "python").chmod(0o755)
    return own


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit_all(root: Path, message: str) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)
    return git(root, "rev-parse", "HEAD")


def commit_change(root: Path, old: str = "default: 5", new: str = "default: 6") -> str:
    git(root, "checkout", "-q", "-b", "feature")
    file = root / "volumes/topology.yaml"
    file.write_text(file.read_text().replace(old, new))
    return commit_all(root, "Want more")


def merge(project: GitLabProject, head: str) -> str:
    git(project.origin, "checkout", "-q", "main")
    git(project.origin, "merge", "-q", "--no-ff", "-m", "Merge", "feature")
    commit = git(project.origin, "rev-parse", "HEAD")
    project.code_host.merged[commit] = head
    return commit


def plan_on_one_machine(pipeline: Pipeline) -> bytes:
    """Return the plan of all changed stacks as one machine makes it in place of the waves."""
    project = pipeline.project
    folder = project.clone(pipeline.commit)
    variables = pipeline.build_variables("gpuform-plan", folder)
    variables["TOGETHER_API_KEY"] = variables["TOGETHER_API_KEY_READ_ONLY"]
    command = "gpuform preview --all --filter '...[origin/main]' --gates-from origin/main"
    assert project.run_script(f"{command} --save-plan plan.json", folder, variables) == 0
    return (folder / "plan.json").read_bytes()


def check_schema(folder: Path, content: bytes) -> None:
    """Check a child pipeline by the schema of GitLab."""
    file = folder / "child.yml"
    file.write_bytes(content)
    flags = ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"]
    checked = CliRunner().invoke(check_jsonschema, [*flags, str(file)])
    assert checked.exit_code == 0, checked.output


@pytest.mark.sampled(1)
@pytest.mark.parametrize("project", [2], indirect=True, ids=["two-runners"])
def test_a_change_is_planned_and_applied_in_child_pipelines(project: GitLabProject) -> None:
    head = commit_change(project.origin)
    project.lost = {"gpuform-plan-2-1"}

    pipeline = project.start_merge_request(head, "feature")
    assert pipeline.statuses == {"gpuform-waves": "success", "gpuform-plan-waves": "failed"}
    # The runner of a part is lost: the job runs again, and those after it.
    assert pipeline.run() == "success", project.output[-1]
    child = pipeline.children["gpuform-plan-waves"]
    parts = ["gpuform-plan-1-1", "gpuform-plan-2-1", "gpuform-plan-3-1"]
    assert [*child.statuses] == ["gpuform-waves", *parts, "gpuform-plan"]
    assert child.files["gpuform-plan"]["plan.json"] == plan_on_one_machine(child)
    check_schema(project.work, pipeline.files["gpuform-waves"]["gpuform-plan-waves.yml"])
    (comment,) = project.code_host.comments
    assert "3 stacks" in comment["body"]

    pipeline = project.start_push(merge(project, head))
    assert pipeline.statuses == {
        "gpuform-reviewed": "success",
        "gpuform-apply-base": "success",
        "gpuform-apply-prod": "manual",
    }, project.output[-1]
    check_schema(project.work, pipeline.files["gpuform-reviewed"]["gpuform-apply-prod.yml"])
    project.started.add("gpuform-apply-prod")
    project.lost = {"gpuform-apply-prod-2-1"}
    assert pipeline.run() == "failed"
    assert pipeline.run() == "success", project.output[-1]
    child = pipeline.children["gpuform-apply-prod"]
    parts = ["gpuform-apply-prod-1-1", "gpuform-apply-prod-2-1"]
    assert [*child.statuses] == [*parts, "gpuform-applied"]
    assert [child.jobs[name]["variables"]["STACKS"] for name in parts] == [
        "training/dev",
        "told/dev",
    ]
    expect_no_changes(project)


@pytest.mark.exhaustive
@pytest.mark.parametrize("project", [None], indirect=True, ids=["one-runner"])
def test_a_change_is_planned_and_applied_on_one_runner(project: GitLabProject) -> None:
    head = commit_change(project.origin)
    pipeline = project.start_merge_request(head, "feature")
    assert pipeline.statuses == {"gpuform-plan": "success", "gpuform-fresh": "success"}
    assert pipeline.files["gpuform-plan"]["plan.json"] == plan_on_one_machine(pipeline)

    pipeline = project.start_push(merge(project, head))
    assert pipeline.statuses == {
        "gpuform-reviewed": "success",
        "gpuform-apply-base": "success",
        "gpuform-apply-prod": "manual",
    }, project.output[-1]
    project.started.add("gpuform-apply-prod")
    assert pipeline.run() == "success", project.output[-1]
    expect_no_changes(project)


@pytest.mark.exhaustive
@pytest.mark.parametrize("project", [2], indirect=True, ids=["two-runners"])
def test_pipelines_without_a_changed_stack_and_of_a_destroy(project: GitLabProject) -> None:
    root = project.origin
    git(root, "checkout", "-q", "-b", "feature")
    (root / "README.md").write_text("Read me\n")
    pipeline = project.start_merge_request(commit_all(root, "Explain"), "feature")
    assert pipeline.statuses == {"gpuform-unchanged": "success"}

    # A file that no stack reads: the plan is that of all stacks.
    (root / "requirements.txt").write_text("# the same\n")
    head = commit_all(root, "Comment")
    pipeline = project.start_merge_request(head, "feature")
    child = pipeline.children["gpuform-plan-waves"]
    assert [name for name in child.statuses if name.startswith("gpuform-plan-")] == [
        *("gpuform-plan-1-1", "gpuform-plan-2-1", "gpuform-plan-3-1")
    ]
    assert pipeline.status == "success"
    pipeline = project.start_push(merge(project, head))
    project.started.add("gpuform-apply-prod")
    assert pipeline.run() == "success", project.output[-1]

    git(root, "checkout", "-q", "-b", "gpuform-destroy/all")
    (root / "requirements.txt").write_text("# again\n")
    head = commit_all(root, "Destroy")
    pipeline = project.start_merge_request(head, "gpuform-destroy/all")
    assert pipeline.statuses == {"gpuform-plan": "success"}, project.output[-1]


def expect_no_changes(project: GitLabProject) -> None:
    """Check that all stacks are as they are declared."""
    folder = project.clone("main")
    variables = project.list_variables({"environment": "prod"}, is_protected=True)
    command = "gpuform preview --all --expect-no-changes"
    assert project.run_script(command, folder, variables) == 0, project.output[-1]
