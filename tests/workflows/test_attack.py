"""A branch whose program, policies, requirements, gates and workflows are hostile."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from processes.commands import build_path_with_gpuform
from support.servers.ci_runners import PASSPHRASE, WAITING, GitHubRunner
from support.servers.code_host import TOKEN, serve_code_host
from support.servers.gitlab_pipelines import GitLabProject, Variable

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.emulator.together import MEMBER_KEY
from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_stacks import render_stacks_workflows
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings, render_workflows
from gpuform.stacks.new_project import write_files

STACKS = """\
stacks:
  - {folder: network, stack: dev, approve: automatic}
  - {folder: cluster, stack: prod}
"""
STACKS_GATES = "gates:\n  region: {allowed_regions: [us-east-2]}\n"
PROJECT_GATES = "gates:\n  small: {python: 'policies:small'}\n"
POLICY = """
def small(plan):
    for change in plan.changes:
        if change.type.endswith("SharedVolume"):
            yield "no volumes"
"""
STEAL = """
import os
with open(os.environ["HOME"] + "/stolen", "a") as file:
    print(WHERE, sorted(os.environ.items()), file=file)
"""
VOLUME = """
from gpuform.providers.together import SharedVolume
SharedVolume("data", volume_name="stolen", region="us-central-8", size_tib=5)
"""
BACKEND = """
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(folder, config_settings=None):
    import pathlib
    target = pathlib.Path(folder, "evil-1.dist-info")
    target.mkdir()
    (target / "METADATA").write_text("Metadata-Version: 2.1\\nName: evil\\nVersion: 1\\n")
    return target.name
