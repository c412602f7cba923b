"""Find how users reach a stack's clusters, and run kubectl or SSH in the place of this process.

`cli.commands.access_commands` calls this module.
"""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from gpuform.providers.values import PropertyMap
from gpuform.schemas.access import Access, Host, SshAuthority
from gpuform.schemas.checking import suggest_name
from gpuform.schemas.errors import EngineError
from gpuform.stacks.access import NoAccess
from gpuform.stacks.access.kubeconfig_document import ClusterLabel
from gpuform.stacks.engine.dynamic_providers import to_plain
from gpuform.stacks.engine.stack import Stack, read_resources
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Backend
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.resource_rules import find_lifecycle
from gpuform.stacks.review.value_text import short_type

_NO_LONGER_EXISTS: Final = (
    "it no longer exists on the platform: run `gpuform refresh` to update the state"
)


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """A cluster by its name in the stack, with the ways to reach it.

    `stale_reason` says why `access` is that of the state instead of the platform's; it is empty if
    the platform answered.
    """

    name: str
    label: ClusterLabel
    access: Access
    stale_reason: str = ""


def get_state_location(backend: Backend, project: str, stack: str) -> str:
    """Return the path or URL of a stack's state, without the suffix of a compressed one.

    The location tells stacks of one name apart.
    """
    # Compression can be switched on later; the stack stays the same one.
    return backend.locate_checkpoint(project, stack).removesuffix(".gz")


def list_clusters(
    stack: Stack, config: Mapping[str, str], names: Sequence[str], *, offline: bool
) -> list[ClusterAccess]:
    """Return the named clusters of a stack, or all clusters if `names` is empty.

    Names are names in the stack, URNs, or names on the platform. `config` is the stack's
    configuration in plain text. With `offline` no platform is asked. A cluster that no longer
    exists is returned without a way to reach it.

    Raises:
        NoAccess: a name is unknown, ambiguous, or not a cluster's.
    """
    accessible = [
        (entry, access)
        for entry in stack.snapshot.resources
        # An old object that is still to be deleted has the same name as its successor.
        if not (entry.delete or entry.pending_replacement)
        if (access := _find_access(entry, entry.outputs)) is not None
    ]
    chosen_clusters = (
        [_find_cluster(stack, accessible, name) for name in names] if names else accessible
    )
    entries_by_urn = {entry.urn: entry for entry, _ in chosen_clusters}
    return list(_iterate_clusters(stack, config, list(entries_by_urn.values()), offline=offline))


def _iterate_clusters(
    stack: Stack, config: Mapping[str, str], entries: Sequence[ResourceState], *, offline: bool
) -> Iterator[ClusterAccess]:
    """Yield the clusters among `entries`, with the ways to reach each, as the platforms answer.

    With `offline`, or for a platform that gives no answer, the outputs of the state are used. A
    cluster that no longer exists is yielded without any way to reach the cluster.
    """
    state_location = get_state_location(stack.backend, stack.project.name, stack.name)
    read_results = [None] * len(entries) if offline else read_resources(stack, config, entries)
    for entry, read_result in zip(entries, read_results, strict=True):
        stale_reason = read_result.problem if read_result else ""
        live_outputs = read_result.outputs if read_result else None
        access = _find_access(entry, entry.outputs if live_outputs is None else live_outputs)
        if access is None:
            continue
        # Neither outputs nor a problem: the platform answered that the cluster does not exist.
        if read_result is not None and live_outputs is None and not stale_reason:
            reasons = {"no_kubeconfig": _NO_LONGER_EXISTS, "no_hosts": _NO_LONGER_EXISTS}
            access = Access(name=access.name, **reasons)
        label = ClusterLabel(entry.id, entry.urn, state_location)
        yield ClusterAccess(name_of(entry.urn), label, access, stale_reason)


def _find_access(entry: ResourceState, outputs: PropertyMap) -> Access | None:
    lifecycle = find_lifecycle(entry.type)
    return lifecycle.hooks.get_access(to_plain(outputs)) if lifecycle else None


def _find_cluster(
    stack: Stack, accessible: Sequence[tuple[ResourceState, Access]], name: str
) -> tuple[ResourceState, Access]:
    """Return the cluster with this URN or name: the stack's names first, then the platform's.

    Raises:
        NoAccess: no cluster or several have the name, or the resource is not a cluster.
    """
    matches = [pair for pair in accessible if name in (pair[0].urn, name_of(pair[0].urn))]
    # Two platforms can have clusters of one name, so names in the stack come first.
    matches = matches or [pair for pair in accessible if name == pair[1].name]
    if len(matches) == 1:
        return matches[0]
    if matches:
        urns = "\n".join(entry.urn for entry, _ in matches)
        raise NoAccess(
            f"{len(matches)} clusters have the name {name!r}",
            hint=f"pass one of these URNs:\n{urns}",
        )
    for entry in stack.snapshot.resources:
        if name in (entry.urn, name_of(entry.urn)) and entry.custom:
            raise NoAccess(
                f"{name} is a {short_type(entry.type)}, not a cluster",
                hint=_format_choices(accessible),
            )
    names = {access.name for _, access in accessible} | {
        name_of(entry.urn) for entry, _ in accessible
    }
    hint = suggest_name(name, names - {""}, _format_choices(accessible), similarity=0.6)
    raise NoAccess(f"stack '{stack.name}' has no cluster {name!r}", hint=hint)


