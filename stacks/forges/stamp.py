"""The hidden first line of a comment, by which its stacks' next review finds it again."""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Self

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
