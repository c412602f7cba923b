"""Go's duration texts, as Pulumi programs and state use them for timeouts."""

import re

_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h)")


def seconds(text: str) -> float:
    """`1h30m` -> 5400.0; an empty text is 0.

    Raises ValueError when the text is no duration.
    """
    if text in ("", "0"):
        return 0.0
    if not re.fullmatch(f"(?:{_PART.pattern})+", text):
        raise ValueError(f"{text!r} is no duration; write it like 30s, 45m or 1h30m")
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
