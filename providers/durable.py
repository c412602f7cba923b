"""Small JSON files that are on disk, whole, before the next request is sent."""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def write(path: Path, fields: Mapping[str, Any]) -> None:
    """Puts a file in the place of an earlier one, durably; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(f".{os.getpid()}-{threading.get_ident()}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(fields, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync(path.parent)


def _sync(directory: Path) -> None:
    if os.name == "nt":
        return  # Windows cannot open a directory, and needs no such call
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
