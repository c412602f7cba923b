"""What a person asked for, as data: one frozen value for each kind of command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal


@dataclass(frozen=True, slots=True)
class RunArguments:
    """`preview`, `up`, `refresh` or `destroy`.

    `parallel` None: the engine's own limit. `allow` holds names of permissions, as given.
    """

    operation: Literal["update", "refresh", "destroy"]
    preview_only: bool = False
    yes: bool = False
    skip_preview: bool = False
    json: bool = False
    parallel: int | None = None
    refresh: bool = False
    expect_no_changes: bool = False
    emulate: bool = False
    allow: tuple[str, ...] = ()
    event_log: Path | None = None

    @property
    def command(self) -> str:
        """The command's name, for messages."""
        if self.preview_only:
            return "preview"
        return "up" if self.operation == "update" else self.operation
