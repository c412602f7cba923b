"""Moments as the platform writes them: RFC 3339 text."""

from datetime import datetime


def checked_timestamp(value: str) -> str:
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{value} is not a moment: write it like 2026-03-01T08:00:00Z")
    return value


def unix_time(text: str | None) -> float | None:
    """Unix time in seconds; None for text that names no moment."""
    try:
        return datetime.fromisoformat(text or "").timestamp()
    except ValueError:
        return None


def is_same_moment(one: str, other: str) -> bool:
    """Whether two spellings name one moment; text that names none is compared as text."""
    try:
        return datetime.fromisoformat(one) == datetime.fromisoformat(other)
    except ValueError:
        return one == other


def is_before(one: str, other: str) -> bool:
    return datetime.fromisoformat(one) < datetime.fromisoformat(other)
