"""The workflows of `gpuform new ci --all`: their jobs, environments and path filters."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner

from gpuform.schemas.errors import EngineError
from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_stacks import (
    group_by_environment,
    list_stacks_checklist,
    read_stacks,
    reject_workflows_of_one_stack,
    render_stacks_workflows,
)
from gpuform.stacks.ci_upgrade import CiRecord, WorkflowSet, get_version, plan_upgrade
from gpuform.stacks.ci_workflows import (
    READING_ENVIRONMENTS,
    WRITING_NAMES,
    Repository,
    WorkflowSettings,
    choose_label,
    describe_outdated_workflows,
    render_workflows,
)
from gpuform.stacks.cli.app import cli
from gpuform.stacks.code_hosts.review_target import WORKFLOW_HOSTS, CodeHostName
from gpuform.stacks.doctor.ci_files import examine_ci_files
from gpuform.stacks.doctor.findings import Level
from gpuform.stacks.multi_stack import MultiStackError, StackOrder
from gpuform.stacks.new_project import write_files

STACKS = """\
stacks:
  - {folder: network, stack: dev, approve: automatic}
  - {folder: network, stack: prod}
  - {folder: cluster, stack: prod}
"""
NEW_STACK = "stacks:\n  - {folder: network, stack: new}"
BACKENDS = ("s3://b", "gs://b", "azblob://b", "file://.")
SCHEMAS = {
    "github": ["--builtin-schema", "vendor.github-workflows"],
    "gitlab": ["--builtin-schema", "vendor.gitlab-ci", "--data-transform", "gitlab-ci"],
}


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a repository with three stacks in two projects below the folder `infra`."""
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    root = tmp_path / "root"
    for name in ("network", "cluster"):
        folder = root / "infra" / name
        folder.mkdir(parents=True)
        (folder / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
        (folder / "__main__.py").write_text("import pulumi\n")
    (root / ".git").mkdir()
    (root / "infra/stacks.yaml").write_text(STACKS)
    return root


def read_order(root: Path) -> StackOrder:
    return read_stacks(root / "infra", {})


def render(
    root: Path,
    host: CodeHostName,
    backend: str = "s3://b",
    *,
    rehearses: bool = False,
    runners: int | None = None,
) -> dict[str, str]:
    settings = WorkflowSettings(
        host, "prod", "main", Clouds.from_urls([backend]), rehearses, runners=runners
    )
    return render_stacks_workflows(Repository(root, root / "infra"), settings)


def iterate_jobs(files: dict[str, str]) -> Iterator[tuple[str, Any]]:
    for path, text in files.items():
        if path.endswith(".json"):
            continue
        document = yaml.safe_load(text)
        for name, job in document.get("jobs", document).items():
            if isinstance(job, dict) and ("steps" in job or "script" in job):
                yield f"{path}: {name}", job


def get_environment(job: Any) -> str:
    environment = job.get("environment") or ""
    return environment if isinstance(environment, str) else str(environment["name"])


def test_each_environment_has_an_apply_job_with_the_stacks_of_its_own(root: Path) -> None:
    jobs = yaml.safe_load(render(root, "github")[".github/workflows/gpuform.yml"])["jobs"]
    for name, stacks in {"dev": ["network/dev"], "prod": ["network/prod", "cluster/prod"]}.items():
        job = jobs[f"apply-{name}"]
        assert job["environment"] == f"gpuform-{name}"
        assert job["concurrency"]["group"] == f"gpuform-apply-gpuform-{name}"
        script = job["steps"][-1]["run"]
        assert [part.strip(" '\\\n") for part in script.split("--filter")[1:]] == stacks
        assert '--gates-from "$BASE"' in script


def test_on_gitlab_people_start_the_apply_unless_the_merge_is_the_approval(root: Path) -> None:
    jobs = yaml.safe_load(render(root, "gitlab")[".gitlab-ci.yml"])
    rules = {name: jobs[f"gpuform-apply-{name}"]["rules"][0] for name in ("dev", "prod")}
    assert {name: rule.get("when") for name, rule in rules.items()} == {
        "dev": None,
        "prod": "manual",
    }


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_one_comment_shows_the_plans_of_all_stacks_by_the_gates_of_the_base(
    root: Path, host: CodeHostName
) -> None:
    text = "".join(render(root, host).values())
    assert text.count("--post") == 1
    assert """--all --filter '...[origin/main]' --gates-from 'origin/main'""" in text
    assert all("--gates-from" in line for line in text.splitlines() if "gpuform preview" in line)


@pytest.mark.parametrize("runners", [None, 8])
def test_only_jobs_of_an_environment_get_secrets_and_only_those_of_an_apply_may_write(
    root: Path, runners: int | None
) -> None:
    """A workflow of a branch can name any secret of its repository, so there is none."""
    seen = set()
    for name, job in iterate_jobs(render(root, "github", runners=runners)):
        text = yaml.safe_dump(job, width=10_000)
        environment = get_environment(job)
        assert ("secrets." in text) is bool(environment), name
        writing = [f"secrets.{secret} " in text for secret in WRITING_NAMES]
        assert any(writing) is (environment not in (*READING_ENVIRONMENTS, "")), name
        seen.add(environment)
    assert seen == {*READING_ENVIRONMENTS, "gpuform-dev", "gpuform-prod", ""}


def test_jobs_that_only_read_get_read_only_keys_on_gitlab(root: Path) -> None:
    files = render(root, "gitlab")
    setup = yaml.safe_load(files[".gitlab-ci.yml"])["default"]["before_script"][0]
    script = setup + '\necho "$TOGETHER_API_KEY"'
    variables = {"TOGETHER_API_KEY": "writes", "TOGETHER_API_KEY_READ_ONLY": "reads"}
    for name, job in iterate_jobs(files):
        environment = get_environment(job)
        ran = subprocess.run(
            ["bash", "-c", script],
            env={**variables, **({"CI_ENVIRONMENT_NAME": environment} if environment else {})},
            capture_output=True,
            text=True,
            check=True,
        )
        applies = environment not in (*READING_ENVIRONMENTS, "")
        assert ran.stdout.strip() == ("writes" if applies else "reads"), name


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_the_filter_has_programs_and_what_they_share_and_what_decides_about_all(
    root: Path, host: CodeHostName
) -> None:
    (root / "infra/cluster/__main__.py").write_text("import pulumi\nimport common\n")
    for name in ("common", "docs"):
        (root / "infra" / name).mkdir()
    (root / "infra/policies.py").write_text("def small(plan):\n    return []\n")
    with (root / "infra/stacks.yaml").open("a") as file:
        file.write("gates:\n  small: {python: 'policies:small'}\n")
    text = "".join(render(root, host).values())
    for path in (
        "network",
        "cluster",
        "common",
        "policies.py",
        "stacks.yaml",
        "requirements.*",
        "wheels",
    ):
        assert f"infra/{path}" in text
    assert "infra/docs" not in text


def test_the_filter_is_the_same_after_the_first_run_has_written_requirements(root: Path) -> None:
    first = render(root, "github")
    line = "./wheels/gpuform-1-py3-none-any.whl\n"
    for folder in ("infra", "infra/cluster"):
        (root / folder / "requirements.txt").write_text(f"# requirements.txt\n{line}")
    (root / "infra/wheels").mkdir()
    assert render(root, "github") == first


def test_a_filter_with_more_paths_than_gitlab_takes_is_the_folder_of_all_stacks(root: Path) -> None:
    for number in range(50):
        folder = root / f"infra/more{number}"
        folder.mkdir()
        (folder / "Pulumi.yaml").write_text(f"name: more{number}\nruntime: python\n")
        (folder / "__main__.py").write_text("")
    with (root / "infra/stacks.yaml").open("a") as file:
        file.write('  - {folder: "more*", stack: prod}\n')
    document = yaml.safe_load(render(root, "gitlab")[".gitlab-ci.yml"])
    assert document[".gpuform-paths"] == ["infra/**/*"]


def test_an_environment_is_applied_after_those_that_its_stacks_name_in_after(root: Path) -> None:
    text = STACKS.replace("folder: cluster,", "folder: cluster, after: [network/dev],")
    (root / "infra/stacks.yaml").write_text(text)
    jobs = yaml.safe_load(render(root, "github")[".github/workflows/gpuform.yml"])["jobs"]
    assert jobs["apply-prod"]["needs"] == ["reviewed", "apply-dev"]
    document = yaml.safe_load(render(root, "gitlab")[".gitlab-ci.yml"])
    needs = [{"job": "gpuform-reviewed"}, {"job": "gpuform-apply-dev", "optional": True}]
    assert document["gpuform-apply-prod"]["needs"] == needs
    assert document["gpuform-reviewed"]["artifacts"]["paths"] == ["infra/reviewed-digest"]
    script = document["gpuform-apply-prod"]["script"][-1]
    assert 'up --all --plan plan.json --digest "$(cat reviewed-digest)" ' in script


READING = "import pulumi\npulumi.StackReference('organization/network/dev')\n"


def test_an_environment_whose_stacks_are_read_is_applied_before_also_without_changes(
    root: Path,
) -> None:
    """gpuform applies a part of a plan only after the parts of the stacks that it reads."""
    (root / "infra/cluster/__main__.py").write_text(READING)
    jobs = yaml.safe_load(render(root, "github")[".github/workflows/gpuform.yml"])["jobs"]
    assert jobs["apply-prod"]["needs"] == ["reviewed", "apply-dev"]
    script = jobs["reviewed"]["steps"][-1]["run"].partition("--format stacks > planned")[2]
    for changed, applied in {
        "cluster/prod": ["gpuform-dev=true", "gpuform-prod=true"],
        "network/dev": ["gpuform-dev=true"],
        "other/prod": [],
    }.items():
        (root / "changed").write_text(f"{changed}\n")
        (root / "planned").write_text("network/dev\ncluster/prod\n")
        subprocess.run(
            ["bash", "-eu", "-c", script],
            cwd=root,
            env={"PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(root / "outputs")},
            check=True,
        )
        outputs = root / "outputs"
        assert (outputs.read_text().split() if outputs.exists() else []) == applied
        outputs.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("entries", "program", "message"),
    [
        ("[{folder: network, stack: plan}]", "", "environment gpuform-plan of network/plan is for"),
        ("[{folder: network, stack: a, environment: 'a b'}]", "", "environment a b of network/a"),
        (
            "[{folder: network, stack: a, environment: GPUform-plan}]",
            "",
            "environment GPUform-plan of network/a is for",
        ),
        (
            "[{folder: network, stack: a}, {folder: cluster, stack: a, environment: A}]",
            "",
            "the environments gpuform-a and A have jobs of the same names",
        ),
        (
            """[{folder: network, stack: a},
            {folder: cluster, stack: b, environment: GPUFORM-A, approve: automatic}]""",
            "",
            "the environments gpuform-a and GPUFORM-A have jobs of the same names",
        ),
        (
            """[{folder: network, stack: a, environment: e, approve: automatic},
            {folder: cluster, stack: b, environment: e}]""",
            "",
            "network/a and cluster/b are in the environment e, and only one of them has",
        ),
        (
            """[{folder: network, stack: a, after: [cluster/b]}, {folder: cluster, stack: b},
            {folder: cluster, stack: a}, {folder: network, stack: b, after: [cluster/a]}]""",
            "",
            "environments need each other in a cycle",
        ),
    ],
)  # fmt: skip
def test_stacks_that_no_job_can_apply_are_refused_with_their_place(
    root: Path, entries: str, program: str, message: str
) -> None:
    (root / "infra/stacks.yaml").write_text(f"stacks: {entries}\n")
    (root / "infra/cluster/__main__.py").write_text(program)
    with pytest.raises(MultiStackError, match=message):
        group_by_environment(read_order(root))


def test_a_folder_that_yaml_or_a_shell_would_misread_is_refused(root: Path) -> None:
    shutil.move(root / "infra/network", root / "infra/it's")
    text = STACKS.replace("folder: network", 'folder: "it\'s"')
    (root / "infra/stacks.yaml").write_text(text)
    with pytest.raises(EngineError, match="cannot be written into a workflow"):
        render(root, "github")


@pytest.mark.parametrize(
    "branch",
    [
        *("main", "release/1.x", "a-b_c", "a./b", "a.lock.b", "a/HEAD", "a/-b", "a b", "-x"),
        *("a..b", "a.lock", "a.lock/b", ".a", "a/.b", "a.", "/a", "a/", "a//b", "HEAD", "."),
    ],
)
def test_branches_are_taken_and_refused_as_by_git(root: Path, branch: str) -> None:
    command = ["git", "check-ref-format", "--branch", branch]
    is_taken = subprocess.run(command, capture_output=True, check=False).returncode == 0
    settings = WorkflowSettings("github", "prod", branch, Clouds.from_urls([]))
    with nullcontext() if is_taken else pytest.raises(EngineError, match="that git takes for"):
        render_workflows(Repository(root, root / "infra/network"), settings)


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_a_settings_file_that_no_stack_can_have_adds_nothing_to_a_workflow(
    root: Path, host: CodeHostName
) -> None:
    """A stack's name from a file name ends in shell scripts of jobs with keys that may write."""
    for stack in ("dev", "x'; curl evil; '"):
        (root / f"infra/network/Pulumi.{stack}.yaml").write_text("{}\n")
    (root / "infra/stacks.yaml").write_text("stacks: [{folder: network}]\n")
    text = "".join(render(root, host).values())
    assert "network/dev" in text
    assert "curl" not in text


def test_the_checklist_names_each_environment_with_its_stacks(root: Path) -> None:
    order = read_order(root)
    settings = WorkflowSettings("github", "prod", "main", Clouds.from_urls(["s3://b"]))
    items = list_stacks_checklist(settings, group_by_environment(order))
    (dev,) = (item for item in items if item.startswith("environment gpuform-dev"))
    (prod,) = (item for item in items if item.startswith("environment gpuform-prod"))
    assert dev.endswith("applied without an approval; for network/dev")
    assert prod.endswith("people approve its jobs; for network/prod, cluster/prod")


def test_on_gitlab_only_variables_of_plans_may_be_unprotected(root: Path) -> None:
    """A job of any branch may name any environment, as tests/workflows/test_attack.py shows."""
    settings = WorkflowSettings("gitlab", "prod", "main", Clouds())
    items = list_stacks_checklist(settings, group_by_environment(read_order(root)))
    (planning,) = (item for item in items if item.startswith("environment gpuform-plan:"))
    assert "only people who may read all secrets are allowed to deploy" in planning
    scopes = [item.partition(":")[0] for item in items if item.startswith("masked")]
    assert scopes == [
        "masked variables with the scope of these two, those of gpuform-watch protected",
        "masked, protected variables with the scope of the next ones",
    ]


def test_an_upgrade_adds_the_jobs_of_new_stacks_and_keeps_edits(root: Path) -> None:
    path = ".github/workflows/gpuform.yml"
    repository = Repository(root, root / "infra")
    settings = WorkflowSettings("github", "prod", "main", Clouds(), every_stack=True)
    written = render_stacks_workflows(repository, settings)
    write_files(root, written, force=False)
    CiRecord().add(WorkflowSet(get_version(), settings, written)).save(root / "infra")
    edited = written[path].replace("timeout-minutes: 10\n", "timeout-minutes: 17\n")
    (root / path).write_text(edited)
    stacks_file = root / "infra/stacks.yaml"
    stacks_file.write_text(stacks_file.read_text().replace("stacks:", NEW_STACK, 1))

    upgrade = plan_upgrade(repository, {}, vendor=True)

    [workflow] = [file for file in upgrade.files if file.path == path]
    assert (workflow.outcome, workflow.conflicts) == ("merged with your edits", ())
    text = workflow.text or ""
    assert text.count("timeout-minutes: 17\n") == edited.count("timeout-minutes: 17\n") > 0
    assert "--filter 'network/new'" in text
    assert "\n  apply-new:\n" in text

    # The workflows of the new stack alone would apply it as well.
    write_files(root, render_one(root, "github", "network", "new"), force=False)
    with pytest.raises(MultiStackError, match="plan and apply the same stacks"):
        plan_upgrade(repository, {}, vendor=True)


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
@pytest.mark.parametrize("runners", [None, 8])
def test_doctor_finds_no_problem_in_the_written_files(
    root: Path, host: CodeHostName, runners: int | None
) -> None:
    write_files(root, render(root, host, "file://.", runners=runners), force=False)
    (root / "CODEOWNERS").write_text("* @team\n")
    findings = list(examine_ci_files(root / "infra"))
    assert {finding.level for finding in findings} == {Level.OK}
    stacks_file = root / "infra/stacks.yaml"
    stacks_file.write_text(stacks_file.read_text().replace("stacks:", NEW_STACK, 1))
    [problem] = [f.text for f in examine_ci_files(root / "infra") if f.level is Level.PROBLEM]
    assert problem.startswith("no job applies network/new: ")
    # Without stacks.yaml, the record says that the workflows are those of all stacks.
    settings = WorkflowSettings(host, "prod", "main", Clouds.from_urls([]), every_stack=True)
    CiRecord().add(WorkflowSet(get_version(), settings, {"a": ""})).save(root / "infra")
    stacks_file.unlink()
    (root / "infra/network/Pulumi.late.yaml").write_text("")
    [problem] = [f.text for f in examine_ci_files(root / "infra") if f.level is Level.PROBLEM]
    assert problem.startswith("no job applies network/late: ")
    stacks_file.write_text(STACKS)
    (root / "CODEOWNERS").write_text("gates.yaml @team\n")
    deciding = ("infra/wheels/gpuform-1.whl", "infra/network/requirements.txt")
    for path in deciding:
        (root / path).parent.mkdir(exist_ok=True)
        (root / path).touch()
    unowned = [*examine_ci_files(root / "infra")][-1].text
    assert all(path in unowned for path in ("infra/stacks.yaml", *deciding))


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("secrets.TOGETHER_API_KEY_READ_ONLY", "secrets.TOGETHER_API_KEY", "gpuform-plan, and"),
        ("secrets.TOGETHER_API_KEY_READ_ONLY", "secrets['TOGETHER_API_KEY']", "gpuform-plan, and"),
        ("secrets.TOGETHER_API_KEY_READ_ONLY", "toJSON(secrets)", "and gets all secrets"),
        ("jobs:\n", "jobs:\n  all: {uses: ./a.yml, secrets: inherit}\n", "and gets all secrets"),
        ("\nenv:\n", "\nenv:\n  KEY: ${{ secrets.TENSORONE_API_KEY }}\n", "job changes is in no"),
        ("environment: gpuform-prod\n", "environment: {name: gpuform-watch}\n", "watch, and gets"),
        ("    environment: gpuform-plan\n", "", "gets secrets of the repository"),
        ("    environment: gpuform-prod\n", "", "is in no environment, and gets"),
        (" --gates-from 'origin/main'", "", "is judged by the gates of the change itself"),
        ("gpuform join --gates-from 'origin/main'", "gpuform join", "job plan is judged by"),
        (" --rehearse --gates-from 'origin/main'", "", "job plan-1 is judged by"),
        ("from 'origin/main'", 'from "origin/$GITHUB_HEAD_REF"', "job plan-1 is judged by"),
        ("from 'origin/main'", "from HEAD", "job plan is judged by"),
        ("from 'origin/main'", "from '@'", "job plan is judged by"),
        ("from 'origin/main'", "from HEAD~0", "job plan is judged by"),
        ("gpuform join --gates-from 'origin/main'", 'B=@; gpuform join --gates-from "$B"', "job p"),
        ("\nenv:\n", "\nenv:\n  BASE: ${{ github.sha }}\n  B: $BASE\n", "job plan is judged by"),
        ("from 'origin/main'", 'from "origin/${{ github.head_ref }}"', "job plan-1 is judged by"),
        ("from 'origin/main'", "from ${{ github.event.pull_request.head.sha }}", "job plan is j"),
        ("from 'origin/main'", "from=${{ github.sha }}", "job plan is judged by"),
        ("--gates-from 'o", "--allow gate:few --gates-from 'o", "job plan lifts a gate"),
        ("\nenv:\n", "\nenv:\n  GPUFORM_ALLOW: gate:few\n", "job plan-1 lifts a gate"),
        ("\n  pull_request:", "\n  pull_request_target:", "runs on pull_request_target"),
        (
            "@08c6903cd8c0fde910a37f88322edcfb5dd907a8 #",
            "@v5 #",
            "job plan uses actions/checkout@v5",
        ),
        ("jobs:\n", "jobs:\n  a: {uses: o/r/.github/workflows/a.yml@main}\n", "job a uses o/r/"),
        ("persist-credentials: false", "persist-credentials: true", "job changes leaves the token"),
        ("          persist-credentials: false\n", "", "job plan leaves the token"),
        (
            "permissions:\n      contents: read",
            "permissions:\n      contents: write",
            "contents: wri",
        ),
        (
            "permissions:\n      contents: read\n    outputs",
            "permissions: write-all\n    outputs",
            "wri",
        ),
        ("\njobs:\n", "\njobs: [\n", "not valid YAML"),
        ("rm -f plan.json\n", "gpuform -C x up; true --gates-from a\t\n", "job plan is judged by"),
    ],
)
def test_doctor_finds_what_an_edit_opens(root: Path, old: str, new: str, problem: str) -> None:
    rendered = render(root, "github", rehearses=True, runners=8)
    if "BASE" in new:
        rendered = {p: t.replace("from 'origin/main'", "from ${B}") for p, t in rendered.items()}
    assert any(old in text for text in rendered.values())
    write_files(
        root, {path: text.replace(old, new) for path, text in rendered.items()}, force=False
    )
    problems = [f.text for f in examine_ci_files(root / "infra") if f.level is Level.PROBLEM]
    assert any(problem in text for text in problems), problems


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
@pytest.mark.parametrize(
    ("lines", "unowned"),
    [
        ("* @team", ""),
        (
            "* @team\n/infra/ # nobody",
            "infra/gates.yaml, infra/requirements.txt, infra/stacks.yaml",
        ),
        ("* @team\ngates.yaml", "infra/gates.yaml"),
        ("* @team\n!gates.yaml", "infra/gates.yaml"),
        ("* @team\n/gates.yaml", ""),
        ("gates.yaml\n* @team", ""),
        ("* @team\n/infra/**/gates.yaml\n", "infra/gates.yaml"),
        ("* @team\n/infra/* a@b\n/infra/g*.y?ml", "infra/gates.yaml"),
        ("* @team # all\nCODEOWNERS", "CODEOWNERS"),
    ],
)
def test_doctor_takes_the_last_line_of_code_owners_that_matches(
    root: Path, host: CodeHostName, lines: str, unowned: str
) -> None:
    write_files(root, render(root, host, "file://."), force=False)
    (root / "CODEOWNERS").write_text(lines)
    text = [*examine_ci_files(root / "infra")][-1].text
    expected = f"no owners of {unowned}" if unowned else "names owners of workflows and gates"
    assert text.removeprefix("CODEOWNERS names ") == expected.removeprefix("names ")


