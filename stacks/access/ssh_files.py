"""Write a stack's hosts for OpenSSH, and remove entries of deleted clusters from the user's files.

Each stack has a file of its own: it is written as a whole, and deleted with its last host.
`ssh-config` and runs that delete clusters call this module.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote

from gpuform.schemas.access import Host, SshAuthority
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.access.cluster_access import ClusterAccess, build_certificate_options
from gpuform.stacks.access.kubeconfig_files import ContextChange, KubeconfigFiles
from gpuform.stacks.access.user_file import UserFile
from gpuform.stacks.engine.state import Snapshot

FOLDER: Final = "gpuform"
_BOM: Final = "\ufeff"
# OpenSSH accepts keywords in any case, and `=` behind them.
_SECTION: Final = re.compile(r"\s*(host|match)[\s=]", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SshFiles:
    """The file of a stack, and the user's configuration, which includes it with `include_line`."""

    stack_file: UserFile
    user_config: UserFile
    include_line: str

    @classmethod
    def for_stack(cls, file: Path | None, project: str, stack: str, state: str) -> "SshFiles":
        """Return the files of a stack: in `~/.ssh/gpuform/`, or at `file`.

        `state` is the location of the state, which tells stacks of one name apart.
        """
        ssh_folder = Path.home() / ".ssh"
        # Two backends can have stacks of one name: the digest of the state's location keeps their
        # files apart.
        digest = hashlib.sha256(state.encode()).hexdigest()[:8]
        path = file.absolute() if file else ssh_folder / FOLDER / f"{project}-{stack}-{digest}.conf"
        included_path = path if file else path.with_name("*.conf")
        user_config = UserFile(ssh_folder / "config", "SSH's configuration", is_private=False)
        return cls(UserFile(path, "the file"), user_config, f"Include {_quote_path(included_path)}")

    @property
    def is_included(self) -> bool:
        """Return whether the user's configuration includes the stack's file for all hosts."""
        return self.include_line in _list_global_lines(self.user_config.read())

    def install(self) -> bool:
        """Add the line to the user's configuration, and return whether the line was missing."""
        return self.user_config.update(self._add_line)

    def uninstall(self) -> bool:
        """Remove the line from the user's configuration, and return whether the line was there."""
        return self.user_config.update(self._remove_line)

    def delete(self) -> bool:
        """Delete the stack's file, and return whether the file existed."""
        return self.stack_file.delete()

    def _add_line(self, config: str) -> str:
        """Return the configuration with the line at the start.

        Further down, the line would belong to the host above it.
        """
        if self.include_line in _list_global_lines(config):
            return config
        line_break = "\r\n" if "\r\n" in config else "\n"
        return f"{self.include_line}{line_break}{config}"

    def _remove_line(self, config: str) -> str:
        lines = config.splitlines(keepends=True)
        return "".join(line for line in lines if line.rstrip("\r\n") != self.include_line)


def _list_global_lines(config: str) -> list[str]:
    lines = config.removeprefix(_BOM).splitlines()
    end = next((n for n, line in enumerate(lines) if _SECTION.match(line)), len(lines))
    return [line.strip() for line in lines[:end]]


def _quote_path(path: Path) -> str:
    """Return the path in OpenSSH's form: with slashes, and in quotes if there are spaces."""
    posix_path = path.as_posix()
    return f'"{posix_path}"' if re.search(r"\s", posix_path) else posix_path


_CLUSTER_SECTION: Final = re.compile(r"^(?=# Cluster )", re.MULTILINE)
_INVALID_IN_ALIASES: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class SshHost:
    """A host under the name for `ssh`; `host.because` says why it cannot be reached, or is empty.

    `cluster_id` is the platform's id of its cluster.
    """

    alias: str
    cluster: str
    cluster_id: str
    host: Host
    authority: SshAuthority | None = None


def list_ssh_hosts(
    clusters: Iterable[ClusterAccess], project: str, stack: str, user: str = "", jump: str = ""
) -> list[SshHost]:
    """Return all hosts of the clusters, also unreachable ones, as NODE.STACK.PROJECT.

    A repeated name gets a number in front. `user` and `jump` are used for hosts without a user or a
    jump host of their own.
    """
    hosts: list[SshHost] = []
    taken_aliases: set[str] = set()
    for cluster in clusters:
        for host in cluster.access.hosts:
            name = ".".join(map(_to_alias_part, (_build_host_name(cluster, host), stack, project)))
            candidates = (name if number == 1 else f"{number}.{name}" for number in count(1))
            alias = next(other for other in candidates if other.lower() not in taken_aliases)
            # OpenSSH compares host names without case.
            taken_aliases.add(alias.lower())
            completed_host = host.model_copy(
                update={"user": host.user or user, "jump": host.jump or jump}
            )
            authority = cluster.access.ssh_authority
            if authority is not None and not (completed_host.user or completed_host.because):
                reason = "it accepts SSH certificates, which need a login name: --user NAME"
                completed_host = completed_host.model_copy(update={"because": reason})
            hosts.append(SshHost(alias, cluster.name, cluster.label.id, completed_host, authority))
    return hosts


