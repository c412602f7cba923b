"""Where a kubeconfig leads and how it signs in: read in memory, with nothing left on disk."""

import base64
import binascii
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuform.providers.errors import GpuformError, MissingCredentials

if TYPE_CHECKING:
    from kubernetes.client import Configuration

# What would run a program of somebody else on this machine, or keep tokens in the user's files.
_REFUSED = ("exec", "auth-provider")


@dataclass(frozen=True, eq=False)
class Access:
    """How to reach an API server. `headers` gives those that sign a request in, as of now."""

    server: str
    headers: Callable[[], Mapping[str, str]] = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """What no message may contain."""


def access_by(kubeconfig: str, cluster: str) -> Access:
    """The access that the current context of a kubeconfig (YAML) gives.

    `cluster` is what people call it. Raises GpuformError, without the text of the kubeconfig.
    """
    from kubernetes import client  # noqa: PLC0415 - slow
    from kubernetes.config import ConfigException, load_kube_config_from_dict  # noqa: PLC0415

    whole = _parsed(kubeconfig, cluster)
    settings = client.Configuration()
    try:
        at, user = _current(whole)
        refused = [name for name in _REFUSED if name in user]
        if refused:
            raise GpuformError(
                f"the kubeconfig of {cluster} signs in with {refused[0]!r}, which runs or changes "
                "things on this machine: gpuform does not use it",
                hint="use a kubeconfig with a token or a client certificate",
            )
        # The client would write certificates to files: they are taken out before it looks.
        authority = _taken(at, "certificate-authority-data")
        certificate = _taken(user, "client-certificate-data") + _taken(user, "client-key-data")
        load_kube_config_from_dict(whole, client_configuration=settings, persist_config=False)
        tls = _tls(settings, authority, certificate)
    except (ConfigException, KeyError, TypeError, AttributeError, ValueError, OSError) as error:
        raise MissingCredentials(
            f"the kubeconfig of {cluster} cannot be used ({type(error).__name__})",
            hint="look whether the platform shows the cluster as ready",
        ) from None
    secrets = [user.get(name) for name in ("token", "password")]
    return Access(
        server=str(settings.host).rstrip("/"),
        headers=lambda: _headers(settings),
        tls=tls,
        secrets=tuple(str(each) for each in secrets if each),
    )


def _parsed(kubeconfig: str, cluster: str) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - slow

    try:
        whole = yaml.safe_load(kubeconfig)
    except yaml.YAMLError:
        whole = None
    if not isinstance(whole, dict):
        raise MissingCredentials(f"the kubeconfig of {cluster} is no YAML mapping")
    return whole


def _current(whole: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The cluster and the user of the current context."""
    context = _named(whole["contexts"], whole["current-context"])["context"]
    at: dict[str, Any] = _named(whole["clusters"], context["cluster"])["cluster"]
    user: dict[str, Any] = _named(whole["users"], context["user"])["user"]
    return at, user


def _named(entries: list[dict[str, Any]], name: str) -> dict[str, Any]:
    return next(each for each in [*entries, {}] if each.get("name") == name or not each)


def _taken(holder: dict[str, Any], name: str) -> str:
    """A text in base64, taken out; empty when there is none."""
    try:
        return base64.b64decode(holder.pop(name, None) or "", validate=True).decode("ascii")
    except (binascii.Error, UnicodeDecodeError):
        raise ValueError(f"{name} is no PEM in base64") from None


def _tls(settings: "Configuration", authority: str, certificate: str) -> ssl.SSLContext | None:
    if not str(settings.host).startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=settings.ssl_ca_cert, cadata=authority or None)
    if not settings.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if certificate:
        # OpenSSL reads keys from files alone: this one is the user's only, and gone at once.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "client.pem")
            path.touch(mode=0o600)
            path.write_text(certificate, "ascii")
            context.load_cert_chain(path)
    elif settings.cert_file:
        context.load_cert_chain(settings.cert_file, settings.key_file)
    return context


def _headers(settings: "Configuration") -> dict[str, str]:
    token = settings.get_api_key_with_prefix("authorization")
    if not token and settings.username:
        token = settings.get_basic_auth_token()
    return {"Accept": "application/json", **({"Authorization": token} if token else {})}
