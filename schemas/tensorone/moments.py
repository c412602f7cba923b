"""Moments as the platform writes them: RFC 3339 text."""

from datetime import datetime


def unix_time(text: str | None) -> float | None:
    """Unix time in seconds; None for text that names no moment."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.timestamp()


def is_before(one: str | None, other: str | None) -> bool:
    """Whether both name a moment, and the first one is the earlier."""
    first, second = unix_time(one), unix_time(other)
    return first is not None and second is not None and first < second
