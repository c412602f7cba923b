"""What a forge is to a review: a pull request's comments, its labels, and plans that jobs keep."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol

KEPT_PLAN: Final = "gpuform-plan"
"""The artifact, or the job, that keeps a pull request's plan for the apply."""


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment; ids grow with time."""

    id: int
    body: str
    url: str = ""


class Forge(Protocol):
    """One repository, and one pull request of it. Each method raises GpuformError."""

    longest_comment: int
    """In characters as `stacks.review.fitting.length` counts them."""

    def comments(self) -> Iterator[Comment]:
        """The comments that the token's owner has written, of all pages, the oldest first."""

    def add(self, body: str) -> Comment:
        """Writes a comment."""

    def edit(self, comment: int, body: str) -> Comment:
        """Writes another text into a comment. NotFound when it was deleted."""

    def remove(self, comment: int) -> None:
        """Deletes a comment. NotFound when it was deleted before."""

    def label(self, add: str, drop: tuple[str, ...]) -> None:
        """Gives the pull request one label and takes others away, whether it has them or not."""

    def reviewed_plan(self, commit: str, file: str) -> bytes:
        """The file of the plan that the pull request's last commit was reviewed with.

        Without a number it is the pull request by which `commit` came to its branch.
        """
