"""Files that people name: read with - for stdin, written instead of stdout."""

import sys
from collections.abc import Iterable
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
