"""Kubernetes' quantities of storage: `10Gi`, `1.5Ti`, `500G`, plain bytes.

Source: the Kubernetes API reference, 'Quantity'.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

_FORM: Final = re.compile(
    r"(\d+(?:\.\d*)?|\.\d+)(?:[eE]([+-]?\d{1,2})|([KMGTPE]i|[kMGTPE]))?", re.ASCII
)
_FACTORS: Final[Mapping[str, int]] = {
    **{f"{letter}i": 1024**power for power, letter in enumerate("KMGTPE", 1)},
    **{letter: 1000**power for power, letter in enumerate("kMGTPE", 1)},
}


def bytes_of(quantity: str) -> Decimal:
    """How many bytes a quantity is. Raises ValueError for what is none."""
    found = _FORM.fullmatch(quantity)
    if found is None:
        raise ValueError(f"{quantity!r} is no quantity: write a number with a unit, such as 10Gi")
    number, exponent, suffix = found.groups()
    return Decimal(f"{number}e{exponent or 0}") * _FACTORS.get(suffix, 1)


def checked_quantity(quantity: str) -> str:
    """The quantity, when it is more than nothing."""
    if bytes_of(quantity) <= 0:
        raise ValueError("is nothing: ask for some storage, such as 10Gi")
    return quantity
