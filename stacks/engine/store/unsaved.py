"""What a run did that could not be kept where the state is: a file in the project's folder.

Each line is JSON: the run, the number of the segment of its journal, and that segment's lines.
"""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import JournalError
from gpuform.stacks.engine.values import load


class UnsavedRun(EngineError):
    """A run ended whose state is still on this machine."""

    page = "guides/state-for-a-team"


@dataclass(frozen=True, slots=True)
class Part:
    """One segment of a journal that the store does not have, or may have."""

    journal: str
    run: str
    number: int
    lines: bytes


@dataclass(frozen=True, slots=True)
class Unsaved:
    """The file at `path`, of the run whose journal is at `journal`."""

    path: Path
    journal: str

    @property
    def advice(self) -> str:
        return (
            f"What this run did since then is kept in {self.path}: when the store answers again, "
            "`gpuform state recover` brings it back."
        )

    def append(self, run: str, number: int, lines: bytes) -> None:
        """Keeps a part on this machine's disk. Raises JournalError."""
        document = {"journal": self.journal, "run": run, "number": number, "lines": lines.decode()}
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(handle, "ab") as file:
                file.write(json.dumps(document).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            raise JournalError(
                f"neither the store nor {self.path} takes what this run did: {error.strerror}",
                hint="Compare the state with the platform before the next run: `gpuform refresh`.",
            ) from error

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def parts(self) -> list[Part]:
        """What is kept; a line that a crash has cut off nobody relied on. Raises JournalError."""
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return []
        except (OSError, ValueError) as error:
            raise JournalError(f"{self.path} cannot be read: {error}") from error
        try:
            return [_part(line) for line in text.split("\n")[:-1]]
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise JournalError(
                f"{self.path} is damaged: {error}",
                hint="Compare the state with the platform: what exists can be imported. Then "
                "remove the file.",
            ) from error


def refuse_unsaved(path: Path) -> None:
    """Raises UnsavedRun when there is something at a path for it."""
    if path.exists():
        raise UnsavedRun(
            f"the last run here could not keep its state: what it did is in {path}",
            hint="Bring it back first: `gpuform state recover`.",
        )


def _part(line: str) -> Part:
    document = load(line)
    return Part(
        document["journal"], document["run"], document["number"], document["lines"].encode()
    )
