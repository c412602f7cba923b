"""Read how people reach a stack's machines, and run kubectl or SSH in this process's place."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final, Literal

from gpuform.providers.properties import to_properties
from gpuform.schemas.access import Access, Host
from gpuform.stacks.access.errors import NoAccess
from gpuform.stacks.access.kubeconfig_text import Mark
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import to_provider
from gpuform.stacks.engine.stack import Stack, read_resources
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.store import Backend
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.engine.values import PropertyMap
from gpuform.stacks.resource_rules import lifecycle_of
from gpuform.stacks.review.value_text import short_type

_GONE: Final = "it no longer exists on the platform: `gpuform refresh` updates the state"


@dataclass(frozen=True, slots=True)
class Cluster:
    """What one can get on: a resource, by its name in the stack, and the ways.

    `stale` says why the platform did not tell them now: then they are those of the state.
    """

    name: str
    mark: Mark
    access: Access
    stale: str = ""


def state_of(backend: Backend, project: str, stack: str) -> str:
    """Where a stack's state is, compressed or not: what tells stacks of one name apart."""
    return backend.locate_checkpoint(project, stack).removesuffix(".gz")


def clusters_of(
    stack: Stack, config: Mapping[str, str], names: Sequence[str], *, offline: bool
) -> list[Cluster]:
    """Those named, by their names in the stack or on the platform; without names all of them.

    `config` is the stack's in plain text. `offline` asks no platform. One that is gone from its
    platform offers nothing. Raises EngineError for a name that no cluster has.
    """
    known = [
        (entry, access)
        for entry in stack.snapshot.resources
        if not (entry.delete or entry.pending_replacement)
        if (access := _access(entry, entry.outputs)) is not None
    ]
    chosen = [_chosen(stack, known, name) for name in names] if names else known
    entries = {entry.urn: entry for entry, _ in chosen}
    return list(_read(stack, config, list(entries.values()), offline=offline))


def _read(
    stack: Stack, config: Mapping[str, str], entries: Sequence[ResourceState], *, offline: bool
) -> Iterator[Cluster]:
    where = state_of(stack.backend, stack.project.name, stack.name)
    seen = [None] * len(entries) if offline else read_resources(stack, config, entries)
    for entry, now in zip(entries, seen, strict=True):
        stale = now.problem if now else ""
        outputs = now.outputs if now is not None and now.outputs is not None else entry.outputs
        access = _access(entry, outputs)
        if access is None:
            continue
        if now is not None and now.outputs is None and not stale:
            access = Access(name=access.name, no_kubeconfig=_GONE, no_hosts=_GONE)
        yield Cluster(name_of(entry.urn), Mark(entry.id, entry.urn, where), access, stale)


def _access(entry: ResourceState, outputs: PropertyMap) -> Access | None:
    lifecycle = lifecycle_of(entry.type)
    return lifecycle.get_access(to_properties(to_provider(outputs))) if lifecycle else None


def _chosen(
    stack: Stack, known: Sequence[tuple[ResourceState, Access]], name: str
) -> tuple[ResourceState, Access]:
    found = [each for each in known if name in (each[0].urn, name_of(each[0].urn))]
    found = found or [each for each in known if name == each[1].name]
    if len(found) == 1:
        return found[0]
    if found:
        urns = "\n".join(entry.urn for entry, _ in found)
        raise NoAccess(f"{name!r} is the name of {len(found)} clusters", hint=f"name one:\n{urns}")
    for entry in stack.snapshot.resources:
        if name in (entry.urn, name_of(entry.urn)) and entry.custom:
            raise NoAccess(
                f"{name} is a {short_type(entry.type)}, which nobody can get on",
                hint=_choices(known),
            )
    names = {each for entry, access in known for each in (name_of(entry.urn), access.name) if each}
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else _choices(known)
    raise NoAccess(f"stack '{stack.name}' has no cluster {name!r}", hint=hint)


def _choices(known: Sequence[tuple[ResourceState, Access]]) -> str:
    names = sorted(name_of(entry.urn) for entry, _ in known)
    return f"its clusters: {', '.join(names)}" if names else "it has no clusters yet: `gpuform up`"


Via = Literal["kubectl", "ssh", "slurm"]


@dataclass(frozen=True, slots=True)
class Wish:
    """What the person asks for; empty is what suits the cluster."""

    via: Via | None = None
    node: str = ""
    user: str = ""
    jump: str = ""
    command: Sequence[str] = ()


