"""What a pickled provider says, whatever the order in which the pickler came upon it.

A provider that is defined in the program is pickled with its code. Sets come out in another order
in each process, and the code names the folder that it is in; neither is a change of the provider.
"""

import base64
import binascii
import pickletools
from functools import cache

_MEMO = frozenset(
    {"MEMOIZE", "PUT", "BINPUT", "LONG_BINPUT", "GET", "BINGET", "LONG_BINGET", "FRAME"}
)


@cache
def contents(text: str) -> str:
    """The parts of a pickle in base64, sorted; the text itself when it is none."""
    try:
        parts = [
            f"{code.name} {argument!r}"
            for code, argument, _ in pickletools.genops(base64.b64decode(text, validate=True))
            if code.name not in _MEMO and not _is_place(argument)
        ]
    except (binascii.Error, ValueError):
        return text
    return "\n".join(sorted(parts))


def _is_place(argument: object) -> bool:
    return isinstance(argument, str) and argument.endswith(".py")
