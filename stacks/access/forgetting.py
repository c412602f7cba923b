"""What is left of deleted clusters in the user's files, after a run."""

from collections.abc import Mapping
from pathlib import Path

from gpuform.stacks.access.kubeconfig_files import KubeconfigFiles, Written
from gpuform.stacks.access.ssh_files import SshFiles
from gpuform.stacks.access.ssh_hosts import without_clusters
from gpuform.stacks.engine.state import Snapshot


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
