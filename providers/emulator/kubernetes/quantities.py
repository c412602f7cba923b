"""Quantities such as `10Gi` and `500m`, as numbers."""

import re
from decimal import Decimal

_FORM = re.compile(
    r"^([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([eE][+-]?\d+)|([KMGTPE]i|[numkMGTPE]))?$", re.ASCII
)
_BINARY = {f"{letter}i": 1024 ** (at + 1) for at, letter in enumerate("KMGTPE")}
_DECIMAL = {"n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3")}
_DECIMAL |= {letter: Decimal(10) ** (3 * at) for at, letter in enumerate("kMGTPE", start=1)}


def amount(text: object) -> Decimal:
    """Raises ValueError for what is no quantity."""
    found = _FORM.match(str(text))
    if found is None:
        raise ValueError(f"quantities must match the regular expression, not {text!r}")
    number, exponent, suffix = found.groups()
    if exponent:
        return Decimal(number + exponent)
    return Decimal(number) * (_BINARY.get(suffix or "") or _DECIMAL.get(suffix or "", Decimal(1)))
