"""How people get on what a resource stands for: credentials, hosts to log in to, ports.

Platforms tell it of their own resources; what writes files and runs commands knows no platform.
"""

import re
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field, SecretStr

# What comes from a platform ends up in a file of OpenSSH's and on a command line.
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:-]*[A-Za-z0-9_.])?")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]*")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)


class Host(_Part):
    """A machine to log in to by SSH."""

    node: str = Field(description="Its name among its cluster's, in the platform's words.")
    address: str = Field(default="", description="Its name or address in a network.")
    port: int = Field(default=22, ge=1, le=65535, description="Port of its SSH server.")
    user: str = Field(default="", description="Who logs in; empty: the platform does not say.")
    role: Literal["worker", "login", "machine"] = Field(
        default="worker", description="A worker of a cluster, Slurm's login node, or all there is."
    )
    because: str = Field(default="", description="Why one cannot log in to it now.")

    @classmethod
    def of(cls, node: str, address: str, *, user: str = "", because: str = "") -> "Host":
        """A worker; an address that is none is not used."""
        if not because and not is_host(address):
            because = "the platform tells no address of it"
        return cls(node=node, address=address, user=user, because=because)


class Port(_Part):
    """A port that is reached from outside."""

    number: int = Field(description="The port inside the cluster.")
    url: str = Field(description="Where it is from outside.")


class Access(_Part):
    """The ways to get on one resource."""

    name: str = Field(description="Its name on the platform.")
    kubeconfig: SecretStr | None = Field(
        default=None, description="Credential for Kubernetes, as YAML."
    )
    no_kubeconfig: str = Field(default="", description="Why there is no credential.")
    hosts: tuple[Host, ...] = Field(default=(), description="Machines to log in to.")
    no_hosts: str = Field(default="", description="Why there are none.")
    ports: tuple[Port, ...] = Field(default=(), description="Ports that are reached from outside.")
    prefers: Literal["kubectl", "ssh", "slurm"] = Field(
        default="ssh", description="How people mostly work on it."
    )


def is_host(text: str) -> bool:
    """Whether it can stand as a host in SSH's configuration and on its command line."""
    return _HOST.fullmatch(text) is not None


def is_user(text: str) -> bool:
    """Whether it can stand as a user there."""
    return _USER.fullmatch(text) is not None
