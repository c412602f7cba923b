"""What a program that fails tells its author: its own lines, without those of the engine."""

import asyncio
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pulumi

from gpuform.stacks.engine.errors import EngineError

_INSTALLED = ("site-packages", "dist-packages")
_ENGINE = str(Path(__file__).parent) + os.sep
_MACHINERY = (*(f"{folder}{os.sep}" for m in (asyncio, pulumi) for folder in m.__path__), _ENGINE)


class ProgramError(EngineError):
    """The program failed; the message holds its traceback, from the program's own code on."""

    page = "guides/troubleshooting"


@dataclass(frozen=True, slots=True)
class TaskTrace:
    """Where a task failed, in the program's own lines, and how Python printed it."""

    stack: traceback.StackSummary
    text: str


@dataclass(frozen=True, slots=True)
class ProgramFiles:
    """Which files are a program's own: those in its folders, but for packages installed there."""

    folders: tuple[Path, ...]

    def holds(self, filename: str) -> bool:
        """Whether a frame of this file is the program's."""
        inside = any(filename.startswith(str(folder) + os.sep) for folder in self.folders)
        return (
            inside
            and not filename.startswith(_ENGINE)
            and not any(name in Path(filename).parts for name in _INSTALLED)
        )

    def place(self, trace: TracebackType | traceback.StackSummary | None) -> str:
        """`file.py:12`, the innermost own line of a traceback; empty when there is none."""
        frames = trace if isinstance(trace, traceback.StackSummary) else traceback.extract_tb(trace)
        own = [frame for frame in frames if self.holds(frame.filename)]
        return self.line(own[-1].filename, own[-1].lineno) if own else ""

    def line(self, filename: str, number: int | None) -> str:
        """`file.py:12` for a line of the program's, from the first folder that holds the file."""
        for folder in self.folders:
            if filename.startswith(str(folder) + os.sep):
                return f"{filename.removeprefix(str(folder) + os.sep)}:{number}"
        return f"{filename}:{number}"


def explain_failure(
    error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace] = ()
) -> ProgramError:
    """An exception that ended a program, for its author.

    `traces` stand in where the exception has lost the lines that raised it.
    """
    if isinstance(error, EngineError):
        return ProgramError(error.message, error.hint)
    place = files.place(error.__traceback__)
    at = f"{place}: " if place else ""
    if isinstance(error, pulumi.RunError):
        return ProgramError(f"{at}{error}")
    if isinstance(error, SystemExit):
        left = f": {error.code}" if isinstance(error.code, str) else f" with code {error.code or 0}"
        return ProgramError(
            f"{at}the program exited{left}",
            hint="a program that does not come to its end deletes nothing",
        )
    text = _traceback(error, files, traces)
    return ProgramError(f"Program failed with an unhandled exception:\n{text}")


def _traceback(error: BaseException, files: ProgramFiles, traces: Sequence[TaskTrace]) -> str:
    """The traceback as Python prints it, without what stands between Python and the program."""
    whole = traceback.TracebackException.from_exception(error)
    only = "".join(whole.format_exception_only()).rstrip()
    chain = list(_chain(whole))
    if not any(files.place(part.stack) for part in chain):
        lost = next((trace.stack for trace in traces if trace.text.endswith(only)), None)
        if lost is None:
            return only
        whole.stack = lost
    for part in chain:
        own = [i for i, frame in enumerate(part.stack) if files.holds(frame.filename)]
        frames = part.stack[own[0] :] if own else filter(_is_telling, part.stack)
        part.stack = traceback.StackSummary.from_list(list(frames))
    return "".join(whole.format()).rstrip()


def _is_telling(frame: traceback.FrameSummary) -> bool:
    return not frame.filename.startswith(_MACHINERY)


def _chain(part: traceback.TracebackException | None) -> Iterator[traceback.TracebackException]:
    if part is None:
        return
    yield part
    yield from _chain(part.__cause__)
    yield from _chain(part.__context__)
    for member in part.exceptions or ():
        yield from _chain(member)
