"""One comment for a set of stacks, on all code hosts, whatever other jobs do at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.servers.code_host import SOMEBODY, Fault
from support.servers.code_host import FakeCodeHost as Server

from gpuform.providers.errors import ApiError, GpuformError, NotFound, ServerError
from gpuform.stacks.code_hosts.azure_devops import AzureDevOps
from gpuform.stacks.code_hosts.bitbucket import Bitbucket
from gpuform.stacks.code_hosts.client import CommentTooLong
from gpuform.stacks.code_hosts.comment_api import CommentApi
from gpuform.stacks.code_hosts.posting import (
    Stamp,
    label_pull_request,
    post_review,
    set_review_status,
)
from gpuform.stacks.code_hosts.review_target import CODE_HOSTS, CodeHost
from gpuform.stacks.review.document import count_characters
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.pages import render_markdown

Make = Callable[..., Review]


def post_outcome(code_host: CodeHost, review: Review) -> str:
    folded = code_host.renders_html
    return post_review(
        code_host, review, lambda limit: render_markdown(review, folded=folded, limit=limit)
    ).outcome


def get_edit_method(code_host: CodeHost) -> str:
    assert isinstance(code_host, CommentApi)
    return code_host.edit_method


def has_labels(code_host: CodeHost) -> bool:
    return not isinstance(code_host, Bitbucket)


def list_bodies(server: Server) -> list[str]:
    return [comment["body"] for comment in server.comments]


def test_a_comment_is_added_and_then_edited_in_place_even_without_changes(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    assert post_outcome(code_host, review(destroys=16)) == "added"
    (first,) = server.comments
    assert "destroys 16 GPUs" in first["body"]
    assert post_outcome(code_host, review()) == "edited"
    assert server.comments == [first], "the same comment"
    assert "16" not in first["body"].split("\n", 1)[1]
    assert "**nothing to do**" in first["body"]


def test_the_comment_is_found_on_the_last_page(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    for n in range(230):
        server.add_comment(f"comment {n}", SOMEBODY if n % 2 else {"id": 1, **SOMEBODY})
    assert post_outcome(code_host, review(destroys=8)) == "added"
    server.log.clear()
    assert post_outcome(code_host, review(destroys=24)) == "edited"
    assert len(server.comments) == 231
    if not isinstance(code_host, AzureDevOps):  # its list has one page
        assert [line for line in server.list_requests("GET") if "page=3" in line]


def test_each_set_of_stacks_has_its_own_comment(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    for stacks in (["prod"], ["prod", "dev"], ["dev", "prod"], ["prod"]):
        post_outcome(code_host, review(*stacks))
    assert len(server.comments) == 2


def test_a_stamp_in_the_comment_of_another_author_is_ignored(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    post_outcome(code_host, review())
    forged = server.comments[0]["body"].replace("made=2026", "made=2999")
    server.comments.clear()
    server.add_comment(forged, SOMEBODY)
    assert post_outcome(code_host, review(destroys=8)) == "added"
    assert list_bodies(server)[0] == forged


def test_an_older_plan_does_not_replace_a_newer_one(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    post_outcome(code_host, review(made_at="2026-11-21T10:00:09Z", destroys=8))
    before = list_bodies(server)
    assert post_outcome(code_host, review(made_at="2026-11-21T10:00:08Z")) == "left"
    assert list_bodies(server) == before
    assert post_outcome(code_host, review(made_at="")) == "edited", "of an unknown time"


@pytest.mark.parametrize("time", ["2999-01-01T00:00:00Z", "z"])
def test_a_comment_of_a_plan_from_the_future_is_replaced(
    code_host: CodeHost, server: Server, review: Make, time: str
) -> None:
    """Programs of a branch may write comments by the token of their job."""
    post_outcome(code_host, review(made_at=time))
    assert post_outcome(code_host, review(destroys=8)) == "edited"
    assert f"made={time}" not in list_bodies(server)[0]


def test_two_jobs_adding_at_once_leave_one_comment(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    post_outcome(code_host, review(destroys=8))
    of_the_other = server.comments.pop()["body"]

    def other_job() -> None:
        server.comments.insert(0, server.add_comment(of_the_other) | {"id": 50})
        server.comments.pop()

    server.meanwhile["GET"] = lambda: server.meanwhile.update(GET=other_job)
    post_outcome(code_host, review(destroys=16))
    assert [c["id"] for c in server.comments] == [50]
    assert "destroys 16 GPUs" in server.comments[0]["body"]


@pytest.mark.parametrize("name", CODE_HOSTS)
def test_concurrent_jobs_leave_one_comment(
    server: Server, review: Make, clients: dict[str, Callable[..., Any]], name: str
) -> None:
    together = threading.Barrier(4)

    def job(n: int) -> str:
        code_host = clients[name](server)
        with code_host.client:
            together.wait()
            return post_outcome(
                code_host, review(made_at=f"2026-11-21T10:00:0{n}Z", destroys=8 + n)
            )

    with ThreadPoolExecutor(4) as jobs:
        outcomes = list(jobs.map(job, range(4)))
    (comment,) = server.comments
    assert Stamp.parse(comment["body"])
    assert outcomes[3] in ("added", "edited")  # the youngest plan gives way to none


def test_a_job_with_an_older_plan_deletes_its_own_comment(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    """Another job adds the comment of a younger plan at the same time."""
    post_outcome(code_host, review(destroys=8))
    younger = server.comments.pop()["body"]

    def other_job() -> None:
        server.comments.insert(0, server.add_comment(younger) | {"id": 50})
        server.comments.pop()

    server.meanwhile["GET"] = lambda: server.meanwhile.update(GET=other_job)
    assert post_outcome(code_host, review(made_at="2026-11-21T09:00:00Z", destroys=16)) == "left"
    assert list_bodies(server) == [younger]


@pytest.mark.parametrize(("made_at", "shown_plan"), [("10:00:01", 8), ("09:59:59", 16)])
def test_a_comment_edited_by_another_job_meanwhile_is_checked_again(
    code_host: CodeHost, server: Server, review: Make, made_at: str, shown_plan: int
) -> None:
    """The comment of the younger plan remains."""
    post_outcome(code_host, review(made_at=f"2026-11-21T{made_at}Z", destroys=8))
    (comment,) = server.comments
    of_the_other = comment["body"]
    comment["body"] = comment["body"].replace(made_at, "08:00:00")
    edit = get_edit_method(code_host)
    server.meanwhile[edit] = lambda: comment.update(body=of_the_other)
    post_outcome(code_host, review(destroys=16))
    assert f"destroys {shown_plan} GPUs" in comment["body"]


def test_a_comment_deleted_by_another_job_meanwhile_is_added_again(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    post_outcome(code_host, review(destroys=8))
    server.meanwhile["GET"] = lambda: server.meanwhile.update(GET=server.comments.clear)
    assert post_outcome(code_host, review(destroys=16)) == "added"
    assert len(server.comments) == 1
    assert "destroys 16 GPUs" in list_bodies(server)[0]


def test_posting_fails_if_other_jobs_never_stop_editing(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    post_outcome(code_host, review(destroys=8))
    (comment,) = server.comments
    theirs = comment["body"]
    edit = get_edit_method(code_host)

    def again() -> None:
        comment.update(body=theirs)
        server.meanwhile[edit] = again

    server.meanwhile[edit] = again
    with pytest.raises(GpuformError, match="edited by another job each time"):
        post_outcome(code_host, review(destroys=16))


@pytest.mark.slow
@pytest.mark.parametrize("longest", [20_000, 3_000])
def test_a_comment_too_long_for_the_code_host_is_shortened(
    code_host: CodeHost, server: Server, review: Make, longest: int
) -> None:
    server.max_comment_length = longest
    many = review(*(f"stack-{n}" for n in range(400)), destroys=8)
    assert post_outcome(code_host, many) == "added"
    (body,) = list_bodies(server)
    assert count_characters(body) <= longest
    assert "400" in body, "what is left out is counted"


def test_a_code_host_that_accepts_no_comment_is_an_error(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    server.max_comment_length = 10
    with pytest.raises(CommentTooLong, match=r"too long|at most|exceeds"):
        post_outcome(code_host, review(destroys=8))


@pytest.mark.parametrize("answer", [None, ({"message": "oops"}, 502, {})])
def test_a_lost_answer_after_the_comment_was_written_adds_no_second_one(
    code_host: CodeHost, server: Server, review: Make, answer: Any
) -> None:
    server.faults.append(Fault("POST", "s", answer, after=True))
    post_outcome(code_host, review(destroys=8))
    assert len(server.comments) == 1


def test_an_unavailable_code_host_is_an_error(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    server.faults.append(Fault("POST", "s", ({"message": "oops"}, 500, {}), times=99))
    with pytest.raises(ServerError, match="oops"):
        post_outcome(code_host, review(destroys=8))
    assert server.comments == []


def test_an_unknown_pull_request_is_an_error(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    server.number = 13
    with pytest.raises(NotFound, match="check the repository and the number"):
        post_outcome(code_host, review())


def test_the_label_shows_the_worst_result_of_all_stacks(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    server.labels |= {"bug", "gpuform: no changes"}
    if not has_labels(code_host):
        with pytest.raises(GpuformError, match="pull requests have no labels"):
            label_pull_request(code_host)
        return
    post_outcome(code_host, review("a", destroys=8))
    post_outcome(code_host, review("b"))
    label_pull_request(code_host)
    assert server.labels == {"bug", "gpuform: dangerous"}
    post_outcome(code_host, review("a", made_at="2026-11-21T11:00:00Z"))
    label_pull_request(code_host)
    label_pull_request(code_host)
    assert server.labels == {"bug", "gpuform: no changes"}


def test_the_status_shows_the_worst_result_of_all_stacks(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    dangerous = review("a", destroys=8)
    post_outcome(code_host, dangerous)
    set_review_status(code_host, review("b"))
    state, description = server.statuses["gpuform"]
    assert state.lower().startswith("succe")
    assert description == "dangerous"


def test_the_status_shows_a_plan_whose_comment_was_not_written(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    """Programs of a branch may write a comment that claims to be of a newer plan."""
    post_outcome(code_host, review(made_at="2027-01-15T08:30:00Z"))
    dangerous = review(destroys=8)
    assert post_outcome(code_host, dangerous) == "left"
    set_review_status(code_host, dangerous)
    assert server.statuses["gpuform"][1] == "dangerous"


@pytest.mark.parametrize("name", ["github", "gitlab", "bitbucket"])
@pytest.mark.parametrize(("commit", "expected"), [("", "d" * 40), ("e" * 40, "e" * 40)])
def test_a_status_outside_of_ci_belongs_to_the_last_commit_of_the_pull_request(
    server: Server,
    review: Make,
    clients: dict[str, Callable[..., Any]],
    name: str,
    commit: str,
    expected: str,
) -> None:
    server.head = "d" * 40
    code_host = clients[name](server, commit=commit)
    with code_host.client:
        set_review_status(code_host, review())
    assert server.status_commits == {expected}


def test_a_gate_that_stops_the_plan_makes_the_status_fail(
    code_host: CodeHost, server: Server, review: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Review, "is_stopped", True)
    set_review_status(code_host, review())
    state, description = server.statuses["gpuform"]
    assert state.lower().startswith("fail")
    assert description == "a gate stops the plan"


def test_a_comment_of_the_tokens_owner_is_found_again(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    server.is_installation = False
    post_outcome(code_host, review())
    assert post_outcome(code_host, review()) == "edited"


@pytest.mark.parametrize("body", ["", "text", "<!-- gpuform:review -->", "x\n<!-- gpuform:review"])
def test_invalid_stamps_are_not_read(body: str) -> None:
    assert Stamp.parse(body) is None


def test_a_stamp_reads_back_as_written(review: Make) -> None:
    stamp = Stamp.from_review(review(destroys=8), "text")
    for renders_html in (True, False):
        line = stamp.format_line(renders_html=renders_html)
        assert Stamp.parse(f"{line}\r\ntext") == stamp
        assert Stamp.parse(line.replace("dangerous", "safe")) is None


def test_a_comment_without_html_where_the_code_host_shows_html_as_text(
    server: Server, review: Make, clients: dict[str, Callable[..., Any]], clock: object
) -> None:
    bitbucket = clients["bitbucket"](server)
    with bitbucket.client:
        post_outcome(bitbucket, review("prod", destroys=8))
    (body,) = list_bodies(server)
    assert body.startswith("[//]: # (gpuform:review stacks=")
    assert body.split("\n")[1] == ""
    assert "<details>" not in body
    assert "<" not in body


def test_no_error_of_a_code_host_contains_the_token(
    code_host: CodeHost, server: Server, review: Make
) -> None:
    answer_body = {"message": "no: ghs_thetokenofthetests"}
    server.faults.append(Fault("GET", "s", (answer_body, 422, {})))
    with pytest.raises(ApiError) as raised:
        post_outcome(code_host, review())
    assert "[secret]" in str(raised.value)
