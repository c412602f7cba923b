"""What `kubeconfig`, `ssh-config` and `connect` begin with: the stack's clusters as they are."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from gpuform.stacks.access.reading import Cluster, clusters_of, state_of
from gpuform.stacks.cli.opening import workspace_of
from gpuform.stacks.cli.session import Session
from gpuform.stacks.engine.stack import Workspace
from gpuform.stacks.operations.opening.selecting import passphrase_of
from gpuform.stacks.operations.opening.worlds import config_of, world_for


@dataclass(frozen=True, slots=True)
class ReachedStack:
    """Where a stack is, which needs no passphrase. `state` is where its state lies."""

    session: Session
    workspace: Workspace
    stack: str
    state: str

    @classmethod
    def of(cls, session: Session) -> Self:
        workspace = workspace_of(session, runs_program=False)
        stack = workspace.resolve(session.stack)
        where = state_of(workspace.backend, workspace.project.name, stack)
        return cls(session, workspace, stack, where)

    @property
    def project(self) -> str:
        return self.workspace.project.name

    @property
    def directory(self) -> Path:
        return self.workspace.project.directory

    def clusters(self, names: Sequence[str], *, offline: bool, emulate: bool) -> list[Cluster]:
        """Those named, else all. What the platform could not tell now is warned of."""
        screen = self.session.screen
        opened = self.workspace.open(self.stack, passphrase_of(self.workspace, screen.passphrase()))
        with nullcontext() if offline else world_for(opened, emulate=emulate):
            found = clusters_of(opened, config_of(opened), names, offline=offline)
        for each in found:
            if each.stale:
                screen.warn(f"warning: {each.name}: as the state has it, because {each.stale}")
        return found
