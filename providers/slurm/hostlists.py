"""Slurm's short way to write many names: `w[0-2,7]` is w0, w1, w2 and w7."""

import re
from itertools import product

_NAME = r"(?:[\w.-]|\[\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*\])+"
_LIST = re.compile(f"{_NAME}(?:,{_NAME})*", re.ASCII)
_NAMES = re.compile(_NAME, re.ASCII)
_PARTS = re.compile(r"\[([\d,-]+)\]|([^\[\]]+)")
_MOST = 100_000


def expanded(hostlist: str) -> list[str]:
    """The names of a hostlist expression, in its order; none of an empty one.

    Raises ValueError when it is not one, or one of more names than a Slurm has nodes.
    """
    if not hostlist:
        return []
    if not _LIST.fullmatch(hostlist):
        raise ValueError(f"{hostlist!r} is no hostlist expression")
    return [name for written in _NAMES.findall(hostlist) for name in _names(written)]


def _names(written: str) -> list[str]:
    parts = [_numbers(ranges) if ranges else [text] for ranges, text in _PARTS.findall(written)]
    return ["".join(chosen) for chosen in product(*parts)]


def _numbers(ranges: str) -> list[str]:
    """The numbers of `00-02,7`, with the zeros in front of them that the first one has."""
    numbers = []
    for each in ranges.split(","):
        first, _, last = each.partition("-")
        wanted = range(int(first), int(last or first) + 1)
        if not 0 < len(wanted) <= _MOST:
            raise ValueError(f"[{ranges}] is no range of names")
        numbers += [f"{number:0{len(first)}}" for number in wanted]
    return numbers
