"""Post a review as one comment, stamped with its plan, that later runs update.

A code host cannot change a comment on the condition that nobody else has changed it. So the
comments are read again after each write, until there is one comment and its plan is ours or a
younger one. A race remains: an older plan that is written in the same moment in which a younger one
is written and read. The workflows of `gpuform new ci` stop the older job of a pull request.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal, Self

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import GpuformError, NotFound, ServerError, UnknownOutcome
from gpuform.stacks.code_hosts.azure_devops import AzureDevOps
from gpuform.stacks.code_hosts.bitbucket import Bitbucket
from gpuform.stacks.code_hosts.client import CommentTooLong
from gpuform.stacks.code_hosts.comment_api import CommentApi
from gpuform.stacks.code_hosts.github import GitHub
from gpuform.stacks.code_hosts.gitlab import GitLab
from gpuform.stacks.code_hosts.review_target import (
    CodeHost,
    CodeHostName,
    Comment,
    ReviewStatus,
    ReviewTarget,
    read_token,
)
from gpuform.stacks.engine.state.checkpoint import format_timestamp
from gpuform.stacks.review.facts import Review

STAMP_PATTERN: Final = re.compile(
    r"(?:<!-- |\[//\]: # \()gpuform:review stacks=(\w+) made=([\w:.+-]*) text=(\w+) "
    r"verdict=([\w-]+)(?: -->|\))"
)
STATUS_KEY: Final = "gpuform"
MAX_CLOCK_DIFFERENCE_S: Final = 3600.0
"""How far the clock of the job that planned may be ahead of ours."""


_CODE_HOST_CLASSES: Final[Mapping[CodeHostName, type[CommentApi[Any]]]] = {
    "github": GitHub,
    "gitlab": GitLab,
    "azure": AzureDevOps,
    "bitbucket": Bitbucket,
}


@contextlib.contextmanager
def open_code_host(target: ReviewTarget, environ: Mapping[str, str]) -> Iterator[CodeHost]:
    """Yield the code host of `target`, and close the client afterwards.

    Raises MissingCredentials if the environment has no token, GpuformError if the token is not
    valid.
    """
    token = read_token(target.code_host, environ)
    code_host = _CODE_HOST_CLASSES[target.code_host](target, token)
    with code_host.client:
        yield code_host


class ReviewVerdict(StrEnum):
    """The result of a review, from the best to the worst."""

    NO_CHANGES = "no-changes"
    CHANGES = "changes"
    DANGEROUS = "dangerous"
    FAILED = "failed"

    @classmethod
    def from_review(cls, review: Review) -> Self:
        """Return the review's worst result: failed, dangerous, changes or no changes."""
        if review.has_failed:
            return cls("failed")
        if review.is_dangerous:
            return cls("dangerous")
        return cls("changes" if review.has_changes else "no-changes")

    @property
    def label(self) -> str:
        """Return the verdict's label of a pull request: `gpuform: no changes`."""
        return f"gpuform: {self.value.replace('-', ' ')}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """The first line of a review comment, which says what the comment shows.

    Attributes:
        stacks: digest of the names of the reviewed stacks.
        made: time of the newest plan, empty if unknown.
        text: digest of the comment's text.
    """

    stacks: str
    made: str
    text: str
    verdict: ReviewVerdict

    @classmethod
    def from_review(cls, review: Review, review_text: str) -> Self:
        """Return the stamp of a review comment, made from a review and its rendered text.

        A combined review of all stacks has the same `stacks`, whichever stacks have changes.
        """
        stack_names = "\n".join(sorted(stack.name for stack in review.stacks))
        if review.combined is not None:  # of all stacks there is one comment, whichever are touched
            stack_names = f"all stacks of {review.combined.name}"
        newest_plan_time = max((stack.plan.made_at or "" for stack in review.stacks), default="")
        return cls(
            _compute_digest(stack_names),
            newest_plan_time,
            _compute_digest(review_text),
            ReviewVerdict.from_review(review),
        )

    @classmethod
    def parse(cls, body: str) -> Self | None:
        """Return the stamp of a comment, or None if the comment has none."""
        match = STAMP_PATTERN.match(body)
        # A newer gpuform may write other verdicts.
        if match is None or match[4] not in set(ReviewVerdict):
            return None
        return cls(match[1], match[2], match[3], ReviewVerdict(match[4]))

    def format_line(self, *, renders_html: bool) -> str:
        """Return the stamp as the invisible first line of a review comment.

        Where the code host shows HTML as text, the line defines a link that nothing uses.
        """
        facts = (
            f"gpuform:review stacks={self.stacks} made={self.made} text={self.text} "
            f"verdict={self.verdict}"
        )
        return f"<!-- {facts} -->" if renders_html else f"[//]: # ({facts})"

    def is_older_than(self, other: "Stamp") -> bool:
        """Return True if the plans of `other` are known to be newer.

        A time in the future is not believed: a forged one would keep every later review away.
        """
        latest = get_current_context().clock.now() + MAX_CLOCK_DIFFERENCE_S
        latest_text = format_timestamp(datetime.fromtimestamp(latest, UTC))
        return bool(self.made) and self.made < other.made <= latest_text


def _compute_digest(text: str) -> str:
    """Return the first 16 hex digits of the text's SHA-256."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


MAX_ROUNDS: Final = 8
MIN_COMMENT_LENGTH: Final = 1_000
"""The shortest limit of characters with which a review is still posted."""

WriteReview = Callable[[int], str]
"""Return a review's text that is not longer than the given number of characters."""


@dataclass(frozen=True, slots=True)
class PostResult:
    """The result of posting. With `left`, the comment shows a newer plan and was not changed."""

    outcome: Literal["added", "edited", "left"]
    comment: Comment


