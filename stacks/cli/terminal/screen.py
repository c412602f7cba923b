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
    """The marks around a part: `begin` is the line of its title, `end` the line after it."""

    _begin: Callable[[str, str], str]
    _end: Callable[[str], str]
    _name: str = ""

    def begin(self, title: str) -> str:
        """The line that begins a part."""
        self._name = f"gpuform_{time.time_ns()}"
        return self._begin(self._name, title)

    def end(self) -> str:
        """The line that ends the part begun last."""
        return self._end(self._name)


def folds_of(job: CiJob | None) -> Folds | None:
    """The marks of the job's system; None where there are none."""
    if job is None:
        return None
    if job.system.startswith("GitHub"):
        return Folds(lambda _, title: f"::group::{title}", lambda _: "::endgroup::")
    if job.system.startswith("GitLab"):
        return Folds(
            lambda name, title: f"{_section('start', name)}{title}",
            lambda name: _section("end", name),
        )
    if job.system.startswith("Azure"):
        return Folds(lambda _, title: f"##[group]{title}", lambda _: "##[endgroup]")
    return None


def _section(kind: str, name: str) -> str:
    return f"{_ERASE}section_{kind}:{int(time.time())}:{name}\r{_ERASE}"


_COMMAND: Final = re.compile(r"(?m)(^[^\S\n]*:(?=:)|#(?=#\w*\[))")


def harmless(text: str, *, color: bool, in_ci: bool) -> str:
    """The text with what cannot be seen as escapes; with `color`, gpuform's own styles stay."""
    parts = STYLED.split(text) if color else [text]
    shown = "".join(
        part if at % 2 else escape_invisible_lines(part) for at, part in enumerate(parts)
    )
    return _COMMAND.sub(r"\1\\", shown) if in_ci else shown


@dataclass(frozen=True, slots=True)
class Screen:
    """Results go to `out`, logs and errors to `err`; both are the real streams, held from the
    start, because a running program's prints are taken away from `sys.stdout`.

    `interactive`: somebody can answer questions and see a live display. `folds` are the marks by
    which a CI system folds a part of its log; what is shown to one holds no other command to it.
    """

    out: TextIO
    err: TextIO
    paint: Paint
    interactive: bool
    folds: Folds | None = None
    in_ci: bool = False

    @classmethod
    def open(cls, color: str, *, interactive: bool, environ: Mapping[str, str]) -> "Screen":
        """`color` is auto, always or never; auto is a terminal's, and NO_COLOR is respected.

        What a CI job has is no terminal, whatever it looks like: nobody answers there.
        """
        out, err = sys.stdout, sys.stderr
        job = find_ci_job(environ)
        is_terminal = is_tty(out) and job is None
        wanted = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        return cls(
            out,
            err,
            Paint(color == "always" or (color == "auto" and wanted)),
            interactive and is_terminal and is_tty(sys.stdin),
            folds_of(job),
            in_ci=job is not None,
        )

    @property
    def is_terminal(self) -> bool:
        """Whether somebody looks at the results as they are printed."""
        return not self.in_ci and is_tty(self.out)

    def print(self, text: str = "") -> None:
        """A line of results for people."""
        self.mark(self.harmless(text))

    def print_parts(self, parts: Iterable[str]) -> None:
        """The same of a text in parts, each of which but the last ends with its line."""
        for part in parts:
            self._put(self.harmless(part))
        self._put("\n")

    def mark(self, line: str) -> None:
        """A line of gpuform's own, which may be a command to a CI system."""
        self._put(line + "\n")

    def write(self, text: str) -> None:
        """Results for a file, as they are, unless it is people who look at them."""
        self._put(self.harmless(text) if is_tty(self.out) else text)

    def harmless(self, text: str) -> str:
        """The text as people may see it."""
        return harmless(text, color=self.paint.color, in_ci=self.in_ci)

    def _put(self, text: str) -> None:
        """A reader that has gone is no reason to stop in mid-run."""
        with contextlib.suppress(BrokenPipeError):
            self.out.write(text)
            self.out.flush()

    def warn(self, text: str) -> None:
        """A line on stderr."""
        with contextlib.suppress(BrokenPipeError):
            self.err.write(self.harmless(text) + "\n")
            self.err.flush()

    def ask(self, question: str) -> str:
        """What the person answers; empty when there is no answer.

        What a person typed before the question was shown is dropped: it answers something else.
        """
        _drop_typed_ahead()
        self.out.write(self.harmless(question))
        self.out.flush()
        _wait_for_line()
        return sys.stdin.readline().strip()

    def given(self, missing: str, hint: str) -> str:
        """What stands on stdin, where nobody is asked; EngineError when that is a terminal."""
        if is_tty(sys.stdin):
            raise EngineError(missing, hint=hint)
        return sys.stdin.read()

    def passphrase(self) -> Callable[[str], str] | None:
        """How to ask for a passphrase; None where nobody can answer."""
        return (lambda prompt: getpass.getpass(f"{prompt}: ")) if self.interactive else None


def _drop_typed_ahead() -> None:
    if os.name == "posix" and is_tty(sys.stdin):
        import termios  # noqa: PLC0415 - not on every system

        with contextlib.suppress(termios.error, OSError, ValueError):  # it is no file
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _wait_for_line() -> None:
    """Returns when there is something to read, or raises what a signal's handler raises.

    Python runs no handler while it reads, and a signal that comes right before the reading would
    wake nobody: here it writes to a pipe that is waited for as well.
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
    """Whether the stream is a terminal."""
    try:
        return os.isatty(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False


@dataclass(frozen=True, slots=True)
class Showing:
    """`sames`: resources that do not change, too. `secrets`: those of the stack's outputs, in the
    clear. `urns`: each resource's URN. `removes`: the stack goes after the run.
    """

    sames: bool = False
    secrets: bool = False
    urns: bool = False
    outputs: bool = True
    progress: bool = True
    removes: bool = False


def _flag(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(f"--{name}", is_flag=True, help=text)


def _accepted(name: str, why: str) -> Callable[[Any], Any]:
    text = f"Accepted for Pulumi's sake: {why}."
    return click.option(f"--{name}", is_flag=True, expose_value=False, help=text)


show_secrets_flag = _flag("show-secrets", "Show secrets in the stack's outputs in the clear.")
show_reads_flag = _accepted("show-reads", "what the program reads is always shown")
showing_flags = (
    _flag("show-sames", "Show the resources that do not change, too."),
    _flag("urns", "Show each resource's URN."),
    _flag("suppress-outputs", "Show no outputs of the stack."),
    _flag("suppress-progress", "Do not tell what is under way: only what has ended."),
    _accepted("diff", "property changes are always shown"),
    _accepted("show-replacement-steps", "a replacement is one change"),
    _accepted("show-full-output", "outputs are never cut"),
    _accepted("suppress-permalink", "there is none"),
)


def content_of(name: str) -> bytes:
    """What the file holds; what stdin has for -. Raises click.FileError."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.FileError(name, error.strerror) from None


def deliver(parts: Iterable[str], output: Path | None, screen: Screen) -> None:
    """Writes the parts of a text to the file, or to stdout without one. Raises click.FileError.

    Each part but the last ends with its line.
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
