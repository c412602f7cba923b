"""The files of roles at the clouds: which jobs a role trusts, and what it may do."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.ci_identities import (
    Clouds,
    find_identity_problems,
    find_repository_name,
    list_roles,
    render_identities,
)
from gpuform.stacks.ci_workflows import Repository, WorkflowSettings, render_workflows
from gpuform.stacks.code_hosts.review_target import WORKFLOW_HOSTS, CodeHostName

URLS = ["s3://team-state/gpu", "awskms:///arn:aws:kms:eu-west-1:1234:key/k"]
READING = ("gpuform-plan", "gpuform-watch")


def render(
    host: CodeHostName = "github", urls: list[str] = URLS, reading: tuple[str, ...] = READING
) -> dict[str, Any]:
    roles = list_roles(host, "acme/infra", "main", reading, ["prod"])
    files = render_identities(host, roles, urls)
    return {Path(path).stem: json.loads(text) for path, text in files.items()}


def list_actions(policy: Any) -> set[str]:
    return {action for statement in policy["Statement"] for action in statement["Action"]}


def test_the_role_of_plans_only_reads_and_that_of_an_apply_also_writes() -> None:
    documents = render()
    reading = list_actions(documents["aws-gpuform-plan-policy"])
    assert reading == {"s3:ListBucket", "s3:GetObject", "kms:Decrypt"}
    writing = list_actions(documents["aws-prod-policy"]) - reading
    assert writing == {"s3:PutObject", "s3:DeleteObject", "kms:Encrypt", "kms:GenerateDataKey"}


def test_rights_reach_no_further_than_the_states_and_their_key() -> None:
    statements = render()["aws-prod-policy"]["Statement"]
    assert [statement["Resource"] for statement in statements] == [
        "arn:aws:s3:::team-state",
        "arn:aws:s3:::team-state/gpu/*",
        "arn:aws:kms:eu-west-1:1234:key/k",
    ]


def test_the_role_of_an_apply_trusts_the_jobs_of_one_environment_alone() -> None:
    (statement,) = render()["aws-prod-trust"]["Statement"]
    assert statement["Condition"] == {
        "StringEquals": {
            "token.actions.githubusercontent.com:aud": "sts.amazonaws.com",
            "token.actions.githubusercontent.com:sub": ["repo:acme/infra:environment:prod"],
        }
    }


def test_without_an_environment_plans_are_those_of_pull_requests_and_the_branch() -> None:
    (statement,) = render(reading=())["aws-gpuform-plan-trust"]["Statement"]
    assert statement["Condition"]["StringLike"] == {
        "token.actions.githubusercontent.com:sub": [
            "repo:acme/infra:pull_request",
            "repo:acme/infra:ref:refs/heads/main",
            "repo:acme/infra:ref:refs/heads/gh-readonly-queue/main/*",
        ]
    }


def test_on_gitlab_the_role_of_an_apply_trusts_the_protected_branch() -> None:
    documents = render("gitlab")
    (statement,) = documents["aws-prod-trust"]["Statement"]
    subject = "project_path:acme/infra:ref_type:branch:ref:main"
    assert statement["Condition"]["StringEquals"]["gitlab.com:sub"] == [subject]
    (statement,) = documents["aws-gpuform-plan-trust"]["Statement"]
    assert statement["Condition"]["StringLike"]["gitlab.com:sub"] == [subject[:-4] + "*"]


def test_google_and_azure_trust_the_same_jobs() -> None:
    documents = render(urls=["gs://b", "azblob://c"])
    pool = (
        "principal://iam.googleapis.com/projects/PROJECT_NUMBER/locations/global/"
        "workloadIdentityPools/github/subject/"
    )
    (binding,) = documents["google-prod-trust"]["bindings"]
    assert binding["members"] == [f"{pool}repo:acme/infra:environment:prod"]
    assert documents["azure-prod-1"]["subject"] == "repo:acme/infra:environment:prod"
    matching = render("gitlab", ["azblob://c"])["azure-gpuform-plan-1"]
    assert "matches" in matching["claimsMatchingExpression"]["value"]
    assert "subject" not in matching


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@github.com:acme/infra.git", "acme/infra"),
        ("https://github.com/acme/infra", "acme/infra"),
        ("https://gitlab.com/group/sub/name.git", "group/sub/name"),
        ("../elsewhere", "OWNER/NAME"),
    ],
)
def test_the_repository_is_that_of_the_remote(tmp_path: Path, url: str, name: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/config").write_text(f'[remote "origin"]\n\turl = {url}\n')
    assert find_repository_name(tmp_path) == name


@pytest.mark.parametrize("host", WORKFLOW_HOSTS)
def test_workflows_of_one_stack_have_the_files_of_their_cloud(
    tmp_path: Path, host: CodeHostName
) -> None:
    settings = WorkflowSettings(host, "prod", "main", Clouds.from_urls(["s3://team-state?x=1"]))
    files = render_workflows(Repository(tmp_path, tmp_path), settings)
    names = {path for path in files if path.endswith(".json")}
    kinds = ("plan-trust", "plan-policy", "trust", "policy")
    assert names == {f".gpuform-ci/{host}/aws-gpuform-{kind}.json" for kind in kinds}
    without = WorkflowSettings(host, "prod", "main", Clouds.from_urls(["file://."]))
    assert not any(
        ".json" in path for path in render_workflows(Repository(tmp_path, tmp_path), without)
    )


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("aws-gpuform-plan-policy", "s3:GetObject", "s3:PutObject", "jobs that plan may do s3:Put"),
        ("aws-prod-trust", "environment:prod", "*", "the role of an apply trusts subjects with"),
    ],
)
def test_doctor_finds_rights_of_the_wrong_jobs(
    tmp_path: Path, name: str, old: str, new: str, problem: str
) -> None:
    (tmp_path / ".gpuform-ci/github").mkdir(parents=True)
    roles = list_roles("github", "acme/infra", "main", READING, ["prod"])
    for path, text in render_identities("github", roles, URLS).items():
        (tmp_path / path).write_text(text.replace("ACCOUNT_ID", "1234"))
    assert list(find_identity_problems(tmp_path)) == []
    file = tmp_path / f".gpuform-ci/github/{name}.json"
    file.write_text(file.read_text().replace(old, new))
    ((text, is_problem),) = find_identity_problems(tmp_path)
    assert (problem in text, is_problem) == (True, True)
    file.write_text("{\n")
    ((text, _),) = find_identity_problems(tmp_path)
    assert text.startswith(f".gpuform-ci/github/{name}.json:2: not valid JSON: ")


def test_doctor_warns_of_placeholders(tmp_path: Path) -> None:
    (tmp_path / ".gpuform-ci/github").mkdir(parents=True)
    roles = list_roles("github", "OWNER/NAME", "main", READING, [])
    for path, text in render_identities("github", roles, ["s3://b"]).items():
        (tmp_path / path).write_text(text)
    ((text, is_problem),) = find_identity_problems(tmp_path)
    assert "replace ACCOUNT_ID, OWNER/NAME before you use it" in text
    assert not is_problem
