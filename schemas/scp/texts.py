"""The texts of a GPU node's declaration, checked as the platform's own provider checks them.

The names, lengths and characters are from the official Terraform provider (gpunode_resource.go);
the API reference has no rules.
"""

import re
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated, Final

from pydantic import AfterValidator, Field

LONGEST_NODE_NAME: Final = 24
LONGEST_PREFIX: Final = LONGEST_NODE_NAME - len("-000")
PASSWORD_SIGNS: Final = "@$!%*#&"  # noqa: S105 - what passwords are made of
LONGEST_INIT_SCRIPT: Final = 16384
NODE_NAME_RULE: Final = (
    f"must have 3 to {LONGEST_NODE_NAME} lower-case letters, digits and hyphens, begin with a "
    "letter and not end with a hyphen"
)

_FABRIC = re.compile(r"[a-zA-Z][a-zA-Z0-9-]{1,13}[a-zA-Z0-9]")
_NODE = re.compile(r"[a-z][a-z0-9-]{1,22}[a-z0-9]")
_PREFIX = re.compile(rf"[a-z][a-z0-9-]{{1,{LONGEST_PREFIX - 2}}}[a-z0-9]")
_PASSWORD = re.compile(rf"[A-Za-z0-9{PASSWORD_SIGNS}]{{9,20}}")


def checked_fabric_name(text: str) -> str:
    """Raises ValueError that says the rule."""
    if not _FABRIC.fullmatch(text):
        raise ValueError(
            "must have 3 to 15 letters, digits and hyphens, begin with a letter and not end with a "
            "hyphen"
        )
    return text


def is_node_name(text: str) -> bool:
    """Whether the platform takes it for the name of a Linux GPU node."""
    return _NODE.fullmatch(text) is not None


def checked_node_name(text: str) -> str:
    """Raises ValueError that says the rule."""
    if not is_node_name(text):
        raise ValueError(NODE_NAME_RULE)
    return text


def checked_prefix(text: str) -> str:
    """Raises ValueError that says the rule."""
    if not _PREFIX.fullmatch(text):
        raise ValueError(
            f"must have 3 to {LONGEST_PREFIX} lower-case letters, digits and hyphens, begin with a "
            "letter and not end with a hyphen: -001, -002, ... are added to it"
        )
    return text


def checked_password(text: str) -> str:
    """Raises ValueError that says the rule, and never the password."""
    kinds = (str.isupper, str.islower, str.isdigit, PASSWORD_SIGNS.__contains__)
    if not _PASSWORD.fullmatch(text) or not all(any(map(kind, text)) for kind in kinds):
        raise ValueError(
            "must have 9 to 20 characters: upper-case letters, lower-case letters, digits and "
            f"signs ({' '.join(PASSWORD_SIGNS)}), at least one of each and no others"
        )
    return text


def checked_ip_address(text: str) -> str:
    """Raises ValueError when it is no IPv4 address."""
    try:
        IPv4Address(text)
    except ValueError:
        raise ValueError(
            f"{text} is not an IPv4 address: use one of the subnet, such as 192.168.0.10"
        ) from None
    return text


def checked_tags(tags: Mapping[str, str]) -> Mapping[str, str]:
    """Raises ValueError that names the tag which is too long."""
    for key, value in tags.items():
        if not 1 <= len(key) <= 128:
            raise ValueError(f"the key {key[:20]!r} must have 1 to 128 characters")
        if len(value) > 256:
            raise ValueError(f"the value of {key!r} must have at most 256 characters")
    return tags


FabricName = Annotated[str, AfterValidator(checked_fabric_name)]
NodeName = Annotated[str, AfterValidator(checked_node_name)]
NamePrefix = Annotated[str, AfterValidator(checked_prefix)]
Password = Annotated[str, AfterValidator(checked_password)]
InitScript = Annotated[str, Field(max_length=LONGEST_INIT_SCRIPT)]
IpAddress = Annotated[str, AfterValidator(checked_ip_address)]
Tags = Annotated[dict[str, str], AfterValidator(checked_tags)]
