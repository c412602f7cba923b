"""Files that people name: read with - for stdin, written instead of stdout."""

import sys
from pathlib import Path

import click

from gpuform.stacks.cli.terminal.screen import Screen


def content_of(name: str) -> bytes:
    """What the file holds; what stdin has for -. Raises click.FileError."""
    if name == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(name).read_bytes()
    except OSError as error:
        raise click.FileError(name, error.strerror) from None


def deliver(text: str, output: Path | None, screen: Screen) -> None:
    """Writes the text to the file, or to stdout without one. Raises click.FileError."""
    if output is None:
        screen.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(output), error.strerror) from None
