"""JSON that every reader takes as it is meant: line by line, on a terminal, in the log of a job."""

import json
import re
import unicodedata
from typing import Any, Final

from gpuform.schemas.visible import HIDDEN

_SUSPECT: Final = re.compile(r"[^ -~\n\t]|(?<=#)#")


def json_text(value: Any, *, indent: int | None = None, compact: bool = False) -> str:
    """The value as JSON, in which what cannot be seen is escaped.

    So is the second of two `#`: some CI systems look for commands behind them.
    """
    separators = (",", ":") if compact else None
    text = json.dumps(value, indent=indent, separators=separators, ensure_ascii=False)
    return _SUSPECT.sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    character = found[0]
    if character != "#" and unicodedata.category(character) not in HIDDEN:
        return character
    return "\\u0023" if character == "#" else json.dumps(character)[1:-1]
