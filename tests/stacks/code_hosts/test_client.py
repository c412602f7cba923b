"""Retries and waits of the client, as the code hosts document them, over real HTTP."""

import logging
import traceback
from dataclasses import replace
from email.utils import formatdate
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from support.servers.code_host import TOKEN, Fault
from support.servers.code_host import FakeCodeHost as Server

from gpuform.providers.errors import (
    AuthError,
    GpuformError,
    PermissionDenied,
    RateLimited,
    ServerError,
    UnknownOutcome,
    Unreachable,
)
from gpuform.stacks.code_hosts.azure_devops import AzureDevOps
from gpuform.stacks.code_hosts.bitbucket import Bitbucket
from gpuform.stacks.code_hosts.client import CodeHostClient, format_error_message
from gpuform.stacks.code_hosts.github import GitHubComment

NOTES = "/repos/o/r/issues/12/comments"


@pytest.fixture
def client(server: Server) -> Any:
    def headers(token: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {token}"}

    made = CodeHostClient(
        "GitHub", server.url, token=SecretStr(TOKEN), headers=headers, jitter=lambda most: most
    )
    with made:
        yield made


def create_rate_limit(status: int, message: str, **headers: str) -> Any:
    return {"message": message}, status, {k.replace("_", "-"): v for k, v in headers.items()}


SECONDARY = "You have exceeded a secondary rate limit. Please wait a few minutes"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("answer", "slept"),
    [
        (create_rate_limit(403, SECONDARY, Retry_After="30"), [30, 30]),
        (create_rate_limit(429, SECONDARY, Retry_After="7"), [7, 7]),
        (create_rate_limit(429, "", Retry_After=formatdate(1_800_000_050, usegmt=True)), [50, 0]),
        (create_rate_limit(403, SECONDARY), [60, 120]),
        (
            create_rate_limit(
                403,
                "API rate limit exceeded",
                X_RateLimit_Remaining="0",
                X_RateLimit_Reset="1800000099",
            ),
            [100, 1],
        ),
        (
            create_rate_limit(
                429, "Retry later", RateLimit_Remaining="0", RateLimit_Reset="1800000009"
            ),
            [10, 1],
        ),
        (create_rate_limit(409, "Conflict"), [1, 2]),
    ],
    ids=["secondary", "429", "date", "secondary-without-time", "primary", "gitlab", "conflict"],
)
def test_the_client_waits_as_long_as_the_code_host_asks(
    client: CodeHostClient, server: Server, clock: Any, method: str, answer: Any, slept: list[float]
) -> None:
    server.faults.append(Fault(method, "comments", answer, times=2))
    client.send(method, NOTES, {"body": "hello"})
    assert clock.slept == slept
    assert len(server.comments) == (method == "POST")


def test_a_rate_limit_beyond_the_deadline_fails_at_once(
    client: CodeHostClient, server: Server, clock: Any
) -> None:
    answer = create_rate_limit(403, "API rate limit exceeded", Retry_After="3000")
    server.faults.append(Fault("GET", "comments", answer, times=99))
    with pytest.raises(RateLimited, match="rate limit exceeded") as raised:
        client.get(Any, NOTES)
    assert "in 50m00s" in str(raised.value)
    assert clock.slept == []


def test_a_rate_limit_without_end_fails_after_the_deadline(
    client: CodeHostClient, server: Server, clock: Any
) -> None:
    server.faults.append(Fault("GET", "comments", create_rate_limit(403, SECONDARY), times=99))
    with pytest.raises(RateLimited):
        client.get(Any, NOTES)
    assert clock.slept == [60, 120, 240, 480], "longer each time, and then no more"


def test_a_token_without_rights_is_not_tried_again(
    client: CodeHostClient, server: Server, clock: Any
) -> None:
    refusal = create_rate_limit(
        403, "Resource not accessible by integration", X_RateLimit_Remaining="4999"
    )
    server.faults.append(Fault("POST", "comments", refusal, times=99))
    with pytest.raises(PermissionDenied, match="pull-requests: write"):
        client.send("POST", NOTES, {"body": "hello"})
    assert len(server.log) == 1


