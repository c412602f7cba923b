"""What there is to know of resources that do not change, in words that every view prints."""

from collections.abc import Iterable, Iterator

from gpuform.schemas.notices import Notice
from gpuform.schemas.visible import visible
from gpuform.stacks.review.paint import PLAIN, Paint


def notice_text(notice: Notice) -> str:
    """One notice in one line: of which resource, and what."""
    return f"{notice.name}: {notice.text}" if notice.name else notice.text


def notices_lines(notices: Iterable[Notice], paint: Paint = PLAIN) -> Iterator[str]:
    """`To know:` and a line for each; nothing where there are none."""
    texts = [visible(notice_text(each)) for each in notices]
    if texts:
        yield paint("warning", "To know:")
        yield from (f"    {text}" for text in texts)
