"""The workflows of `gpuform new ci`: valid for their code hosts, and run unchanged, end to end."""

import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import click
import httpx
import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner, Result
from support.servers.ci_runners import PASSPHRASE, GitHubRunner, GitLabRunner
from support.servers.code_host import TOKEN, FakeCodeHost, serve_code_host

from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.emulator.together import MEMBER_KEY
from gpuform.stacks.cli.app import cli

pytestmark = pytest.mark.slow

PROGRAM = """
from gpuform.providers.together import SharedVolume
SharedVolume("data", volume_name="training-data", region="us-central-8", size_tib={size})
"""
SCHEMAS = {
    "github": ["--builtin-schema", "vendor.github-workflows"],
    "gitlab": ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}
IMPORTED = """
import importlib.metadata, pathlib, gpuform.stacks
folder = pathlib.Path(gpuform.stacks.__path__[0])
has_data = (folder / "workflows/github/setup.yml").exists()
print(folder, importlib.metadata.version("gpuform"), has_data)
"""
Write = Callable[..., Result]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with a project in the folder `infra`."""
    root = tmp_path / "repository"
    (root / "infra").mkdir(parents=True)
    (root / "infra/Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    (root / "infra/requirements.txt").write_text("# gpuform is there already\n")
    (root / "infra/__main__.py").write_text(PROGRAM.format(size=5))
    git(root, "init", "-q", "-b", "main")
    return root


@pytest.fixture
def write(repository: Path) -> Write:
    def new_ci(*flags: str) -> Result:
        arguments = ["new", "ci", "--dir", str(repository / "infra"), *flags]
        return CliRunner().invoke(cli, arguments, prog_name="gpuform")

    return new_ci


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def list_workflow_files(repository: Path) -> list[Path]:
    files = [*repository.glob(".github/workflows/*"), *repository.glob(".gitlab-ci.yml")]
    return sorted(files)


@pytest.mark.parametrize("host", list(SCHEMAS))
def test_workflows_are_valid_by_the_schema_of_the_code_host(
    repository: Path, write: Write, host: str
) -> None:
    assert write("--forge", host, "--stack", "prod").exit_code == 0
    files = list(map(str, list_workflow_files(repository)))
    assert len(files) == {"github": 4, "gitlab": 1}[host]
    checked = CliRunner().invoke(check_jsonschema, [*SCHEMAS[host], *files])
    assert checked.exit_code == 0, checked.output
    Path(files[0]).write_text(Path(files[0]).read_text().replace("timeout", "tiemout"))
    assert CliRunner().invoke(check_jsonschema, [*SCHEMAS[host], *files]).exit_code != 0


def test_workflows_pin_actions_and_have_least_permissions(repository: Path, write: Write) -> None:
    write("--forge", "github")
    for file in list_workflow_files(repository):
        for action in re.findall(r"uses: (.*)", file.read_text()):
            assert re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action)
        workflow = yaml.safe_load(file.read_text())
        assert workflow["permissions"] == {"contents": "read"}
        for name, job in workflow["jobs"].items():
            allowed = job.get("permissions", {})
            writes = [scope for scope, access in allowed.items() if access == "write"]
            assert writes == (["pull-requests"] if name == "plan" else [])


@pytest.mark.parametrize("host", list(SCHEMAS))
def test_workflows_use_existing_commands_and_flags(
    repository: Path, write: Write, host: str
) -> None:
    """Check the commands that this version of the workflows has."""
    write("--forge", host)
    workflow_text = "".join(path.read_text() for path in list_workflow_files(repository))
    lines = re.findall(
        r"^ *(?:run: |- )gpuform (.+?)(?: (?:#|\|\|).*)?$", workflow_text, re.MULTILINE
    )
    names = {line.split()[0] for line in lines}
    assert names == {
        *("preview", "review", "fetch-plan", "up"),
        *("expire", "drift", "orphans", "repair"),
    }
    context = click.Context(cli)
    for name, *arguments in map(shlex.split, lines):
        command = cast("click.Group", cli).get_command(context, name)
        if command is not None:
            command.make_context(name, arguments, parent=context)


CLOUDS = {
    "s3://b": ("aws", "cloud", "AWS_ROLE_ARN"),
    "gs://b": ("google-github-actions/auth", "cloud", "GCP_SERVICE_ACCOUNT"),
    "azblob://b": ("Azure/login", "cloud", "AZURE_TENANT_ID"),
    "file://.": (None, "", ""),
}


@pytest.mark.parametrize("backend", list(CLOUDS))
def test_jobs_sign_in_to_the_cloud_of_the_state(
    repository: Path, write: Write, backend: str
) -> None:
    action, extra, variable = CLOUDS[backend]
    for host in SCHEMAS:
        ran = write("--forge", host, "--backend", backend)
        assert ran.exit_code == 0, ran.output
        assert ("which no job can reach" in ran.output) is (action is None)
    files = list(map(str, repository.glob(".github/workflows/*")))
    for host, host_files in (("github", files), ("gitlab", [str(repository / ".gitlab-ci.yml")])):
        checked = CliRunner().invoke(check_jsonschema, [*SCHEMAS[host], *host_files])
        assert checked.exit_code == 0, checked.output
    for file in list_workflow_files(repository):
        workflow_text = file.read_text()
        assert (variable or "AWS_") in workflow_text or action is None
        assert ("id-token: write" in workflow_text or "id_tokens" in workflow_text) is (
            action is not None
        )
        for used in re.findall(r"uses: (.*)", workflow_text):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", used)
    for file in map(Path, files):
        for job in yaml.safe_load(file.read_text())["jobs"].values():
            assert (job.get("permissions", {"id-token": "write"}).get("id-token") == "write") or (
                action is None
            )
            assert any(
                (action or "actions/checkout") in step.get("uses", "") for step in job["steps"]
            )
    (line,) = (repository / "infra/requirements.txt").read_text().splitlines()[1:]
    assert line.endswith(f"[{extra}]" if extra else ".whl")


def test_jobs_have_the_credentials_of_the_stacks_key(repository: Path, write: Write) -> None:
    settings = repository / "infra/Pulumi.prod.yaml"
    settings.write_text("secretsprovider: hashivault://team\nencryptedkey: AAAA\n")
    assert write("--forge", "github", "--backend", "s3://b").exit_code == 0
    workflow = (repository / ".github/workflows/gpuform.yml").read_text()
    assert "VAULT_TOKEN: ${{ secrets.VAULT_TOKEN }}" in workflow
    assert "VAULT_TOKEN: ${{ secrets.VAULT_TOKEN_READ_ONLY }}" in workflow
    assert "[cloud,hashivault]" in (repository / "infra/requirements.txt").read_text()


def test_jobs_install_the_gpuform_that_wrote_the_workflows(
    repository: Path, write: Write, tmp_path: Path
) -> None:
    """The wheel is in the repository, because somebody else could register the name on an index."""
    requirements = repository / "infra/requirements.txt"
    requirements.write_text("# mine\nrequests\ngpuform\ngpuform-of-another==1\n")
    (repository / "infra/wheels").mkdir()
    (repository / "infra/wheels/gpuform-0.0.1-py3-none-any.whl").write_text("old")
    for _ in range(2):
        assert write("--forge", "github", "--force").exit_code == 0
        lines = requirements.read_text().splitlines()
        assert lines[:3] == ["# mine", "requests", "gpuform-of-another==1"]
        (path,) = lines[3:]
    (wheel,) = (repository / "infra/wheels").iterdir()
    assert repository / "infra" / path == wheel
    with zipfile.ZipFile(wheel) as packed:
        assert packed.testzip() is None
        packed.extractall(tmp_path / "installed")
    imported = subprocess.run(
        [sys.executable, "-c", IMPORTED],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert imported.stdout.split() == [str(tmp_path / "installed/gpuform/stacks"), "0.1.0", "True"]


def test_two_applies_of_a_stack_never_run_in_parallel(repository: Path, write: Write) -> None:
    write("--forge", "github", "--stack", "prod")
    write("--forge", "gitlab", "--stack", "prod")
    jobs = yaml.safe_load((repository / ".github/workflows/gpuform.yml").read_text())["jobs"]
    group = {"group": "gpuform-apply-prod", "cancel-in-progress": False}
    assert jobs["apply"]["concurrency"] == group
    apply = yaml.safe_load((repository / ".gitlab-ci.yml").read_text())["gpuform-apply"]
    assert (apply["resource_group"], apply["interruptible"]) == ("gpuform-apply-prod", False)


def test_existing_files_are_overwritten_only_with_force(repository: Path, write: Write) -> None:
    (repository / ".gitlab-ci.yml").write_text("mine")
    refused = write("--forge", "gitlab")
    assert (refused.exit_code, (repository / ".gitlab-ci.yml").read_text()) == (1, "mine")
    assert "overwrite   .gitlab-ci.yml" in refused.output
    assert write("--forge", "gitlab", "--force").exit_code == 0


def test_the_code_host_is_taken_from_the_remote(repository: Path, write: Write) -> None:
    unknown = write()
    assert unknown.exit_code == 2
    assert "--forge github or --forge gitlab" in unknown.output
    git(repository, "remote", "add", "origin", "git@gitlab.com:o/r.git")
    assert write().exit_code == 0
    assert [path.name for path in list_workflow_files(repository)] == [".gitlab-ci.yml"]


@pytest.mark.parametrize("flag", [["--stack", "a'b"], ["--branch", "x]\ny"]])
def test_a_name_that_yaml_or_a_shell_would_misread_is_refused(
    repository: Path, write: Write, flag: list[str]
) -> None:
    refused = write("--forge", "github", *flag)
    assert refused.exit_code == 1
    assert "cannot be written into a workflow" in refused.output
    assert list_workflow_files(repository) == []


def test_a_folder_without_a_project_is_refused(repository: Path, write: Write) -> None:
    (repository / "infra/Pulumi.yaml").unlink()
    refused = write("--forge", "github")
    assert refused.exit_code == 1
    assert "has no Pulumi.yaml" in refused.output


@pytest.fixture
def code_host() -> Iterator[FakeCodeHost]:
    with serve_code_host() as served:
        yield served


@pytest.fixture
def emulator() -> Iterator[Server]:
    with serve(0) as server:
        yield server


def list_volume_sizes(emulator: Server) -> list[int]:
    """Return the sizes of the existing volumes."""
    own = environment(emulator.url)
    listed = httpx.get(
        f"{own['TOGETHER_BASE_URL']}/v1/compute/clusters/storage/volumes",
        headers={"Authorization": f"Bearer {own['TOGETHER_API_KEY']}"},
        trust_env=False,
        verify=False,
    )
    return [volume["size_tib"] for volume in listed.json()["volumes"]]


def prepare_runner(
    kind: type[Any], repository: Path, tmp_path: Path, code_host: FakeCodeHost, emulator: Server
) -> Any:
    """Return a runner of the code host for a repository whose stack prod exists."""
    backend = tmp_path / "backend"
    backend.mkdir()
    variables = environment(emulator.url)
    secrets = {
        "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        "TOGETHER_API_KEY": variables.pop("TOGETHER_API_KEY"),
        "TOGETHER_API_KEY_READ_ONLY": MEMBER_KEY,
    }
    variables = {k: v for k, v in variables.items() if k in ("TOGETHER_BASE_URL", "GPUFORM_CLOCK")}
    work = tmp_path / "work"
    work.mkdir()
    runner = kind(repository, work, code_host, variables, secrets, f"file://{backend}")
    own = {**secrets, "PULUMI_BACKEND_URL": f"file://{backend}"}
    code = runner.run_script("gpuform stack init prod", repository / "infra", own)
    assert code == 0, runner.output
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "Begin")
    return runner


def commit_size(repository: Path, size: int) -> str:
    (repository / "infra/__main__.py").write_text(PROGRAM.format(size=size))
    git(repository, "commit", "-q", "-am", f"Want {size}")
    return git(repository, "rev-parse", "HEAD")


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("kind", [GitHubRunner, GitLabRunner])
def test_only_the_plan_of_the_merged_commit_is_applied_once(
    kind: type[Any],
    repository: Path,
    write: Write,
    tmp_path: Path,
    code_host: FakeCodeHost,
    emulator: Server,
) -> None:
    assert write("--forge", kind.name, "--stack", "prod").exit_code == 0
    runner = prepare_runner(kind, repository, tmp_path, code_host, emulator)
    git(repository, "checkout", "-q", "-b", "feature")
    first, second = commit_size(repository, 6), commit_size(repository, 7)

    assert runner.run_pull_request_job("plan", first) == 0, runner.output[-1]
    (comment,) = code_host.comments
    assert "size_tib" in comment["body"]
    assert first[:12] in comment["body"]
    assert runner.run_pull_request_job("fresh", first) == 0, runner.output[-1]

    assert runner.run_pull_request_job("plan", second) == 0, runner.output[-1]
    assert code_host.comments == [comment], "edited in place"
    assert second[:12] in comment["body"]

    apply_by_hand(runner, first)
    assert list_volume_sizes(emulator) == [6]
    assert runner.run_pull_request_job("fresh", second) == 1
    assert "out of date" in runner.output[-1]
    code_host.merged[second] = second
    assert runner.apply_commit(second) == 1
    assert list_volume_sizes(emulator) == [6], "what was reviewed is overtaken: nothing was changed"

    assert runner.run_pull_request_job("plan", second) == 0, runner.output[-1]
    assert code_host.comments == [comment]
    assert runner.run_pull_request_job("fresh", second) == 0, runner.output[-1]

    git(repository, "checkout", "-q", "main")
    git(repository, "merge", "-q", "--no-ff", "-m", "Merge", "feature")
    merge = git(repository, "rev-parse", "HEAD")
    assert runner.apply_commit(merge) == 1, "which pull request it came by is not known yet"
    code_host.merged[merge] = second
    assert runner.apply_commit(merge) == 0, runner.output[-1]
    assert list_volume_sizes(emulator) == [7]
    assert runner.apply_commit(merge) == 1, "a plan can be applied only once"
    assert list_volume_sizes(emulator) == [7]
    assert_no_secret_is_shown(runner)


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("kind", [GitHubRunner, GitLabRunner])
def test_a_destroy_branch_is_planned_and_applied_as_a_destroy(
    kind: type[Any],
    repository: Path,
    write: Write,
    tmp_path: Path,
    code_host: FakeCodeHost,
    emulator: Server,
) -> None:
    assert write("--forge", kind.name, "--stack", "prod").exit_code == 0
    runner = prepare_runner(kind, repository, tmp_path, code_host, emulator)
    commit = git(repository, "rev-parse", "HEAD")
    apply_by_hand(runner, commit)
    assert list_volume_sizes(emulator) == [5]
    branch = "gpuform-destroy/all"
    assert runner.run_pull_request_job("plan", commit, branch) == 0, runner.output[-1]
    (comment,) = code_host.comments
    assert "gpuform destroy --plan plan.json" in comment["body"]
    assert runner.run_pull_request_job("fresh", commit, branch) == 0, runner.output[-1]
    assert list_volume_sizes(emulator) == [5]
    code_host.merged[commit] = commit
    assert runner.apply_commit(commit) == 0, runner.output[-1]
    assert list_volume_sizes(emulator) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("kind", [GitHubRunner, GitLabRunner])
def test_a_hostile_branch_sees_no_key_that_can_write(
    kind: type[Any],
    repository: Path,
    write: Write,
    tmp_path: Path,
    code_host: FakeCodeHost,
    emulator: Server,
) -> None:
    ran = write("--forge", kind.name, "--stack", "prod")
    assert "keys that may only read" in ran.output
    runner = prepare_runner(kind, repository, tmp_path, code_host, emulator)
    git(repository, "checkout", "-q", "-b", "hostile")
    steal = (
        "import os\nwith open(os.environ['HOME'] + '/stolen', 'a') as file:\n"
        "    print(sorted(os.environ.items()), file=file)\n"
    )
    (repository / "infra/__main__.py").write_text(steal + PROGRAM.format(size=6))
    git(repository, "commit", "-q", "-am", "Steal")
    commit = git(repository, "rev-parse", "HEAD")

    assert runner.run_pull_request_job("plan", commit) == 0, runner.output[-1]
    assert runner.run_pull_request_job("fresh", commit) == 0, runner.output[-1]

    stolen = (tmp_path / "work/stolen").read_text()
    assert stolen.count(f"('TOGETHER_API_KEY', '{MEMBER_KEY}')") == len(("plan", "fresh"))
    assert runner.secrets["TOGETHER_API_KEY"] not in stolen


@pytest.mark.parametrize("host", list(SCHEMAS))
def test_doctor_finds_keys_that_may_write_in_jobs_of_a_pull_request(
    repository: Path, write: Write, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    write("--forge", host)
    (repository / "CODEOWNERS").write_text("* @team\n")
    monkeypatch.chdir(repository / "infra")
    checked = CliRunner().invoke(cli, ["doctor", "--ci"], prog_name="gpuform")
    assert (checked.exit_code, "warning" in checked.output) == (0, False), checked.output
    for file in list_workflow_files(repository):
        text = file.read_text().replace("_READ_ONLY", "").replace("--gates-from", "--ignored")
        file.write_text(text)
    (repository / "CODEOWNERS").write_text("/gates.yaml @team\n")
    checked = CliRunner().invoke(cli, ["doctor", "--ci"], prog_name="gpuform")
    assert checked.exit_code == 1
    assert "judged by the gates of the change itself" in checked.output
    assert {"github": "job plan is in no environment", "gitlab": "jobs of a merge request"}[
        host
    ] in checked.output
    assert "CODEOWNERS names no owners of" in checked.output


def write_shared_jobs(repository: Path, host: str) -> None:
    """Write the jobs that other repositories call as the workflow of a repository."""
    root = Path(__file__).parents[2]
    if host == "github":
        text = (root / ".github/workflows/plan.yml").read_text()
        inputs = {"stack": "prod", "directory": "infra", "branch": "main", "suffix": "-dev"}
        for name, value in inputs.items():
            text = text.replace(f"${{{{ inputs.{name} }}}}", value)
        text = text.replace("${{ inputs.backend }}", "${{ vars.PULUMI_BACKEND_URL }}")
        workflow = yaml.safe_load(text)
        workflow["defaults"] = workflow["jobs"]["plan"]["defaults"]
        for job in workflow["jobs"].values():
            job["steps"] = [step for step in job["steps"] if "Sign in" not in step["name"]]
        path = repository / ".github/workflows/gpuform.yml"
        path.parent.mkdir(parents=True)
        path.write_text(yaml.safe_dump(workflow))
        return
    text = (root / "templates/plan/template.yml").read_text().partition("\n---\n")[2]
    inputs = {"stack": "prod", "directory": "infra", "branch": "main", "suffix": ""}
    for name, value in inputs.items():
        text = text.replace(f"$[[ inputs.{name} ]]", value)
    workflow = yaml.safe_load(text)
    own = {"workflow": {"rules": [{"if": "$CI_COMMIT_SHA == $CI_COMMIT_SHA"}]}}
    (repository / ".gitlab-ci.yml").write_text(
        yaml.safe_dump({**workflow, **own, "default": workflow[".gpuform"]})
    )


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
@pytest.mark.parametrize("kind", [GitHubRunner, GitLabRunner])
def test_jobs_that_other_repositories_call_plan_comment_and_compare(
    kind: type[Any],
    repository: Path,
    tmp_path: Path,
    code_host: FakeCodeHost,
    emulator: Server,
) -> None:
    write_shared_jobs(repository, kind.name)
    runner = prepare_runner(kind, repository, tmp_path, code_host, emulator)
    git(repository, "checkout", "-q", "-b", "feature")
    commit = commit_size(repository, 6)
    assert runner.run_pull_request_job("plan", commit) == 0, runner.output[-1]
    (comment,) = code_host.comments
    assert "size_tib" in comment["body"]
    assert runner.run_pull_request_job("fresh", commit) == 0, runner.output[-1]
    assert_no_secret_is_shown(runner)


def apply_by_hand(runner: Any, commit: str) -> None:
    folder = runner.clone(commit)
    own = {**runner.secrets, "PULUMI_BACKEND_URL": runner.backend}
    assert runner.run_script("gpuform up --stack prod --yes", folder / "infra", own) == 0


def assert_no_secret_is_shown(runner: Any) -> None:
    code_host = runner.code_host
    artifacts = [artifact["packed"] for artifact in code_host.artifacts]
    artifacts += [f for p in code_host.pipelines for j in p["jobs"] for f in j["files"].values()]
    assert artifacts
    output = "".join(runner.output) + repr(artifacts) + repr(code_host.comments)
    for secret in (TOKEN, *runner.secrets.values()):
        assert secret not in output


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux")
def test_a_merge_queue_checks_and_a_fork_gets_nothing(
    repository: Path, write: Write, tmp_path: Path, code_host: FakeCodeHost, emulator: Server
) -> None:
    write("--forge", "github", "--stack", "prod")
    runner = prepare_runner(GitHubRunner, repository, tmp_path, code_host, emulator)
    head = git(repository, "rev-parse", "HEAD")
    pull = {"number": 12, "head": {"sha": head, "repo": {"full_name": "fork/r"}}}
    assert runner.run("plan", "pull_request", head, pull) == -1
    assert runner.run("fresh", "pull_request", head, pull) == 1, "skipped, it would count as passed"
    assert "There is no plan" in runner.output[-1]
    assert runner.run("apply", "pull_request", head, pull) == -1
    pull["head"]["repo"] = {"full_name": "o/r"}
    code_host.head = head
    assert runner.run("plan", "pull_request", head, pull) == 0, runner.output[-1]
    assert runner.run("fresh", "merge_group", head) == 0, runner.output[-1]
    assert "size_tib" in (tmp_path / "work/summary.md").read_text()


@pytest.mark.parametrize("host", list(SCHEMAS))
def test_plans_of_updates_are_rehearsed_on_demand(
    repository: Path, write: Write, host: str
) -> None:
    assert write("--forge", host, "--rehearse").exit_code == 0
    assert "[emulator]" in (repository / "infra/requirements.txt").read_text()

    for branch, rehearsed in (("feature", True), ("gpuform-destroy/x", False)):
        assert ("--rehearse" in run_plan_script(repository, host, branch)) == rehearsed

    assert write("--forge", host, "--force").exit_code == 0
    assert "--rehearse" not in run_plan_script(repository, host, "feature")
    assert "[emulator]" not in (repository / "infra/requirements.txt").read_text()


def run_plan_script(repository: Path, host: str, branch: str) -> str:
    """Return the first gpuform command that the plan job runs for a branch."""
    path = {"github": ".github/workflows/gpuform.yml", "gitlab": ".gitlab-ci.yml"}[host]
    document: Any = yaml.safe_load((repository / path).read_text())
    script = (
        next(step for step in document["jobs"]["plan"]["steps"] if step.get("name") == "Plan")[
            "run"
        ]
        if host == "github"
        else next(line for line in document["gpuform-plan"]["script"] if "case" in line)
    )
    variables = {"GITHUB_HEAD_REF": branch, "CI_MERGE_REQUEST_SOURCE_BRANCH_NAME": branch}
    done = subprocess.run(
        ["bash", "-eu", "-c", f'gpuform() {{ echo "$@"; }}\n{script}'],
        env={"PATH": os.environ["PATH"], **variables},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout
