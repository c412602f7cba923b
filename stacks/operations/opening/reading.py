"""What is known of a stack before anything is done to it."""

from collections.abc import Callable

from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.engine.store import SealedState, read_sealed


def at_work_on(workspace: Workspace, name: str) -> str:
    """Who has the stack's lock, and since when; empty where nobody has."""
    return workspace.backend.lock(workspace.project.name, name).worker()


def warn_of_recovery(changes: int, tell: Callable[[str], None]) -> None:
    """Tells that an interrupted run's changes were found, if there were any."""
    if changes:
        tell(
            f"warning: the last run was interrupted; {changes} changes that it made were "
            "recovered from its journal"
        )


def read_for_showing(workspace: Workspace, name: str, tell: Callable[[str], None]) -> SealedState:
    """The stack's state without its secrets; what its journal may tell beside it is warned of."""
    backend, project = workspace.backend, workspace.project.name
    found = read_sealed(backend, project, name)
    told = found.doubt(backend.journal(project, name).where)
    if told:
        tell(f"warning: {told}")
    return found
