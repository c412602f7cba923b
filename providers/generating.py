"""Generated files: written, or only compared with what is there."""

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path


def write_or_check(
    command: str,
    doc: str | None,
    files: Iterable[tuple[Path, str]],
    arguments: Sequence[str] | None,
) -> int:
    """What `python -m COMMAND [--check]` does; 1 when `--check` found a file that is not current.

    Without `--check`, such files are written. Both name them.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {command}", description=doc)
    parser.add_argument("--check", action="store_true", help="only say whether files are current")
    check = parser.parse_args(arguments).check
    stale = [(path, text) for path, text in files if _written(path) != text]
    for path, text in stale:
        if not check:
            path.write_text(text, encoding="utf-8")
        state = "is not current" if check else "written"
        sys.stderr.write(f"{path.parent.name}/{path.name} {state}\n")
    return 1 if check and stale else 0


def _written(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None