def test_doctor_reads_sections_of_code_owners_on_gitlab(root: Path) -> None:
    write_files(root, render(root, "gitlab", "file://."), force=False)
    owners = "[All][2] @team\n*\n[Infra]\ninfra/gates.yaml\n^[Optional] @others\n*\n"
    (root / "CODEOWNERS").write_text(owners)
    assert [*examine_ci_files(root / "infra")][-1].level is Level.OK
    (root / "CODEOWNERS").write_text(owners.replace("[All]", "^[All]"))
    assert "infra/gates.yaml" in [*examine_ci_files(root / "infra")][-1].text


def test_doctor_names_the_line_of_a_workflow_that_is_no_yaml(root: Path) -> None:
    files = render(root, "github")
    path = ".github/workflows/gpuform-drift.yml"
    write_files(root, {**files, path: "on: push\njobs:\n  a: [\n"}, force=False)
    problems = [f.text for f in examine_ci_files(root / "infra") if f.level is Level.PROBLEM]
    assert len(problems) == 1
    assert problems[0].startswith("gpuform-drift.yml:4: not valid YAML: ")


def test_doctor_finds_gates_of_the_source_branch_on_gitlab(root: Path) -> None:
    rendered = render(root, "gitlab")
    revision = '"refs/remotes/origin/$CI_MERGE_REQUEST_SOURCE_BRANCH_NAME"'
    edited = {path: text.replace("'origin/main'", revision) for path, text in rendered.items()}
    write_files(root, edited, force=False)
    problems = [f.text for f in examine_ci_files(root / "infra") if f.level is Level.PROBLEM]
    assert [text.partition(" is ")[0] for text in problems] == [
        ".gitlab-ci.yml: job gpuform-plan",
        ".gitlab-ci.yml: job gpuform-fresh",
    ]


