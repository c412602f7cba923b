"""Read a kubeconfig: the server's address, how to sign in, and which file a topology declares.

`kubernetes.client` and `slurm` call it. Keys and certificates never stay on disk.
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

from gpuform.providers.context import find_mounted_transport, get_run_context
from gpuform.providers.environment import require_scheduler_access
from gpuform.providers.errors import GpuformError, MissingCredentials
from gpuform.schemas.access import LOCAL_MACHINE_KEYS, Kubeconfig, UserPart
from gpuform.schemas.policies.drain import KubernetesInputs

_PROJECT_ROOT_NAMES: Final = (".git", ".hg", ".svn", ".jj", "Pulumi.yaml", "Pulumi.yml")


@dataclass(frozen=True, eq=False)
class KubernetesAccess:
    """How to reach an API server; `headers` returns the headers that sign a request in now.

    `tls` is None for a server without https. With `insecure-skip-tls-verify` in the kubeconfig it
    does not verify the server.
    """

    server: str
    headers: Callable[[], Mapping[str, str]] = field(repr=False)
    tls: ssl.SSLContext | None = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    """Texts that no message may contain."""
    tls_server_name: str | None = None
    """The name that the server's certificate has to have, if not that of the address."""


def parse_kubeconfig(kubeconfig: str, cluster: str) -> Kubeconfig:
    """Return the current context of a kubeconfig (YAML), else the first context.

    `cluster` is the cluster's name for messages.

    Raises:
        MissingCredentials: the text is no kubeconfig, or asks for more than signing in. The message
            never quotes the text.
    """
    import yaml  # noqa: PLC0415 - slow

    try:
        return Kubeconfig.parse(yaml.safe_load(kubeconfig))
    except yaml.YAMLError:
        reason = "is not YAML"
    except RecursionError:
        reason = "is not a kubeconfig"
    except ValueError as error:
        reason = str(error)
    raise MissingCredentials(
        f"the kubeconfig of {cluster} {reason}: gpuform does not use it",
        hint="check that the platform shows the cluster as ready; gpuform supports a server "
        "address, its certificate authority, and a token, a password or a client certificate",
        page="guides/access",
    )


def is_from_project(declared: str, path: Path) -> bool:
    """Return True if a declared kubeconfig lies where a proposed change can put a file.

    That is the project, where relative paths begin, and every repository. The user's own files in
    ~/.kube and KUBECONFIG are trusted if they are outside of the project.

    Args:
        declared: the path as declared; a relative one is always the project's.
        path: the same path, with `~` expanded.
    """
    if not Path(declared).expanduser().is_absolute():
        return True
    # Links resolved: one in the project may lead to a file outside, and the other way round.
    resolved, home, project = path.resolve(), Path.home().resolve(), Path.cwd().resolve()
    own_paths = get_run_context().environ.get("KUBECONFIG", "").split(os.pathsep)
    is_own = resolved.is_relative_to(home / ".kube")
    untrusted_folders = {project, *filter(_is_repository, project.parents)}
    if is_own:  # a home directory may be a repository too, of its user's settings
        untrusted_folders -= {home, *home.parents}
    if not untrusted_folders.isdisjoint(resolved.parents):
        return True
    is_own = is_own or resolved in {
        Path(own_path).expanduser().resolve() for own_path in own_paths if own_path
    }
    return not is_own and any(map(_is_repository, resolved.parents))


def _is_repository(folder: Path) -> bool:
    """Return True if a folder is the root of a repository or of a Pulumi project."""
    return any((folder / name).exists() for name in _PROJECT_ROOT_NAMES)


def reject_local_files(document: dict[str, Any], label: str) -> None:
    """Raise GpuformError for a kubeconfig which names files or programs of this machine."""
    entries = [
        *_list_parts(document, "clusters", "cluster"),
        *_list_parts(document, "users", "user"),
    ]
    file_keys = sorted(
        {name for entry in entries for name in LOCAL_MACHINE_KEYS if entry.get(name)}
    )
    # A proposed change chooses the server: the content of any file on this machine could be sent
    # there as a token.
    if file_keys:
        raise GpuformError(
            f"{label} refers to a file or program of this machine ({', '.join(file_keys)}), "
            "and belongs to the project: gpuform does not read it",
            hint="keep this kubeconfig outside of the project and its repository, or put the "
            "content into it (`kubectl config view --flatten`)",
        )


