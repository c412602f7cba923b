"""Texts of a fixed form, in the files that are beside a topology."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

_FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_PLAIN_NAME: Final = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def is_plain_name(text: str) -> bool:
    """Whether it can stand on any command line as it is: small letters, digits, hyphens."""
    return _PLAIN_NAME.fullmatch(text) is not None


def _currency(text: str) -> str:
    if not re.fullmatch("[A-Z]{3}", text):
        raise ValueError("must be a currency's code of three capital letters, such as USD")
    return text


def _function(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        raise ValueError("must name a function as MODULE:NAME, such as policies:not_on_fridays")
    return text


Currency = Annotated[str, AfterValidator(_currency)]
Function = Annotated[str, AfterValidator(_function)]
