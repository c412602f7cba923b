"""The pipelines of the page `guides/other-ci`: valid, and their steps post and apply a plan."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_jsonschema import main as check_jsonschema
from click.testing import CliRunner
from documentation.page import read_blocks
from support.servers.code_host import TOKEN, FakeCodeHost, serve_code_host
from support.stacks.planned_project import PlannedProject

PAGE = Path(__file__).parents[3] / "docs/guides/other-ci.md"
FILES = {
    block.directives["file"]: block.text
    for block in read_blocks(PAGE)
    if "file" in block.directives
}
COMMAND = re.compile(
    r"(?:\.venv/bin/)?gpuform (?P<arguments>.+?)(?: > \S+)?(?: \|\| test \$\? -eq (?P<code>\d).*)?"
)


@dataclass(frozen=True)
class Pipeline:
    """The scripts of a pipeline: those of a pull request, those of main before and after approval.

    `variables` are those that the CI system sets, `address` is the flag that leads `review --post`
    to the code host of the test.
    """

    pull_request: list[str]
    planning: list[str]
    applying: list[str]
    variables: Mapping[str, str] = field(default_factory=dict)
    address: str = ""


def list_azure_scripts(job: Mapping[str, Any], *, pull_request: bool) -> list[str]:
    unwanted = "ne(" if pull_request else "eq("
    return [
        step["bash"]
        for step in job["steps"]
        if "bash" in step
        and f" {unwanted}variables['Build.Reason']" not in step.get("condition", "")
    ]


def read_azure_pipeline() -> Pipeline:
    plan, apply = yaml.safe_load(FILES["azure-pipelines.yml"])["stages"]
    (job,) = plan["jobs"]
    deploy = apply["jobs"][0]["strategy"]["runOnce"]["deploy"]
    variables = {
        "TF_BUILD": "True",
        "BUILD_REPOSITORY_PROVIDER": "TfsGit",
        "SYSTEM_COLLECTIONURI": "{url}/organization/",
        "SYSTEM_TEAMPROJECT": "team one",
        "BUILD_REPOSITORY_NAME": "r",
        "SYSTEM_PULLREQUEST_PULLREQUESTID": "12",
        "BUILD_SOURCEVERSION": "a" * 40,
        "SYSTEM_ACCESSTOKEN": TOKEN,
        "PIPELINE_WORKSPACE": "workspace",
    }
    return Pipeline(
        list_azure_scripts(job, pull_request=True),
        list_azure_scripts(job, pull_request=False),
        list_azure_scripts(deploy, pull_request=False),
        variables,
    )


def read_bitbucket_pipeline() -> Pipeline:
    pipelines = yaml.safe_load(FILES["bitbucket-pipelines.yml"])["pipelines"]
    (pull_request,) = pipelines["pull-requests"]["**"]
    plan, apply = pipelines["branches"]["main"]
    assert apply["step"]["trigger"] == "manual"
    variables = {
        "BITBUCKET_REPO_FULL_NAME": "w/r",
        "BITBUCKET_PR_ID": "12",
        "BITBUCKET_COMMIT": "a" * 40,
        "BITBUCKET_TOKEN": TOKEN,
    }
    return Pipeline(
        *(part["step"]["script"] for part in (pull_request, plan, apply)),
        variables,
        "--forge-url={url}/2.0",
    )


def read_jenkins_pipeline() -> Pipeline:
    text = FILES["Jenkinsfile"]
    assert all(
        text.count(opening) == text.count(closing) for opening, closing in ("{}", "()", "[]")
    )
    scripts = re.findall(r"sh '([^']*)'", text)
    _install, plan, comment, review, apply = scripts
    variables = {"CHANGE_ID": "12", "GITHUB_TOKEN": TOKEN, "CHANGE_TARGET": "main"}
    return Pipeline(
        [plan.replace("${CHANGE_TARGET:+", "").replace("}", ""), comment],
        [re.sub(r"\$\{.*\} ", "", plan), review],
        [apply],
        variables,
        "--forge-url={url}",
    )


def read_atlantis_workflow() -> Pipeline:
    workflow = yaml.safe_load(FILES["repos.yaml"])["workflows"]["gpuform"]
    _fetch, plan, review = (step["run"] for step in workflow["plan"]["steps"])
    (apply,) = (step["run"] for step in workflow["apply"]["steps"])
    variables = {"WORKSPACE": "prod", "PLANFILE": "prod.tfplan", "BASE_BRANCH_NAME": "main"}
    return Pipeline([], [plan["command"], review], [apply], variables)


PIPELINES = {
    "azure": read_azure_pipeline,
    "bitbucket": read_bitbucket_pipeline,
    "jenkins": read_jenkins_pipeline,
    "atlantis": read_atlantis_workflow,
}


@pytest.fixture(scope="module")
def served_host() -> Iterator[FakeCodeHost]:
    with serve_code_host() as served:
        yield served


@pytest.fixture
def repository(
    planned_project: PlannedProject, monkeypatch: pytest.MonkeyPatch
) -> Iterator[PlannedProject]:
    """Yield a project in a repository with the branch origin/main, outside of CI."""
    prefixes = ("GITHUB_", "GH_", "GITLAB_", "CI", "TF_BUILD", "BITBUCKET_", "SYSTEM_", "BUILD_")
    for name in [name for name in os.environ if name.startswith(prefixes)]:
        monkeypatch.delenv(name)
    git = ["git", "-C", str(planned_project.project), "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for command in (
        ["init", "-q"],
        ["add", "Pulumi.yaml", "__main__.py"],
        ["commit", "-q", "-m", "the program"],
        ["update-ref", "refs/remotes/origin/main", "HEAD"],
    ):
        subprocess.run([*git, *command], check=True)
    (planned_project.project / "workspace").mkdir()
    (planned_project.project / "workspace/gpuform-plan").symlink_to("..")
    return planned_project


def run_scripts(project: PlannedProject, scripts: list[str], address: str) -> str:
    """Run the scripts' commands of gpuform in this process, and return their output.

    The others install gpuform, fetch from a remote, or speak to the CI system.
    """
    output = ""
    for line in [line.strip() for script in scripts for line in script.splitlines()]:
        subprocess.run(["bash", "-n", "-c", line], check=True)
        match = COMMAND.fullmatch(line)
        if match is None:
            assert line.startswith(("python -m", "git fetch", "echo", ".venv")), line
            continue
        text = match["arguments"].replace("--stack prod", "--stack dev")
        text = text.replace('"$WORKSPACE"', "dev").replace("OWNER/NAME", "o/r")
        arguments = [os.path.expandvars(argument) for argument in shlex.split(text)]
        ran = project.run(*arguments, *([address] if address and "--post" in arguments else []))
        assert ran.code in (0, int(match["code"] or 0)), f"{line}\n{ran.out}{ran.err}"
        output += ran.out + ran.err
    return output


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", PIPELINES)
def test_the_steps_of_a_pipeline_post_a_plan_and_apply_it_after_the_approval(
    repository: PlannedProject,
    served_host: FakeCodeHost,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    served_host.reset()
    pipeline = PIPELINES[name]()
    for variable, value in pipeline.variables.items():
        monkeypatch.setenv(variable, value.replace("{url}", served_host.url))
    address = pipeline.address.replace("{url}", served_host.url)

    run_scripts(repository, pipeline.pull_request, address)

    assert ["2 to create" in comment["body"] for comment in served_host.comments] == (
        [] if name == "atlantis" else [True]
    )
    states = {"azure": ["succeeded"], "bitbucket": ["SUCCESSFUL"]}.get(name, [])
    assert [state for state, _ in served_host.statuses.values()] == states
    assert repository.sent_changes == []
    reviewed = run_scripts(repository, pipeline.planning, address)
    assert repository.sent_changes == []
    assert len(served_host.comments) == (name != "atlantis"), "none after the merge"
    assert "2 created" in run_scripts(repository, pipeline.applying, address)
    assert "2 to create" in reviewed


@pytest.mark.parametrize("name", PIPELINES)
def test_the_gates_of_the_base_branch_judge_the_plan_of_a_pull_request(name: str) -> None:
    pipeline = PIPELINES[name]()
    scripts = pipeline.pull_request or [*pipeline.planning, *pipeline.applying]
    lines = [line for script in scripts for line in script.splitlines()]
    judged = [line for line in lines if re.search(r"gpuform (preview|up) ", line)]
    assert judged
    assert all("--gates-from" in line for line in judged)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["azure-pipelines.yml", "bitbucket-pipelines.yml"])
def test_a_pipeline_is_valid_by_the_schema_of_its_ci_system(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(FILES[name])
    flags = ["--regex-variant", "python", "--builtin-schema", f"vendor.{name.removesuffix('.yml')}"]
    checked = CliRunner().invoke(check_jsonschema, [*flags, str(file)])
    assert checked.exit_code == 0, checked.output
    file.write_text(FILES[name].replace("lockBehavior", "lock").replace("time: 30", "time: long"))
    assert CliRunner().invoke(check_jsonschema, [*flags, str(file)]).exit_code != 0


@pytest.mark.parametrize("name", ["azure", "bitbucket", "jenkins"])
def test_only_the_apply_has_keys_that_may_write(name: str) -> None:
    """Keys that may write are in another group, environment or credential than those of plans."""
    if name == "azure":
        plan, apply = yaml.safe_load(FILES["azure-pipelines.yml"])["stages"]
        assert plan["variables"] == [{"group": "gpuform-read-only"}]
        assert apply["variables"] == [{"group": "gpuform"}]
        assert apply["jobs"][0]["environment"] == "gpuform"
    elif name == "bitbucket":
        pipelines = yaml.safe_load(FILES["bitbucket-pipelines.yml"])["pipelines"]
        steps = [
            part["step"]
            for branch in ("pull-requests", "branches")
            for parts in pipelines[branch].values()
            for part in parts
        ]
        deploying = [step["name"] for step in steps if "deployment" in step]
        assert deploying == ["apply"]
    else:
        stages = re.split(r"stage\('(\w+)'\)", FILES["Jenkinsfile"])
        users = [
            name
            for name, text in zip(stages[1::2], stages[2::2], strict=True)
            if "credentials('together')" in text
        ]
        assert users == ["Apply"]
