"""Store the records of a stack in the backend beside its state, under the stack's lock.

Lifecycles of providers leave intents and removals here; `engine.deployment` recovers creates from
intents. Files go through `engine.store`.
"""

from gpuform.stacks.engine.records.backend_records import (
    OtherStackObjects,
    move_intents,
    open_intents,
    read_all_intents,
    records_for_host,
)

__all__ = [
    "OtherStackObjects",
    "move_intents",
    "open_intents",
    "read_all_intents",
    "records_for_host",
]
