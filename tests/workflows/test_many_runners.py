"""The workflows of `gpuform new ci --all --runners`, all their jobs played on this machine.

What can go wrong: the joined plan is another than that of one machine; a stack is applied before
those that it reads, or without an approval; a job outside of an environment has its keys; the stack
that reads unknown outputs gets other values than on one machine; a lost runner loses an object, or
its second run makes one twice.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from deepdiff import DeepDiff
from processes.commands import PASSPHRASE, SALT
from support.servers.ci_runners import GitHubRunner
from support.servers.code_host import serve_code_host
from support.servers.github_workflow_run import WorkflowRun
from support.stacks.workspace import TRAINING, remove_varying_values

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.emulator.together import MEMBER_KEY
from gpuform.stacks.ci_identities import Clouds
from gpuform.stacks.ci_stacks import render_stacks_workflows
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings
from gpuform.stacks.new_project import write_files

pytestmark = [
    pytest.mark.slow,
    pytest.mark.exhaustive,
    pytest.mark.skipif(os.name == "nt", reason="the jobs run on Linux"),
]

STACKS = """\
stacks:
  - {folder: volumes, stack: dev, approve: automatic}
  - {folder: volumes, stack: prod}
  - {folder: training, stack: prod}
"""
ONE_ENVIRONMENT = """\
stacks:
  - {folder: volumes, stack: dev, environment: gpuform-prod}
  - {folder: volumes, stack: prod}
  - {folder: training, stack: prod}
"""
NAMES = ("volumes/dev", "volumes/prod", "training/prod")
VOLUMES = """\
import os, pathlib, signal
import pulumi
from gpuform.providers.together import SharedVolume

def lose_runner(stage):
    mark = pathlib.Path(os.environ["HOME"], f"lose-{stage}-{pulumi.get_stack()}")
    if mark.exists():
        mark.unlink()
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)

if pulumi.runtime.is_dry_run():
    lose_runner("plan")
name = f"data-{pulumi.get_stack()}"
data = SharedVolume("data", volume_name=name, region="us-central-8", size_tib=5)
if not pulumi.runtime.is_dry_run():
    data.id.apply(lambda _: lose_runner("apply"))
