"""The kubeconfig of a cluster as a platform gives it out: what gpuform takes of it.

A kubeconfig can name programs to run, files of this machine to read or to send, and other people to
be. A platform has to say none of that of its own cluster: whoever says it is not believed at all.
"""

import base64
import binascii
import re
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gpuform.schemas.ids import Line

_SERVER: Final = re.compile(
    r"https?://([A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~:@%+-]*)*"
)
_REFUSED: Final = {
    "exec": "runs a program on this machine",
    "auth-provider": "runs a program on this machine",
    "tokenFile": "sends a file of this machine",
    "client-certificate": "reads a file of this machine",
    "client-key": "reads a file of this machine",
    "certificate-authority": "reads a file of this machine",
    "proxy-url": "sends requests by way of somebody else",
    "as": "signs in as somebody else",
    "as-uid": "signs in as somebody else",
    "as-groups": "signs in as somebody else",
    "as-user-extra": "signs in as somebody else",
}
OF_THIS_MACHINE: Final = tuple(name for name, why in _REFUSED.items() if "this machine" in why)
"""The keys by which a kubeconfig names files and programs of the machine that reads it."""
_LEFT_OUT: Final = frozenset({"extensions", "disable-compression"})


def _server(text: str) -> str:
    if not _SERVER.fullmatch(text):
        raise ValueError("must be an address of http or https")
    return text


def _pem(text: str) -> str:
    try:
        base64.b64decode(text, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ValueError("must be PEM in base64") from None
    return text


def _sent(text: str) -> str:
    """What goes into the header of a request."""
    if not (text and text.isascii() and text.isprintable()):
        raise ValueError("must be printable characters")
    return text


Pem = Annotated[str, AfterValidator(_pem)]
Sent = Annotated[str, AfterValidator(_sent)]


def _spelled(name: str) -> str:
    return name.replace("_", "-")


class _Part(BaseModel):
    model_config = ConfigDict(
        alias_generator=_spelled, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    def said(self) -> dict[str, Any]:
        """As a kubeconfig says it."""
        return self.model_dump(by_alias=True, exclude_none=True)


Part = TypeVar("Part", bound=_Part)


class ClusterPart(_Part):
    """Where the API server is, and who vouches for it."""

    server: Annotated[str, AfterValidator(_server)]
    certificate_authority_data: Pem | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: Line | None = None


class UserPart(_Part):
    """How to sign in."""

    token: Sent | None = Field(default=None, repr=False)
    username: Sent | None = None
    password: Sent | None = Field(default=None, repr=False)
    client_certificate_data: Pem | None = Field(default=None, repr=False)
    client_key_data: Pem | None = Field(default=None, repr=False)


class ContextPart(_Part):
    """What belongs together, by names that hold in this document alone."""

    cluster: str
    user: str
    namespace: Line | None = None


class Kubeconfig(BaseModel):
    """The parts of the current context; of the first one where none is the current one."""

    model_config = ConfigDict(frozen=True)

    cluster: ClusterPart
    user: UserPart
    context: ContextPart

    @classmethod
    def read(cls, document: Any) -> Self:
        """Of a parsed document. Raises ValueError that says what is wrong, without its values."""
        try:
            contexts = _entries(document, "contexts", "context")
            chosen = document.get("current-context") or next(iter(contexts))
            context = _checked(ContextPart, contexts[chosen], "context")
            cluster = _entries(document, "clusters", "cluster")[context.cluster]
            user = _entries(document, "users", "user")[context.user]
        except (AttributeError, KeyError, TypeError, StopIteration):
            raise ValueError("is no kubeconfig") from None
        return cls(
            cluster=_checked(ClusterPart, cluster, "cluster"),
            user=_checked(UserPart, user, "user"),
            context=context,
        )


def _entries(document: Any, section: str, part: str) -> dict[Any, dict[str, Any]]:
    """By name; raises KeyError, TypeError or AttributeError when it is none of that."""
    return {each["name"]: dict(each[part]) for each in document[section]}


def _checked(model: type[Part], held: dict[str, Any], what: str) -> Part:
    said = {
        key: value
        for key, value in held.items()
        if key not in _LEFT_OUT and value is not None and value != ""
    }
    for key, why in _REFUSED.items():
        if key in said:
            raise ValueError(f"has {key!r} in its {what}, which {why}")
    try:
        return model.model_validate(said)
    except ValidationError as error:
        found = error.errors(include_input=False, include_url=False)
        known = {_spelled(name) for name in model.model_fields}
        names = [str(each["loc"][0]) for each in found]
        told = [name if name in known else "something unknown" for name in names]
        raise ValueError(f"cannot be used ({what}: {', '.join(dict.fromkeys(told))})") from None
