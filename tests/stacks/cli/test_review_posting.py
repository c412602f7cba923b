"""`gpuform review --post` and `gpuform fetch-plan` in jobs, against a code host over HTTP."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.servers import code_host
from support.servers.code_host import TOKEN, Fault
from support.stacks.planned_project import PlannedProject

Run = Callable[..., Any]
CI = ("GITHUB_", "GH_", "GITLAB_", "CI_")


@pytest.fixture
def fake_host(monkeypatch: pytest.MonkeyPatch) -> Iterator[code_host.FakeCodeHost]:
    """Serve a fake code host, without variables of the CI system that runs the tests."""
    import os

    for name in [name for name in os.environ if name.startswith(CI)]:
        monkeypatch.delenv(name)
    with code_host.serve_code_host() as served:
        yield served


@pytest.fixture
def github_summary(
    fake_host: code_host.FakeCodeHost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Simulate a GitHub Actions job for pull request 12, and return the path of its summary."""
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 12, "head": {"sha": "abc" * 13}}}))
    summary = tmp_path / "summary.md"
    variables = {
        "GITHUB_ACTIONS": "true",
        "GITHUB_API_URL": fake_host.url,
        "GITHUB_REPOSITORY": "o/r",
        "GITHUB_EVENT_PATH": str(event),
        "GITHUB_RUN_ID": "77",
        "GITHUB_TOKEN": TOKEN,
        "GITHUB_STEP_SUMMARY": str(summary),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return summary


@pytest.fixture
def gitlab_job(fake_host: code_host.FakeCodeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a GitLab CI job for merge request 12."""
    variables = {
        "GITLAB_CI": "true",
        "CI_API_V4_URL": f"{fake_host.url}/api/v4",
        "CI_PROJECT_ID": "8",
        "CI_MERGE_REQUEST_PROJECT_ID": "7",
        "CI_MERGE_REQUEST_IID": "12",
        "CI_JOB_URL": "https://gitlab.com/o/r/-/jobs/5",
        "GITLAB_TOKEN": TOKEN,
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_a_github_job_posts_comment_label_and_summary(
    planned_project: PlannedProject, github_summary: Path, fake_host: code_host.FakeCodeHost
) -> None:
    planned_project.save_plan()
    posted = planned_project.run("review", "plan.json", "--post", "--label", "--detailed-exitcode")
    assert posted.code == 2, posted.err
    assert posted.err == ("Added a comment https://forge/c/101\nLabelled gpuform: changes\n")
    assert "2 to create" in posted.out
    body = fake_host.comments[0]["body"]
    for review in (body, github_summary.read_text()):
        assert "2 to create" in review
        assert "`abcabcabcabc` by [this job](https://github.com/o/r/actions/runs/77)" in review
    assert fake_host.labels == {"gpuform: changes"}


def test_a_gitlab_job_adds_and_then_edits_its_comment(
    planned_project: PlannedProject, gitlab_job: None, fake_host: code_host.FakeCodeHost
) -> None:
    planned_project.save_plan()
    for message in ("Added a comment", "Edited the comment"):
        posted = planned_project.run("review", "plan.json", "--post")
        assert (posted.code, posted.err) == (0, f"{message}\n")
    assert "by [this job](https://gitlab.com/o/r/-/jobs/5)" in fake_host.comments[0]["body"]


def test_post_outside_of_ci_needs_flags(
    planned_project: PlannedProject,
    fake_host: code_host.FakeCodeHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    planned_project.save_plan()
    nowhere = planned_project.run("review", "plan.json", "--post")
    assert nowhere.code == 1
    assert "--forge github --repository OWNER/NAME --pull-request N" in nowhere.err
    where = ("--forge", "github", "--forge-url", fake_host.url, "--repository", "o/r")
    no_number = planned_project.run("review", "plan.json", "--post", *where)
    assert "--pull-request N" in no_number.err
    no_token = planned_project.run("review", "plan.json", "--post", *where, "--pull-request", "12")
    assert "the token for GitHub is missing. Set GITHUB_TOKEN or GH_TOKEN" in no_token.err
    monkeypatch.setenv("GH_TOKEN", TOKEN)
    assert (
        planned_project.run("review", "plan.json", "--post", *where, "--pull-request", "12").code
        == 0
    )
    assert len(fake_host.comments) == 1
    assert ("error: --label requires --post") in planned_project.run(
        "review", "plan.json", "--label"
    ).err


def test_a_refused_comment_fails_the_job_without_the_token(
    planned_project: PlannedProject, github_summary: Path, fake_host: code_host.FakeCodeHost
) -> None:
    planned_project.save_plan()
    answer = ({"message": f"Resource not accessible by {TOKEN}"}, 403, {})
    fake_host.faults.append(Fault("POST", "comments", answer))
    refused = planned_project.run("review", "plan.json", "--post", "--verbose")
    assert refused.code == 1
    assert "Resource not accessible by [secret]" in refused.err
    assert "pull-requests: write" in refused.err
    assert TOKEN not in refused.out + refused.err
    assert "2 to create" in github_summary.read_text(), "the summary is there all the same"


@pytest.mark.slow
def test_fail_on_danger_has_its_own_exit_code(applied_project: PlannedProject) -> None:
    applied_project.edit_program(("us-central-8", "us-central-4"))
    applied_project.save_plan()
    assert applied_project.run("review", "plan.json", "--fail-on-danger").code == 3
    assert (
        applied_project.run("review", "plan.json", "--fail-on-danger", "--detailed-exitcode").code
        == 3
    )


def test_fail_on_danger_passes_a_safe_plan(planned_project: PlannedProject) -> None:
    planned_project.save_plan()
    assert planned_project.run("review", "plan.json", "--fail-on-danger").code == 0


@pytest.mark.slow
def test_a_saved_plan_is_checked_without_applying_it(applied_project: PlannedProject) -> None:
    applied_project.edit_program(("size_tib=5", "size_tib=6"))
    applied_project.save_plan()
    before = applied_project.sent_changes
    assert applied_project.run("preview", "--plan", "plan.json").code == 0
    applied_project.edit_program(("size_tib=6", "size_tib=7"))
    overtaken = applied_project.run("preview", "--plan", "plan.json")
    assert overtaken.code == 1
    assert "out of date" in overtaken.err
    assert applied_project.sent_changes == before


@pytest.mark.parametrize("host_name", ["github", "gitlab"])
def test_fetch_plan_downloads_the_newest_reviewed_plan(
    planned_project: PlannedProject,
    fake_host: code_host.FakeCodeHost,
    request: pytest.FixtureRequest,
    host_name: str,
) -> None:
    request.getfixturevalue("github_summary" if host_name == "github" else "gitlab_job")
    planned_project.save_plan()
    content = Path("plan.json").read_bytes()
    fake_host.head = "a" * 40
    fake_host.add_artifact(f"gpuform-plan-{fake_host.head}", fake_host.head, b"an older one")
    fake_host.add_artifact(f"gpuform-plan-{fake_host.head}", fake_host.head, content)
    # A run of a fork at the same commit has no keys, and what it stores is no plan.
    of_a_fork = {"head_sha": fake_host.head, "repository_id": 1, "head_repository_id": 2}
    fake_host.add_artifact(
        f"gpuform-plan-{fake_host.head}", fake_host.head, b"of a fork", workflow_run=of_a_fork
    )
    fake_host.add_artifact(
        f"gpuform-plan-{fake_host.head}", "b" * 40, b"of somebody who has chosen the name"
    )
    old = {"id": 1, "name": "gpuform-plan", "status": "success", "files": {"plan.json": b"old"}}
    new = {"id": 2, "name": "gpuform-plan", "status": "success", "files": {"plan.json": content}}
    train = {"id": 3, "name": "gpuform-fresh", "status": "running"}
    fake_host.pipelines = [
        {"id": 3, "jobs": [train]},
        {"id": 1, "jobs": [old]},
        {"id": 2, "jobs": [new]},
    ]
    Path("plan.json").unlink()
    fetched = planned_project.run("fetch-plan")
    assert fetched.code == 0, fetched.err
    assert fetched.out.startswith("Wrote the plan of demo/dev, made 2")
    assert planned_project.run("preview", "--plan", "plan.json").code == 0


@pytest.mark.parametrize(
    ("artifact", "message"),
    [
        (None, "was not kept"),
        ({"expired": True}, "is kept no longer"),
        ({"packed": b"no archive"}, "has no plan.json"),
        ({}, "the job's artifact is not a plan"),
    ],
)
def test_fetch_plan_explains_a_missing_plan(
    planned_project: PlannedProject,
    github_summary: Path,
    fake_host: code_host.FakeCodeHost,
    artifact: Any,
    message: str,
) -> None:
    if artifact is not None:
        fake_host.add_artifact(f"gpuform-plan-{fake_host.head}", fake_host.head, b"[]", **artifact)
    missing = planned_project.run("fetch-plan")
    assert missing.code == 1
    assert message in missing.err
    assert not Path("plan.json").exists()


def test_fetch_plan_refuses_the_plan_of_a_failed_job(
    planned_project: PlannedProject, gitlab_job: None, fake_host: code_host.FakeCodeHost
) -> None:
    done = {"id": 1, "name": "gpuform-plan", "status": "success", "files": {"plan.json": b"old"}}
    failed = {"id": 2, "name": "gpuform-plan", "status": "failed"}
    fake_host.pipelines = [{"id": 1, "jobs": [done]}, {"id": 2, "jobs": [failed]}]
    refused = planned_project.run("fetch-plan")
    assert (refused.code, "its job 2 is failed" in refused.err) == (1, True)


def test_fetch_plan_says_that_a_fork_has_no_plan(
    planned_project: PlannedProject, gitlab_job: None, fake_host: code_host.FakeCodeHost
) -> None:
    done = {"id": 1, "name": "gpuform-plan", "status": "success", "files": {"plan.json": b"x"}}
    fake_host.pipelines = [{"id": 1, "project_id": 13, "jobs": [done]}]
    refused = planned_project.run("fetch-plan")
    assert (refused.code, "is from a fork, whose pipelines make no plan" in refused.err) == (
        1,
        True,
    )


def describe_waves(pipeline: int, child: int | None, status: str = "success") -> dict[str, Any]:
    """Return a pipeline of GitLab whose trigger job makes the plan in a child pipeline."""
    downstream = None if child is None else {"id": child}
    trigger = {"id": pipeline * 10, "name": "gpuform-plan-waves", "status": status}
    other = {"id": 999, "name": "build", "status": "success", "downstream_pipeline": {"id": 998}}
    bridges = [trigger | {"downstream_pipeline": downstream}, other]
    return {"id": pipeline, "jobs": [], "bridges": bridges}


def test_fetch_plan_finds_the_plan_job_in_a_child_pipeline(
    planned_project: PlannedProject, gitlab_job: None, fake_host: code_host.FakeCodeHost
) -> None:
    planned_project.save_plan()
    content = Path("plan.json").read_bytes()
    Path("plan.json").unlink()
    retried = describe_waves(2, 4)
    earlier = {"id": 19, "downstream_pipeline": {"id": 5}}
    retried["bridges"].insert(0, retried["bridges"][0] | earlier)
    plan = {"id": 7, "name": "gpuform-plan", "status": "success", "files": {"plan.json": content}}
    old = {"id": 6, "name": "gpuform-plan", "status": "success", "files": {"plan.json": b"old"}}
    fake_host.pipelines = [
        {"id": 1, "jobs": [old]},
        retried,
        {"id": 4, "jobs": [plan], "is_child": True},
        {"id": 5, "jobs": [old], "is_child": True},
        {"id": 6, "jobs": [{"id": 8, "name": "gpuform-fresh", "status": "running"}]},
    ]
    fetched = planned_project.run("fetch-plan")
    assert fetched.code == 0, fetched.err
    assert Path("plan.json").read_bytes() == content


@pytest.mark.parametrize(
    ("child", "jobs", "message"),
    [
        (None, [], "its job 20 is skipped"),
        (4, [], "its job 20 is skipped"),
        (4, [{"id": 7, "name": "gpuform-plan", "status": "skipped"}], "its job 7 is skipped"),
    ],
)
def test_fetch_plan_takes_no_older_plan_when_a_wave_has_failed(
    planned_project: PlannedProject,
    gitlab_job: None,
    fake_host: code_host.FakeCodeHost,
    child: int | None,
    jobs: list[dict[str, Any]],
    message: str,
) -> None:
    old = {"id": 1, "name": "gpuform-plan", "status": "success", "files": {"plan.json": b"old"}}
    fake_host.pipelines = [
        {"id": 1, "jobs": [old]},
        describe_waves(2, child, "skipped"),
        {"id": 4, "jobs": jobs, "is_child": True},
    ]
    refused = planned_project.run("fetch-plan")
    assert refused.code == 1
    assert message in refused.err


def test_fetch_plan_refuses_a_commit_without_a_pull_request(
    planned_project: PlannedProject,
    github_summary: Path,
    fake_host: code_host.FakeCodeHost,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("GITHUB_EVENT_PATH")
    refused = planned_project.run("fetch-plan", "--commit", "c" * 40)
    assert refused.code == 1
    assert "no merged pull request has commit" in refused.err
    assert planned_project.run("fetch-plan").code == 2


def test_a_preview_that_failed_is_posted_as_failed(
    planned_project: PlannedProject, github_summary: Path, fake_host: code_host.FakeCodeHost
) -> None:
    """The program ends in an error, and the review shows the incomplete plan as failed."""
    main = planned_project.project / "__main__.py"
    main.write_text(f"{main.read_text()}\nraise ValueError('no such luck')\n")
    failed = planned_project.run("preview", "--json")
    assert failed.code == 1
    Path("failed.json").write_text(failed.out)
    flags = ("--post", "--label", "--detailed-exitcode", "--fail-on-danger")
    posted = planned_project.run("review", "failed.json", *flags)
    assert posted.code == 1
    assert posted.out.startswith("Failed:\n")
    assert "no such luck" in posted.out
    assert "Labelled gpuform: failed" in posted.err
    body = fake_host.comments[0]["body"]
    assert body.index("## Failed: 1") < body.index("# gpuform plan")
    assert "gpuform up" not in body
    assert fake_host.labels == {"gpuform: failed"}