pulumi.export("volume_id", data.id)
pulumi.export("region", data.region)
"""
"""A program whose runner is lost once with the file of the stage in the home directory."""


@dataclass
class Team:
    """A repository with three stacks in two projects, its code host, and the runner of its jobs."""

    runner: GitHubRunner
    variables: Mapping[str, str]

    @property
    def root(self) -> Path:
        return self.runner.origin

    def propose(self) -> str:
        """Commit the programs on a branch, and return the commit."""
        git(self.root, "checkout", "-q", "-b", "feature")
        (self.root / "volumes/__main__.py").write_text(VOLUMES)
        (self.root / "training/topology.yaml").write_text(TRAINING)
        return self.commit("Want a cluster")

    def merge(self, head: str) -> str:
        """Merge the branch, and return the commit on the default branch."""
        git(self.root, "checkout", "-q", "main")
        git(self.root, "merge", "-q", "--no-ff", "-m", "Merge", "feature")
        merge = git(self.root, "rev-parse", "HEAD")
        self.runner.code_host.merged[merge] = head
        return merge

    def commit(self, message: str) -> str:
        git(self.root, "add", "-A")
        git(self.root, "commit", "-q", "-m", message)
        return git(self.root, "rev-parse", "HEAD")

    def begin_pull_request(self, head: str) -> WorkflowRun:
        self.runner.code_host.head = head
        pull = {
            "number": self.runner.code_host.number,
            "head": {"sha": head, "ref": "feature", "repo": {"full_name": "o/r"}},
        }
        run = WorkflowRun(self.runner, "pull_request", head, pull)
        run.play()
        return run

    def begin_push(self, merge: str) -> WorkflowRun:
        run = WorkflowRun(self.runner, "push", merge)
        run.play()
        return run

    def lose_runner(self, stage: str, stack: str) -> None:
        """Have the machine lost that next plans or applies the stack of the volumes."""
        (self.runner.work / f"lose-{stage}-{stack}").touch()

    def read_states(self) -> dict[str, Any]:
        """Return the deployments of all stacks, without times and random values."""
        folder = Path(self.runner.backend.removeprefix("file://")) / ".pulumi/stacks"
        return {
            name: remove_varying_values(
                json.loads((folder / f"{name}.json").read_text())["checkpoint"]["latest"]
            )
            for name in NAMES
        }

    def list_objects(self) -> list[str]:
        """Return the names of all volumes and clusters on the platform."""
        listed = [
            httpx.get(
                f"{self.variables['TOGETHER_BASE_URL']}/v1/compute/{path}",
                headers={"Authorization": f"Bearer {self.variables['TOGETHER_API_KEY']}"},
                trust_env=False,
                verify=False,
            ).json()
            for path in ("clusters/storage/volumes", "clusters")
        ]
        return [it["volume_name"] for it in listed[0]["volumes"]] + [
            it["cluster_name"] for it in listed[1]["clusters"]
        ]


@contextmanager
def open_team(folder: Path, runners: int | None, stacks: str = STACKS) -> Iterator[Team]:
    """Yield a repository whose workflows plan and apply on some runners; None is one machine.

    `stacks` is its stacks.yaml.
    """
    root, work, backend = (folder / name for name in ("repository", "work", "backend"))
    for project in ("volumes", "training"):
        (root / project).mkdir(parents=True)
        (root / project / "Pulumi.yaml").write_text(f"name: {project}\nruntime: python\n")
        (root / project / "__main__.py").write_text("import pulumi\n")
    for name in NAMES:
        project, _, stack = name.partition("/")
        settings_file = root / project / f"Pulumi.{stack}.yaml"
        settings_file.write_text(f"encryptionsalt: {SALT}\n")
    work.mkdir()
    backend.mkdir()
    (root / "stacks.yaml").write_text(stacks)
    (root / "requirements.txt").write_text("# gpuform is there already\n")
    git(root, "init", "-q", "-b", "main")
    with serve(seed="runners") as emulator, serve_code_host() as code_host:
        variables = environment(emulator.url)
        outside = {k: variables[k] for k in ("TOGETHER_BASE_URL", "GPUFORM_CLOCK")}
        writing = {
            "TOGETHER_API_KEY": variables["TOGETHER_API_KEY"],
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }
        reading = {"TOGETHER_API_KEY_READ_ONLY": MEMBER_KEY, "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE}
        runner = GitHubRunner(root, work, code_host, outside, {}, f"file://{backend}")
        runner.environments = {
            **dict.fromkeys(("gpuform-plan", "gpuform-watch"), reading),
            **dict.fromkeys(("gpuform-dev", "gpuform-prod"), writing),
        }
        runner.unapproved = {"gpuform-prod"}
        own = {**writing, "PULUMI_BACKEND_URL": runner.backend}
        assert runner.run_script("gpuform stack init --all", root, own) == 0, runner.output
        team = Team(runner, variables)
        (root / "training/__main__.py").unlink()
        (root / "training/topology.yaml").write_text(TRAINING.partition("clusters:")[0])
        settings = WorkflowSettings(
            "github", "prod", "main", Clouds(), every_stack=True, runners=runners
        )
        (root / "volumes/__main__.py").write_text(VOLUMES)
        write_files(root, render_stacks_workflows(Repository(root, root), settings), force=False)
        (root / "volumes/__main__.py").write_text("import pulumi\n")
        team.commit("Begin")
        yield team


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def plan_on_one_machine(team: Team, head: str) -> bytes:
    """Return the plan of all changed stacks by one command, in the environment of plans."""
    folder = team.runner.clone(head)
    keys = team.runner.environments["gpuform-plan"]
    own = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(team.runner.work / "event.json"),
        "GITHUB_SHA": head,
        "GITHUB_REF": f"refs/pull/{team.runner.code_host.number}/merge",
        "PULUMI_BACKEND_URL": team.runner.backend,
        **{name.removesuffix("_READ_ONLY"): value for name, value in keys.items()},
    }
    script = (
        "gpuform preview --all --filter '...[origin/main]' --gates-from origin/main "
        "--save-plan plan.json"
    )
    assert team.runner.run_script(script, folder, own) == 0, team.runner.output[-1]
    return (folder / "plan.json").read_bytes()


def get_outputs(states: Mapping[str, Any], name: str) -> Any:
    stack = next(it for it in states[name]["resources"] if it["type"] == "pulumi:pulumi:Stack")
    return stack["outputs"]


PLANNED = ["changes", "waves", "plan-1 (1-1)", "plan-1 (1-2)", "plan-2 (2-1)", "plan", "fresh"]
APPLIED = ["changes", "reviewed", "apply-dev-1 (1-1)", "apply-prod-1 (1-1)", "apply-prod-2 (2-1)"]


@pytest.fixture(scope="module")
def states_of_one_machine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the states after the workflows without --runners have planned and applied."""
    with open_team(tmp_path_factory.mktemp("one"), None) as team:
        head = team.propose()
        assert team.begin_pull_request(head).list_results()["fresh"] == "success"
        run = team.begin_push(team.merge(head))
        run.approve("gpuform-prod")
        assert run.list_results()["apply-prod"] == "success", team.runner.output[-1]
        return team.read_states()


