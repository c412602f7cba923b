"""The command line: arguments -> operation -> view.

Only the command that is run imports what it needs: start-up is felt on every call.
"""

import gc
import sys

FEWER_COLLECTIONS = (20_000, 10, 10)
"""Fewer and larger collections than Python's (700, 10, 10): a program of thousands of resources
makes millions of objects that live as long as it does, and looking through them again and again
takes half of the time of a run."""

LONGER_TURNS = 0.03
"""Seconds after which a thread has to let another one go on; Python's are 0.005. Each of the
threads of a run does little between two answers: more turns only cost (a tenth of an `up`)."""


def main() -> None:
    """The console script `gpuform`; ends the process with the command's exit code."""
    gc.set_threshold(*FEWER_COLLECTIONS)
    sys.setswitchinterval(LONGER_TURNS)
    from gpuform.stacks.cli.app import cli  # noqa: PLC0415 - importing a view must not need click

    cli.main(prog_name="gpuform")
