"""`gpuform fmt`: topology files in one form."""

import contextlib
import difflib
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from gpuform.stacks.cli.failures import explain
from gpuform.stacks.cli.session import common_flags, session
from gpuform.stacks.cli.terminal.screen import Screen

_STDIN: Final = "-"


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE]...")
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; show what would change.")
@common_flags
def fmt(files: tuple[str, ...], check: bool, diff: bool) -> int:
    """Format topology files in place, and print the names of those that changed.

    Without FILE: topology.yaml of the current folder, else of the project around it, and the files
    that it includes. `-` formats stdin to stdout.

    Indentation becomes two spaces, also of lists; spaces at the ends of lines and empty lines in a
    row go; braces that are too long for 100 columns are broken. Comments, the order of keys,
    quotes and the text of every value stay as they are. A file that would not mean exactly the
    same afterwards is left alone, and named.

    \b
    Examples:
      gpuform fmt
      gpuform fmt --check --diff topology.yaml volumes.yaml
    """
    if _STDIN in files and len(files) > 1:
        raise click.UsageError("`-` stands alone")
    with session() as current:
        run = _Run(current.screen, check=check, diff=diff)
        if files == (_STDIN,):
            run.stdin()
        elif files:
            for path in dict.fromkeys(map(Path, files)):
                run.file(path)
        else:
            run.topology()
        return int(run.failed or (check and run.changed))


@dataclass(slots=True)
class _Run:
    """One run over several files: a bad one does not keep the others from being formatted."""

    screen: Screen
    check: bool
    diff: bool
    changed: bool = False
    failed: bool = False

    def stdin(self) -> None:
        data = sys.stdin.buffer.read()
        with self._failing("stdin"):
            made = self._formatted(data, "stdin")
            if not (self.check or self.diff):
                self.screen.write(made.decode())

    def topology(self) -> None:
        """The topology of the current folder, or of the project around it; what that includes."""
        from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help
        from gpuform.stacks.engine.project import topology_in  # noqa: PLC0415 - as above
        from gpuform.stacks.topology.offline import own_topology  # noqa: PLC0415 - as above

        try:
            found = topology_in(Path()) or own_topology(Path.cwd())
        except EngineError as error:
            raise EngineError(
                f"there is no topology.yaml in {Path.cwd()} or the project around it",
                hint="name the files: gpuform fmt FILE...",
            ) from error
        seen: set[Path] = set()
        waiting = [found]
        while waiting:
            path = waiting.pop(0)
            if path.resolve() not in seen:
                seen.add(path.resolve())
                waiting += self.file(path)

    def file(self, path: Path) -> list[Path]:
        """Formats a file; returns those that it includes."""
        from gpuform.stacks.engine.machine import replace_file  # noqa: PLC0415 - not for help
        from gpuform.stacks.formatting.meaning import included  # noqa: PLC0415 - as above

        with self._failing(str(path)):
            data = _read(path)
            made = self._formatted(data, str(path))
            if made != data and not (self.check or self.diff):
                replace_file(path, made)
                self.screen.print(str(path))
            return [path.parent / name for name in included(made)]
        return []

    def _formatted(self, data: bytes, where: str) -> bytes:
        """The new text, shown as the flags want it."""
        from gpuform.stacks.formatting import formatted  # noqa: PLC0415 - not for help

        made = formatted(data, where)
        if made != data:
            self.changed = True
            if self.diff:
                self.screen.write("".join(_diff(where, data.decode(), made.decode())))
            elif self.check:
                self.screen.print(where)
        return made

    @contextlib.contextmanager
    def _failing(self, where: str) -> Iterator[None]:
        """Tells what is wrong with one file."""
        from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help

        try:
            yield
        except (EngineError, OSError) as error:
            self.failed = True
            told = (
                EngineError(f"{where}: {error.strerror}") if isinstance(error, OSError) else error
            )
            for line in explain(told, verbose=False)[1]:
                self.screen.warn(line)


def _read(path: Path) -> bytes:
    from gpuform.stacks.engine.errors import EngineError  # noqa: PLC0415 - not for help

    if path.is_dir():
        raise EngineError(
            f"{path} is a folder", hint=f"name the files in it: gpuform fmt {path}/*.yaml"
        )
    return path.read_bytes()


def _diff(where: str, before: str, after: str) -> Iterator[str]:
    lines = (before.splitlines(keepends=True), after.splitlines(keepends=True))
    for line in difflib.unified_diff(*lines, fromfile=where, tofile=f"{where} (formatted)"):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