def _format_choices(accessible: Sequence[tuple[ResourceState, Access]]) -> str:
    """Return a hint that lists the clusters' names, or says how to create clusters."""
    names = sorted(name_of(entry.urn) for entry, _ in accessible)
    if not names:
        return "it has no clusters yet: create them with `gpuform up`"
    return f"its clusters: {', '.join(names)}"


Via = Literal["kubectl", "ssh", "slurm"]


@dataclass(frozen=True, slots=True)
class ConnectionRequest:
    """What the user asks for; the cluster decides about empty fields."""

    via: Via | None = None
    node: str = ""
    user: str = ""
    jump: str = ""
    command: Sequence[str] = ()


def build_command(
    cluster: ClusterAccess, request: ConnectionRequest, contexts: Mapping[str, ClusterLabel]
) -> list[str]:
    """Return the arguments of the `ssh` or `kubectl` command that opens the requested connection.

    `contexts` are the kubeconfig contexts written by gpuform.

    Raises:
        EngineError: the cluster does not offer this way of access, or not yet.
    """
    via = request.via or ("ssh" if request.node else cluster.access.prefers)
    if via == "kubectl":
        if request.node:
            raise NoAccess("--node selects a machine for SSH: remove --via kubectl")
        return _build_kubectl_command(cluster, request, contexts)
    host = _choose_host(cluster, via, request.node)
    authority = cluster.access.ssh_authority
    if authority is not None:
        return _build_certified_command(cluster.name, host, request, authority)
    return _build_ssh_command(host, request)


def find_certificate_login(
    cluster: ClusterAccess, request: ConnectionRequest, words: Sequence[str]
) -> tuple[SshAuthority, str] | None:
    """Return authority and login name of the certificate that the command `words` needs, or None.

    `words` are those of `build_command` for the request.
    """
    authority = cluster.access.ssh_authority
    if authority is None or words[0] != "ssh":
        return None
    return authority, request.user


def get_port_url(cluster: ClusterAccess, number: int) -> str:
    """Return the URL of a port of the cluster.

    Raises:
        NoAccess: the port is not mapped, or its address is unknown.
    """
    urls = {port.number: port.url for port in cluster.access.ports}
    if number not in urls:
        mapped_ports = ", ".join(map(str, urls))
        hint = (
            f"mapped ports: {mapped_ports}"
            if urls
            else "for a TensorOne cluster, declare the port in port_mappings"
        )
        raise NoAccess(f"port {number} of {cluster.name} is not accessible from outside", hint=hint)
    if not urls[number]:
        raise NoAccess(
            f"port {number} of {cluster.name} has no web address",
            hint="open the cluster in the platform's console",
        )
    return urls[number]


def _build_kubectl_command(
    cluster: ClusterAccess, request: ConnectionRequest, contexts: Mapping[str, ClusterLabel]
) -> list[str]:
    """Return the kubectl command for a cluster, `get nodes` if the request has no command.

    A `kubectl` at the beginning of the request's command is dropped.

    Raises:
        NoAccess: the cluster has no kubeconfig, or no context that gpuform wrote.
    """
    access = cluster.access
    if access.kubeconfig is None:
        raise NoAccess(f"{cluster.name} has no kubeconfig: {access.no_kubeconfig}")
    context = next((name for name, label in contexts.items() if label.id == cluster.label.id), None)
    if context is None:
        raise NoAccess(
            f"gpuform has not written a context of {cluster.name} to your kubeconfig",
            hint=f"run `gpuform kubeconfig {cluster.name}`",
        )
    arguments = list(request.command)
    # Users type `gpuform connect CLUSTER -- kubectl top`, too.
    arguments = arguments[1:] if arguments[:1] == ["kubectl"] else arguments
    return ["kubectl", "--context", context, *(arguments or ["get", "nodes"])]


def _build_ssh_command(host: Host, request: ConnectionRequest) -> list[str]:
    """Return the ssh command for a host; the request's user and jump host replace the host's own.

    Without a command in the request, ssh opens a shell.
    """
    user = request.user or host.user
    target = host.model_copy(update={"user": user, "jump": request.jump or host.jump})
    jump_options = ["-J", target.jump_with_user] if target.jump else []
    port_options = ["-p", str(host.port)] if host.port != 22 else []
    destination = f"{user}@{host.address}" if user else host.address
    # OpenSSH also reads options behind the destination: `--` leaves them to the command.
    command = ["--", *request.command] if request.command else []
    return ["ssh", *jump_options, *port_options, destination, *command]