"""
EVIL_PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


@pytest.fixture
def emulator() -> Iterator[Server]:
    with serve(0) as server:
        yield server


def create_repository(root: Path, settings: WorkflowSettings) -> None:
    """Write a repository with two projects, their gates and the workflows of all stacks."""
    for name in ("network", "cluster"):
        (root / name).mkdir(parents=True)
        (root / name / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (root / name / "__main__.py").write_text("import pulumi\n")
    (root / "network/gates.yaml").write_text(PROJECT_GATES)
    (root / "network/policies.py").write_text(POLICY)
    (root / "stacks.yaml").write_text(STACKS + STACKS_GATES)
    git(root, "init", "-q", "-b", "main")
    write_files(root, render_stacks_workflows(Repository(root, root), settings), force=False)
    (root / "requirements.txt").write_text("# gpuform is there already\n")


@pytest.fixture
def runner(tmp_path: Path, emulator: Server) -> Iterator[GitHubRunner]:
    """Yield a runner for a repository with two projects, whose secrets are in environments."""
    root = tmp_path / "repository"
    settings = WorkflowSettings("github", "prod", "main", Clouds(), every_stack=True)
    create_repository(root, settings)
    variables = environment(emulator.url)
    writing = {
        "TOGETHER_API_KEY": variables["TOGETHER_API_KEY"],
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
    }
    reading = {
        "TOGETHER_API_KEY_READ_ONLY": MEMBER_KEY,
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
    }
    outside = {k: v for k, v in variables.items() if k in ("TOGETHER_BASE_URL", "GPUFORM_CLOCK")}
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "backend").mkdir()
    backend = f"file://{tmp_path / 'backend'}"
    with serve_code_host() as code_host:
        runner = GitHubRunner(root, work, code_host, outside, {}, backend)
        runner.environments = {
            **dict.fromkeys(("gpuform-plan", "gpuform-watch"), reading),
            **dict.fromkeys(("gpuform-dev", "gpuform-prod"), writing),
        }
        runner.unapproved = {"gpuform-plan", "gpuform-prod"}
        own = {**writing, "PULUMI_BACKEND_URL": backend}
        code = runner.run_script("gpuform stack init --all", root, own)
        assert code == 0, runner.output
        git(root, "add", "-A")
        git(root, "commit", "-q", "-m", "Begin")
        yield runner


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def commit_attack(root: Path) -> str:
    """Commit a branch that steals wherever its code runs, and that removes all gates."""
    git(root, "checkout", "-q", "-b", "hostile")
    steal = {where: STEAL.replace("WHERE", repr(where)) for where in ("program", "requirements")}
    (root / "network/__main__.py").write_text(steal["program"] + VOLUME)
    (root / "network/policies.py").write_text("def small(plan):\n    return []\n")
    (root / "network/gates.yaml").unlink()
    (root / "stacks.yaml").write_text(STACKS)
    (root / "network/evil").mkdir()
    (root / "network/evil/pyproject.toml").write_text(EVIL_PROJECT)
    (root / "network/evil/backend.py").write_text(steal["requirements"] + BACKEND)
    (root / "network/requirements.txt").write_text("./evil\n")
    return commit_all(root, "Steal")


def commit_all(root: Path, message: str) -> str:
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", message)
    return git(root, "rev-parse", "HEAD")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
def test_a_hostile_branch_reads_no_secret_and_passes_no_gate(runner: GitHubRunner) -> None:
    root, stolen = runner.origin, runner.work / "stolen"
    hostile = commit_attack(root)

    # Nobody has approved the environment of plans: no code of the branch has run.
    assert runner.run_pull_request_job("changes", hostile) == 0, runner.output
    assert runner.run_pull_request_job("plan", hostile) == WAITING
    assert runner.run_pull_request_job("fresh", hostile) == 1
    assert not stolen.exists()

    # A workflow of the branch may leave the environment out, and then gets nothing.
    workflow = root / ".github/workflows/gpuform.yml"
    written = workflow.read_text()
    edited = written.replace("    environment: gpuform-plan\n", "")
    edited = edited.replace("rm -f plan.json", 'env >> "$HOME/stolen"; exit 9')
    workflow.write_text(edited)
    assert runner.run_pull_request_job("plan", commit_all(root, "Edit")) == 9
    assert "PULUMI_BACKEND_URL" in stolen.read_text()
    assert_nothing_secret(runner, stolen.read_text())
    workflow.write_text(written)
    restored = commit_all(root, "Restore")

    # With an approval, by mistake, it sees keys that read, and the gates of the base stop it.
    runner.unapproved.remove("gpuform-plan")
    assert runner.run_pull_request_job("changes", restored) == 0
    assert runner.run_pull_request_job("plan", restored) == 1, runner.output[-1]
    where = ("requirements [", "program [")
    assert all(text in stolen.read_text() for text in where), "the branch's code has run"
    assert runner.environments["gpuform-dev"]["TOGETHER_API_KEY"] not in stolen.read_text()
    (comment,) = runner.code_host.comments
    head = comment["body"].partition("##")[0]
    assert "This change removes or weakens gates, in 3 ways" in head
    for danger in ("all stacks: gate region: is removed", "gate small: is removed"):
        assert danger in comment["body"]
    assert runner.run_pull_request_job("fresh", restored) == 1


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
def test_a_hostile_branch_that_is_merged_passes_no_gate(
    runner: GitHubRunner, emulator: Server
) -> None:
    root = runner.origin
    hostile = commit_attack(root)
    runner.unapproved.remove("gpuform-plan")
    assert runner.run_pull_request_job("changes", hostile) == 0
    assert runner.run_pull_request_job("plan", hostile) == 1
    plan = (find_last_clone(runner) / "plan.json").read_bytes()
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "Merge", "hostile")
    merge = git(root, "rev-parse", "HEAD")
    # As if the gates had not stopped the job that keeps the plan.
    runner.code_host.add_artifact(f"gpuform-plan-{hostile}", hostile, plan)
    runner.code_host.merged[merge] = hostile

    assert runner.run("changes", "push", merge) == 0
    assert runner.run("reviewed", "push", merge) == 0, runner.output[-1]
    assert runner.run("apply-dev", "push", merge) == 5, runner.output[-1]
    assert runner.run("apply-prod", "push", merge) == -1, "the plan changes nothing there"
    assert list_volumes(emulator) == []


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
def test_a_merged_change_that_is_not_hostile_is_applied_by_the_job_of_its_environment(
    runner: GitHubRunner, emulator: Server
) -> None:
    root = runner.origin
    (root / "network/gates.yaml").unlink()
    commit_all(root, "Allow volumes")
    git(root, "checkout", "-q", "-b", "feature")
    (root / "network/__main__.py").write_text(VOLUME.replace("us-central-8", "us-east-2"))
    head = commit_all(root, "Want a volume")
    runner.unapproved.remove("gpuform-plan")
    for job in ("changes", "plan", "fresh"):
        assert runner.run_pull_request_job(job, head) == 0, runner.output[-1]
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "Merge", "feature")
    merge = git(root, "rev-parse", "HEAD")
    runner.code_host.merged[merge] = head

    for job in ("changes", "reviewed"):
        assert runner.run(job, "push", merge) == 0, runner.output[-1]
    # Somebody replaces the artifact while people approve the job.
    artifacts = runner.code_host.artifacts
    plan = json.loads((find_last_clone(runner) / "plan.json").read_bytes())
    runner.code_host.add_artifact(f"gpuform-plan-{head}", head, json.dumps(plan).encode())
    assert runner.run("apply-dev", "push", merge) == 1, runner.output[-1]
    assert "is not the reviewed plan: its digest is" in runner.output[-1]
    artifacts.pop()
    assert runner.run("apply-dev", "push", merge) == 0, runner.output[-1]
    assert runner.run("apply-prod", "push", merge) == -1, "the plan changes nothing there"
    assert len(list_volumes(emulator)) == 1


def assert_nothing_secret(runner: GitHubRunner, text: str) -> None:
    for secrets in runner.environments.values():
        for value in secrets.values():
            assert value not in text


def find_last_clone(runner: GitHubRunner) -> Path:
    return max(runner.work.glob("job*/*/plan.json"), key=lambda path: path.stat().st_mtime).parent


def list_volumes(emulator: Server) -> list[object]:
    own = environment(emulator.url)
    listed = httpx.get(
        f"{own['TOGETHER_BASE_URL']}/v1/compute/clusters/storage/volumes",
        headers={"Authorization": f"Bearer {own['TOGETHER_API_KEY']}"},
        trust_env=False,
        verify=False,
    )
    return list(listed.json()["volumes"])


READING, APPLYING = ("gpuform-plan", "gpuform-watch"), ("gpuform-dev", "gpuform-prod")
PIP_OF_LOCAL_PACKAGES = """\
#!/bin/sh
# Runs the build backends of local packages alone, as an installation does.
[ "$2" = pip ] || exec python3 "$@"
file=$(echo "$@" | sed 's/.* //')
for name in $(grep '^[.]/' "$file"); do (cd "$name" && python3 backend.py); done
"""


@pytest.fixture
def project(tmp_path: Path, emulator: Server, request: pytest.FixtureRequest) -> Iterator[Any]:
    """Yield a project of GitLab whose variables are set as the checklist says.

    The parameter is the number of runners of the workflows.
    """
    root, work, programs = tmp_path / "repository", tmp_path / "work", tmp_path / "programs"
    for folder in (work, programs, tmp_path / "backend"):
        folder.mkdir()
    (programs / "python").write_text(PIP_OF_LOCAL_PACKAGES)
    (programs / "python").chmod(0o755)
    settings = WorkflowSettings(
        "gitlab", "prod", "main", Clouds(), every_stack=True, runners=request.param
    )
    create_repository(root, settings)
    variables = environment(emulator.url)
    outside = {k: v for k, v in variables.items() if k in ("TOGETHER_BASE_URL", "GPUFORM_CLOCK")}
    outside["PATH"] = f"{programs}:{build_path_with_gpuform()}"
    key, backend = variables["TOGETHER_API_KEY"], f"file://{tmp_path / 'backend'}"
    with serve_code_host() as code_host:
        project = GitLabProject(root, work, code_host, outside, {}, "")
        project.settings = [Variable("PULUMI_BACKEND_URL", backend)]
        for scope in READING + APPLYING:
            kept = {"GITLAB_TOKEN": TOKEN, "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE}
            is_reading = scope in READING
            name = "TOGETHER_API_KEY_READ_ONLY" if is_reading else "TOGETHER_API_KEY"
            kept[name] = MEMBER_KEY if is_reading else key
            is_protected = scope != "gpuform-plan"
            project.settings += [Variable(*it, scope, is_protected) for it in kept.items()]
        project.denied = {"gpuform-plan"}
        own = project.list_variables({"environment": "gpuform-dev"}, is_protected=True)
        assert project.run_script("gpuform stack init --all", root, own) == 0, project.output
        commit_all(root, "Begin")
        yield project


def add_thieves(root: Path, file: str) -> None:
    """Add a job for each environment, and one without any, that steals its variables.

    None is a deployment, which people would have to approve.
    """
    text = (root / file).read_text()
    for name in ("", *READING, *APPLYING):
        environment = f"environment: {{name: {name}, action: access}}" if name else ""
        text += f"""
