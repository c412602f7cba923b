"""The two streams of a command and the person behind them."""

import contextlib
import getpass
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TextIO

from gpuform.stacks.cli.folds import Folds, folds_of
from gpuform.stacks.engine.ci import ci_job
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.review.paint import Paint


@dataclass(frozen=True, slots=True)
class Screen:
    """Results go to `out`, logs and errors to `err`; both are the real streams, held from the
    start, because a running program's prints are taken away from `sys.stdout`.

    `interactive`: somebody can answer questions and see a live display. `folds` are the marks by
    which a CI system folds a part of its log.
    """

    out: TextIO
    err: TextIO
    paint: Paint
    interactive: bool
    folds: Folds | None = None

    @classmethod
    def open(cls, color: str, *, interactive: bool, environ: Mapping[str, str]) -> "Screen":
        """`color` is auto, always or never; auto is a terminal's, and NO_COLOR is respected.

        What a CI job has is no terminal, whatever it looks like: nobody answers there.
        """
        out, err = sys.stdout, sys.stderr
        job = ci_job(environ)
        is_terminal = is_tty(out) and job is None
        wanted = is_terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
        return cls(
            out,
            err,
            Paint(color == "always" or (color == "auto" and wanted)),
            interactive and is_terminal and is_tty(sys.stdin),
            folds_of(job),
        )

    def print(self, text: str = "") -> None:
        """A line of results."""
        self.write(text + "\n")

    def write(self, text: str) -> None:
        """Results as they are. A reader that has gone is no reason to stop in mid-run."""
        with contextlib.suppress(BrokenPipeError):
            self.out.write(text)
            self.out.flush()

    def warn(self, text: str) -> None:
        """A line on stderr."""
        with contextlib.suppress(BrokenPipeError):
            self.err.write(text + "\n")
            self.err.flush()

    def ask(self, question: str) -> str:
        """What the person answers; empty when there is no answer."""
        self.out.write(question)
        self.out.flush()
        return sys.stdin.readline().strip()

    def given(self, missing: str, hint: str) -> str:
        """What stands on stdin, where nobody is asked; EngineError when that is a terminal."""
        if is_tty(sys.stdin):
            raise EngineError(missing, hint=hint)
        return sys.stdin.read()

    def passphrase(self) -> Callable[[str], str] | None:
        """How to ask for a passphrase; None where nobody can answer."""
        return (lambda prompt: getpass.getpass(f"{prompt}: ")) if self.interactive else None


def is_tty(stream: TextIO) -> bool:
    """Whether the stream is a terminal."""
    try:
        return os.isatty(stream.fileno())
    except (OSError, ValueError, AttributeError):
        return False
