"""Which plain scalars are not text.

Narrower than YAML 1.1 and 1.2, so that nothing turns into something else unnoticed: `no`, `1e3`,
`0o7`, `007`, `1_000`, `1:30`, dates and numbers that a double cannot hold stay the text they are.
Where a field wants a number or true and false, its own check then says how to write it.
"""

import re
from typing import Final

_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOL: Final = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,15})")
_DECIMAL: Final = re.compile(r"-?(0|[1-9][0-9]{0,15})\.[0-9]{1,15}")
_LARGEST: Final = 2**53


def value_of(text: str) -> str | int | float | bool | None:
    """What a plain scalar means."""
    if text in _NULL:
        return None
    if text in _BOOL:
        return _BOOL[text]
    if _INTEGER.fullmatch(text) and abs(int(text)) <= _LARGEST:
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text
