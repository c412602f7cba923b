"""`gpuform`, and what it prints: `printed.py FILE COMMAND...` has standard output in FILE."""

import sys
from pathlib import Path

from gpuform.stacks.cli import main

if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", encoding="utf-8") as sys.stdout:
        sys.argv[1:] = sys.argv[2:]
        main()