@pytest.mark.parametrize(
    ("pattern", "is_owned"),
    [("/.gitlab-ci.yml", False), ("/.gitlab/", True), (".gitlab/gpuform-*", True)],
)
def test_doctor_wants_owners_of_the_jobs_of_child_pipelines(
    root: Path, pattern: str, is_owned: bool
) -> None:
    write_files(root, render(root, "gitlab", runners=8), force=False)
    (root / "CODEOWNERS").write_text(f"/.gitlab/CODEOWNERS @team\n{pattern} @team\n")
    [text] = [f.text for f in examine_ci_files(root / "infra") if "CODEOWNERS" in f.text]
    assert (".gitlab/gpuform-waves.yml" not in text) is is_owned


def test_doctor_reads_what_other_jobs_of_a_repository_may_contain(root: Path) -> None:
    write_files(root, render(root, "gitlab"), force=False)
    with (root / ".gitlab-ci.yml").open("a") as file:
        file.write("lint:\n  script:\n    - !reference [.lint, script]\n    - [make, lint]\n")
    (root / ".github/workflows").mkdir(parents=True)
    (root / ".github/workflows/gpuform-mine.yml").write_text("on: push\njobs:\n")
    (root / ".github/workflows/gpuform-empty.yml").write_text("- a\n")
    problems = [f.text for f in examine_ci_files(root / "infra") if f.level is Level.PROBLEM]
    assert problems == []


