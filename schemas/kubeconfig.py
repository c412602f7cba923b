"""Read the kubeconfig of a cluster as a platform reports it, and refuse a dangerous one.

Used by the Kubernetes clients and by `gpuform access`. A kubeconfig can name programs to run, files
of this machine to read or to send, and other identities to assume. A platform needs none of these
for its own cluster, so a kubeconfig with one of them is refused entirely.
"""

import base64
import binascii
import re
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from gpuform.schemas.models import Line

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


def _validate_server(text: str) -> str:
    """Return ``text`` if an http or https URL of an API server. Raises ValueError otherwise."""
    if not _SERVER.fullmatch(text):
        raise ValueError("must be an address of http or https")
    return text


def _validate_server_name(text: str) -> str:
    """Return ``text`` if TLS can ask for a server of this name. Raises ValueError otherwise."""
    try:
        text.encode("idna")
    except UnicodeError:  # an empty or too long label, or a sign that no host name has
        raise ValueError("must be a host name") from None
    return text


def _validate_pem(text: str) -> str:
    """Return ``text`` if base64 of an ASCII text, as for PEM. Raises ValueError otherwise."""
    try:
        base64.b64decode(text, validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        raise ValueError("must be PEM in base64") from None
    return text


def _validate_header_value(text: str) -> str:
    """Return ``text`` if valid as the value of an HTTP header. Raises ValueError otherwise."""
    if not (text and text.isascii() and text.isprintable()):
        raise ValueError("must be printable characters")
    return text


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
    """Return the entries of a kubeconfig's section, such as `clusters`, by their names.

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
