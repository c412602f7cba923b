"""Property paths, as checks name them: `add_ons[0].name`."""

import re
from collections.abc import Iterator

_STEP = re.compile(r"\[(\d+)\]|[^.\[\]]+")


def steps_of(path: str) -> Iterator[str | int]:
    """The keys and indexes of a property path."""
    for match in _STEP.finditer(path):
        yield int(match[1]) if match[1] else match[0]
