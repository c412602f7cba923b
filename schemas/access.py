"""Describe how people reach a resource: credentials, hosts to log in to, ports.

The platforms' lifecycles report access; `gpuform access` and the export of SSH configuration write
files and run commands from it. The values end up in OpenSSH's configuration, on a command line and
in a browser: each part must match the grammar needed there, or is not used.
"""

import re
from typing import Annotated, Final, Literal, Self

from pydantic import AfterValidator, Field, SecretStr

from gpuform.schemas.models import FrozenModel, optional_field
from gpuform.schemas.safe_text import escape_invisible

# a host that begins with a hyphen would be an option of ssh
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:-]{0,253}[A-Za-z0-9_.])?")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,254}")
_URL: Final = re.compile(
    r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?([/?#][!#$%&'()*+,./0-9:;=?@A-Z_a-z~-]*)?"
)
_PORT_LIMIT: Final = 65_536


def is_valid_host(text: str) -> bool:
    """Return True if ``text`` has the form of a host name or IP address that SSH accepts.

    Such a text has letters, digits and ``._:-`` only, so it is safe in SSH's configuration and on
    its command line.
    """
    return _HOST.fullmatch(text) is not None


def is_valid_user(text: str) -> bool:
    """Return True if ``text`` has the form of a login name that SSH accepts.

    Such a text has letters, digits and ``._@-`` only, so it is safe in SSH's configuration and on
    its command line.
    """
    return _USER.fullmatch(text) is not None


def is_valid_jump_host(text: str) -> bool:
    """Return True if ``text`` has the form of an SSH jump host: [USER@]HOST[:PORT].

    Such a text is safe in SSH's configuration and on its command line. HOST is no IPv6 address,
    whose colons would be read as a port.
    """
    user, at, address = text.rpartition("@")
    # an IPv6 address is no jump host here, as its colons would be read as a port
    host, colon, port = address.partition(":")
    # str.isdigit alone accepts digits of other scripts.
    has_port = port.isascii() and port.isdigit() and 0 < int(port) < _PORT_LIMIT
    return (not at or is_valid_user(user)) and is_valid_host(host) and (not colon or has_port)


def is_page_url(text: str) -> bool:
    """Return True if a browser reads ``text`` as the address of a page, and as nothing else.

    Only http and https, without credentials, and without characters that have to be escaped.
    """
    return _URL.fullmatch(text) is not None


def _validate_host(text: str) -> str:
    """Return ``text`` if empty or a valid host name or IP address. Raises ValueError otherwise."""
    if text and not is_valid_host(text):
        raise ValueError("must be the name or the address of a host")
    return text


def _validate_user(text: str) -> str:
    """Return ``text`` if empty or a valid login name. Raises ValueError otherwise."""
    if text and not is_valid_user(text):
        raise ValueError("must be a login name")
    return text


def validate_jump_host(text: str) -> str:
    """Return ``text`` if empty or a jump host of SSH, [USER@]HOST[:PORT]; else raise ValueError."""
    if text and not is_valid_jump_host(text):
        raise ValueError("must be a jump host: [USER@]HOST[:PORT]")
    return text


def _validate_url(text: str) -> str:
    """Return ``text`` if empty or the URL of a page for browsers. Raises ValueError otherwise."""
    if text and not is_page_url(text):
        raise ValueError("must be the address of a page")
    return text


VisibleText = Annotated[str, AfterValidator(escape_invisible)]
"""Text that is only shown: one line without invisible characters."""


class Host(FrozenModel):
    """A machine to log in to by SSH."""

    node: VisibleText = Field(description="Name of the node, as the platform reports it.")
    address: Annotated[str, AfterValidator(_validate_host)] = Field(
        default="", description="Name or address of the node in a network."
    )
    port: int = Field(default=22, ge=1, le=65535, description="Port of the node's SSH server.")
    user: Annotated[str, AfterValidator(_validate_user)] = Field(
        default="", description="User who logs in; empty if the platform reports none."
    )
    role: Literal["worker", "login", "machine"] = Field(
        default="worker",
        description="A worker of a cluster, Slurm's login node, or the only machine.",
    )
    jump: Annotated[str, AfterValidator(validate_jump_host)] = Field(
        default="", description="The jump host, [USER@]HOST[:PORT]; empty: none."
    )
    because: VisibleText = Field(default="", description="Why nobody can log in to the node now.")

    @classmethod
    def from_address(
        cls, node: str, address: str, *, user: str = "", jump: str = "", because: str = ""
    ) -> Self:
        """Return the SSH host of a worker node with the address reported for the node.

        An invalid or empty address is dropped; `because`, or else a standard text, then says why
        nobody can log in.
        """
        # a platform's text must never become an option or a second line of a file
        if not is_valid_host(address):
            address, because = "", because or "the platform reports no address"
        return cls(node=node, address=address, user=user, jump=jump, because=because)

    @property
    def jump_with_user(self) -> str:
        """The jump host with its user; empty without a jump host.

        A jump host without a user of its own gets the user of the host.
        """
        is_complete = not self.jump or "@" in self.jump or not self.user
        return self.jump if is_complete else f"{self.user}@{self.jump}"


class Port(FrozenModel):
    """A port that is reached from outside."""

    number: int = Field(description="The port inside the cluster.")
    url: Annotated[str, AfterValidator(_validate_url)] = Field(
        description="Address from outside; empty if the platform reports no address of a page."
    )

    @classmethod
    def from_url(cls, number: int, url: str) -> Self:
        """Return the port with its public URL. A URL that no browser can open is dropped."""
        return cls(number=number, url=url if is_page_url(url) else "")


class SshAuthority(FrozenModel):
    """Where users get short-lived SSH certificates for the machines of one cluster."""

    issuer: Annotated[str, AfterValidator(_validate_url)] = Field(
        description="OIDC issuer at which users log in."
    )
    sign_url: Annotated[str, AfterValidator(_validate_url)] = Field(
        description="Address of step-ca that signs a user's key."
    )
    bastion: Annotated[str, AfterValidator(_validate_host)] = Field(
        description="The jump host to all machines of the cluster."
    )
    cluster_id: VisibleText = Field(description="The id of the cluster in these addresses.")
    client_id: str = Field(default="together-cli", description="The OIDC client of the login.")
    scope: str = Field(default="openid email", description="The OIDC scopes of the login.")


class Access(FrozenModel):
    """The ways to reach one resource."""

    name: VisibleText = Field(description="Name of the resource on the platform.")
    kubeconfig: SecretStr | None = optional_field("Credential for Kubernetes, as YAML.")
    no_kubeconfig: VisibleText = Field(
        default="", description="Why the resource has no credential."
    )
    hosts: tuple[Host, ...] = Field(default=(), description="Machines to log in to.")
    no_hosts: VisibleText = Field(default="", description="Why the resource has no hosts.")
    ports: tuple[Port, ...] = Field(
        default=(), description="Ports that are reachable from outside."
    )
    ssh_authority: SshAuthority | None = optional_field(
        "Where users get SSH certificates for the machines; None: keys are enough."
    )
    prefers: Literal["kubectl", "ssh", "slurm"] = Field(
        default="ssh", description="How people usually work with the resource."
    )