steal-{name or "nothing"}:
  stage: {"result" if "waves" in file else "plan"}
  rules: [{{if: $CI_MERGE_REQUEST_IID}}]
  needs: []
  before_script: []
  script: ['env >> "$HOME/stolen"']
  {environment}
"""
    (root / file).write_text(text)


def list_secrets(project: GitLabProject) -> set[str]:
    return {it.value for it in project.settings if it.name != "PULUMI_BACKEND_URL"}


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("project", [2], indirect=True, ids=["many-runners"])
def test_a_hostile_branch_in_a_pipeline_of_gitlab_reads_no_secret_and_passes_no_gate(
    project: GitLabProject, emulator: Server
) -> None:
    root, stolen = project.origin, project.work / "stolen"
    hostile = commit_attack(root)

    # The author may not deploy to the environment of plans: requirements run, without a secret.
    pipeline = project.start_merge_request(hostile, "hostile")
    assert pipeline.statuses == {"gpuform-waves": "success", "gpuform-plan-waves": "failed"}
    assert pipeline.children["gpuform-plan-waves"].statuses["gpuform-plan-1-1"] == "failed"
    assert "requirements [" in stolen.read_text()
    assert "program [" not in stolen.read_text()

    # Jobs of its own get nothing either: variables with the scope of an environment are protected.
    files = (".gitlab-ci.yml", ".gitlab/gpuform-waves.yml")
    for file in files:
        add_thieves(root, file)
    pipeline = project.start_merge_request(commit_all(root, "Add jobs"), "hostile")
    child = pipeline.children["gpuform-plan-waves"]
    for statuses in (pipeline.statuses, child.statuses):
        thieves = [status for name, status in statuses.items() if name.startswith("steal-")]
        assert thieves == ["success", "failed", *["success"] * 3]
    assert "PULUMI_BACKEND_URL" in stolen.read_text()
    assert not [secret for secret in list_secrets(project) if secret in stolen.read_text()]
    git(root, "checkout", "-q", hostile, "--", *files)
    restored = commit_all(root, "Restore")

    # Started by somebody who may, by mistake, it sees keys that read, and the gates of the base
    # stop it.
    project.denied.clear()
    pipeline = project.start_merge_request(restored, "hostile")
    child = pipeline.children["gpuform-plan-waves"]
    assert pipeline.status == "failed"
    assert child.statuses["gpuform-plan"] == "failed", project.output[-1]
    assert "program [" in stolen.read_text(), "the branch's code has run"
    assert MEMBER_KEY in stolen.read_text()
    assert environment(emulator.url)["TOGETHER_API_KEY"] not in stolen.read_text()
    (comment,) = project.code_host.comments
    assert "This change removes or weakens gates, in 3 ways" in comment["body"].partition("##")[0]

    # Merged all the same, it has no plan, and where it had one, the gates stop the apply.
    plan = (max(project.work.glob("job*/*/plan.json"), key=os.path.getmtime)).read_bytes()
    git(root, "checkout", "-q", "main")
    git(root, "merge", "-q", "--no-ff", "-m", "Merge", "hostile")
    merge = git(root, "rev-parse", "HEAD")
    project.code_host.merged[merge] = restored
    pipeline = project.start_push(merge)
    assert pipeline.statuses["gpuform-reviewed"] == "failed"
    child.statuses["gpuform-plan"], child.files["gpuform-plan"] = "success", {"plan.json": plan}
    child.write_record()
    assert pipeline.run() == "failed"
    assert pipeline.children["gpuform-apply-dev"].statuses["gpuform-apply-dev-1-1"] == "failed"
    assert "gate region: stops the plan" in project.output[-1]
    assert list_volumes(emulator) == []


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("project", [None], indirect=True, ids=["one-runner"])
def test_a_hostile_branch_is_stopped_in_the_one_plan_job_of_gitlab(project: GitLabProject) -> None:
    root, stolen = project.origin, project.work / "stolen"
    hostile = commit_attack(root)
    pipeline = project.start_merge_request(hostile, "hostile")
    assert pipeline.statuses == {"gpuform-plan": "failed", "gpuform-fresh": "skipped"}
    assert not stolen.exists()
    add_thieves(root, ".gitlab-ci.yml")
    project.start_merge_request(commit_all(root, "Add jobs"), "hostile")
    assert "PULUMI_BACKEND_URL" in stolen.read_text()
    assert not [secret for secret in list_secrets(project) if secret in stolen.read_text()]
    project.denied.clear()
    pipeline = project.start_merge_request(hostile, "hostile")
    assert pipeline.statuses == {"gpuform-plan": "failed", "gpuform-fresh": "skipped"}
    assert "This change removes or weakens gates" in project.code_host.comments[0]["body"]


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("project", [None], indirect=True, ids=["one-runner"])
def test_a_hostile_branch_gets_no_writing_key_of_one_stack_on_gitlab(
    project: GitLabProject, emulator: Server
) -> None:
    root, stolen = project.origin, project.work / "stolen"
    settings = WorkflowSettings("gitlab", "dev", "main", Clouds())
    write_files(root, render_workflows(Repository(root, root / "network"), settings), force=True)
    (root / "network/requirements.txt").write_text("# gpuform is there already\n")
    key = environment(emulator.url)["TOGETHER_API_KEY"]
    project.settings = [
        *(it for it in project.settings if it.scope == "*"),
        Variable("PULUMI_CONFIG_PASSPHRASE", PASSPHRASE),
        Variable("GITLAB_TOKEN", TOKEN),
        Variable("TOGETHER_API_KEY_READ_ONLY", MEMBER_KEY),
        Variable("TOGETHER_API_KEY", key, "gpuform", is_protected=True),
    ]
    commit_all(root, "Plan one stack")
    hostile = commit_attack(root)
    text = (root / ".gitlab-ci.yml").read_text()
    # The branch puts its plan into the environment whose keys may write.
    edited = text.replace("  stage: plan\n", "  stage: plan\n  environment: gpuform\n")
    (root / ".gitlab-ci.yml").write_text(edited)
    pipeline = project.start_merge_request(commit_all(root, "Ask for keys"), "hostile")
    assert pipeline.jobs["gpuform-plan"]["environment"] == "gpuform"
    git(root, "checkout", "-q", hostile, "--", ".gitlab-ci.yml")
    pipeline = project.start_merge_request(commit_all(root, "Restore"), "hostile")
    assert pipeline.statuses == {"gpuform-plan": "failed", "gpuform-fresh": "skipped"}
    assert all(text in stolen.read_text() for text in ("requirements [", "program ["))
    assert MEMBER_KEY in stolen.read_text()
    assert key not in stolen.read_text()
    assert "This change removes or weakens gates" in project.code_host.comments[0]["body"]