def render_ssh_config(hosts: Sequence[SshHost], project: str, stack: str) -> str:
    """Return the complete file of a stack; unreachable hosts become comments."""
    stack_label = escape_invisible(f"{stack} of {project}")
    lines = [f"# Stack {stack_label}: `gpuform ssh-config` overwrites this file."]
    previous_id = ""
    for ssh_host in hosts:
        host = ssh_host.host
        # `remove_clusters` finds the section of a cluster by the id at the end of this line.
        if ssh_host.cluster_id != previous_id:
            id_ = _encode_id(ssh_host.cluster_id)
            lines += ["", f"# Cluster {escape_invisible(ssh_host.cluster)} {id_}"]
        previous_id = ssh_host.cluster_id
        if host.because:
            lines.append(f"# {ssh_host.alias}: {escape_invisible(host.because)}")
            continue
        lines += [f"Host {ssh_host.alias}", f"    HostName {host.address}"]
        lines += [f"    Port {host.port}"] if host.port != 22 else []
        lines += [f"    User {host.user}"] if host.user else []
        if ssh_host.authority is not None:
            options = build_certificate_options(host, host.user, "", ssh_host.authority)
            lines += [f"    {name} {value}" for name, value in options]
            continue
        lines += [f"    ProxyJump {host.jump_with_user}"] if host.jump else []
    return "\n".join(lines) + "\n"


def remove_clusters(config: str, removed_ids: Collection[str]) -> str:
    """Return the file without the hosts of removed clusters; empty without other hosts."""
    head, *parts = _CLUSTER_SECTION.split(config)
    encoded_ids = set(map(_encode_id, removed_ids))
    remaining_parts = [
        part for part in parts if part.partition("\n")[0].rpartition(" ")[2] not in encoded_ids
    ]
    return "".join([head, *remaining_parts]) if remaining_parts else ""


def _build_host_name(cluster: ClusterAccess, host: Host) -> str:
    """Return the node's name, with the cluster's name as prefix if missing."""
    name = cluster.access.name or cluster.name
    if host.role == "login":
        return f"{name}-login"
    return host.node if host.node.startswith(name) else f"{name}-{host.node}"


def _to_alias_part(name: str) -> str:
    """Return the name with `-` for characters invalid in aliases, or `unnamed` if none is left."""
    return _INVALID_IN_ALIASES.sub("-", name).strip("-.") or "unnamed"


def _encode_id(id_: str) -> str:
    """Return an id as one word without spaces, for a comment in SSH's files."""
    return quote(id_, safe="/:@+=,", errors="surrogatepass")


def find_deleted_ids(previous: Snapshot, current: Snapshot) -> frozenset[str]:
    """Return the ids of objects deleted by a run, without objects only released."""
    # A replaced resource keeps its URN, so only ids show which object was deleted.
    remaining_ids = {entry.id for entry in current.resources}
    owned_ids = {
        entry.id
        for entry in previous.resources
        if entry.custom and not (entry.external or entry.retain_on_delete)
    }
    return frozenset(owned_ids - remaining_ids - {""})


def remove_deleted_contexts(
    deleted: frozenset[str], environ: Mapping[str, str]
) -> list[ContextChange]:
    """Remove the contexts of deleted clusters from kubectl's kubeconfig, and return the changes.

    Raises:
        EngineError: a file cannot be read or changed.
    """
    return KubeconfigFiles.from_environment(None, environ).remove_contexts(
        lambda _name, label: label.id in deleted
    )


def remove_deleted_hosts(
    deleted: frozenset[str], project: str, stack: str, state: str
) -> Path | None:
    """Remove the hosts of deleted clusters from the stack's file.

    Return the path of the file, or None if the file is unchanged. A file without any other host is
    deleted.

    Raises:
        EngineError: the file cannot be changed.
    """
    stack_file = SshFiles.for_stack(None, project, stack, state).stack_file
    config = stack_file.read()
    remaining = remove_clusters(config, deleted)
    if remaining == config:
        return None
    if remaining:
        # The file may have changed since it was read: the removal is done again under the lock.
        stack_file.update(lambda current: remove_clusters(current, deleted))
    else:
        stack_file.delete()
    return stack_file.path