@pytest.mark.parametrize("answer", [None, ({"message": "oops"}, 503, {})])
def test_safe_requests_are_sent_again(
    client: CodeHostClient, server: Server, clock: Any, answer: Any
) -> None:
    server.faults.append(Fault("GET", "comments", answer, times=3))
    assert client.get(Any, NOTES) == []
    assert clock.slept == [1, 2, 4]
    server.faults.append(Fault("GET", "comments", answer, times=99))
    with pytest.raises(UnknownOutcome if answer is None else ServerError):
        client.get(Any, NOTES)
    assert len(server.log) == 4 + CodeHostClient.ATTEMPTS


@pytest.mark.parametrize("answer", [None, ({"message": "oops"}, 503, {})])
def test_a_post_is_not_sent_again_because_it_may_have_succeeded(
    client: CodeHostClient, server: Server, clock: Any, answer: Any
) -> None:
    server.faults.append(Fault("POST", "comments", answer, times=99))
    with pytest.raises(UnknownOutcome if answer is None else ServerError):
        client.send("POST", NOTES, {"body": "hello"})
    assert len(server.log) == 1


def test_an_unreachable_host_is_named(server: Server, clock: Any) -> None:
    client = CodeHostClient(
        "GitHub", "http://127.0.0.1:9", token=SecretStr(TOKEN), headers=lambda token: {}
    )
    with client, pytest.raises(Unreachable, match=r"no connection to http://127\.0\.0\.1:9"):
        client.send("POST", NOTES, {})
    assert len(clock.slept) == CodeHostClient.ATTEMPTS - 1


def test_an_invalid_address_is_named(clock: Any) -> None:
    client = CodeHostClient(
        "GitLab", "gitlab.test/api", token=SecretStr(TOKEN), headers=lambda _: {}
    )
    with client, pytest.raises(GpuformError, match=r"GET /user: gitlab\.test/api is no address"):
        client.get(Any, "/user")
    assert clock.slept == []


def test_an_address_of_something_else_than_the_api_is_named(
    client: CodeHostClient, server: Server, clock: Any
) -> None:
    with pytest.raises(GpuformError, match="404"):
        client.get(Any, "/login")


def test_an_answer_of_another_shape_is_an_error(
    client: CodeHostClient, server: Server, clock: Any
) -> None:
    """The answer comes from a server that is no code host, for example at a wrong address."""
    server.is_installation = False
    with pytest.raises(ServerError, match=r"unexpected form \(the whole: .*array") as raised:
        list(client.iterate_items(GitHubComment, "/user"))
    assert "the address of its API?" in str(raised.value)


