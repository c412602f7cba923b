"""`gpuform`, and what it puts on disk: `counted.py FILE COMMAND...` writes the figures to FILE.

Counted are the fsyncs, and the bytes that files have grown by since they were last synced.
"""

import atexit
import json
import os
import stat
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from gpuform.stacks.cli import main


class Syncs:
    """Counts in place of `os.fsync`."""

    def __init__(self, fsync: Callable[[int], None]) -> None:
        self._fsync = fsync
        self._sizes: dict[Path, int] = {}
        self._lock = threading.Lock()
        self.fsyncs = self.written = 0

    def __call__(self, handle: int) -> None:
        self._fsync(handle)
        about = os.fstat(handle)
        file = Path(f"/proc/self/fd/{handle}").resolve()
        with self._lock:
            self.fsyncs += 1
            if stat.S_ISREG(about.st_mode):
                self.written += about.st_size - self._sizes.get(file, 0)
                self._sizes[file] = about.st_size


if __name__ == "__main__":
    syncs = Syncs(os.fsync)
    os.fsync = syncs  # type: ignore[assignment]
    file = Path(sys.argv[1])
    atexit.register(lambda: file.write_text(json.dumps([syncs.fsyncs, syncs.written])))
    sys.argv[1:] = sys.argv[2:]
    main()
