"""Names as Slurm has them, and lists of them in Slurm's short form: `train-[001-003,007]`.

From `man slurm.conf`, 'NodeName': a range fills its numbers up to the width of the first one. A
list made here names exactly the nodes that it was made of.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from gpuform.stacks.placing.model import NoTopology

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,62}[A-Za-z0-9_])?")
_NUMBERED: Final = re.compile(r"(.*?[^0-9])([0-9]{1,9})")
"""Longer numbers stand as they are: Slurm reads them as numbers of a machine word."""
_RESERVED: Final = frozenset({"default", "all"})


def is_slurm_name(text: str) -> bool:
    """Whether Slurm takes it for the name of one node, switch or block.

    DEFAULT and ALL mean something else there; commas, brackets, `=`, `#` and blanks divide.
    """
    return _NAME.fullmatch(text) is not None and text.lower() not in _RESERVED


def checked(text: str, what: str) -> str:
    """The text. Raises NoTopology when Slurm would read it as something else."""
    if not is_slurm_name(text):
        raise NoTopology(
            f"{what} {text!r} is no name that Slurm takes",
            hint="a name has letters, digits, '-', '_' and '.', at most 64 of them, and is neither "
            "DEFAULT nor ALL: rename it on its platform, or name the other clusters",
        )
    return text


def compressed(names: Iterable[str]) -> str:
    """The names, each once, in Slurm's short form and in a fixed order."""
    plain: list[str] = []
    numbered: dict[str, set[tuple[int, int]]] = {}
    for name in sorted(set(names)):
        found = _NUMBERED.fullmatch(name)
        if found is None:
            plain.append(name)
        else:
            numbers = numbered.setdefault(found[1], set())
            numbers.add((len(found[2]), int(found[2])))
    parts = [*plain, *(_bracketed(head, sorted(found)) for head, found in numbered.items())]
    return ",".join(sorted(parts))


def _bracketed(head: str, numbers: Sequence[tuple[int, int]]) -> str:
    ranges = list(_ranges(numbers))
    is_one = len(numbers) == 1
    return f"{head}{ranges[0]}" if is_one else f"{head}[{','.join(ranges)}]"


def _ranges(numbers: Sequence[tuple[int, int]]) -> Iterator[str]:
    begin = last = numbers[0]
    for each in [*numbers[1:], None]:
        after = f"{last[1] + 1:0{begin[0]}d}"
        if each == (len(after), last[1] + 1):
            last = each
            continue
        first = f"{begin[1]:0{begin[0]}d}"
        yield first if begin == last else f"{first}-{last[1]:0{begin[0]}d}"
        if each is not None:
            begin = last = each
