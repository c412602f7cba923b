"""The command line: arguments -> operation -> view.

The console script `gpuform` calls `main`. A command imports its modules when it is run, because
start-up is felt on every call.
"""

import gc
import sys

COLLECTION_THRESHOLDS = (20_000, 10, 10)
"""Thresholds of Python's garbage collector, whose own are (700, 10, 10).

A program of thousands of resources makes millions of objects that live as long as the run.
Examining them again and again takes half of the time of a run.
"""

SWITCH_INTERVAL_S = 0.03
"""Seconds after which a thread lets another one run; Python's own value is 0.005.

Each of the threads of a run does little between two answers: more switches only cost (a tenth of an
`up`).
"""


def main() -> None:
    """Run the command line, and end the process with the command's exit code."""
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    from gpuform.stacks.cli.app import cli  # noqa: PLC0415 - importing a view must not need click

    cli.main(prog_name="gpuform")
