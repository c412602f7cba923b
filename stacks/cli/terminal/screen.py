"""Write a command's output, errors and questions, and read and write the files of flags.

All commands write through a `Screen`: text of platforms and programs is escaped, so that it is not
a command to the terminal or to a CI system.

GitHub takes lines that begin with `::`, and `##[` anywhere, for workflow commands; Azure Pipelines
`##vso[` (logging commands) and `##[group]` (formatting commands); TeamCity `##teamcity[`. GitLab's
sections (`section_start`) need an escape character.
"""

import contextlib
import getpass
import os
import re
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TextIO

import click

from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import escape_invisible_lines
from gpuform.stacks.engine.ci_job import CiJob, find_ci_job
from gpuform.stacks.review.paint import STYLED, Paint

_ERASE_LINE = "\x1b[0K"


@dataclass(slots=True)
class FoldMarks:
    """The lines around a part of a log that a CI system can fold."""

    _begin: Callable[[str, str], str]
    _end: Callable[[str], str]
    _name: str = ""

    def begin(self, title: str) -> str:
        """Return the line at which a CI log's folded part begins."""
        # GitLab wants a name for each section, the same at its start and end.
        self._name = f"gpuform_{time.time_ns()}"
        return self._begin(self._name, title)

    def end(self) -> str:
        """Return the line which ends the part begun last."""
        return self._end(self._name)


def create_fold_marks(job: CiJob | None) -> FoldMarks | None:
    """Return the fold marks of the job's CI system, or None for other systems or without a job."""
    if job is None:
        return None
    if job.system.startswith("GitHub"):
        return FoldMarks(lambda _, title: f"::group::{title}", lambda _: "::endgroup::")
    # Only GitLab names a section at its end, too.
    if job.system.startswith("GitLab"):
        return FoldMarks(
            lambda name, title: f"{_format_section('start', name)}{title}",
            lambda name: _format_section("end", name),
        )
    if job.system.startswith("Azure"):
        return FoldMarks(lambda _, title: f"##[group]{title}", lambda _: "##[endgroup]")
    return None


def _format_section(kind: str, name: str) -> str:
    """Return the marker for the `start` or `end` of a foldable section in GitLab's job log."""
    return f"{_ERASE_LINE}section_{kind}:{int(time.time())}:{name}\r{_ERASE_LINE}"


_CI_COMMAND: Final = re.compile(r"(?m)(^[^\S\n]*:(?=:)|#(?=#\w*\[))")


def escape_text(text: str, *, color: bool, in_ci: bool) -> str:
    """Return the text with control characters escaped; with `color` gpuform's own styles stay.

    With `in_ci` a backslash breaks the commands of CI systems.
    """
    # Styles are cut out first: their escapes would be made visible, too.
    parts = STYLED.split(text) if color else [text]
    escaped = "".join(
        # Odd parts are the styles that the text was split at.
        part if index % 2 else escape_invisible_lines(part)
        for index, part in enumerate(parts)
    )
    return _CI_COMMAND.sub(r"\1\\", escaped) if in_ci else escaped


@dataclass(frozen=True, slots=True)
class Screen:
    """The output of a command: results go to `out`, logs and errors to `err`.

    Both are the real streams, because a running program's prints are captured from `sys.stdout`.

    With `interactive` somebody can answer questions and see a live display. `fold_marks` are the
    lines with which a CI system folds its log; no other text is a command to the CI system.
    """

    out: TextIO
    err: TextIO
    paint: Paint
    interactive: bool
    fold_marks: FoldMarks | None = None
    in_ci: bool = False

    @classmethod
    def open(cls, color: str, *, interactive: bool, environ: Mapping[str, str]) -> "Screen":
        """Open the screen of this process.

        `color` is auto, always or never; auto means colours on a terminal, without NO_COLOR. A CI
        job is never interactive, whatever its terminal looks like: nobody answers there.
        """
        out, err = sys.stdout, sys.stderr
        job = find_ci_job(environ)
        is_terminal = is_tty(out) and job is None
        # NO_COLOR: see no-color.org; a dumb terminal shows escapes as text.
        wants_color = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        return cls(
            out,
            err,
            Paint(color == "always" or (color == "auto" and wants_color)),
            interactive and is_terminal and is_tty(sys.stdin),
            create_fold_marks(job),
            in_ci=job is not None,
        )

    @property
    def is_terminal(self) -> bool:
        """Return True if somebody sees the results while the command prints."""
        return not self.in_ci and is_tty(self.out)

    def print(self, text: str = "") -> None:
        """Print a line of results for people, with control characters and CI commands escaped."""
        self.print_unescaped(self.escape(text))

    def print_parts(self, parts: Iterable[str]) -> None:
        """Print a text in parts; each part but the last ends with a line break."""
        for part in parts:
            self._write_raw(self.escape(part))
        self._write_raw("\n")

    def print_unescaped(self, line: str) -> None:
        """Print a line of gpuform's own unescaped, as a possible command to a CI system."""
        self._write_raw(line + "\n")

    def write(self, text: str) -> None:
        """Write results for a file unchanged, or escaped for people on a terminal."""
        # In a file or a pipe the text is data, and stays as it is.
        self._write_raw(self.escape(text) if is_tty(self.out) else text)

    def escape(self, text: str) -> str:
        """Return the text with everything escaped which this screen must not show."""
        return escape_text(text, color=self.paint.color, in_ci=self.in_ci)

    def _write_raw(self, text: str) -> None:
        """Write to stdout and ignore a closed pipe: a reader that has gone must not end a run."""
        with contextlib.suppress(BrokenPipeError):
            self.out.write(text)
            self.out.flush()

    def warn(self, text: str) -> None:
        """Print a line for people on stderr."""
        with contextlib.suppress(BrokenPipeError):
            self.err.write(self.escape(text) + "\n")
            self.err.flush()

    def ask(self, question: str) -> str:
        """Print the question and return the answer, stripped; empty at the end of stdin.

        Input typed before the question is dropped: it answers something else.
        """
        _drop_typed_ahead()
        self.out.write(self.escape(question))
        self.out.flush()
        _wait_for_line()
        return sys.stdin.readline().strip()

    def read_stdin(self, missing: str, hint: str) -> str:
        """Return the text on stdin. Raises EngineError, with `missing`, if stdin is a terminal."""
        if is_tty(sys.stdin):
            raise EngineError(missing, hint=hint)
        return sys.stdin.read()

    def create_passphrase_prompt(self) -> Callable[[str], str] | None:
        """Return a function which asks for a passphrase, or None where nobody can answer."""
        return (lambda prompt: getpass.getpass(f"{prompt}: ")) if self.interactive else None


