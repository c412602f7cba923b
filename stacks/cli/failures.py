"""Define the exit codes of gpuform, which are Pulumi's, and format errors that end a command.

`app` calls `describe_failure`; the reference page of exit codes is generated from `MEANINGS`.
"""

import traceback
from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from gpuform.providers.emulator.store import StoreError
from gpuform.schemas.errors import GpuformError

SUCCESS: Final = 0
FAILED: Final = 1
BAD_FLAGS: Final = 2
CHANGES: Final = 2
"""The code of --detailed-exitcode, as in Terraform."""
FOUND: Final = 3
INCOMPLETE: Final = 4
POLICY_VIOLATION: Final = 5
STACK_NOT_FOUND: Final = 6
UNEXPECTED_CHANGES: Final = 7
ABANDONED: Final = 8
OUT_OF_CREDIT: Final = 9
INTERNAL_ERROR: Final = 255


class Meaning(NamedTuple):
    """The meaning of an exit code for these commands; no commands stand for every command."""

    code: int
    name: str
    commands: tuple[str, ...]
    description: str


_RUNS: Final = ("preview", "up", "refresh", "destroy", "expire", "repair")

MEANINGS: Final = (
    Meaning(SUCCESS, "SUCCESS", (), "Success."),
    Meaning(
        FAILED, "FAILED", (), "The command failed, was refused, was declined or was interrupted."
    ),
    Meaning(FAILED, "FAILED", ("review",), "A preview failed."),
    Meaning(FAILED, "FAILED", ("drift", "status", "graph"), "Something could not be read."),
    Meaning(FAILED, "FAILED", ("validate", "doctor"), "Problems were found."),
    Meaning(FAILED, "FAILED", ("fmt",), "With `--check`: a file would change."),
    Meaning(FAILED, "FAILED", ("convert",), "Some resources of Terraform could not be converted."),
    Meaning(BAD_FLAGS, "BAD_FLAGS", (), "The flags are wrong. Nothing was done."),
    Meaning(
        CHANGES,
        "CHANGES",
        ("preview", "review", "drift"),
        "With `--detailed-exitcode`: changes were found.",
    ),
    Meaning(FOUND, "FOUND", ("orphans",), "Objects were found that no stack owns."),
    Meaning(FOUND, "FOUND", ("expire", "repair"), "With `--dry-run`: something is due."),
    Meaning(FOUND, "FOUND", ("review",), "With `--fail-on-danger`: a change is dangerous."),
    Meaning(
        INCOMPLETE,
        "INCOMPLETE",
        ("preview", "up", "destroy", "expire", "repair", "review"),
        "With `--require-checks`: a check could not be made. Nothing was changed.",
    ),
    Meaning(INCOMPLETE, "INCOMPLETE", ("orphans",), "A platform or a state could not be read."),
    Meaning(INCOMPLETE, "INCOMPLETE", ("offers",), "A platform could not be reached."),
    Meaning(INCOMPLETE, "INCOMPLETE", ("expire",), "The start time of a `ttl` is unknown."),
    Meaning(
        POLICY_VIOLATION,
        "POLICY_VIOLATION",
        ("preview", "up", "destroy", "expire", "repair"),
        "A gate stops the plan. Nothing was changed.",
    ),
    Meaning(
        POLICY_VIOLATION,
        "POLICY_VIOLATION",
        ("review",),
        "With `--detailed-exitcode`, `--fail-on-danger` or `--require-checks`: a gate stops "
        "a plan.",
    ),
    Meaning(
        STACK_NOT_FOUND, "STACK_NOT_FOUND", (), "The stack does not exist, or no stack is selected."
    ),
    Meaning(
        UNEXPECTED_CHANGES,
        "UNEXPECTED_CHANGES",
        ("preview", "up", "refresh"),
        "With `--expect-no-changes`: changes were found.",
    ),
    Meaning(
        ABANDONED,
        "ABANDONED",
        _RUNS,
        "A second signal ended the command at once. The state lists the unfinished "
        "operations as pending.",
    ),
    Meaning(
        OUT_OF_CREDIT,
        "OUT_OF_CREDIT",
        (*_RUNS, "status"),
        "No credit is left: a platform stopped or refused something.",
    ),
    Meaning(INTERNAL_ERROR, "INTERNAL_ERROR", (), "An error in gpuform. Please report it."),
)
"""Every exit code with its meanings, for the documentation."""

_REPORT: Final = "Please report it with the output of the same command with --verbose."


def describe_failure(error: BaseException, *, verbose: bool) -> tuple[int, list[str]]:
    """Return the exit code of an error, and the lines to print on stderr.

    An unexpected error shows only its type and place: its text may hold secrets. With `verbose` its
    traceback is added, without source values.
    """
    if isinstance(error, click.UsageError):
        return BAD_FLAGS, list(_format_usage_error(error))
    if isinstance(error, click.ClickException):
        return error.exit_code, [f"error: {error.format_message()}"]
    if isinstance(error, click.Abort | KeyboardInterrupt | EOFError):
        return FAILED, ["error: interrupted"]
    user_error = _format_user_error(error)
    if user_error is not None:
        return user_error
    return INTERNAL_ERROR, list(_format_internal_error(error, verbose))


def _format_usage_error(error: click.UsageError) -> Iterator[str]:
    if error.ctx is not None:
        yield error.ctx.get_usage()
    yield f"error: {error.format_message()}"
    if error.ctx is not None:
        yield f"  see `{error.ctx.command_path} --help`"


def _format_user_error(error: BaseException) -> tuple[int, list[str]] | None:
    """Return exit code and lines of an error for users; None for an internal error."""
    if isinstance(error, GpuformError):
        lines = f"error: {error}".splitlines()
        if error.shown_help_page:
            lines.append(f"  more: gpuform help {error.shown_help_page}")
        return error.exit_code, lines
    # The emulator imports nothing of `schemas`, where GpuformError is.
    if isinstance(error, StoreError):
        return FAILED, [f"error: {error}"]
    return None


def _format_internal_error(error: BaseException, verbose: bool) -> Iterator[str]:
    """Yield the type and place of an error, and with `verbose` the frames; never the message."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {frames[-1].name}, line {frames[-1].lineno}" if frames else ""
    yield f"error: internal error ({type(error).__name__}{location}). {_REPORT}"
    # Places alone: the message and the values may hold secrets.
    if verbose:
        for line in traceback.format_list(frames):
            yield line.rstrip()
