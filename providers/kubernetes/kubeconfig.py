"""Where a kubeconfig leads and how it signs in: read in memory, with nothing left on disk."""

import base64
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuform.providers.errors import MissingCredentials
from gpuform.schemas.kubeconfig import Kubeconfig, UserPart


@dataclass(frozen=True, eq=False)
class Access:
    """How to reach an API server. `headers` gives those that sign a request in, as of now."""

    server: str
    headers: Callable[[], Mapping[str, str]] = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """What no message may contain."""


def parts_of(kubeconfig: str, cluster: str) -> Kubeconfig:
    """What a kubeconfig (YAML) says of the current context, or of its first one.

    `cluster` is what people call it. Raises MissingCredentials, without the text, for what is none,
    and for what asks for more than to be signed in.
    """
    import yaml  # noqa: PLC0415 - slow

    try:
        return Kubeconfig.read(yaml.safe_load(kubeconfig))
    except yaml.YAMLError:
        why = "is no YAML"
    except RecursionError:
        why = "is no kubeconfig"
    except ValueError as error:
        why = str(error)
    raise MissingCredentials(
        f"the kubeconfig of {cluster} {why}: gpuform does not use it",
        hint="look whether the platform shows the cluster as ready; gpuform takes an address, its "
        "authority, and a token, a password or a client certificate",
        page="guides/access",
    )


def flattened(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The user's own kubeconfig, with what is in the files that its current context names.

    Paths begin at its folder. Raises OSError and UnicodeDecodeError when one cannot be read.
    """
    try:
        contexts = {each["name"]: each["context"] for each in document["contexts"]}
        context = contexts[document["current-context"]]
        return {
            **document,
            "clusters": [
                _with_files(each, "cluster", folder) if each["name"] == context["cluster"] else each
                for each in document["clusters"]
            ],
            "users": [
                _with_files(each, "user", folder) if each["name"] == context["user"] else each
                for each in document["users"]
            ],
        }
    except (KeyError, TypeError, AttributeError):
        return document  # whoever reads it says what is wrong


def _with_files(entry: dict[str, Any], part: str, folder: Path) -> dict[str, Any]:
    held = dict(entry[part])
    for name in ("certificate-authority", "client-certificate", "client-key"):
        if path := held.pop(name, None):
            data = base64.b64encode((folder / path).read_bytes()).decode()
            held.setdefault(f"{name}-data", data)
    if path := held.pop("tokenFile", None):
        held["token"] = (folder / path).read_text(encoding="utf-8").strip()
    return {**entry, part: held}


def access_by(kubeconfig: str, cluster: str) -> Access:
    """The access that a kubeconfig (YAML) gives, as `parts_of` reads it."""
    parts = parts_of(kubeconfig, cluster)
    user = parts.user
    try:
        tls = _tls(parts)
    except (ValueError, OSError) as error:  # ssl.SSLError among them
        raise MissingCredentials(
            f"the kubeconfig of {cluster} cannot be used ({type(error).__name__})",
            hint="look whether the platform shows the cluster as ready",
        ) from None
    headers = {"Accept": "application/json", **_signed_in(user)}
    return Access(
        server=parts.cluster.server.rstrip("/"),
        headers=lambda: headers,
        tls=tls,
        secrets=tuple(each for each in (user.token, user.password) if each),
    )


def _tls(parts: Kubeconfig) -> ssl.SSLContext | None:
    cluster, user = parts.cluster, parts.user
    if not cluster.server.startswith("https:"):
        return None
    context = ssl.create_default_context(cadata=_pem(cluster.certificate_authority_data) or None)
    if cluster.insecure_skip_tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    pair = map(_pem, (user.client_certificate_data, user.client_key_data))
    certificate = "\n".join(filter(None, pair))
    if certificate:
        # OpenSSL reads keys from files alone: this one is the user's only, and gone at once.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "client.pem")
            path.touch(mode=0o600)
            path.write_text(certificate, "ascii")
            context.load_cert_chain(path)
    return context


def _pem(encoded: str | None) -> str:
    return base64.b64decode(encoded or "").decode("ascii")


def _signed_in(user: UserPart) -> dict[str, str]:
    if user.token:
        return {"Authorization": f"Bearer {user.token}"}
    if user.username:
        pair = f"{user.username}:{user.password or ''}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}
