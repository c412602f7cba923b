"""One call of a lifecycle: its clock, deadline and secrets, and its edge to the host.

The engine and the plugin make calls; lifecycles and clients ask `current_call`.
"""

from gpuform.providers.calls.call import (
    FOLDER,
    READS_ONLY,
    Call,
    Edge,
    ReadsOnly,
    current_call,
    hosted_call,
    serving,
    unexpected,
)
from gpuform.providers.calls.clock import (
    CLOCK_VARIABLE,
    EMULATOR_VARIABLE,
    Clock,
    OtherEmulator,
    SystemClock,
    clock_from,
    find_emulator,
    synchronised,
)
from gpuform.providers.calls.spans import span, tracing
from gpuform.providers.calls.stock_host import adapt_to_stock_host
from gpuform.providers.calls.transport import get_trust, in_process, mount, mounted
from gpuform.providers.calls.waiting import (
    PASSING,
    Look,
    Rhythm,
    duration,
    wait_until,
    wait_until_gone,
)

__all__ = [
    "CLOCK_VARIABLE",
    "EMULATOR_VARIABLE",
    "FOLDER",
    "PASSING",
    "READS_ONLY",
    "Call",
    "Clock",
    "Edge",
    "Look",
    "OtherEmulator",
    "ReadsOnly",
    "Rhythm",
    "SystemClock",
    "adapt_to_stock_host",
    "clock_from",
    "current_call",
    "duration",
    "find_emulator",
    "get_trust",
    "hosted_call",
    "in_process",
    "mount",
    "mounted",
    "serving",
    "span",
    "synchronised",
    "tracing",
    "unexpected",
    "wait_until",
    "wait_until_gone",
]
