"""The hosts of a stack as entries of OpenSSH's configuration, under names that no other has."""

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from urllib.parse import quote

from gpuform.schemas.access import Host
from gpuform.schemas.visible import visible
from gpuform.stacks.access.reading import Cluster

_PART: Final = re.compile(r"^(?=# Cluster )", re.MULTILINE)
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host under the name that `ssh` gets; `host.because` says why there is no way to it.

    `id` is the platform's of its cluster.
    """

    alias: str
    cluster: str
    id: str
    host: Host


def ssh_hosts(
    clusters: Iterable[Cluster], project: str, stack: str, user: str = "", jump: str = ""
) -> list[SshHost]:
    """Every host of these clusters, as NODE.STACK.PROJECT.

    `user` logs in where none is told, and `jump` is on the way where none is told.
    """
    found: list[SshHost] = []
    taken: set[str] = set()
    for cluster in clusters:
        for host in cluster.access.hosts:
            name = ".".join(map(_plain, (_label(cluster, host), stack, project)))
            named = (name if number == 1 else f"{number}.{name}" for number in count(1))
            alias = next(each for each in named if each.lower() not in taken)
            taken.add(alias.lower())
            known = host.model_copy(update={"user": host.user or user, "jump": host.jump or jump})
            found.append(SshHost(alias, cluster.name, cluster.mark.id, known))
    return found


def config_text(hosts: Sequence[SshHost], project: str, stack: str) -> str:
    """The file, whole."""
    which = visible(f"{stack} of {project}")
    lines = [f"# Stack {which}: `gpuform ssh-config` writes this file anew."]
    before = ""
    for each in hosts:
        host = each.host
        lines += (
            [] if each.id == before else ["", f"# Cluster {visible(each.cluster)} {_word(each.id)}"]
        )
        before = each.id
        if host.because:
            lines.append(f"# {each.alias}: {visible(host.because)}")
            continue
        lines += [f"Host {each.alias}", f"    HostName {host.address}"]
        lines += [f"    Port {host.port}"] if host.port != 22 else []
        lines += [f"    User {host.user}"] if host.user else []
        lines += [f"    ProxyJump {host.way}"] if host.jump else []
    return "\n".join(lines) + "\n"


def without_clusters(text: str, gone: Collection[str]) -> str:
    """The file without the hosts of these clusters; empty when it has no others."""
    head, *parts = _PART.split(text)
    words = set(map(_word, gone))
    kept = [part for part in parts if part.partition("\n")[0].rpartition(" ")[2] not in words]
    return "".join([head, *kept]) if kept else ""


def _label(cluster: Cluster, host: Host) -> str:
    """The node's name, with its cluster's before it where that is not its beginning."""
    name = cluster.access.name or cluster.name
    if host.role == "login":
        return f"{name}-login"
    return host.node if host.node.startswith(name) else f"{name}-{host.node}"


def _plain(name: str) -> str:
    return _NOT_IN_NAMES.sub("-", name).strip("-.") or "unnamed"


def _word(id_: str) -> str:
    """An id as the last word of its line, whatever it holds."""
    return quote(id_, safe="/:@+=,", errors="surrogatepass")