def _list_parts(document: dict[str, Any], section: str, part: str) -> list[Mapping[str, Any]]:
    """Return the members `part` of a section's entries, without entries in another form."""
    entries = document.get(section)
    parts = [entry.get(part) for entry in entries or () if isinstance(entry, Mapping)]
    return [candidate for candidate in parts if isinstance(candidate, Mapping)]


def flatten_kubeconfig(document: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a kubeconfig with the content of the files named in the current context.

    Paths begin at `folder`, where the kubeconfig is. A kubeconfig in another form is returned
    unchanged.

    Raises:
        OSError: a file cannot be read.
        UnicodeDecodeError: a token file is no UTF-8 text.
    """
    try:
        contexts = {entry["name"]: entry["context"] for entry in document["contexts"]}
        context = contexts[document["current-context"]]
        return {
            **document,
            "clusters": [
                _embed_files(cluster_entry, "cluster", folder)
                if cluster_entry["name"] == context["cluster"]
                else cluster_entry
                for cluster_entry in document["clusters"]
            ],
            "users": [
                _embed_files(user_entry, "user", folder)
                if user_entry["name"] == context["user"]
                else user_entry
                for user_entry in document["users"]
            ],
        }
    except (KeyError, TypeError, AttributeError):
        return document  # whoever reads it says what is wrong


def _embed_files(entry: dict[str, Any], part: str, folder: Path) -> dict[str, Any]:
    """Return an entry of a kubeconfig with the content of its files in place of their paths.

    Embedded data that the entry has already are not replaced; a token is.

    Raises:
        OSError: a file cannot be read.
    """
    values = dict(entry[part])
    for name in ("certificate-authority", "client-certificate", "client-key"):
        if path := values.pop(name, None):
            data = base64.b64encode((folder / path).read_bytes()).decode()
            values.setdefault(f"{name}-data", data)
    if path := values.pop("tokenFile", None):
        values["token"] = (folder / path).read_text(encoding="utf-8").strip()
    return {**entry, part: values}


def load_access(kubeconfig: str, cluster: str) -> KubernetesAccess:
    """Return the access to the server in the current context of a kubeconfig (YAML).

    With `insecure-skip-tls-verify` the server's certificate and name are not verified.

    Raises:
        MissingCredentials: `parse_kubeconfig` refuses the text, its certificates cannot be loaded,
            or its token or password would travel unencrypted.
    """
    parts = parse_kubeconfig(kubeconfig, cluster)
    user = parts.user
    _reject_unencrypted_credential(parts, cluster)
    try:
        tls = _create_tls_context(parts)
    except (ValueError, OSError) as error:  # ssl.SSLError among them
        raise MissingCredentials(
            f"the kubeconfig of {cluster} cannot be used ({type(error).__name__})",
            hint="check that the platform shows the cluster as ready",
        ) from None
    headers = {"Accept": "application/json", **_build_auth_headers(user)}
    return KubernetesAccess(
        server=parts.cluster.server.rstrip("/"),
        headers=lambda: headers,
        tls=tls,
        secrets=tuple(secret for secret in (user.token, user.password) if secret),
        tls_server_name=parts.cluster.tls_server_name or None,
    )


def _reject_unencrypted_credential(parts: Kubeconfig, cluster: str) -> None:
    """Raise MissingCredentials if a token or password would travel over http to another machine.

    A server on this machine, and an emulator in this process, may be asked over http.
    """
    server, user = parts.cluster.server, parts.user
    if not (user.token or user.username) or server.startswith("https:"):
        return
    # `kubectl proxy` and the emulator serve http on this machine.
    if _is_loopback(urlsplit(server).hostname or "") or find_mounted_transport(server):
        return
    raise MissingCredentials(
        f"the kubeconfig of {cluster} signs in over http, which exposes its token: gpuform does "
        "not use it",
        hint="declare the server's address with https",
        page="guides/access",
    )


def _is_loopback(host: str) -> bool:
    """Return True if `host` is `localhost` or a loopback address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _create_tls_context(parts: Kubeconfig) -> ssl.SSLContext | None:
    """Return the TLS context with the kubeconfig's authority and client certificate.

    Returns None if the server's URL does not begin with https. If the kubeconfig has no authority,
    the authorities of the system are used. With `insecure_skip_tls_verify` the server's certificate
    and name are not verified. The client's certificate and key are written to a temporary file for
    OpenSSL, which is removed at once.

    Raises:
        ValueError: a certificate or key is not the base64 form of ASCII text.
        OSError: OpenSSL refuses the authority, the certificate or the key (ssl.SSLError), or the
            temporary file cannot be written.
    """
    cluster, user = parts.cluster, parts.user
    if not cluster.server.startswith("https:"):
        return None
    context = ssl.create_default_context(
        cadata=_decode_pem(cluster.certificate_authority_data) or None
    )
    if cluster.insecure_skip_tls_verify:
        # In this order: Python refuses CERT_NONE as long as host names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    pair = map(_decode_pem, (user.client_certificate_data, user.client_key_data))
    certificate = "\n".join(filter(None, pair))
    if certificate:
        # OpenSSL reads keys from files alone: this one is the user's only, and gone at once.
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "client.pem")
            path.touch(mode=0o600)
            path.write_text(certificate, "ascii")
            context.load_cert_chain(path)
    return context


