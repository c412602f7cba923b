"""Run `gpuform` and count its writes to disk.

`counted.py FILE COMMAND...` writes the figures to FILE.

The figures are the number of fsyncs, and the bytes by which files have grown since their last
fsync.
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


class FsyncCounter:
    """Replaces `os.fsync` and counts its calls and the written bytes."""

    def __init__(self, fsync: Callable[[int], None]) -> None:
        self._fsync = fsync
        self._sizes: dict[Path, int] = {}
        self._lock = threading.Lock()
        self.fsyncs = self.written = 0

    def __call__(self, handle: int) -> None:
        self._fsync(handle)
        file_status = os.fstat(handle)
        file = Path(f"/proc/self/fd/{handle}").resolve()
        with self._lock:
            self.fsyncs += 1
            if stat.S_ISREG(file_status.st_mode):
                self.written += file_status.st_size - self._sizes.get(file, 0)
                self._sizes[file] = file_status.st_size


if __name__ == "__main__":
    syncs = FsyncCounter(os.fsync)
    os.fsync = syncs  # type: ignore[assignment]
    file = Path(sys.argv[1])
    atexit.register(lambda: file.write_text(json.dumps([syncs.fsyncs, syncs.written])))
    sys.argv[1:] = sys.argv[2:]
    main()
