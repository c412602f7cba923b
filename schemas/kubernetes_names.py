"""What objects and namespaces of Kubernetes may be called (its page 'Object Names and IDs')."""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

DEFAULT_NAMESPACE: Final = "default"

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _checked_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no name in Kubernetes: use a-z, 0-9 and -")
    return text


def _checked_namespace(text: str) -> str:
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(f"{text!r} is no namespace: use a-z, 0-9 and -, at most 63 of them")
    return text


Name = Annotated[str, AfterValidator(_checked_name)]
Namespace = Annotated[str, AfterValidator(_checked_namespace)]
