"""Generated files: written, or only compared with what is there."""

import argparse
import sys
from collections.abc import Container, Iterable
from pathlib import Path

from gpuform.providers.platforms import own_platforms, platforms


def parser(command: str, doc: str | None) -> argparse.ArgumentParser:
    """The command line `python -m COMMAND [--check]`."""
    found = argparse.ArgumentParser(prog=f"python -m {command}", description=doc)
    found.add_argument("--check", action="store_true", help="only say whether files are current")
    return found


def refuse_other_platforms(command: argparse.ArgumentParser) -> None:
    """Ends the command where other distributions' platforms would go into gpuform's own files."""
    others = platforms().keys() - own_platforms().keys()
    if others:
        told = ", ".join(sorted(others))
        command.error(f"it tells of gpuform's own platforms: run it where {told} is not installed")


def write_or_check(files: Iterable[tuple[Path, str]], *, check: bool) -> int:
    """Writes the files that are not current, or with `check` returns 1 for them. Names them."""
    stale = [(path, text) for path, text in files if _written(path) != text]
    for path, text in stale:
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        state = "is not current" if check else "written"
        sys.stderr.write(f"{path.parent.name}/{path.name} {state}\n")
    return 1 if check and stale else 0


def remove_or_check(folders: Iterable[Path], files: Container[Path], *, check: bool) -> int:
    """Removes what is in generated folders and no file of them, or with `check` returns 1 for it.

    Names it.
    """
    found = [path for each in folders for path in sorted(each.rglob("*")) if path.is_file()]
    orphans = [path for path in found if path not in files]
    for path in orphans:
        if not check:
            path.unlink()
        state = "should not be there" if check else "removed"
        sys.stderr.write(f"{path.parent.name}/{path.name} {state}\n")
    return 1 if check and orphans else 0


def _written(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
