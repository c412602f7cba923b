"""The seam under Slurm: one command there, its output here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Output:
    """What a command that was run has left."""

    stdout: str
    stderr: str
    code: int


class Commands(Protocol):
    """A place where Slurm's commands can be run. Safe for many threads."""

    @property
    def place(self) -> str:
        """For messages, such as `ssh ada@slurm-login`."""

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> Output:
        """Runs `command` there as it is, without a shell's interpretation, and waits for its end.

        `is_change`: it needs an administrator's rights, unless it is one that any user may make for
        itself, `as_user`. A relative path is one of the user's home, or of the pod's own folder.
        Raises Unreachable when the command
        certainly was not run, and UnknownOutcome when nobody knows whether it was.
        """
