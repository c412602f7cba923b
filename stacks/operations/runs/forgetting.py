"""After a run: contexts and SSH hosts of clusters that it deleted go out of the user's files."""

import os
from collections.abc import Callable

from gpuform.stacks.access.forgetting import deleted_ids, forget_contexts, forget_hosts
from gpuform.stacks.access.reading import state_of
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.state import Snapshot


def forget_deleted(stack: Stack, after: Snapshot, tell: Callable[[str], None]) -> None:
    """Tells what it took out, or how to, where that failed: the run is done by now.

    `stack` is as it was before the run.
    """
    gone = deleted_ids(stack.snapshot, after)
    if not gone:
        return

    def contexts() -> None:
        for each in forget_contexts(gone, os.environ):
            tell(f"context {each.context}: taken out of {each.path}, its cluster is gone")

    def hosts() -> None:
        where = state_of(stack.backend, stack.project.name, stack.name)
        path = forget_hosts(gone, stack.project.name, stack.name, where)
        if path is not None:
            tell(f"{path}: without the hosts that are gone")

    _try(contexts, "gpuform kubeconfig --remove", tell)
    _try(hosts, "gpuform ssh-config", tell)


def _try(task: Callable[[], None], command: str, tell: Callable[[str], None]) -> None:
    try:
        task()
    except EngineError as error:
        tell(f"warning: what is left of deleted clusters could not be taken out: {error.message}")
        tell(f"  `{command}` does it")
    except RuntimeError:  # an account without a home has no such files
        return
