"""What the run had to say, under the resource that each message belongs to, errors in full."""

from collections.abc import Iterable, Iterator

from gpuform.schemas.visible import visible
from gpuform.stacks.engine.planning import Diagnostic
from gpuform.stacks.engine.urn import STACK_TYPE, name_of, type_of
from gpuform.stacks.review.names import short_type
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.text.source_text import source_lines

_STYLES = {"error": "error", "warning": "warning", "debug": "dim"}


def diagnostics_lines(diagnostics: Iterable[Diagnostic], *, paint: Paint = PLAIN) -> Iterator[str]:
    """`Diagnostics:` and the messages by resource; nothing when there are none to show.

    What the program prints, or says of the whole run, stands under `program`.
    """
    groups: dict[str, list[Diagnostic]] = {}
    for diagnostic in diagnostics:
        if diagnostic.message.strip():
            groups.setdefault(_subject(diagnostic.urn), []).append(diagnostic)
    if not groups:
        return
    yield paint("bold", "Diagnostics:")
    for subject, found in groups.items():
        yield f"  {visible(subject)}:"
        for diagnostic in found:
            yield from (f"    {line}" for line in _lines(diagnostic, paint))


def _subject(urn: str) -> str:
    if urn.count("::") < 3 or type_of(urn) == STACK_TYPE:
        return "program"
    return f"{short_type(type_of(urn))} ({name_of(urn)})"


def _lines(diagnostic: Diagnostic, paint: Paint) -> Iterator[str]:
    severity = diagnostic.severity
    prefix = f"{severity}: " if severity in _STYLES else ""
    first, *rest = diagnostic.message.rstrip().split("\n")
    yield paint(_STYLES.get(severity, ""), prefix) + first
    yield from rest
    if diagnostic.source is not None:
        type_ = type_of(diagnostic.urn)
        for line in source_lines(diagnostic.source, diagnostic.path, type_):
            yield f"  {line}"
    if diagnostic.error is not None and diagnostic.error.more:
        yield f"  more: gpuform help {diagnostic.error.more}"