def test_the_token_is_in_no_error_no_log_and_no_representation(
    client: CodeHostClient, server: Server, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.faults.append(Fault("GET", "comments", ({"message": f"bad {TOKEN}"}, 401, {})))
    server.faults.append(Fault("POST", "comments", None))
    texts = [repr(client), repr(vars(client))]
    for method, kind in (("GET", AuthError), ("POST", UnknownOutcome)):
        with pytest.raises(kind) as raised:
            client.send(method, NOTES, {})
        error: BaseException = raised.value
        texts += ["".join(traceback.format_exception(error)), repr(vars(error))]
    assert "[secret]" in "".join(texts)
    assert TOKEN not in "".join(texts) + caplog.text


def test_no_part_and_no_encoding_of_a_token_is_in_an_error() -> None:
    token = "ada@example.org:ATATT-secret-of-tests"
    headers = Bitbucket.create_headers(token)
    message = f"bad {headers['Authorization']} of ATATT-secret-of-tests"
    request = httpx.Request("GET", "https://api.bitbucket.org/2.0/user", headers=headers)
    response = httpx.Response(401, json={"message": message}, request=request)
    assert format_error_message(response, token) == "bad Basic [secret] of [secret]"


def test_a_redirect_to_a_stored_file_is_followed_without_the_token(
    client: CodeHostClient, server: Server, clock: Any
) -> None:
    server.add_artifact("gpuform-plan", "a" * 40, b"{}")
    assert client.download("/repos/o/r/actions/artifacts/1/zip").startswith(b"PK")


def test_other_redirects_are_not_followed(
    client: CodeHostClient, server: Server, clock: Any
) -> None:
    moved = ({"message": "Moved Permanently"}, 301, {"Location": "https://elsewhere.invalid/"})
    server.faults.append(Fault("GET", "comments", moved))
    with pytest.raises(GpuformError, match="answered 301 and sends elsewhere: Moved Permanently"):
        client.get(Any, NOTES)


def test_a_page_for_people_who_sign_in_is_a_refused_token(server: Server, clock: Any) -> None:
    """Azure DevOps answers an expired token with such a page, as a success."""
    client = CodeHostClient(
        "Azure DevOps", server.url, token=SecretStr(TOKEN), headers=lambda t: {"PRIVATE-TOKEN": t}
    )
    server.faults.append(Fault("PATCH", "comments/1", ({}, 203, {})))
    with client, pytest.raises(AuthError, match="the token is wrong or has expired"):
        client.send("PATCH", "/repos/o/r/issues/comments/1", {"body": "hello"})


@pytest.mark.parametrize(
    ("token", "authorization"),
    [
        ("eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl", "Bearer eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl"),
        ("personal", "Basic OnBlcnNvbmFs"),
    ],
)
def test_azure_devops_gets_each_kind_of_token_as_it_expects(token: str, authorization: str) -> None:
    assert AzureDevOps.create_headers(token)["Authorization"] == authorization


@pytest.mark.parametrize(
    ("token", "authorization"),
    [("of-a-repository", "Bearer of-a-repository"), ("a@b.c:api", "Basic YUBiLmM6YXBp")],
)
def test_bitbucket_gets_each_kind_of_token_as_it_expects(token: str, authorization: str) -> None:
    assert Bitbucket.create_headers(token)["Authorization"] == authorization


@pytest.mark.parametrize(
    ("branch", "names_merge_commits"), [("main", True), ("main", False), ("", True)]
)
@pytest.mark.parametrize("name", ["github", "gitlab"])
def test_the_plan_is_of_the_request_that_brought_the_commit_to_the_branch_of_the_job(
    server: Server, clients: Any, name: str, *, names_merge_commits: bool, branch: str
) -> None:
    """Others have the commit, too: one merged into a branch of anybody's, and a later one."""
    commit, head = "c" * 40, "a" * 40
    server.merged[commit] = head
    server.names_merge_commits = names_merge_commits
    server.add_artifact(f"gpuform-plan-{head}", head, b"reviewed")
    job = {"id": 1, "name": "gpuform-plan", "status": "success", "files": {"plan.json": b"of 12"}}
    server.pipelines = [{"id": 1, "jobs": [job]}]
    code_host = clients[name](server, None)
    code_host.target = replace(code_host.target, branch=branch)
    with code_host.client:
        plan = code_host.fetch_reviewed_plan(commit, "plan.json")
        assert plan == (b"reviewed" if name == "github" else b"of 12")
        assert name == "github" or any("/12/pipelines" in line for line in server.log)
        code_host.target = replace(code_host.target, branch="release")
        with pytest.raises(GpuformError, match=f"request has commit {commit}"):
            code_host.fetch_reviewed_plan(commit, "plan.json")


def test_a_push_that_has_merged_several_pull_requests_is_refused(
    server: Server, clients: Any
) -> None:
    """A merge queue may push a batch, and only one of its plans would be applied."""
    first, commit, head = "b" * 40, "c" * 40, "a" * 40
    server.merged[commit] = head
    server.merge_commits = {commit: 12, "d" * 40: 13}
    server.add_artifact(f"gpuform-plan-{head}", head, b"reviewed")
    code_host = clients["github"](server, None)
    pushed = frozenset({first, commit})
    code_host.target = replace(code_host.target, branch="main", pushed_commits=pushed)
    with code_host.client:
        assert code_host.fetch_reviewed_plan(commit, "plan.json") == b"reviewed"
        server.merge_commits[first] = 11
        with pytest.raises(GpuformError, match="one push has merged the pull requests #11, #12: "):
            code_host.fetch_reviewed_plan(commit, "plan.json")
