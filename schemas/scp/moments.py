"""The platform's times, which come in more than one form."""

from datetime import UTC, datetime


def unix_time(text: str | None) -> float | None:
    """Unix seconds of `2024-05-17T00:23:17Z` or `2024-07-11 08:56:59`; None for anything else.

    A time without a zone is taken as UTC.
    """
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment.timestamp()