def _drop_typed_ahead() -> None:
    """Drop the text typed on the terminal before the question."""
    if os.name == "posix" and is_tty(sys.stdin):
        import termios  # noqa: PLC0415 - not on every system

        with contextlib.suppress(termios.error, OSError, ValueError):  # it is no file
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _wait_for_line() -> None:
    """Wait until stdin has input, and let signal handlers raise meanwhile.

    Python runs no handler while it reads, and a signal right before the read would wake nobody:
    here the signal writes to a pipe that the wait includes.
    """
    # Windows cannot wait for stdin with select; handlers run in the main thread alone.
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    # Python refuses a blocking descriptor for wake-ups.
    os.set_blocking(writer, False)
    previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, reader], [], [])
    except (OSError, ValueError):  # not a file: reading does not wait
        return
    finally:
        signal.set_wakeup_fd(previous_fd)
        os.close(reader)
        os.close(writer)


def is_tty(stream: TextIO) -> bool:
    """Return True if the output stream is a terminal."""
    try:
        return os.isatty(stream.fileno())
    # A closed or replaced stream has no descriptor.
    except (OSError, ValueError, AttributeError):
        return False


@dataclass(frozen=True, slots=True)
class DisplayOptions:
    """What a run shows.

    With `sames` unchanged resources are shown, with `secrets` secret outputs in plain text, with
    `urns` each resource's URN. `removes` says that the stack is removed after the run.
    """

    sames: bool = False
    secrets: bool = False
    urns: bool = False
    outputs: bool = True
    progress: bool = True
    removes: bool = False


def _create_flag(name: str, help_text: str) -> Callable[[Any], Any]:
    """Return a decorator to add the flag `--name` without a value to a command."""
    return click.option(f"--{name}", is_flag=True, help=help_text)


def _create_ignored_flag(name: str, reason: str) -> Callable[[Any], Any]:
    """Create a flag of the Pulumi CLI without effect; the help says `reason`."""
    help_text = f"Accepted for compatibility with Pulumi: {reason}."
    return click.option(f"--{name}", is_flag=True, expose_value=False, help=help_text)


show_secrets_flag = _create_flag("show-secrets", "Show secret outputs of the stack in plain text.")
show_reads_flag = _create_ignored_flag("show-reads", "gpuform always shows what the program reads")
display_flags = (
    _create_flag("show-sames", "Also show unchanged resources."),
    _create_flag("urns", "Show each resource's URN."),
    _create_flag("suppress-outputs", "Show no outputs of the stack."),
    _create_flag("suppress-progress", "Show no progress: only what has ended."),
    _create_ignored_flag("diff", "property changes are always shown"),
    _create_ignored_flag("show-replacement-steps", "gpuform shows a replacement as one change"),
    _create_ignored_flag("show-full-output", "outputs are never cut"),
    _create_ignored_flag("suppress-permalink", "gpuform prints no permalink"),
)


def read_content(name: str) -> bytes:
    """Return the content of the file, or of stdin for -. Raises click.FileError."""
    if name == "-":
        # Bytes, because the text's encoding is the business of its reader.
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.FileError(name, error.strerror) from None


def write_parts(parts: Iterable[str], output: Path | None, screen: Screen) -> None:
    """Write a text in parts to the file, or to stdout without one.

    Each part but the last ends with a line break. An existing file is overwritten in place: a
    failure leaves the file incomplete.

    Raises:
        FileError: the file cannot be written.
    """
    if output is None:
        for part in parts:
            screen.write(part)
        return
    try:
        with output.open("w", encoding="utf-8") as file:
            file.writelines(parts)
    except OSError as error:
        raise click.FileError(str(output), error.strerror) from None
