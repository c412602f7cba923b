"""How people get on what a resource stands for: credentials, hosts to log in to, ports.

Platforms tell it of their own resources; what writes files and runs commands knows no platform.
What they tell ends up in a file of OpenSSH's, on a command line and in a browser: each part has
the form that it needs there, or is not used.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from gpuform.schemas.safe_text import escape_invisible

_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:-]{0,253}[A-Za-z0-9_.])?")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,254}")
_URL: Final = re.compile(
    r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?([/?#][!#$%&'()*+,./0-9:;=?@A-Z_a-z~-]*)?"
)
_PORTS: Final = 65_536


def is_host(text: str) -> bool:
    """Whether it can stand as a host in SSH's configuration and on its command line."""
    return _HOST.fullmatch(text) is not None


def is_user(text: str) -> bool:
    """Whether it can stand as a user there."""
    return _USER.fullmatch(text) is not None


def is_jump(text: str) -> bool:
    """Whether it can stand as a jump host there: [USER@]HOST[:PORT]."""
    user, at, place = text.rpartition("@")
    host, colon, port = place.partition(":")
    has_port = port.isascii() and port.isdigit() and 0 < int(port) < _PORTS
    return (not at or is_user(user)) and is_host(host) and (not colon or has_port)


def is_url(text: str) -> bool:
    """Whether a browser takes it for the address of a page, and nothing else."""
    return _URL.fullmatch(text) is not None


def _address(text: str) -> str:
    if text and not is_host(text):
        raise ValueError("must be the name or the address of a host")
    return text


def _login(text: str) -> str:
    if text and not is_user(text):
        raise ValueError("must be a login name")
    return text


def checked_jump(text: str) -> str:
    """The text, or none. Raises ValueError for what is no jump host."""
    if text and not is_jump(text):
        raise ValueError("must be a jump host: [USER@]HOST[:PORT]")
    return text


def _url(text: str) -> str:
    if text and not is_url(text):
        raise ValueError("must be the address of a page")
    return text


Shown = Annotated[str, AfterValidator(escape_invisible)]
"""What is only shown: one line, in which nothing is hidden."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Host(_Part):
    """A machine to log in to by SSH."""

    node: Shown = Field(description="Its name among its cluster's, in the platform's words.")
    address: Annotated[str, AfterValidator(_address)] = Field(
        default="", description="Its name or address in a network."
    )
    port: int = Field(default=22, ge=1, le=65535, description="Port of its SSH server.")
    user: Annotated[str, AfterValidator(_login)] = Field(
        default="", description="Who logs in; empty: the platform does not say."
    )
    role: Literal["worker", "login", "machine"] = Field(
        default="worker", description="A worker of a cluster, Slurm's login node, or all there is."
    )
    jump: Annotated[str, AfterValidator(checked_jump)] = Field(
        default="", description="The host on the way to it, [USER@]HOST[:PORT]; empty: none."
    )
    because: Shown = Field(default="", description="Why one cannot log in to it now.")

    @classmethod
    def of(
        cls, node: str, address: str, *, user: str = "", jump: str = "", because: str = ""
    ) -> Self:
        """A worker; an address that is none is not used."""
        if not is_host(address):
            address, because = "", because or "the platform tells no address of it"
        return cls(node=node, address=address, user=user, jump=jump, because=because)

    @property
    def way(self) -> str:
        """Its jump host with who logs in there: where none is told, the same as on the host."""
        named = not self.jump or "@" in self.jump or not self.user
        return self.jump if named else f"{self.user}@{self.jump}"


class Port(_Part):
    """A port that is reached from outside."""

    number: int = Field(description="The port inside the cluster.")
    url: Annotated[str, AfterValidator(_url)] = Field(
        description="Where it is from outside; empty: the platform tells no address of a page."
    )

    @classmethod
    def of(cls, number: int, url: str) -> Self:
        """An address that is none is not used."""
        return cls(number=number, url=url if is_url(url) else "")


class Access(_Part):
    """The ways to get on one resource."""

    name: Shown = Field(description="Its name on the platform.")
    kubeconfig: SecretStr | None = Field(
        default=None, description="Credential for Kubernetes, as YAML."
    )
    no_kubeconfig: Shown = Field(default="", description="Why there is no credential.")
    hosts: tuple[Host, ...] = Field(default=(), description="Machines to log in to.")
    no_hosts: Shown = Field(default="", description="Why there are none.")
    ports: tuple[Port, ...] = Field(default=(), description="Ports that are reached from outside.")
    prefers: Literal["kubectl", "ssh", "slurm"] = Field(
        default="ssh", description="How people mostly work on it."
    )
