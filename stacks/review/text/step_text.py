"""What is done to a resource while a run goes on, in the words that people read."""

from dataclasses import dataclass

from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.engine.urn import name_of, type_of
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.summary_text import format_elapsed
from gpuform.stacks.review.value_text import STYLES, short_type


@dataclass(frozen=True, slots=True)
class _Words:
    symbol: str
    running: str
    done: str


_WORDS = {
    Op.CREATE: _Words("+", "creating", "created"),
    Op.UPDATE: _Words("~", "updating", "updated"),
    Op.DELETE: _Words("-", "deleting", "deleted"),
    Op.CREATE_REPLACEMENT: _Words("++", "creating replacement", "created replacement"),
    Op.DELETE_REPLACED: _Words("--", "deleting original", "deleted original"),
    Op.IMPORT: _Words("=", "importing", "imported"),
    Op.READ: _Words(">", "reading", "read"),
    Op.READ_REPLACEMENT: _Words(">>", "reading replacement", "read replacement"),
    Op.DISCARD: _Words("<", "forgetting", "forgotten"),
    Op.DISCARD_REPLACED: _Words("<<", "forgetting original", "forgotten original"),
    Op.REFRESH: _Words("~", "refreshing", "refreshed"),
}

_FOUND = {Op.UPDATE: "refreshed: changed outside of this stack", Op.DELETE: "refreshed: gone"}


def has_words(op: Op) -> bool:
    """Whether the operation is work of which people read."""
    return op in _WORDS


def subject(op: Op, urn: str, paint: Paint = PLAIN) -> str:
    """`+  train  together:Cluster`."""
    symbol = _WORDS[op].symbol
    what = escape_invisible(f"{name_of(urn)}  {short_type(type_of(urn))}")
    return paint(STYLES[symbol], f"{symbol:<2} {what}")


def running(op: Op, phase: str = "") -> str:
    """`creating: InstallingDrivers (6m10s)`."""
    doing = _WORDS[op].running
    return f"{doing}: {escape_invisible(phase)}" if phase else doing


def succeeded(op: Op, seconds: float, found: Op | None = None) -> str:
    """`created in 20m10s`; of a refresh, what it `found`."""
    done = _WORDS[op].done
    return (
        _FOUND.get(found or op, done)
        if op is Op.REFRESH
        else f"{done} in {format_elapsed(seconds)}"
    )


def failed(op: Op, seconds: float, paint: Paint = PLAIN) -> str:
    """`creating failed after 1s`."""
    return paint("error", f"{running(op)} failed") + f" after {format_elapsed(seconds)}"
