"""What ends a command early, in words and as Pulumi's exit codes."""

import sys
import traceback
from collections.abc import Iterator
from typing import Final

import click

from gpuform.schemas.errors import UserError

SUCCESS: Final = 0
FAILED: Final = 1
BAD_FLAGS: Final = 2
FOUND: Final = 3
INCOMPLETE: Final = 4
POLICY_VIOLATION: Final = 5
STACK_NOT_FOUND: Final = 6
UNEXPECTED_CHANGES: Final = 7
ABANDONED: Final = 8
OUT_OF_CREDIT: Final = 9
INTERNAL_ERROR: Final = 255

_REPORT: Final = "Please report it with the output of the same command with --verbose."


def explain(error: BaseException, *, verbose: bool) -> tuple[int, list[str]]:
    """The exit code and the lines to show on stderr.

    Of an error that nobody foresaw only its type and its place are told: its text may hold values.
    """
    if isinstance(error, click.UsageError):
        return BAD_FLAGS, list(_usage(error))
    if isinstance(error, click.ClickException):
        return error.exit_code, [f"error: {error.format_message()}"]
    if isinstance(error, click.Abort | KeyboardInterrupt | EOFError):
        return FAILED, ["error: interrupted"]
    known = _known(error)
    if known is not None:
        return known
    return INTERNAL_ERROR, list(_unforeseen(error, verbose))


def _usage(error: click.UsageError) -> Iterator[str]:
    if error.ctx is not None:
        yield error.ctx.get_usage()
    yield f"error: {error.format_message()}"
    if error.ctx is not None:
        yield f"  see `{error.ctx.command_path} --help`"


def _known(error: BaseException) -> tuple[int, list[str]] | None:
    # Imported by now, if the error is one of theirs.
    if isinstance(error, UserError):
        stack = sys.modules.get("gpuform.stacks.engine.stack")
        is_missing = stack is not None and isinstance(error, stack.StackNotFound)
        return (STACK_NOT_FOUND if is_missing else FAILED), f"error: {error}".splitlines()
    store = sys.modules.get("gpuform.providers.emulator.store")
    if store is not None and isinstance(error, store.StoreError):
        return FAILED, [f"error: {error}"]
    return None


def _unforeseen(error: BaseException, verbose: bool) -> Iterator[str]:
    frames = traceback.extract_tb(error.__traceback__)
    place = f" at {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    yield f"error: internal error ({type(error).__name__}{place}). {_REPORT}"
    if verbose:
        for line in traceback.format_list(frames):
            yield line.rstrip()
