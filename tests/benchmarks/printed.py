"""Run `gpuform` with its standard output in a file: `printed.py FILE COMMAND...`."""

import sys
from pathlib import Path

from gpuform.stacks.cli import main

if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", encoding="utf-8") as sys.stdout:
        sys.argv[1:] = sys.argv[2:]
        main()
