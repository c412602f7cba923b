"""Write a command's output and errors, choose what a run shows, and read and write the files that
flags name.

No text of others is a command to the terminal or to a CI system; a CI system may fold parts of a
log.

GitHub: `::group::` (workflow commands). GitLab: `section_start` (custom collapsible sections).
Azure Pipelines: `##[group]` (formatting commands).

GitHub takes lines that begin with `::`, and `##[` anywhere (workflow commands); Azure Pipelines
takes `##vso[` (logging commands), TeamCity `##teamcity[`. GitLab's sections need an escape.
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

from gpuform.schemas.safe_text import escape_invisible_lines
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import CiJob, find_ci_job
from gpuform.stacks.review.paint import STYLED, Paint

_ERASE = "\x1b[0K"


@dataclass(slots=True)
class Folds:
    """The marks around a foldable part of a CI log."""

    _begin: Callable[[str, str], str]
    _end: Callable[[str], str]
    _name: str = ""

    def begin(self, title: str) -> str:
        """Return the line that begins a part."""
        self._name = f"gpuform_{time.time_ns()}"
        return self._begin(self._name, title)

    def end(self) -> str:
        """Return the line that ends the part begun last."""
        return self._end(self._name)


def create_folds(job: CiJob | None) -> Folds | None:
    """Return the fold marks of the job's CI system, or None if it has none."""
    if job is None:
        return None
    if job.system.startswith("GitHub"):
        return Folds(lambda _, title: f"::group::{title}", lambda _: "::endgroup::")
    if job.system.startswith("GitLab"):
        return Folds(
            lambda name, title: f"{_format_section('start', name)}{title}",
            lambda name: _format_section("end", name),
        )
    if job.system.startswith("Azure"):
        return Folds(lambda _, title: f"##[group]{title}", lambda _: "##[endgroup]")
    return None


def _format_section(kind: str, name: str) -> str:
    return f"{_ERASE}section_{kind}:{int(time.time())}:{name}\r{_ERASE}"


_COMMAND: Final = re.compile(r"(?m)(^[^\S\n]*:(?=:)|#(?=#\w*\[))")


def escape_text(text: str, *, color: bool, in_ci: bool) -> str:
    """Return the text with control characters escaped; with `color` gpuform's own styles stay."""
    parts = STYLED.split(text) if color else [text]
    escaped = "".join(
        part if at % 2 else escape_invisible_lines(part) for at, part in enumerate(parts)
    )
    return _COMMAND.sub(r"\1\\", escaped) if in_ci else escaped


@dataclass(frozen=True, slots=True)
class Screen:
    """The output of a command: results go to `out`, logs and errors to `err`.

    Both are the real streams, because a running program's prints are captured from `sys.stdout`.

    With `interactive` somebody can answer questions and see a live display. `folds` are the marks
    with which a CI system folds its log; no other text is a command to the CI system.
    """

    out: TextIO
    err: TextIO
    paint: Paint
    interactive: bool
    folds: Folds | None = None
    in_ci: bool = False

    @classmethod
    def open(cls, color: str, *, interactive: bool, environ: Mapping[str, str]) -> "Screen":
        """Open the screen of this process.

        `color` is auto, always or never; auto means colours on a terminal, without NO_COLOR. A CI
        job is
        never interactive, whatever its terminal looks like: nobody answers there.
        """
        out, err = sys.stdout, sys.stderr
        job = find_ci_job(environ)
        is_terminal = is_tty(out) and job is None
        wants_color = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        return cls(
            out,
            err,
            Paint(color == "always" or (color == "auto" and wants_color)),
            interactive and is_terminal and is_tty(sys.stdin),
            create_folds(job),
            in_ci=job is not None,
        )

    @property
    def is_terminal(self) -> bool:
        """Return True if somebody sees the results as they are printed."""
        return not self.in_ci and is_tty(self.out)

    def print(self, text: str = "") -> None:
        """Print a line of results for people."""
        self.mark(self.escape(text))

    def print_parts(self, parts: Iterable[str]) -> None:
        """Print a text in parts; each part but the last ends with a line break."""
        for part in parts:
            self._put(self.escape(part))
        self._put("\n")

    def mark(self, line: str) -> None:
        """Print a line of gpuform's own, which may be a command to a CI system."""
        self._put(line + "\n")

    def write(self, text: str) -> None:
        """Write results for a file unchanged, or escaped for people on a terminal."""
        self._put(self.escape(text) if is_tty(self.out) else text)

    def escape(self, text: str) -> str:
        """Return the text as this screen may show it."""
        return escape_text(text, color=self.paint.color, in_ci=self.in_ci)

    def _put(self, text: str) -> None:
        """Write to stdout. A closed pipe is ignored: a reader that has gone must not end a run."""
        with contextlib.suppress(BrokenPipeError):
            self.out.write(text)
            self.out.flush()

    def warn(self, text: str) -> None:
        """Print a line on stderr."""
        with contextlib.suppress(BrokenPipeError):
            self.err.write(self.escape(text) + "\n")
            self.err.flush()

    def ask(self, question: str) -> str:
        """Print the question and return the answer; empty if there is none.

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
        """Return a function that asks for a passphrase, or None where nobody can answer."""
        return (lambda prompt: getpass.getpass(f"{prompt}: ")) if self.interactive else None


def _drop_typed_ahead() -> None:
    if os.name == "posix" and is_tty(sys.stdin):
        import termios  # noqa: PLC0415 - not on every system

        with contextlib.suppress(termios.error, OSError, ValueError):  # it is no file
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _wait_for_line() -> None:
    """Wait until stdin has input, and let signal handlers raise meanwhile.

    Python runs no handler while it reads, and a signal right before the read would wake nobody:
    here the signal writes to a pipe that the wait includes.
    """
    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        select.select([sys.stdin, reader], [], [])
    except (OSError, ValueError):  # it is no file: reading it waits for nobody
        return
    finally:
        signal.set_wakeup_fd(before)
        os.close(reader)
        os.close(writer)


def is_tty(stream: TextIO) -> bool:
    """Return True if the stream is a terminal."""
    try:
        return os.isatty(stream.fileno())
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


def _create_flag(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}", is_flag=True, help=text)


def _create_ignored_flag(name: str, why: str) -> Callable[[Any], Any]:
    text = f"Accepted for Pulumi's sake: {why}."
    return click.option(f"--{name}", is_flag=True, expose_value=False, help=text)


show_secrets_flag = _create_flag(
    "show-secrets", "Show secrets in the stack's outputs in the clear."
)
show_reads_flag = _create_ignored_flag("show-reads", "what the program reads is always shown")
showing_flags = (
    _create_flag("show-sames", "Show the resources that do not change, too."),
    _create_flag("urns", "Show each resource's URN."),
    _create_flag("suppress-outputs", "Show no outputs of the stack."),
    _create_flag("suppress-progress", "Do not tell what is under way: only what has ended."),
    _create_ignored_flag("diff", "property changes are always shown"),
    _create_ignored_flag("show-replacement-steps", "a replacement is one change"),
    _create_ignored_flag("show-full-output", "outputs are never cut"),
    _create_ignored_flag("suppress-permalink", "there is none"),
)


def read_content(name: str) -> bytes:
    """Return the content of the file, or of stdin for -. Raises click.FileError."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.FileError(name, error.strerror) from None


def write_parts(parts: Iterable[str], output: Path | None, screen: Screen) -> None:
    """Write a text in parts to the file, or to stdout without one. Raises click.FileError.

    Each part but the last ends with a line break.
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
