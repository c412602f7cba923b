"""Test the origin of a run: git commit, CI job and account, under Pulumi's names."""

import os
import subprocess
from pathlib import Path

import pytest

from gpuform.stacks.engine.ci_job import CiJob, find_ci_job, read_git_facts
from gpuform.stacks.engine.stack import (
    PLAN_MADE_AT,
    PLAN_PULL_REQUEST,
    PLAN_SEAL,
    Origin,
)

GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_RUN_ID": "8012345678",
    "GITHUB_RUN_NUMBER": "42",
    "GITHUB_EVENT_NAME": "push",
    "GITHUB_SERVER_URL": "https://github.com",
    "GITHUB_REPOSITORY": "acme/clusters",
    "GITHUB_JOB": "deploy",
    "GITHUB_SHA": "0" * 40,
    "GITHUB_REF": "refs/heads/main",
    "GITHUB_ACTOR": "ada",
}


def run_git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Create a repository with one commit and return the project folder in the repository."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for name, value in (("AUTHOR", "Ada"), ("COMMITTER", "Grace")):
        monkeypatch.setenv(f"GIT_{name}_NAME", value)
        monkeypatch.setenv(f"GIT_{name}_EMAIL", f"{value.lower()}@example.com")
    project = tmp_path / "clusters" / "training"
    project.mkdir(parents=True)
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    run_git(tmp_path, "init", "-q", "-b", "main")
    run_git(tmp_path, "remote", "add", "origin", "https://x:hunter2@github.com/acme/clusters.git")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-q", "-m", "Train on 16 GPUs\n\nBecause of the benchmark.")
    return project


class TestGit:
    def test_commit_branch_and_repository_are_recorded(self, repository: Path) -> None:
        title, facts = read_git_facts(repository)
        assert title == "Train on 16 GPUs"
        assert len(facts.pop("git.head")) == 40
        assert facts == {
            "git.author": "Ada",
            "git.author.email": "ada@example.com",
            "git.committer": "Grace",
            "git.committer.email": "grace@example.com",
            "git.headName": "refs/heads/main",
            "git.dirty": "false",
            "vcs.kind": "github.com",
            "vcs.owner": "acme",
            "vcs.repo": "clusters",
            "vcs.root": "clusters/training",
        }

    @pytest.mark.parametrize(
        ("path", "dirty"),
        [
            ("clusters/training/new.py", "true"),
            ("elsewhere.txt", "true"),
            # What runs keep themselves is no change of the program.
            ("clusters/training/.gpuform/intents/one.json", "false"),
            ("state/.pulumi/stacks/demo/dev.json", "false"),
        ],
    )
    def test_uncommitted_changes_are_recorded_as_dirty(
        self, repository: Path, tmp_path: Path, path: str, dirty: str
    ) -> None:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x")
        assert read_git_facts(repository)[1]["git.dirty"] == dirty

    def test_a_detached_head_has_no_branch(self, repository: Path) -> None:
        run_git(repository, "checkout", "-q", "--detach")
        assert "git.headName" not in read_git_facts(repository)[1]

    @pytest.mark.parametrize(
        ("url", "found"),
        [
            ("git@gitlab.com:group/sub/clusters.git", ("gitlab.com", "group/sub", "clusters")),
            ("ssh://git@git.example.com:2222/a/b", ("git.example.com", "a", "b")),
            ("https://token@dev.azure.com/a/_git/b", ("dev.azure.com", "a/_git", "b")),
            ("https://x:hun@ter2@github.com/a/b.git", ("github.com", "a", "b")),
            ("https://x:hun/ter2@github.com/a/b.git", None),
            ("/srv/git/clusters.git", None),
        ],
    )
    def test_the_repository_is_parsed_from_the_remote_url(
        self, repository: Path, url: str, found: tuple[str, ...] | None
    ) -> None:
        run_git(repository, "remote", "set-url", "origin", url)
        facts = read_git_facts(repository)[1]
        repository_facts = tuple(
            facts[k] for k in ("vcs.kind", "vcs.owner", "vcs.repo") if k in facts
        )
        assert repository_facts == (found or ())

    def test_a_missing_repository_commit_or_git_gives_no_facts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        assert read_git_facts(tmp_path) == ("", {})
        run_git(tmp_path, "init", "-q")
        assert read_git_facts(tmp_path) == ("", {})
        monkeypatch.setenv("PATH", "")
        assert read_git_facts(tmp_path) == ("", {})


