"""Store the records of a stack in the backend beside its state, under the stack's lock.

Lifecycles of providers leave intents and removals here; `engine.deployment` recovers them.
"""

from gpuform.stacks.engine.records.backend_records import (
    Elsewhere,
    move_intents,
    open_intents,
    raise_as_engine_errors,
    raise_as_provider_errors,
    read_all_intents,
    records_for_host,
)

__all__ = [
    "Elsewhere",
    "move_intents",
    "open_intents",
    "raise_as_engine_errors",
    "raise_as_provider_errors",
    "read_all_intents",
    "records_for_host",
]
