"""Describe how people reach a resource: credentials, hosts to log in to, ports.

The platforms' lifecycles report access; `gpuform access` and the export of SSH configuration write
files and run commands from it. The values end up in OpenSSH's configuration, on a command line and
in a browser: each part must match the grammar needed there, or is not used.

Kubernetes clients read the kubeconfig of a cluster, as a platform reports it, with `Kubeconfig`. A
kubeconfig can name programs to run, files of this machine to read or to send, and other identities
to assume. A platform needs none of these for its own cluster, so a kubeconfig with one of them is
refused entirely.
"""

import base64
import binascii
import re
from typing import Annotated, Any, Final, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr, ValidationError

from gpuform.schemas.models import FrozenModel, Line, optional_field
from gpuform.schemas.safe_text import escape_invisible

# a host that begins with a hyphen would be an option of ssh
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9._:-]{0,253}[A-Za-z0-9_.])?")
_USER: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,254}")
_URL: Final = re.compile(
    r"https?://[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?([/?#][!#$%&'()*+,./0-9:;=?@A-Z_a-z~-]*)?"
)
_PORT_LIMIT: Final = 65_536


def is_valid_host(host: str) -> bool:
    """Return True if ``host`` has the form of a host name or IP address that SSH accepts.

    Such a text has letters, digits and ``._:-`` only, so it is safe in SSH's configuration and on
    its command line.
    """
    return _HOST.fullmatch(host) is not None


def is_valid_user(user: str) -> bool:
    """Return True if ``user`` has the form of a login name that SSH accepts.

    Such a text has letters, digits and ``._@-`` only, so it is safe in SSH's configuration and on
    its command line.
    """
    return _USER.fullmatch(user) is not None


def is_valid_jump_host(jump_host: str) -> bool:
    """Return True if ``jump_host`` has the form of an SSH jump host: [USER@]HOST[:PORT].

    Such a text is safe in SSH's configuration and on its command line. HOST is no IPv6 address,
    whose colons would be read as a port.
    """
    user, at, address = jump_host.rpartition("@")
    # an IPv6 address is no jump host here, as its colons would be read as a port
    host, colon, port = address.partition(":")
    # str.isdigit alone accepts digits of other scripts.
    has_port = port.isascii() and port.isdigit() and 0 < int(port) < _PORT_LIMIT
    return (not at or is_valid_user(user)) and is_valid_host(host) and (not colon or has_port)


def is_page_url(url: str) -> bool:
    """Return True if a browser reads ``url`` as the address of a page, and as nothing else.

    Only http and https, without credentials, and without characters that have to be escaped.
    """
    return _URL.fullmatch(url) is not None


def _validate_host(host: str) -> str:
    """Return ``host`` if empty or a valid host name or IP address. Raises ValueError otherwise."""
    if host and not is_valid_host(host):
        raise ValueError("must be the name or the address of a host")
    return host


def _validate_user(user: str) -> str:
    """Return ``user`` if empty or a valid login name. Raises ValueError otherwise."""
    if user and not is_valid_user(user):
        raise ValueError("must be a login name")
    return user


def validate_jump_host(jump_host: str) -> str:
    """Return ``jump_host`` if empty or valid: [USER@]HOST[:PORT]. Raises ValueError otherwise."""
    if jump_host and not is_valid_jump_host(jump_host):
        raise ValueError("must be a jump host: [USER@]HOST[:PORT]")
    return jump_host


def _validate_url(url: str) -> str:
    """Return ``url`` if empty or the URL of a page for browsers. Raises ValueError otherwise."""
    if url and not is_page_url(url):
        raise ValueError("must be the address of a page")
    return url


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
        """Return the jump host with a user name, for ssh's `-J`; empty without a jump host.

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


_SERVER: Final = re.compile(
    r"https?://([A-Za-z0-9_][A-Za-z0-9._-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~:@%+-]*)*"
)
# A platform has no reason to set any of these for its own cluster.
_REFUSED_KEYS: Final = {
    "exec": "runs a program on this machine",
    "auth-provider": "runs a program on this machine",
    "tokenFile": "sends a file of this machine",
    "client-certificate": "reads a file of this machine",
    "client-key": "reads a file of this machine",
    "certificate-authority": "reads a file of this machine",
    "proxy-url": "sends requests through another server",
    "as": "signs in as another user",
    "as-uid": "signs in as another user",
    "as-groups": "signs in as another user",
    "as-user-extra": "signs in as another user",
}
LOCAL_MACHINE_KEYS: Final = tuple(
    name for name, why in _REFUSED_KEYS.items() if "this machine" in why
)
"""Keys of a kubeconfig that name files and programs of the machine that reads it."""
_IGNORED_KEYS: Final = frozenset({"extensions", "disable-compression"})


def _validate_server(server_url: str) -> str:
    """Return ``server_url`` if an http or https URL of a server. Raises ValueError otherwise."""
    if not _SERVER.fullmatch(server_url):
        raise ValueError("must be an address of http or https")
    return server_url


def _validate_server_name(server_name: str) -> str:
    """Return ``server_name`` if TLS can ask for the name. Raises ValueError otherwise."""
    try:
        server_name.encode("idna")
    except UnicodeError:  # an empty or too long label, or a sign that no host name has
        raise ValueError("must be a host name") from None
    return server_name


def _validate_pem(encoded_pem: str) -> str:
    """Return ``encoded_pem`` if base64 of an ASCII text (PEM). Raises ValueError otherwise."""
    try:
        base64.b64decode(encoded_pem, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ValueError("must be PEM in base64") from None
    return encoded_pem


def _validate_header_value(header_value: str) -> str:
    """Return ``header_value`` if valid in an HTTP header. Raises ValueError otherwise."""
    if not (header_value and header_value.isascii() and header_value.isprintable()):
        raise ValueError("must be printable characters")
    return header_value


Pem = Annotated[str, AfterValidator(_validate_pem)]
HeaderValue = Annotated[str, AfterValidator(_validate_header_value)]


def _to_kubeconfig_key(name: str) -> str:
    """Return a field's name as a kubeconfig key: `client-key-data` for `client_key_data`."""
    return name.replace("_", "-")