def _decode_pem(encoded: str | None) -> str:
    """Return base64-encoded PEM as text; "" for None."""
    return base64.b64decode(encoded or "").decode("ascii")


def _build_auth_headers(user: UserPart) -> dict[str, str]:
    """Return the Authorization header for a token or a password; empty for neither."""
    if user.token:
        return {"Authorization": f"Bearer {user.token}"}
    if user.username:
        pair = f"{user.username}:{user.password or ''}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}
    return {}


def load_declared_kubeconfig(
    declared: KubernetesInputs, field_prefix: str = "drain.kubernetes.", *, is_typed: bool = False
) -> str:
    """Return the declared kubeconfig as YAML, with the declared context as the current one.

    The content of files that the current context names is embedded, unless the kubeconfig comes
    from the project and `is_typed` is False. Returns "" for a file that is not a YAML mapping.

    Args:
        declared: path and context; ~/.kube/config without a path.
        field_prefix: begins the names of fields in messages.
        is_typed: a person has typed the path for this run. Only then, or outside of the project,
            may the kubeconfig name files of this machine.

    Raises:
        NotAllowed: on the emulator, the scheduler is real, and the run lacks the permission
            `real-schedulers` or GPUFORM_SCHEDULERS is set.
        GpuformError: the file cannot be read, has no such or no current context, comes from the
            project and names files or programs of this machine, or GPUFORM_SCHEDULERS does not have
            this scheduler.
    """
    import yaml  # noqa: PLC0415 - only who asks a Kubernetes pays for it

    path = Path(declared.kubeconfig or "~/.kube/config").expanduser()
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            return ""  # whoever reads it says that it is none
        if declared.context is not None:
            if declared.context not in _list_context_names(config):
                # The contexts of a file are not named to a program that may not use the file.
                require_scheduler_access(
                    declared, f"{field_prefix}kubeconfig: {path}", _get_first_server(config)
                )
                names = ", ".join(_list_context_names(config)) or "none"
                raise GpuformError(
                    f"{field_prefix}context: context {declared.context} not found in "
                    f"{path}; its contexts are {names}"
                )
            config["current-context"] = declared.context
        elif not config.get("current-context"):
            raise GpuformError(
                f"{field_prefix}kubeconfig: {path} has no current context",
                hint=f"declare {field_prefix}context",
            )
        # Before the files that it names are read.
        require_scheduler_access(
            declared, f"{field_prefix}kubeconfig: {path}", _get_current_server(config)
        )
        if not is_typed and is_from_project(declared.kubeconfig or str(path), path):
            reject_local_files(config, f"{field_prefix}kubeconfig: {path}")
            return str(yaml.safe_dump(config))
        return str(yaml.safe_dump(flatten_kubeconfig(config, path.parent)))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise GpuformError(
            f"{field_prefix}kubeconfig: {path} cannot be read ({type(error).__name__})",
            hint="declare the path of a kubeconfig",
        ) from None


def _list_context_names(config: Mapping[str, Any]) -> list[str]:
    """Return the names of the contexts in a kubeconfig."""
    contexts = config.get("contexts") or ()
    return [str(context.get("name")) for context in contexts if isinstance(context, dict)]


def _get_first_server(config: Mapping[str, Any]) -> str:
    """Return the server address of the first cluster in a kubeconfig, or ""."""
    try:
        return str(config["clusters"][0]["cluster"]["server"])
    except (KeyError, TypeError, IndexError):
        return ""


def _get_current_server(config: Mapping[str, Any]) -> str:
    """Return the server address of the current context, or "" without an address."""
    try:
        contexts = {context["name"]: context["context"] for context in config["contexts"]}
        clusters = {cluster["name"]: cluster["cluster"] for cluster in config["clusters"]}
        return str(clusters[contexts[config["current-context"]]["cluster"]]["server"])
    except (KeyError, TypeError):
        return ""  # whoever reads it says what is wrong
