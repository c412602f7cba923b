"""Test how code host, repository and pull request are found in the variables of CI systems."""

import json
from pathlib import Path

import pytest

from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.stacks.code_hosts.review_target import (
    ReviewFlags,
    ReviewTarget,
    find_review_target,
    read_token,
)

ACTIONS = {"GITHUB_ACTIONS": "true", "GITHUB_REPOSITORY": "o/r", "GITHUB_SHA": "a" * 40}
GITLAB = {"GITLAB_CI": "true", "CI_PROJECT_ID": "7", "CI_COMMIT_SHA": "a" * 40}


@pytest.mark.parametrize(
    ("ref", "number"),
    [
        ("refs/pull/34/merge", 34),
        (f"refs/heads/gh-readonly-queue/main/pr-34-{'b' * 40}", 34),
        (f"refs/heads/gh-readonly-queue/release/1.x/pr-34-{'b' * 40}", 34),
        ("refs/heads/main", None),
        ("refs/heads/pr-34", None),
    ],
)
def test_the_pull_request_number_comes_from_githubs_ref(ref: str, number: int | None) -> None:
    assert find_review_target(ReviewFlags(), {**ACTIONS, "GITHUB_REF": ref}).pull_request == number


def test_the_head_commit_comes_from_githubs_event(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 12, "head": {"sha": "b" * 40}}}))
    target = find_review_target(ReviewFlags(), {**ACTIONS, "GITHUB_EVENT_PATH": str(event)})
    assert target == ReviewTarget("github", "https://api.github.com", "o/r", 12, "b" * 40)


def test_the_branch_and_the_commits_of_a_push_come_from_github(tmp_path: Path) -> None:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"commits": [{"id": "c" * 40}, {"id": "d" * 40}]}))
    push = {"GITHUB_EVENT_PATH": str(event), "GITHUB_REF": "refs/heads/release/1"}
    target = find_review_target(ReviewFlags(), {**ACTIONS, **push})
    assert (target.branch, target.pushed_commits) == ("release/1", {"c" * 40, "d" * 40})


@pytest.mark.parametrize("text", ["", "[]", "no json", '{"pull_request": null}'])
def test_an_event_without_a_head_commit_gives_none(tmp_path: Path, text: str) -> None:
    event = tmp_path / "event.json"
    event.write_text(text)
    target = find_review_target(ReviewFlags(), {**ACTIONS, "GITHUB_EVENT_PATH": str(event)})
    assert (target.pull_request, target.commit) == (None, "a" * 40)


def test_a_merge_request_of_gitlab_belongs_to_the_target_project() -> None:
    fork = {"CI_MERGE_REQUEST_PROJECT_ID": "9", "CI_MERGE_REQUEST_IID": "3"}
    target = find_review_target(
        ReviewFlags(), {**GITLAB, **fork, "CI_MERGE_REQUEST_SOURCE_BRANCH_SHA": "b" * 40}
    )
    assert target == ReviewTarget("gitlab", "https://gitlab.com/api/v4", "9", 3, "b" * 40)
    assert find_review_target(ReviewFlags(), GITLAB) == ReviewTarget(
        "gitlab", target.api_url, "7", None, "a" * 40
    )


AZURE = {
    "TF_BUILD": "True",
    "BUILD_REPOSITORY_PROVIDER": "TfsGit",
    "SYSTEM_COLLECTIONURI": "https://dev.azure.com/fabrikam/",
    "SYSTEM_TEAMPROJECT": "team one",
    "BUILD_REPOSITORY_NAME": "clusters",
    "BUILD_BUILDID": "77",
    "BUILD_SOURCEVERSION": "a" * 40,
}
BITBUCKET = {
    "BITBUCKET_REPO_FULL_NAME": "w/r",
    "BITBUCKET_BUILD_NUMBER": "77",
    "BITBUCKET_COMMIT": "a" * 40,
}


def test_a_pull_request_of_azure_devops_comes_from_the_variables_of_its_build() -> None:
    number = {"SYSTEM_PULLREQUEST_PULLREQUESTID": "3", "SYSTEM_PULLREQUEST_SOURCECOMMITID": "b"}
    target = find_review_target(ReviewFlags(), {**AZURE, **number})
    page = "https://dev.azure.com/fabrikam/team%20one/_build/results?buildId=77"
    assert target == ReviewTarget(
        "azure", "https://dev.azure.com/fabrikam", "team one/clusters", 3, "b", page
    )
    branch_build = find_review_target(ReviewFlags(), AZURE)
    assert (branch_build.pull_request, branch_build.commit) == (None, "a" * 40)


def test_a_build_of_azure_pipelines_for_github_needs_flags() -> None:
    with pytest.raises(GpuformError, match="the code host is unknown"):
        find_review_target(ReviewFlags(), {**AZURE, "BUILD_REPOSITORY_PROVIDER": "GitHub"})


def test_a_pull_request_of_bitbucket_comes_from_the_variables_of_its_pipeline() -> None:
    target = find_review_target(ReviewFlags(), {**BITBUCKET, "BITBUCKET_PR_ID": "3"})
    page = "https://bitbucket.org/w/r/pipelines/results/77"
    address = "https://api.bitbucket.org/2.0"
    assert target == ReviewTarget("bitbucket", address, "w/r", 3, "a" * 40, page)
    assert find_review_target(ReviewFlags(), BITBUCKET).pull_request is None


@pytest.mark.parametrize(
    "flags",
    [
        ReviewFlags("azure", None, "project/name", 3),
        ReviewFlags("azure", "https://dev.azure.com/fabrikam", "name", 3),
    ],
)
def test_azure_devops_needs_organization_project_and_repository(flags: ReviewFlags) -> None:
    with pytest.raises(GpuformError, match=r"--forge-url https://dev\.azure\.com/ORGANIZATION"):
        find_review_target(flags, {})


def test_flags_override_the_environment() -> None:
    asked = ReviewFlags("gitlab", "https://git.example.org/api/v4/", "g/p", 5)
    target = find_review_target(asked, ACTIONS)
    assert target == ReviewTarget("gitlab", "https://git.example.org/api/v4", "g/p", 5)


@pytest.mark.parametrize(
    ("asked", "hint"),
    [(ReviewFlags(), "--forge github"), (ReviewFlags("github"), "--repository OWNER/NAME")],
)
def test_missing_values_are_named_with_a_hint(asked: ReviewFlags, hint: str) -> None:
    with pytest.raises(GpuformError, match=hint):
        find_review_target(asked, {})


def test_the_representation_hides_the_token() -> None:
    token = read_token("github", {"GITHUB_TOKEN": "", "GH_TOKEN": " secret\n"})
    assert token.get_secret_value() == "secret"
    assert "secret" not in repr(token) + str(token)
    for wrong in ("two\nlines", "caf\u00e9"):
        with pytest.raises(GpuformError, match="GITHUB_TOKEN is not a valid token") as raised:
            read_token("github", {"GITHUB_TOKEN": wrong})
        assert wrong not in str(raised.value)
    for code_host in ("azure", "bitbucket"):
        with pytest.raises(MissingCredentials, match=r"is missing\. Set "):
            read_token(code_host, {})
    with pytest.raises(MissingCredentials, match=r"GitLab is missing\. Set GITLAB_TOKEN"):
        read_token("gitlab", {"GITHUB_TOKEN": "other", "CI_JOB_TOKEN": "may not"})