def post_review(code_host: CodeHost, review: Review, write_review: WriteReview) -> PostResult:
    """Add or update the comment of the review's stacks. Raises GpuformError."""
    return _CommentUpdate(code_host, review, write_review).publish()


def label_pull_request(code_host: CodeHost) -> ReviewVerdict:
    """Label the pull request with the worst verdict of all comments, and return the verdict."""
    worst = _find_worst_verdict(code_host)
    code_host.set_label(
        worst.label, tuple(verdict.label for verdict in ReviewVerdict if verdict is not worst)
    )
    return worst


def set_review_status(code_host: CodeHost, review: Review) -> ReviewStatus:
    """Set the status `gpuform` by the worst verdict of all comments, and return it.

    `review` counts even if its comment was not written. A failed preview and a gate that stops a
    plan of `review` make a failed status.
    """
    worst = _find_worst_verdict(code_host, ReviewVerdict.from_review(review))
    description = "a gate stops the plan" if review.is_stopped else worst.label.partition(": ")[2]
    status = ReviewStatus(
        STATUS_KEY, description, worst is ReviewVerdict.FAILED or review.is_stopped
    )
    code_host.set_status(status)
    return status


def _find_worst_verdict(
    code_host: CodeHost, own_verdict: ReviewVerdict = ReviewVerdict.NO_CHANGES
) -> ReviewVerdict:
    """Return the worst one of `own_verdict` and the verdicts of all review comments."""
    stamps = map(Stamp.parse, (comment.body for comment in code_host.list_comments()))
    verdicts = [stamp.verdict for stamp in stamps if stamp]
    return max([own_verdict, *verdicts], key=list(ReviewVerdict).index)


class _CommentUpdate:
    """The update of one review comment."""

    def __init__(self, code_host: CodeHost, review: Review, write_review: WriteReview) -> None:
        self._code_host = code_host
        self._review = review
        self._write = write_review
        self._limit = code_host.max_comment_length
        self._body, self._stamp = self._render_body()
        self._outcome: Literal["added", "edited"] | None = None
        self._added: Comment | None = None
        self._failure: GpuformError | None = None

    def publish(self) -> PostResult:
        """Write the comment until a read shows it or one of a newer plan.

        Duplicates are deleted. A comment of a newer plan stays unchanged: the outcome is then
        `left`.

        Raises:
            GpuformError: after `MAX_ROUNDS` the comment is still not as written.
        """
        for _ in range(MAX_ROUNDS):
            comments = self._find_comments()
            newer = [entry for entry in comments if self._stamp.is_older_than(entry[1])]
            # This job's plan is outdated: the comment of the newer one stays.
            if newer:
                self._delete_duplicates([entry for entry in comments[1:] if entry not in newer])
                return PostResult("left", newer[0][0])
            # Only a comment that was read back has survived the other jobs' writes.
            if self._outcome and comments and comments[0][1] == self._stamp:
                self._delete_duplicates(comments[1:])
                return PostResult(self._outcome, comments[0][0])
            added = None if comments else self._added
            if self._write_comment(comments[0][0] if comments else added) and added:
                return PostResult("added", added)  # a code host's list may lag behind
        raise self._failure or GpuformError(
            "the comment was edited by another job each time it was written",
            hint="see that two jobs do not review the same plans of one pull request",
        )

    def _find_comments(self) -> Sequence[tuple[Comment, Stamp]]:
        """Return the review comments of these stacks on the pull request, the oldest first."""
        stamped = [
            (comment, Stamp.parse(comment.body)) for comment in self._code_host.list_comments()
        ]
        mine = [(c, stamp) for c, stamp in stamped if stamp and stamp.stacks == self._stamp.stacks]
        return sorted(mine, key=lambda pair: pair[0].id)

    def _write_comment(self, comment: Comment | None) -> bool:
        """Write the text into `comment`, or into a new comment; return True if accepted.

        After CommentTooLong the text is rendered with half of the limit, and False asks the caller
        to try again. Raises CommentTooLong if the limit gets too short.
        """
        try:
            if comment is None:
                self._added = self._code_host.add_comment(self._body)
                self._outcome = "added"
            else:
                self._code_host.edit_comment(comment.id, self._body)
                self._outcome = self._outcome or "edited"
        except CommentTooLong:
            # The host does not say how long a comment may be.
            self._limit = min(self._limit, len(self._body)) // 2
            if self._limit < MIN_COMMENT_LENGTH:
                raise
            self._body, self._stamp = self._render_body()
        except NotFound:
            if comment is None:
                raise
            self._added = None  # deleted meanwhile
        except (ServerError, UnknownOutcome) as error:
            self._failure = error
        else:
            return True
        return False

    def _delete_duplicates(self, duplicates: Sequence[tuple[Comment, Stamp]]) -> None:
        """Delete comments added by other jobs at the same time."""
        for comment, _ in duplicates:
            with contextlib.suppress(NotFound):
                self._code_host.delete_comment(comment.id)

    def _render_body(self) -> tuple[str, Stamp]:
        """Return the comment within the limit, the stamp's line before the text, and the stamp."""
        html = self._code_host.renders_html
        stamp_of_nothing = Stamp.from_review(self._review, "")
        # An empty line follows, which ends the definition of a link.
        available_length = self._limit - len(stamp_of_nothing.format_line(renders_html=html)) - 2
        review_text = self._write(available_length)
        stamp = Stamp.from_review(self._review, review_text)
        separator = "\n" if html else "\n\n"
        return f"{stamp.format_line(renders_html=html)}{separator}{review_text}", stamp