def test_many_runners_plan_and_apply_what_one_machine_does(
    tmp_path: Path, states_of_one_machine: Mapping[str, Any]
) -> None:
    with open_team(tmp_path, 8) as team:
        head = team.propose()
        planned = team.begin_pull_request(head)
        assert planned.started == PLANNED, team.runner.output[-1]
        assert set(planned.list_results().values()) == {"success", "skipped"}
        plan = planned.artifacts[f"gpuform-plan-{head}"]["plan.json"]
        assert plan == plan_on_one_machine(team, head)
        (comment,) = team.runner.code_host.comments
        assert all(name in comment["body"] for name in NAMES)

        applied = team.begin_push(team.merge(head))
        assert applied.waiting == {"apply-prod-1 (1-1)": "gpuform-prod"}
        assert team.list_objects() == ["data-dev"], "nobody has approved the rest"
        applied.approve("gpuform-prod")
        applied.approve("gpuform-prod")
        assert applied.started == APPLIED, team.runner.output[-1]
        states = team.read_states()

    assert DeepDiff(states, states_of_one_machine) == {}
    assert get_outputs(states, "training/prod")["region"] == "us-central-8"


def test_a_lost_runner_is_one_job_to_run_again(
    tmp_path: Path, states_of_one_machine: Mapping[str, Any]
) -> None:
    with open_team(tmp_path, 8, ONE_ENVIRONMENT) as team:
        head = team.propose()
        team.lose_runner("plan", "prod")
        planned = team.begin_pull_request(head)
        assert planned.list_results()["plan-1"] == "failure"
        assert planned.list_results()["fresh"] == "failure"
        planned.rerun_failed_jobs()
        lost = "plan-1 (1-2)"
        first = PLANNED[: PLANNED.index(lost) + 1]
        assert planned.started == [*first, "fresh", *PLANNED[first.index(lost) :]]
        assert planned.artifacts[f"gpuform-plan-{head}"]["plan.json"] == plan_on_one_machine(
            team, head
        )

        team.lose_runner("apply", "prod")
        applied = team.begin_push(team.merge(head))
        applied.approve("gpuform-prod")
        assert applied.list_results()["apply-prod-1"] == "failure"
        assert applied.list_results()["apply-prod-2"] == "skipped"
        applied.rerun_failed_jobs()
        applied.approve("gpuform-prod")
        applied.approve("gpuform-prod")
        first = ["changes", "reviewed", "apply-prod-1 (1-1)", "apply-prod-1 (1-2)"]
        assert applied.started == [*first, first[-1], "apply-prod-2 (2-1)"]
        assert applied.list_results()["apply-prod-2"] == "success", team.runner.output[-1]
        assert sorted(team.list_objects()) == ["data-dev", "data-prod", "training"]

        # Somebody runs everything again: each job finds its part applied.
        again = team.begin_push(applied.commit)
        again.approve("gpuform-prod")
        again.approve("gpuform-prod")
        assert set(again.list_results().values()) == {"success", "skipped"}
        assert "it was applied before" in team.runner.output[-1]
        states = team.read_states()

    assert DeepDiff(states, states_of_one_machine) == {}