def test_the_required_check_is_never_skipped_because_that_would_count_as_passed(root: Path) -> None:
    jobs = yaml.safe_load(render(root, "github")[".github/workflows/gpuform.yml"])["jobs"]
    assert jobs["fresh"]["if"] == "github.event_name != 'push' && always()"


def test_on_many_runners_there_is_a_matrix_for_each_wave_of_stacks(root: Path) -> None:
    (root / "infra/cluster/__main__.py").write_text(READING)
    text = render(root, "github", runners=8)[".github/workflows/gpuform.yml"]
    jobs = yaml.safe_load(text)["jobs"]
    assert "environment" not in jobs["waves"]
    assert {name: jobs[name]["needs"] for name in ("plan-1", "plan-2", "plan")} == {
        "plan-1": ["waves"],
        "plan-2": ["waves", "plan-1"],
        "plan": ["changes", "waves", "plan-1", "plan-2"],
    }
    for number in (1, 2):
        job = jobs[f"plan-{number}"]
        matrix = f"${{{{ fromJSON(needs.waves.outputs.wave-{number}) }}}}"
        assert job["strategy"]["matrix"] == {"include": matrix}
        assert job["environment"] == "gpuform-plan"
    assert text.count("gpuform join --gates-from 'origin/main'") == 1
    assert text.count("--post") == 1


