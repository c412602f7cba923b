"""What previews have failed with, in words: before anything else that a review tells."""

from collections.abc import Iterator

from gpuform.schemas.visible import visible
from gpuform.stacks.review.facts import Review
from gpuform.stacks.review.paint import PLAIN, Paint


def errors_lines(review: Review, paint: Paint = PLAIN) -> Iterator[str]:
    """`Failed:` and each error in full, with its stack where there are several; or nothing."""
    if review.has_failed:
        yield paint("error", "Failed:")
    for stack in review.stacks:
        for error in stack.plan.errors:
            first, *rest = error.split("\n")
            where = f"{stack.name}: " if len(review.stacks) > 1 else ""
            yield f"    {visible(where + first)}"
            yield from (f"      {visible(line)}" for line in rest)
