"""What is left of deleted clusters in the user's files, after a run."""

from collections.abc import Mapping
from pathlib import Path

from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles, Written
from gpuform.stacks.access.ssh_files import SshFiles
from gpuform.stacks.engine.state import Snapshot


def ids_of(snapshot: Snapshot) -> frozenset[str]:
    """The platform's ids of what a stack owns."""
    owned = (entry for entry in snapshot.resources if entry.custom and not entry.external)
    return frozenset(entry.id for entry in owned if entry.id)


def forget_contexts(gone: frozenset[str], environ: Mapping[str, str]) -> list[Written]:
    """Takes the contexts of deleted clusters out of the kubeconfig that kubectl reads.

    Raises EngineError when a file cannot be read or changed.
    """
    return KubeconfigFiles.of(None, environ).take_out(lambda _name, mark: mark.id in gone)


def forget_hosts(project: str, stack: str, state: str) -> Path | None:
    """Deletes the SSH hosts of a stack that has no more resources; the file, if there was one."""
    files = SshFiles.of(None, project, stack, state)
    return files.own.path if files.remove() else None
