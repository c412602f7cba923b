"""Resources of a topology have their entry's line as their place, as a program's have theirs."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from gpuform.stacks.document.diagnostics import Place

_Made = TypeVar("_Made")
_CODE: Final = compile("make()", "", "eval")


def declared_at(place: Place, make: Callable[[], _Made]) -> _Made:
    """What `make` makes, called from this place in the file, and from where that is included.

    Pulumi's SDK tells engines the lines of the stack of calls: one of these is the entry's, under
    the Pulumi CLI as well.
    """
    called = partial(_called, place, make)
    for outer in place.included:
        if not outer.file.endswith(".py"):  # a program's line is among its own
            called = partial(_called, outer, called)
    return called()


def _called(place: Place, make: Callable[[], _Made]) -> _Made:
    file = str(Path(place.file).resolve())
    code = _CODE.replace(co_filename=file, co_firstlineno=place.line, co_name=file)
    made: _Made = eval(code, {"make": make})  # noqa: S307 - our own two words
    return made
