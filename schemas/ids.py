"""Validate ids, names and namespaces as platforms and Kubernetes accept them.

Used by the wire models and the Kubernetes clients. No platform documents the form of its ids; all
that can be required everywhere is one visible line, because ids get into request paths, files of
other programs and logs. Rules of Kubernetes are from its page 'Object Names and IDs'.
"""

import re
from typing import Annotated, Final

from pydantic import AfterValidator

from gpuform.schemas.safe_text import is_visible_line, replace_invisible

MAX_LENGTH: Final = 256
_REPLACEMENT_CHARACTER: Final = "\ufffd"
"""Stands for a character that cannot be shown. No declared name may contain it."""


def validate_id(text: str) -> str:
    """Return ``text`` if allowed as the id of an object in a request path.

    Raises:
        ValueError: the text is empty, `.` or `..` (which a path would resolve), too long, or has
            invisible characters. The message contains the rule and never the text.
    """
    if text in ("", ".", ".."):
        raise ValueError("must not be empty or only dots")
    return validate_line(text)


def validate_line(text: str) -> str:
    """Return ``text`` if empty or one visible line of at most `MAX_LENGTH` characters.

    Raises:
        ValueError: with the rule, never the text.
    """
    if len(text) > MAX_LENGTH:
        raise ValueError(f"must have at most {MAX_LENGTH} characters")
    if not is_visible_line(text) or _REPLACEMENT_CHARACTER in text:
        raise ValueError("must be one line without control characters and direction marks")
    return text


def to_readable_name(text: str) -> str:
    """Return a name from a platform's answer as one short visible line.

    Objects of other people may have any name, and must not make a list unreadable. A name that was
    changed here contains a character that `validate_line` refuses, so it never equals a declared
    name.
    """
    if len(text) > MAX_LENGTH:
        text = text[: MAX_LENGTH - 1] + _REPLACEMENT_CHARACTER
    return replace_invisible(text, _REPLACEMENT_CHARACTER)


Id = Annotated[str, AfterValidator(validate_id)]
"""The id of an object that requests address."""

Line = Annotated[str, AfterValidator(validate_line)]
"""A name or an id that is only reported; may be empty."""

ForeignName = Annotated[str, AfterValidator(to_readable_name)]
"""A name in a platform's answer; may be empty."""


DEFAULT_NAMESPACE: Final = "default"

# At most 253 characters: Kubernetes' limit of a DNS subdomain name.
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
# At most 63 characters: Kubernetes' limit of a DNS label.
_NAMESPACE: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


def _validate_kubernetes_name(text: str) -> str:
    """Return ``text`` if a DNS subdomain name, as most names in Kubernetes; else ValueError."""
    if not _NAME.fullmatch(text):
        raise ValueError(f"{text!r} is not a name in Kubernetes: use a-z, 0-9 and -")
    return text


def _validate_namespace(text: str) -> str:
    """Return ``text`` if a DNS label, the form of namespaces in Kubernetes; else ValueError."""
    if not _NAMESPACE.fullmatch(text):
        raise ValueError(f"{text!r} is not a namespace: use a-z, 0-9 and -, at most 63 of them")
    return text


Name = Annotated[str, AfterValidator(_validate_kubernetes_name)]
Namespace = Annotated[str, AfterValidator(_validate_namespace)]
