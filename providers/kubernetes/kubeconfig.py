"""Read where a kubeconfig leads and how it signs in, with nothing left on disk, and find the one
that a topology names.
"""

import base64
import os
import ssl
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from gpuform.providers.context import find_mounted_transport
from gpuform.providers.environment import require_asked
from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.schemas.kubeconfig import LOCAL_MACHINE_KEYS, Kubeconfig, UserPart
from gpuform.schemas.policies.drain import KubernetesInputs

_REPOSITORY_MARKS: Final = (".git", ".hg", ".svn", ".jj", "Pulumi.yaml", "Pulumi.yml")


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
        return Kubeconfig.parse(yaml.safe_load(kubeconfig))
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


def comes_with_project(declared: str, path: Path) -> bool:
    """Return whether a declared kubeconfig lies where whoever proposes a change can put a file.

    That is the project, and every repository. Not so the user's own in ~/.kube and KUBECONFIG, as
    long as they are outside of the project. A relative path begins at the project.
    """
    if not Path(declared).expanduser().is_absolute():
        return True
    resolved, home, project = path.resolve(), Path.home().resolve(), Path.cwd().resolve()
    listed = filter(None, os.environ.get("KUBECONFIG", "").split(os.pathsep))
    is_own = resolved.is_relative_to(home / ".kube")
    around = {project, *filter(_is_repository, project.parents)}
    if is_own:  # a home directory may be a repository too, of its user's settings
        around -= {home, *home.parents}
    if not around.isdisjoint(resolved.parents):
        return True
    is_own = is_own or resolved in {Path(each).expanduser().resolve() for each in listed}
    return not is_own and any(map(_is_repository, resolved.parents))


def _is_repository(folder: Path) -> bool:
    return any((folder / name).exists() for name in _REPOSITORY_MARKS)


def refuse_files(document: dict[str, Any], where: str) -> None:
    """Raise GpuformError for a kubeconfig that names files or programs of this machine.

    What a change proposes decides which server gets them: a token of any file would be sent there.
    """
    entries = [*_parts_in(document, "clusters", "cluster"), *_parts_in(document, "users", "user")]
    named = sorted({name for entry in entries for name in LOCAL_MACHINE_KEYS if entry.get(name)})
    if named:
        raise GpuformError(
            f"{where} names a file or program of this machine ({', '.join(named)}), and comes with "
            "the project: gpuform does not read it",
            hint="keep this kubeconfig outside of the project and its repository, or put the "
            "content into it (`kubectl config view --flatten`)",
        )


def _parts_in(document: dict[str, Any], section: str, part: str) -> list[Mapping[str, Any]]:
    entries = document.get(section)
    held = [each.get(part) for each in entries or () if isinstance(each, Mapping)]
    return [each for each in held if isinstance(each, Mapping)]


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
    _refuse_open_credential(parts, cluster)
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


def _refuse_open_credential(parts: Kubeconfig, cluster: str) -> None:
    """Raise MissingCredentials where a token or password would go over http to another machine."""
    server, user = parts.cluster.server, parts.user
    if not (user.token or user.username) or server.startswith("https:"):
        return
    if _is_loopback(urlsplit(server).hostname or "") or find_mounted_transport(server):
        return
    raise MissingCredentials(
        f"the kubeconfig of {cluster} signs in over http, where everybody on the way can read its "
        "token: gpuform does not use it",
        hint="give the server's address with https",
        page="guides/access",
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


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


def declared_kubeconfig(
    declared: KubernetesInputs, where: str = "drain.kubernetes.", *, is_typed: bool = False
) -> str:
    """Return the YAML of the declared kubeconfig, with its context as the current one.

    `where` begins the names of its fields, for messages. A kubeconfig that comes with the project
    may name no file of this machine, unless a person has typed its path (`is_typed`). Raises
    GpuformError when it cannot be read or used, or this run may not ask it.
    """
    import yaml  # noqa: PLC0415 - only who asks a Kubernetes pays for it

    path = Path(declared.kubeconfig or "~/.kube/config").expanduser()
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            return ""  # whoever reads it says that it is none
        if declared.context is not None:
            if declared.context not in _contexts_of(config):
                # Which contexts a file has is nothing to tell whoever may not use it.
                require_asked(declared, f"{where}kubeconfig: {path}", _first_server_of(config))
                names = ", ".join(_contexts_of(config)) or "none"
                raise GpuformError(
                    f"{where}context: {path} has no context {declared.context}; it has {names}"
                )
            config["current-context"] = declared.context
        elif not config.get("current-context"):
            raise GpuformError(
                f"{where}kubeconfig: {path} has no current context",
                hint=f"declare {where}context",
            )
        # Before the files that it names are read.
        require_asked(declared, f"{where}kubeconfig: {path}", _server_of(config))
        if not is_typed and comes_with_project(declared.kubeconfig or str(path), path):
            refuse_files(config, f"{where}kubeconfig: {path}")
            return str(yaml.safe_dump(config))
        return str(yaml.safe_dump(flattened(config, path.parent)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GpuformError(
            f"{where}kubeconfig: {path} cannot be read ({type(error).__name__})",
            hint="declare the path of a kubeconfig",
        ) from None


def _contexts_of(config: Mapping[str, Any]) -> list[str]:
    contexts = config.get("contexts") or ()
    return [str(each.get("name")) for each in contexts if isinstance(each, dict)]


def _first_server_of(config: Mapping[str, Any]) -> str:
    try:
        return str(config["clusters"][0]["cluster"]["server"])
    except (KeyError, TypeError, IndexError):
        return ""


def _server_of(config: Mapping[str, Any]) -> str:
    """The address of the current context; empty where it has none."""
    try:
        contexts = {each["name"]: each["context"] for each in config["contexts"]}
        clusters = {each["name"]: each["cluster"] for each in config["clusters"]}
        return str(clusters[contexts[config["current-context"]]["cluster"]]["server"])
    except (KeyError, TypeError):
        return ""  # whoever reads it says what is wrong
