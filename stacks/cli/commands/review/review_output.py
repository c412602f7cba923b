"""A review in the form that was asked for; what `review` and `drift` have in common."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from gpuform.schemas.safe_text import iterate_json_parts
from gpuform.stacks.cli.session import Session
from gpuform.stacks.cli.terminal.files import deliver

if TYPE_CHECKING:
    from gpuform.stacks.review.facts import Review

FORMATS = ("text", "markdown", "github", "gitlab", "html", "json")


def write_review(found: "Review", form: str, output: Path | None, current: Session) -> None:
    """Writes it to the file, or to the screen without one."""
    deliver(_written(found, form, current, to_file=output is not None), output, current.screen)


def _written(found: "Review", form: str, current: Session, *, to_file: bool) -> Iterable[str]:
    """In parts, each of which but the last ends with its line."""
    if form == "text":
        from gpuform.stacks.review.paint import PLAIN  # noqa: PLC0415 - not for help
        from gpuform.stacks.review.text.plan_text import review_text  # noqa: PLC0415 - as above

        return [review_text(found, PLAIN if to_file else current.screen.paint) + "\n"]
    if form == "json":
        from gpuform.stacks.review.pages import review_document  # noqa: PLC0415 - as above

        return chain(iterate_json_parts(review_document(found), indent=2), ["\n"])
    if form == "html":
        from gpuform.stacks.review.pages import html  # noqa: PLC0415 - as above

        return [html(found)]
    from gpuform.stacks.review.pages import markdown  # noqa: PLC0415 - as above

    return [markdown(found, folded=form != "markdown")]
