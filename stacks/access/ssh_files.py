"""Write the stack's hosts for OpenSSH, and remove the entries of deleted clusters from the user's
files.

A file for each stack has no entries of others: it is written whole, and goes with its hosts.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gpuform.schemas.access import Host
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.access.connecting import Cluster
from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles, Written
from gpuform.stacks.access.user_file import UserFile
from gpuform.stacks.engine.state import Snapshot

FOLDER: Final = "gpuform"
_BOM: Final = "\ufeff"
_SECTION: Final = re.compile(r"\s*(host|match)[\s=]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SshFiles:
    """A stack's file, and the configuration that includes it."""

    own: UserFile
    users: UserFile
    include: str
    """The line by which the one includes the other."""

    @classmethod
    def of(cls, file: Path | None, project: str, stack: str, state: str) -> "SshFiles":
        """In `~/.ssh/gpuform/`, or the file given. `state` tells stacks of one name apart."""
        ssh = Path.home() / ".ssh"
        digest = hashlib.sha256(state.encode()).hexdigest()[:8]
        path = file.absolute() if file else ssh / FOLDER / f"{project}-{stack}-{digest}.conf"
        included = path if file else path.with_name("*.conf")
        users = UserFile(ssh / "config", "SSH's configuration", is_private=False)
        return cls(UserFile(path, "the file"), users, f"Include {_quoted(included)}")

    @property
    def is_included(self) -> bool:
        """Whether the user's configuration has the line, for all hosts."""
        return self.include in _head(self.users.read())

    def install(self) -> bool:
        """Adds the line to the user's configuration; whether it was not there."""
        return self.users.update(self._with_line)

    def uninstall(self) -> bool:
        """Takes the line out; whether it was there."""
        return self.users.update(self._without_line)

    def remove(self) -> bool:
        """Deletes the stack's file; whether there was one."""
        return self.own.delete()

    def _with_line(self, text: str) -> str:
        """At the start: further down it would belong to the host above it."""
        if self.include in _head(text):
            return text
        end = "\r\n" if "\r\n" in text else "\n"
        return f"{self.include}{end}{text}"

    def _without_line(self, text: str) -> str:
        lines = text.splitlines(keepends=True)
        return "".join(line for line in lines if line.rstrip("\r\n") != self.include)


def _head(text: str) -> list[str]:
    """The lines that hold for all hosts."""
    lines = text.removeprefix(_BOM).splitlines()
    end = next((n for n, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return [line.strip() for line in lines[:end]]


def _quoted(path: Path) -> str:
    """OpenSSH wants slashes, and quotes around spaces, on Windows as well."""
    text = path.as_posix()
    return f'"{text}"' if re.search(r"\s", text) else text


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
    which = escape_invisible(f"{stack} of {project}")
    lines = [f"# Stack {which}: `gpuform ssh-config` writes this file anew."]
    before = ""
    for each in hosts:
        host = each.host
        lines += (
            []
            if each.id == before
            else ["", f"# Cluster {escape_invisible(each.cluster)} {_word(each.id)}"]
        )
        before = each.id
        if host.because:
            lines.append(f"# {each.alias}: {escape_invisible(host.because)}")
            continue
        lines += [f"Host {each.alias}", f"    HostName {host.address}"]
        lines += [f"    Port {host.port}"] if host.port != 22 else []
        lines += [f"    User {host.user}"] if host.user else []
        lines += [f"    ProxyJump {host.jump_with_user}"] if host.jump else []
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


def deleted_ids(before: Snapshot, after: Snapshot) -> frozenset[str]:
    """The platform's ids of what a run deleted, and not only let go."""
    kept = {entry.id for entry in after.resources}
    owned = (
        entry
        for entry in before.resources
        if entry.custom and not (entry.external or entry.retain_on_delete)
    )
    return frozenset(entry.id for entry in owned if entry.id and entry.id not in kept)


def forget_contexts(gone: frozenset[str], environ: Mapping[str, str]) -> list[Written]:
    """Takes the contexts of deleted clusters out of the kubeconfig that kubectl reads.

    Raises EngineError when a file cannot be read or changed.
    """
    return KubeconfigFiles.of(None, environ).take_out(lambda _name, mark: mark.id in gone)


def forget_hosts(gone: frozenset[str], project: str, stack: str, state: str) -> Path | None:
    """Takes the hosts of deleted clusters out of the stack's file; the file, if they were there.

    A file without any others is deleted. Raises EngineError when it cannot be changed.
    """
    own = SshFiles.of(None, project, stack, state).own
    text = own.read()
    kept = without_clusters(text, gone)
    if kept == text:
        return None
    if kept:
        own.update(lambda now: without_clusters(now, gone))
    else:
        own.delete()
    return own.path
