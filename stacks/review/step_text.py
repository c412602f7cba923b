"""Format what happens to a resource during a run, in the words of Pulumi's progress display.

Called by the progress display and by `gpuform logs`.
"""

from dataclasses import dataclass

from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.planning import Op
from gpuform.stacks.engine.urn import name_of, type_of
from gpuform.stacks.review.paint import PLAIN, Paint
from gpuform.stacks.review.value_text import STYLES, format_elapsed, short_type


@dataclass(frozen=True, slots=True)
class _OperationWords:
    symbol: str
    running: str
    done: str


_WORDS = {
    Op.CREATE: _OperationWords("+", "creating", "created"),
    Op.UPDATE: _OperationWords("~", "updating", "updated"),
    Op.DELETE: _OperationWords("-", "deleting", "deleted"),
    Op.CREATE_REPLACEMENT: _OperationWords("++", "creating replacement", "created replacement"),
    Op.DELETE_REPLACED: _OperationWords("--", "deleting original", "deleted original"),
    Op.IMPORT: _OperationWords("=", "importing", "imported"),
    Op.READ: _OperationWords(">", "reading", "read"),
    Op.READ_REPLACEMENT: _OperationWords(">>", "reading replacement", "read replacement"),
    Op.DISCARD: _OperationWords("<", "forgetting", "forgotten"),
    Op.DISCARD_REPLACED: _OperationWords("<<", "forgetting original", "forgotten original"),
    Op.REFRESH: _OperationWords("~", "refreshing", "refreshed"),
}

_REFRESH_RESULTS = {
    Op.UPDATE: "refreshed: changed outside of this stack",
    Op.DELETE: "refreshed: no longer exists on the platform",
}


def has_description(op: Op) -> bool:
    """Return True if progress displays show the operation; no other operation can be formatted."""
    return op in _WORDS


def format_subject(op: Op, urn: str, paint: Paint = PLAIN) -> str:
    """Format the symbol, name and type of a resource: `+  train  together:Cluster`."""
    symbol = _WORDS[op].symbol
    resource = escape_invisible(f"{name_of(urn)}  {short_type(type_of(urn))}")
    return paint(STYLES[symbol], f"{symbol:<2} {resource}")


def format_running(op: Op, phase: str = "") -> str:
    """Format a running operation with the phase: `creating: InstallingDrivers (6m10s)`."""
    doing = _WORDS[op].running
    return f"{doing}: {escape_invisible(phase)}" if phase else doing


def format_succeeded(op: Op, seconds: float, refresh_result: Op | None = None) -> str:
    """Format a finished operation (`created in 20m10s`), or the result of a refresh."""
    done = _WORDS[op].done
    return (
        _REFRESH_RESULTS.get(refresh_result or op, done)
        if op is Op.REFRESH
        else f"{done} in {format_elapsed(seconds)}"
    )


def format_failed(op: Op, seconds: float, paint: Paint = PLAIN) -> str:
    """Format a failed operation: `creating failed after 1s`."""
    return paint("error", f"{format_running(op)} failed") + f" after {format_elapsed(seconds)}"