def _build_certified_command(
    cluster_name: str, host: Host, request: ConnectionRequest, authority: SshAuthority
) -> list[str]:
    """Return the ssh command for a host behind the bastion of an SSH certificate authority.

    Raises:
        NoAccess: the request has no login name.
    """
    if not request.user:
        raise NoAccess(
            f"{cluster_name} accepts SSH certificates, which are for a login name",
            hint="add your login name on the cluster: --user NAME",
        )
    options = build_certificate_options(host, request.user, request.jump, authority)
    return [
        "ssh",
        *(word for name, value in options for word in ("-o", f"{name}={value}")),
        f"{request.user}@{host.address}",
        *(["--", *request.command] if request.command else []),
    ]


def _quote_option(path: Path) -> str:
    """Return a path as the value of an option of OpenSSH."""
    # OpenSSH reads `%` as the beginning of a token, and spaces as the end of a value.
    escaped_path = path.as_posix().replace("%", "%%")
    return f'"{escaped_path}"' if re.search(r"\s", escaped_path) else escaped_path


def build_certificate_options(
    host: Host, user: str, jump: str, authority: SshAuthority
) -> list[tuple[str, str]]:
    """Return OpenSSH's options to log in as `user` with a certificate, through the bastion.

    A `jump` host of the request, or that of the host, replaces the authority's bastion.
    """
    # Every run loads this module, and few need certificates.
    from gpuform.stacks.access.ssh_certificates import CertificateFiles  # noqa: PLC0415

    files = CertificateFiles.for_login(authority, user)
    key, certificate = map(_quote_option, (files.key, files.certificate))
    identity = [("IdentityFile", key), ("CertificateFile", certificate), ("IdentitiesOnly", "yes")]
    bastion = jump or host.jump or authority.bastion
    bastion = bastion if "@" in bastion else f"{user}@{bastion}"
    address, _, port = bastion.partition(":")
    port_options = ["-p", port] if port else []
    # `-J` would not pass the identity on to the bastion.
    words = ["ssh", *(word for name, value in identity for word in ("-o", f"{name}={value}"))]
    proxy = f"{shlex.join([*words, *port_options])} -W %h:%p {shlex.quote(address)}"
    # Clusters have machines of one name, such as slurm-login: known_hosts has a line for each.
    alias = f"{host.address}.{authority.cluster_id}"
    return [*identity, ("HostKeyAlias", alias), ("ProxyCommand", proxy)]


def _choose_host(cluster: ClusterAccess, via: Via, node: str) -> Host:
    """Return the host to log in to: for `slurm` the login node, else `node` or any usable node.

    Raises:
        NoAccess: no such host can be used now.
        EngineError: the cluster has no node with the name `node`.
    """
    access, name = cluster.access, cluster.name
    if not access.hosts:
        raise NoAccess(f"cannot log in to {name}: {access.no_hosts}")
    if via == "slurm":
        hosts = [host for host in access.hosts if host.role == "login"]
        if not hosts:
            raise NoAccess(
                f"{name} has no Slurm login node", hint="only clusters of type SLURM have one"
            )
        return hosts[0]
    hosts = [host for host in access.hosts if host.role != "login"]
    if node:
        hosts = [host for host in hosts if host.node == node]
        if not hosts:
            raise _create_unknown_node_error(cluster, node)
    usable = next((host for host in hosts if not host.because), None)
    if usable is None:
        reasons = "\n".join(f"{host.node}: {host.because}" for host in hosts)
        raise NoAccess(f"cannot log in to {node or name} now", hint=reasons)
    return usable


def _create_unknown_node_error(cluster: ClusterAccess, node: str) -> EngineError:
    """Return, without raising, the error for an unknown node, with one or all names as hint."""
    names = [host.node for host in cluster.access.hosts if host.role != "login"]
    hint = suggest_name(node, names, f"its nodes: {', '.join(names)}", similarity=0.6)
    return EngineError(f"{cluster.name} has no node {node!r}", hint=hint)


def format_command(words: Sequence[str]) -> str:
    """Return the command as a line for the user's shell."""
    # cmd.exe does not know the quotes of POSIX shells.
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def execute_command(words: Sequence[str]) -> int:
    """Replace this process with the command.

    On Windows, run the command and return the exit code. In the place of this process, the command
    itself gets signals, the terminal and the exit code.

    Raises:
        EngineError: the command is not installed.
    """
    program = shutil.which(words[0])
    if program is None:
        raise EngineError(
            f"{words[0]} is not installed, or not in PATH",
            hint=f"Install it, or show the command with --print:\n  {format_command(words)}",
        )
    # os.execv drops what Python has buffered.
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        # On Windows, os.execv starts another process and ends this one at once: the shell would not
        # wait.
        return run_and_wait([program, *words[1:]])
    for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores both; other programs expect the default
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    return os.execv(program, list(words))  # noqa: S606 - without a shell


def run_and_wait(words: Sequence[str]) -> int:
    """Run the command beside this process and return the exit code.

    Ctrl-C reaches both processes; this one ignores it, so that the command decides.
    """
    child = subprocess.Popen(words)  # noqa: S603 - without a shell
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, previous_handler)
