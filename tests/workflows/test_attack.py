"""A branch whose program, policies, requirements, gates and workflows are hostile."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.servers.ci_runners import PASSPHRASE, WAITING, GitHubRunner
from support.servers.code_host import serve_code_host

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.emulator.together import MEMBER_KEY
from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_stacks import render_stacks_workflows
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings
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


@pytest.fixture
def runner(tmp_path: Path, emulator: Server) -> Iterator[GitHubRunner]:
    """Yield a runner for a repository with two projects, whose secrets are in environments."""
    root = tmp_path / "repository"
    for name in ("network", "cluster"):
        (root / name).mkdir(parents=True)
        (root / name / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (root / name / "__main__.py").write_text("import pulumi\n")
    (root / "network/gates.yaml").write_text(PROJECT_GATES)
    (root / "network/policies.py").write_text(POLICY)
    (root / "stacks.yaml").write_text(STACKS + STACKS_GATES)
    git(root, "init", "-q", "-b", "main")
    settings = WorkflowSettings("github", "prod", "main", Clouds(), every_stack=True)
    write_files(root, render_stacks_workflows(Repository(root, root), settings), force=False)
    (root / "requirements.txt").write_text("# gpuform is there already\n")

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

    for job in ("changes", "reviewed", "apply-dev"):
        assert runner.run(job, "push", merge) == 0, runner.output[-1]
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
