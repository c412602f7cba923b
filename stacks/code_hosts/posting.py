"""Post a review as one comment that is updated, stamped with the plan that it shows.

No forge can change a comment on the condition that it is still the same. So what was written is
read again, until the comment is ours or that of a younger plan, and there is only one. What is left
to chance is an older plan that is written in the moment in which a younger one is written and read
again; the workflows of `gpuform new ci` stop the older job of a pull request.
"""

import contextlib
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, Self

from gpuform.providers.errors import GpuformError, NotFound, ServerError, UnknownOutcome
from gpuform.stacks.code_hosts.client import CommentTooLong
from gpuform.stacks.code_hosts.place import Comment, Forge
from gpuform.stacks.review.facts import Review

_LINE: Final = re.compile(
    r"<!-- gpuform:review stacks=(\w+) made=([\w:.+-]*) text=(\w+) verdict=([\w-]+) -->"
)


class Verdict(StrEnum):
    """What a review comes to, the worst last."""

    NO_CHANGES = "no-changes"
    CHANGES = "changes"
    DANGEROUS = "dangerous"
    FAILED = "failed"

    @classmethod
    def of(cls, review: Review) -> Self:
        if review.has_failed:
            return cls("failed")
        if any(stack.dangers for stack in review.stacks):
            return cls("dangerous")
        return cls("changes" if review.has_changes else "no-changes")

    @property
    def label(self) -> str:
        return f"gpuform: {self.value.replace('-', ' ')}"


@dataclass(frozen=True, slots=True)
class Stamp:
    """`stacks` stands for the set of stacks, `made` is when the youngest plan was made (empty where
    it is not known) and `text` stands for all that the comment says.
    """

    stacks: str
    made: str
    text: str
    verdict: Verdict

    @classmethod
    def of(cls, review: Review, text: str) -> Self:
        names = "\n".join(sorted(stack.name for stack in review.stacks))
        if review.whole is not None:  # of all stacks there is one comment, whichever are touched
            names = f"all stacks of {review.whole.name}"
        made = max((stack.plan.made_at or "" for stack in review.stacks), default="")
        return cls(_digest(names), made, _digest(text), Verdict.of(review))

    @classmethod
    def read(cls, body: str) -> Self | None:
        """The stamp of a comment; None for a comment that has none."""
        found = _LINE.match(body)
        if found is None or found[4] not in set(Verdict):
            return None
        return cls(found[1], found[2], found[3], Verdict(found[4]))

    @property
    def line(self) -> str:
        return (
            f"<!-- gpuform:review stacks={self.stacks} made={self.made} text={self.text} "
            f"verdict={self.verdict} -->"
        )

    def is_older_than(self, other: "Stamp") -> bool:
        """Whether the other's plans are known to have been made later."""
        return bool(self.made) and self.made < other.made


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


_ROUNDS: Final = 8
_SHORTEST: Final = 1_000
"""Characters; a forge that takes less takes no review."""

Write = Callable[[int], str]
"""A review's text, not longer than so many characters."""


@dataclass(frozen=True, slots=True)
class Posted:
    """What became of the comment. `left`: it shows a younger plan, and was left as it is."""

    outcome: Literal["added", "edited", "left"]
    comment: Comment


def post(forge: Forge, review: Review, write: Write) -> Posted:
    """Makes the stacks' comment say what the review says. Raises GpuformError."""
    return _Posting(forge, review, write).settle()


def set_label(forge: Forge) -> Verdict:
    """Labels the pull request with the worst that the comments of all sets of stacks say."""
    found = [stamp for each in forge.comments() if (stamp := Stamp.read(each.body))]
    order = list(Verdict)
    worst = max((stamp.verdict for stamp in found), key=order.index, default=Verdict.NO_CHANGES)
    forge.label(worst.label, tuple(each.label for each in Verdict if each is not worst))
    return worst


class _Posting:
    """One comment on its way."""

    def __init__(self, forge: Forge, review: Review, write: Write) -> None:
        self._forge = forge
        self._review = review
        self._write = write
        self._limit = forge.longest_comment
        self._body, self._stamp = self._written()
        self._outcome: Literal["added", "edited"] | None = None
        self._added: Comment | None = None
        self._failure: GpuformError | None = None

    def settle(self) -> Posted:
        for _ in range(_ROUNDS):
            found = self._found()
            younger = [each for each in found if self._stamp.is_older_than(each[1])]
            if younger:
                self._remove([each for each in found[1:] if each not in younger])
                return Posted("left", younger[0][0])
            if self._outcome and found and found[0][1] == self._stamp:
                self._remove(found[1:])
                return Posted(self._outcome, found[0][0])
            added = None if found else self._added
            if self._send(found[0][0] if found else added) and added:
                return Posted("added", added)  # a forge's list may lag behind
        raise self._failure or GpuformError(
            "the comment was edited by another job each time it was written",
            hint="see that two jobs do not review the same plans of one pull request",
        )

    def _found(self) -> Sequence[tuple[Comment, Stamp]]:
        """The comments of this set of stacks, the oldest first."""
        stamped = [(comment, Stamp.read(comment.body)) for comment in self._forge.comments()]
        mine = [(c, stamp) for c, stamp in stamped if stamp and stamp.stacks == self._stamp.stacks]
        return sorted(mine, key=lambda pair: pair[0].id)

    def _send(self, comment: Comment | None) -> bool:
        """Edits the comment, or adds one; whether the forge has taken it."""
        try:
            if comment is None:
                self._added = self._forge.add(self._body)
                self._outcome = "added"
            else:
                self._forge.edit(comment.id, self._body)
                self._outcome = self._outcome or "edited"
        except CommentTooLong:
            self._limit = min(self._limit, len(self._body)) // 2
            if self._limit < _SHORTEST:
                raise
            self._body, self._stamp = self._written()
        except NotFound:
            if comment is None:
                raise
            self._added = None  # deleted meanwhile
        except (ServerError, UnknownOutcome) as error:
            self._failure = error
        else:
            return True
        return False

    def _remove(self, found: Sequence[tuple[Comment, Stamp]]) -> None:
        """What jobs at work at the same time have added. The first comment nobody removes."""
        for comment, _ in found:
            with contextlib.suppress(NotFound):
                self._forge.remove(comment.id)

    def _written(self) -> tuple[str, Stamp]:
        room = self._limit - len(Stamp.of(self._review, "").line) - 1
        text = self._write(room)
        stamp = Stamp.of(self._review, text)
        return f"{stamp.line}\n{text}", stamp