class _KubeconfigPart(BaseModel):
    # Unknown keys are refused: a later kubectl may run a program or read a file for one of them.
    model_config = ConfigDict(
        alias_generator=_to_kubeconfig_key, extra="forbid", frozen=True, hide_input_in_errors=True
    )

    def to_kubeconfig(self) -> dict[str, Any]:
        """Return this cluster, user or context with the keys of a kubeconfig file."""
        return self.model_dump(by_alias=True, exclude_none=True)


Part = TypeVar("Part", bound=_KubeconfigPart)


class ClusterPart(_KubeconfigPart):
    """The address of the API server, and how to verify its certificate."""

    server: Annotated[str, AfterValidator(_validate_server)]
    certificate_authority_data: Pem | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: Annotated[Line, AfterValidator(_validate_server_name)] | None = None


class UserPart(_KubeconfigPart):
    """How to sign in."""

    token: HeaderValue | None = Field(default=None, repr=False)
    username: HeaderValue | None = None
    password: HeaderValue | None = Field(default=None, repr=False)
    client_certificate_data: Pem | None = Field(default=None, repr=False)
    client_key_data: Pem | None = Field(default=None, repr=False)


class ContextPart(_KubeconfigPart):
    """The cluster and user that belong together, by names that are valid in this document only."""

    cluster: str
    user: str
    namespace: Line | None = None


class Kubeconfig(BaseModel):
    """The parts of a kubeconfig's current context, or of its first one if none is current."""

    model_config = ConfigDict(frozen=True)

    cluster: ClusterPart
    user: UserPart
    context: ContextPart

    @classmethod
    def parse(cls, document: Any) -> Self:
        """Return the current context of a parsed YAML document, with its cluster and user.

        Without a current context, the first one.

        Raises:
            ValueError: the document is not a kubeconfig, or one of these parts has a refused or
                unknown key. The message contains no value of the document.
        """
        try:
            contexts = _get_entries(document, "contexts", "context")
            context_name = document.get("current-context") or next(iter(contexts))
            context = _validate_part(ContextPart, contexts[context_name], "context")
            cluster = _get_entries(document, "clusters", "cluster")[context.cluster]
            user = _get_entries(document, "users", "user")[context.user]
        except (AttributeError, KeyError, TypeError, StopIteration):
            raise ValueError("is not a kubeconfig") from None
        return cls(
            cluster=_validate_part(ClusterPart, cluster, "cluster"),
            user=_validate_part(UserPart, user, "user"),
            context=context,
        )


def _get_entries(document: Any, section: str, part: str) -> dict[Any, dict[str, Any]]:
    """Return the entries of a section of a kubeconfig, such as `clusters`, by name.

    Raises KeyError, TypeError or AttributeError for other forms.
    """
    return {entry["name"]: dict(entry[part]) for entry in document[section]}


def _validate_part(model: type[Part], part: dict[str, Any], part_name: str) -> Part:
    """Return a cluster, user or context of a kubeconfig as its model.

    Raises ValueError for a refused or unknown key; the message has no value and no unknown key.
    """
    known_part = {
        key: value
        for key, value in part.items()
        # kubeconfigs of real clusters have empty optional keys
        if key not in _IGNORED_KEYS and value is not None and value != ""
    }
    for key, why in _REFUSED_KEYS.items():
        if key in known_part:
            raise ValueError(f"has {key!r} in its {part_name}, which {why}")
    try:
        return model.model_validate(known_part)
    except ValidationError as error:
        errors = error.errors(include_input=False, include_url=False)
        known_keys = {_to_kubeconfig_key(name) for name in model.model_fields}
        names = [str(details["loc"][0]) for details in errors]
        # an unknown key may itself be a secret: only known keys are named
        reported_names = [name if name in known_keys else "something unknown" for name in names]
        raise ValueError(
            f"cannot be used ({part_name}: {', '.join(dict.fromkeys(reported_names))})"
        ) from None
