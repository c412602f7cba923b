"""How many nodes, as people declare it: a number, or a share of all."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

_SHARE: Final = re.compile(r"([1-9][0-9]?|100)%", re.ASCII)


def _checked(value: str | int | None) -> str | int | None:
    if isinstance(value, int) and value < 1:
        raise ValueError(f"{value} is no number of nodes: write 1 or more")
    if isinstance(value, str) and not _SHARE.fullmatch(value):
        raise ValueError(f"{value} is no number of nodes: write one, such as 2, or a share, as 25%")
    return value


NodeNumber = Annotated[str | int | None, AfterValidator(_checked)]


def number_of(wanted: str | int, nodes: int) -> int:
    """The number that is meant of so many nodes; a share is rounded down, to 1 at the least."""
    if isinstance(wanted, str):
        return max(1, nodes * int(wanted.removesuffix("%")) // 100)
    return wanted