def command_for(cluster: Cluster, wish: Wish, contexts: Mapping[str, Mark]) -> list[str]:
    """The words of the command. `contexts` are those that gpuform wrote, by name.

    Raises EngineError for what the cluster has not got, or not yet.
    """
    via = wish.via or ("ssh" if wish.node else cluster.access.prefers)
    if via == "kubectl":
        if wish.node:
            raise NoAccess("--node is a machine to log in to: leave out --via kubectl")
        return _kubectl(cluster, wish, contexts)
    return _ssh(_host(cluster, via, wish.node), wish)


def port_url(cluster: Cluster, number: int) -> str:
    """Where a port of the cluster is reached. Raises EngineError when it is not mapped."""
    urls = {port.number: port.url for port in cluster.access.ports}
    if number not in urls:
        known = ", ".join(map(str, urls))
        hint = (
            f"mapped are: {known}" if urls else "declare it in port_mappings, if it is TensorOne's"
        )
        raise NoAccess(f"port {number} of {cluster.name} is not reached from outside", hint=hint)
    if not urls[number]:
        raise NoAccess(
            f"what the platform tells of port {number} of {cluster.name} is no address of a page",
            hint="look at the cluster on the platform's own pages",
        )
    return urls[number]


def _kubectl(cluster: Cluster, wish: Wish, contexts: Mapping[str, Mark]) -> list[str]:
    access = cluster.access
    if access.kubeconfig is None:
        raise NoAccess(f"{cluster.name} has no kubeconfig: {access.no_kubeconfig}")
    context = next((name for name, mark in contexts.items() if mark.id == cluster.mark.id), None)
    if context is None:
        raise NoAccess(
            f"your kubeconfig has no context of {cluster.name} that gpuform wrote",
            hint=f"write it: `gpuform kubeconfig {cluster.name}`",
        )
    words = list(wish.command)
    words = words[1:] if words[:1] == ["kubectl"] else words
    return ["kubectl", "--context", context, *(words or ["get", "nodes"])]


def _ssh(host: Host, wish: Wish) -> list[str]:
    user = wish.user or host.user
    told = host.model_copy(update={"user": user, "jump": wish.jump or host.jump})
    jump = ["-J", told.jump_with_user] if told.jump else []
    port = ["-p", str(host.port)] if host.port != 22 else []
    place = f"{user}@{host.address}" if user else host.address
    return ["ssh", *jump, *port, place, *(["--", *wish.command] if wish.command else [])]


def _host(cluster: Cluster, via: Via, node: str) -> Host:
    access, name = cluster.access, cluster.name
    if not access.hosts:
        raise NoAccess(f"nobody can log in to {name}: {access.no_hosts}")
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
            raise _no_node(cluster, node)
    usable = next((host for host in hosts if not host.because), None)
    if usable is None:
        reasons = "\n".join(f"{host.node}: {host.because}" for host in hosts)
        raise NoAccess(f"nobody can log in to {node or name} now", hint=reasons)
    return usable


def _no_node(cluster: Cluster, node: str) -> EngineError:
    names = [host.node for host in cluster.access.hosts if host.role != "login"]
    near = get_close_matches(node, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"its nodes: {', '.join(names)}"
    return EngineError(f"{cluster.name} has no node {node!r}", hint=hint)


def quoted(words: Sequence[str]) -> str:
    """The command as it is typed into a shell."""
    return subprocess.list2cmdline(words) if os.name == "nt" else shlex.join(words)


def run(words: Sequence[str]) -> int:
    """The command's exit code, where this returns at all.

    Where a process can become another one, it does: signals, the terminal and the exit code are
    the command's own. Raises EngineError when it is not installed.
    """
    program = shutil.which(words[0])
    if program is None:
        raise EngineError(
            f"{words[0]} is not installed, or not in PATH",
            hint=f"Install it, or see what would be run with --print:\n  {quoted(words)}",
        )
    sys.stdout.flush()
    sys.stderr.flush()
    if os.name == "nt":
        return wait_for([program, *words[1:]])
    for name in ("SIGPIPE", "SIGXFSZ"):  # which Python ignores, and programs do not expect it
        signal.signal(getattr(signal, name), signal.SIG_DFL)
    return os.execv(program, list(words))  # noqa: S606 - no shell is wanted


def wait_for(words: Sequence[str]) -> int:
    """Runs it beside this process. Ctrl-C is for both, so that it is the command's to end."""
    child = subprocess.Popen(words)  # noqa: S603 - words, not a shell's text
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return child.wait()
    finally:
        signal.signal(signal.SIGINT, before)
