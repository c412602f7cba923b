"""Records of a stack that lie in the backend beside its state, under its lock.

Lifecycles leave their intents and removals here; `deployment` settles them.
"""

from gpuform.stacks.engine.records.kept import (
    Elsewhere,
    all_intents,
    errors_of_engine,
    errors_of_providers,
    intents_follow,
    intents_of,
    records_for_host,
)

__all__ = [
    "Elsewhere",
    "all_intents",
    "errors_of_engine",
    "errors_of_providers",
    "intents_follow",
    "intents_of",
    "records_for_host",
]