def test_the_waves_become_outputs_and_more_waves_than_jobs_are_an_error(root: Path) -> None:
    text = render(root, "github", runners=8)[".github/workflows/gpuform.yml"]
    step = yaml.safe_load(text)["jobs"]["waves"]["steps"][-2]
    waves = [[{"part": "1-1", "stacks": "network/dev network/prod"}], [{"part": "2-1"}]]
    outputs = root / "outputs"
    for printed, code in ((waves[:1], 0), (waves, 1)):
        ran = subprocess.run(
            [
                "bash",
                "-eo",
                "pipefail",
                "-c",
                f"gpuform() {{ echo '{json.dumps(printed)}'; }}\n" + step["run"],
            ],
            env={"PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(outputs)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == code, ran.stderr
        assert json.loads(outputs.read_text().splitlines()[0].removeprefix("wave-1=")) == waves[0]
        outputs.unlink()
    assert "There are more waves than jobs" in ran.stdout


READING_PROD = READING.replace("network/dev", "network/prod")


def test_each_environment_is_applied_in_its_own_waves_after_those_that_it_reads(root: Path) -> None:
    (root / "infra/cluster/__main__.py").write_text(READING + READING_PROD)
    text = render(root, "github", runners=8)[".github/workflows/gpuform.yml"]
    jobs = yaml.safe_load(text)["jobs"]
    applies = {name: job for name, job in jobs.items() if name.startswith("apply-")}
    assert {name: (job["environment"], job["needs"]) for name, job in applies.items()} == {
        "apply-dev-1": ("gpuform-dev", ["reviewed"]),
        "apply-prod-1": ("gpuform-prod", ["reviewed", "apply-dev-1"]),
        "apply-prod-2": ("gpuform-prod", ["reviewed", "apply-prod-1"]),
    }
    outputs = list(jobs["reviewed"]["outputs"])
    assert outputs == ["gpuform-dev-1", "gpuform-prod-1", "gpuform-prod-2", "_digest"]
    for output, job in zip(outputs[:-1], applies.values(), strict=True):
        assert job["if"] == (
            f"${{{{ !failure() && !cancelled() && needs.reviewed.outputs.{output} != '' }}}}"
        )
        matrix = f"${{{{ fromJSON(needs.reviewed.outputs.{output}) }}}}"
        assert job["strategy"] == {"fail-fast": False, "matrix": {"include": matrix}}
        assert job["steps"][-1]["env"]["DIGEST"] == "${{ needs.reviewed.outputs._digest }}"
        # Jobs of one group take turns, and GitHub cancels all but the last that waits.
        assert job["concurrency"]["group"].endswith("-${{ matrix.part }}")


def test_the_waves_of_an_apply_become_outputs_of_their_environment(root: Path) -> None:
    """More waves than jobs are an error, in the pull request already."""
    (root / "infra/cluster/__main__.py").write_text(READING_PROD)
    text = render(root, "github", runners=8)[".github/workflows/gpuform.yml"]
    script = yaml.safe_load(text)["jobs"]["reviewed"]["steps"][-1]["run"]
    script = script.partition("--format stacks > planned")[2]
    (root / "changed").write_text("cluster/prod\n")
    (root / "planned").write_text("network/dev\nnetwork/prod\ncluster/prod\n")
    outputs = root / "outputs"
    waves = [[{"part": "1-1", "stacks": "network/prod"}], [{"part": "2-1"}], [{"part": "3-1"}]]
    for printed, code in ((waves[:2], 0), (waves, 1)):
        gpuform = f"gpuform() {{ echo \"$@\" >> calls; echo '{json.dumps(printed)}'; }}\n"
        ran = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", gpuform + script],
            cwd=root,
            env={"PATH": os.environ["PATH"], "GITHUB_OUTPUT": str(outputs)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == code, ran.stderr
        lines = dict(line.split("=", 1) for line in outputs.read_text().splitlines())
        assert json.loads(lines["gpuform-prod-1"]) == waves[0]
        outputs.unlink()
    assert "There are more waves than jobs of gpuform-prod" in ran.stdout
    plan_steps = yaml.safe_load(text)["jobs"]["plan"]["steps"]
    check = next(it["run"] for it in plan_steps if it["name"] == "Check the waves of the apply")
    for printed, code in (([], 0), (waves[:1], 0), (waves[:2], 1)):
        gpuform = f"gpuform() {{ echo '{json.dumps(printed)}'; }}\n"
        ran = subprocess.run(
            ["bash", "-eo", "pipefail", "-c", gpuform + check],
            env={"PATH": os.environ["PATH"]},
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == code, ran.stderr
    assert "There are more waves than jobs of gpuform-dev" in ran.stdout
    assert (root / "calls").read_text().splitlines()[0] == (
        "plan-part --waves --plan plan.json --runners 8 --filter network/prod --filter cluster/prod"
    )


@pytest.mark.parametrize(
    ("host", "runners", "jobs"),
    [
        ("github", None, ["plan", "reviewed"]),
        ("github", 8, ["plan", "reviewed"]),
        ("gitlab", None, ["gpuform-plan", "gpuform-reviewed"]),
        ("gitlab", 8, ["gpuform-plan", "gpuform-reviewed", "gpuform-plan"]),
    ],
)
def test_changes_of_a_stack_that_no_job_applies_fail_before_and_after_the_merge(
    root: Path, host: CodeHostName, runners: int | None, jobs: list[str]
) -> None:
    scripts = [
        (label.partition(": ")[2], str(step))
        for label, job in iterate_jobs(render(root, host, runners=runners))
        for step in [step.get("run") for step in job.get("steps", ())] + job.get("script", [])
        if "unapplied=" in str(step)
    ]
    assert [name for name, _ in scripts] == jobs
    for _, script in scripts:
        # From the names of the changed stacks on, until the end of the check.
        before = script.partition("gpuform review plan.json --format changed-stacks > changed\n")[2]
        check = before.partition("\nfi\n")[0].removesuffix("\nfi") + "\nfi\necho passed"
        for changed, passed in (("dev prod", True), ("dev new prod", False)):
            names = [f"network/{stack}\n" for stack in changed.split()]
            (root / "changed").write_text("".join(names))
            ran = subprocess.run(
                ["bash", "-eo", "pipefail", "-c", check],
                cwd=root,
                capture_output=True,
                text=True,
                check=False,
            )
            assert (ran.returncode == 0, "passed" in ran.stdout) == (passed, passed), ran.stderr
        assert "No job applies network/new. Run gpuform new ci --all" in ran.stdout


def test_a_pipeline_of_gitlab_makes_child_pipelines_of_one_file(root: Path) -> None:
    files = render(root, "gitlab", rehearses=True, runners=8)
    document = yaml.safe_load(files[".gitlab-ci.yml"])
    child = yaml.safe_load(files[".gitlab/gpuform-waves.yml"])
    assert ".gitlab/gpuform-waves.yml" in document[".gpuform-paths"]
    for trigger, generating in {
        "gpuform-plan-waves": "gpuform-waves",
        "gpuform-apply-dev": "gpuform-reviewed",
        "gpuform-apply-prod": "gpuform-reviewed",
    }.items():
        artifact = f"infra/{trigger}.yml"
        include = [{"artifact": artifact, "job": generating}]
        assert document[trigger]["trigger"] == {"include": include, "strategy": "depend"}
        assert artifact in document[generating]["artifacts"]["paths"]
        # GitLab's projects may forbid the variables of a trigger job.
        assert "variables" not in document[trigger]
    assert "environment" not in document["gpuform-waves"]
    script = child[".gpuform-plan"]["script"][-1]
    assert script == "gpuform plan-part $STACKS --rehearse --gates-from 'origin/main'"
    environments = {name: get_environment(job) for name, job in child.items() if "script" in job}
    assert environments == {
        ".gpuform-plan": "gpuform-plan",
        "gpuform-plan": "gpuform-plan",
        ".gpuform-apply-dev": "gpuform-dev",
        ".gpuform-apply-prod": "gpuform-prod",
        "gpuform-applied": "",
    }


def test_a_pipeline_of_gitlab_waits_for_the_apply_of_the_environments_before(root: Path) -> None:
    (root / "infra/cluster/__main__.py").write_text(READING)
    document = yaml.safe_load(render(root, "gitlab", runners=8)[".gitlab-ci.yml"])
    needs = [{"job": "gpuform-reviewed"}, {"job": "gpuform-apply-dev", "optional": True}]
    assert document["gpuform-apply-prod"]["needs"] == needs
    groups = {document[f"gpuform-{kind}-prod"]["resource_group"] for kind in ("apply", "expire")}
    assert groups == {"gpuform-apply-gpuform-prod"}


def render_one(
    root: Path, host: CodeHostName, project: str, stack: str, backend: str = "s3://b"
) -> dict[str, str]:
    """Return the workflows of one stack beside those that the repository has."""
    repository = Repository(root, root / "infra" / project)
    settings = WorkflowSettings(host, stack, "main", Clouds.from_urls([backend]))
    label = choose_label(repository, settings, project)
    return render_workflows(repository, replace(settings, label=label))


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_workflows_with_the_old_name_of_a_stack_are_named(root: Path, host: CodeHostName) -> None:
    folder = root / "infra/network"
    assert describe_outdated_workflows(folder, "network/prod", "live") == []
    files = render_one(root, host, "network", "prod")
    write_files(root, files, force=False)
    [sentence] = describe_outdated_workflows(folder, "network/prod", "live")
    paths = sorted(path for path in files if path.endswith(".yml"))
    assert ", ".join(paths) in sentence
    assert "`gpuform new ci --stack live`" in sentence
    assert describe_outdated_workflows(folder, "network/dev", "live") == []
    assert describe_outdated_workflows(root / "infra/cluster", "cluster/prod", "live") == []
    for path in paths:
        (root / path).unlink()
    write_files(root, render(root, host), force=True)
    [sentence] = describe_outdated_workflows(folder, "network/prod", "live")
    assert "name network/prod: " in sentence
    assert "`gpuform new ci --upgrade`" in sentence


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_a_second_project_adds_files_of_its_own_and_runs_beside_the_first(
    root: Path, host: CodeHostName
) -> None:
    first = render_one(root, host, "network", "prod")
    write_files(root, first, force=False)
    assert render_one(root, host, "network", "prod").keys() == first.keys(), "the same again"
    second = render_one(root, host, "cluster", "prod")
    assert not first.keys() & second.keys()
    assert all("cluster-prod" in path for path in second)
    third = render_one(root, host, "network", "dev")
    write_files(root, {**second, **third}, force=False)

    names: list[str] = []
    for files in (first, second, third):
        documents = [yaml.safe_load(text) for text in files.values()]
        groups = [document.get("concurrency", {}).get("group") for document in documents]
        jobs = [job for _, job in iterate_jobs(files)]
        own = [document.get("name") for document in documents] + groups
        own += [
            job.get("resource_group") or job.get("concurrency", {}).get("group") for job in jobs
        ]
        names += {name for name in own if name}
    assert len(names) == len(set(names)), "groups of two projects would stop each other"


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_a_project_at_the_root_of_the_repository_has_files_of_its_own(
    root: Path, host: CodeHostName
) -> None:
    """Steps of the first project's jobs also run in the root."""
    write_files(root, render_one(root, host, "network", "prod"), force=False)
    settings = WorkflowSettings(host, "prod", "main", Clouds())
    assert choose_label(Repository(root, root), settings, "top") == "top-prod"


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_stacks_whose_names_join_to_the_same_text_have_files_of_their_own(
    root: Path, host: CodeHostName
) -> None:
    write_files(root, render_one(root, host, "network", "prod"), force=False)
    paths: set[str] = set()
    for project, stack in (("a-b", "c"), ("a", "b-c"), ("a", "b-c-drift")):
        (root / "infra" / project).mkdir(exist_ok=True)
        files = render_one(root, host, project, stack)
        write_files(root, files, force=False)
        assert not paths & files.keys()
        assert render_one(root, host, project, stack).keys() == files.keys()
        paths |= files.keys()


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_a_stack_keeps_its_files_when_those_of_the_first_project_are_gone(
    root: Path, host: CodeHostName
) -> None:
    first = render_one(root, host, "network", "prod")
    write_files(root, first, force=False)
    second = render_one(root, host, "cluster", "prod")
    write_files(root, second, force=False)
    for path in first:
        (root / path).unlink(missing_ok=True)
    assert render_one(root, host, "cluster", "prod").keys() == second.keys()


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_a_stack_that_the_workflows_of_all_stacks_apply_gets_no_files_of_its_own(
    root: Path, host: CodeHostName
) -> None:
    write_files(root, render(root, host), force=False)
    with pytest.raises(EngineError, match="workflows of all stacks already apply cluster/prod"):
        render_one(root, host, "cluster", "prod")
    assert any("cluster-dev" in path for path in render_one(root, host, "cluster", "dev"))


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_workflows_of_one_stack_are_named_before_those_of_all_stacks_are_written(
    root: Path, host: CodeHostName
) -> None:
    repository = Repository(root, root / "infra")
    reject_workflows_of_one_stack(repository, host, read_order(root))
    for project in ("network", "cluster"):
        files = render_one(root, host, project, "prod")
        write_files(root, files, force=False)
        settings = WorkflowSettings(host, "prod", "main", Clouds())
        CiRecord((WorkflowSet("1", settings, files),)).save(root / "infra" / project)
    with pytest.raises(MultiStackError, match="plan and apply the same stacks") as raised:
        reject_workflows_of_one_stack(repository, host, read_order(root))
    names = raised.value.message.partition("stacks: ")[2].split(", ")
    assert {"infra/network/.gpuform-ci.yaml", "infra/cluster/.gpuform-ci.yaml"} < set(names)
    for name in names:
        (root / name).unlink()
    assert not [*root.glob(".github/workflows/*"), *root.glob(".gitlab*/*.yml")]
    write_files(root, render(root, host), force=True)
    reject_workflows_of_one_stack(repository, host, read_order(root))


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_each_project_keeps_and_fetches_its_own_plan(root: Path, host: CodeHostName) -> None:
    write_files(root, render_one(root, host, "network", "prod"), force=False)
    text = "".join(render_one(root, host, "cluster", "prod").values())
    assert text.count("--job gpuform-plan-cluster-prod") == text.count("gpuform fetch-plan")
    kept = {
        "github": "name: gpuform-plan-cluster-prod-${{",
        "gitlab": "\ngpuform-plan-cluster-prod:",
    }
    assert kept[host] in text


def test_jobs_of_a_second_project_on_gitlab_use_no_default_of_the_first(root: Path) -> None:
    write_files(root, render_one(root, "gitlab", "network", "prod"), force=False)
    text = render_one(root, "gitlab", "cluster", "prod")[".gitlab/gpuform-cluster-prod.yml"]
    document = yaml.safe_load(text)
    assert not {"default", "workflow", "stages"} & document.keys()
    jobs = {name: job for name, job in document.items() if "script" in job}
    assert len(jobs) == 8
    assert {job["extends"] for job in jobs.values()} == {".gpuform-cluster-prod"}
    assert 'cd "infra/cluster"' in document[".gpuform-cluster-prod"]["before_script"]


@pytest.mark.parametrize(
    "include", ["local: .gitlab/gpuform-cluster-prod.yml", "local: /.gitlab/*.yml"]
)
def test_doctor_finds_a_pipeline_that_gitlab_does_not_include(root: Path, include: str) -> None:
    for project in ("network", "cluster"):
        write_files(root, render_one(root, "gitlab", project, "prod"), force=False)
    missing = "gpuform-cluster-prod.yml is not included by .gitlab-ci.yml: its jobs never run"
    assert missing in [finding.text for finding in examine_ci_files(root / "infra")]
    with (root / ".gitlab-ci.yml").open("a") as file:
        file.write(f"include: [{{{include}}}]\n")
    assert missing not in [finding.text for finding in examine_ci_files(root / "infra")]


def test_a_pipeline_that_gpuform_has_not_written_stays_the_reason_to_refuse(root: Path) -> None:
    (root / ".gitlab-ci.yml").write_text("build: {script: make}\n")
    assert ".gitlab-ci.yml" in render_one(root, "gitlab", "network", "prod")


def list_variants(root: Path, host: CodeHostName) -> Iterator[dict[str, str]]:
    """Yield the workflows of all stacks and of one, of each backend, rehearsed and not."""
    for backend in BACKENDS:
        for rehearses in (False, True):
            yield render(root, host, backend, rehearses=rehearses)
            yield render(root, host, backend, rehearses=rehearses, runners=8)
            clouds = Clouds.from_urls([backend, "hashivault://team"])
            settings = WorkflowSettings(host, "prod", "main", clouds, rehearses)
            settings = replace(settings, vendored=rehearses)
            yield render_workflows(Repository(root, root / "infra/network"), settings)
            yield render_workflows(
                Repository(root, root / "infra/cluster"), replace(settings, label="cluster-prod")
            )


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_one_command_gives_three_stacks_in_two_projects_workflows_without_findings(
    root: Path, lint: Callable[[Sequence[Path]], str]
) -> None:
    (root / ".git").rmdir()
    subprocess.run(["git", "init", "-q", str(root)], check=True)
    (root / "infra/cluster/__main__.py").write_text(READING_PROD)
    command = ["new", "ci", "--all", "--runners", "8", "--forge", "github"]
    ran = CliRunner().invoke(
        cli, [*command, "--dir", str(root / "infra"), "--backend", "s3://b"], prog_name="gpuform"
    )
    assert ran.exit_code == 0, ran.output
    files = sorted(root.glob(".github/workflows/*.yml"))
    assert [file.name for file in files] == [
        "gpuform-drift.yml",
        "gpuform-expire.yml",
        "gpuform.yml",
    ]
    jobs = yaml.safe_load(files[-1].read_text())["jobs"]
    applies = [name for name in jobs if name.startswith("apply-")]
    assert applies == ["apply-dev-1", "apply-prod-1", "apply-prod-2"]
    for name in ("network/dev", "network/prod", "cluster/prod"):
        assert f"--filter '{name}'" in jobs["reviewed"]["steps"][-1]["run"]
    assert lint(files) == ""


@pytest.mark.slow
def test_linters_of_workflows_find_nothing(
    root: Path, lint: Callable[[Sequence[Path]], str]
) -> None:
    # Two waves, so that there are jobs of both.
    (root / "infra/cluster/__main__.py").write_text(READING_PROD)
    folder = root / "linted"
    for number, files in enumerate(list_variants(root, "github")):
        for path, text in files.items():
            file = folder / str(number) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
    assert lint(sorted(folder.glob("*/.github/workflows/*.yml"))) == ""


@pytest.mark.slow
@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_workflows_are_valid_by_the_schema_of_the_code_host(root: Path, host: CodeHostName) -> None:
    names = []
    files = [*render(root, host).items(), *render(root, host, runners=8).items()]
    workflows = [(path, text) for path, text in files if path.endswith(".yml")]
    for number, (path, text) in enumerate(workflows):
        file = root / f"{number}-{Path(path).name.removeprefix('.')}"
        file.write_text(text)
        names.append(str(file))
    checked = CliRunner().invoke(check_jsonschema, [*SCHEMAS[host], *names])
    assert checked.exit_code == 0, checked.output
