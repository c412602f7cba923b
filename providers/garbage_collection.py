"""Make Python look for garbage less often: most objects of a run live as long as the run.

Modules that start a process import this one first, because half of the looks come with the imports.
"""

import atexit
import gc

COLLECTION_THRESHOLDS = (100_000, 20, 50)
"""Thresholds of Python's garbage collector, whose own are (700, 10, 10).

A program of thousands of resources makes millions of objects that live as long as the run.
Examining them again and again takes half of the time of a run, and the imports of a command alone
make 200,000.
"""


def collect_less_garbage() -> None:
    """Raise the thresholds of this process, and spare it the look at all objects at its end."""
    gc.set_threshold(*COLLECTION_THRESHOLDS)
    # That look takes a quarter of the time of a short command.
    atexit.register(gc.freeze)