class TestCi:
    def test_a_github_actions_job_is_recorded(self) -> None:
        assert find_ci_job(GITHUB) == CiJob(
            "GitHub Actions",
            build_id="8012345678",
            build_number="42",
            build_type="push",
            build_url="https://github.com/acme/clusters/actions/runs/8012345678",
            job="deploy",
            sha="0" * 40,
            branch="refs/heads/main",
            user="ada",
        )

    def test_the_pull_request_of_a_github_actions_job_is_recorded(self) -> None:
        job = find_ci_job({**GITHUB, "GITHUB_REF": "refs/pull/17/merge"})
        assert job is not None
        assert job.pull_request == "17"

    @pytest.mark.parametrize(
        ("variables", "system"),
        [
            ({"GITLAB_CI": "true"}, "GitLab CI/CD"),
            ({"TF_BUILD": "True"}, "Azure Pipelines"),
            ({"JENKINS_URL": "https://ci.example.com"}, "Jenkins"),
            ({"CIRCLECI": "true", "CI": "true"}, "CircleCI"),
            ({"PULUMI_CI_SYSTEM": "Ours", "PULUMI_CI_BUILD_ID": "9"}, "Ours"),
            ({"CI": "true"}, "CI"),
        ],
    )
    def test_other_ci_systems_are_recognized(self, variables: dict[str, str], system: str) -> None:
        job = find_ci_job(variables)
        assert job is not None
        assert job.system == system
        assert "$" not in repr(job)

    @pytest.mark.parametrize(
        "variables",
        [
            {},
            {"CI": "false"},
            {"GITHUB_ACTIONS": ""},
            GITHUB | {"PULUMI_DISABLE_CI_DETECTION": "1"},
        ],
    )
    def test_without_ci_variables_no_ci_system_is_recorded(self, variables: dict[str, str]) -> None:
        assert find_ci_job(variables) is None


class TestOrigin:
    def test_the_origin_of_a_ci_job(self, repository: Path) -> None:
        run_git(repository, "checkout", "-q", "--detach")
        plan = {PLAN_SEAL: "81ab", PLAN_MADE_AT: "2026-11-21T22:57:37Z", PLAN_PULL_REQUEST: "12"}
        variables = {**GITHUB, "GPUFORM_APPROVED_BY": "grace"}
        origin = Origin.from_command(repository, variables, plan=plan)
        assert origin.message == "Train on 16 GPUs"
        environment = dict(origin.environment)
        assert environment["ci.system"] == "GitHub Actions"
        assert environment["ci.build.number"] == "42"
        assert environment["git.headName"] == "refs/heads/main"
        assert environment["git.head"] != environment["ci.pr.headSHA"]
        assert environment["gpuform.user"] == "ada"
        assert environment["gpuform.ci.job"] == "deploy"
        assert (environment["update.plan"], environment["gpuform.plan.seal"]) == ("true", "81ab")
        assert environment["gpuform.plan.pullRequest"] == "12"
        assert environment["gpuform.approvedBy"] == "grace"
        assert "" not in environment.values()
        assert "hunter2" not in repr(origin)

    def test_the_origin_of_a_local_run(
        self, repository: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LOGNAME", "grace")
        origin = Origin.from_command(repository, {}, message="more GPUs")
        assert origin.message == "more GPUs"
        assert origin.environment["gpuform.user"] == "grace"
        assert origin.environment["update.plan"] == "false"
        assert origin.environment["exec.kind"] == "cli"
        assert not [name for name in origin.environment if name.startswith("ci.")]
