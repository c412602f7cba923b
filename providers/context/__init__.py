"""One call of a lifecycle: its clock, deadline and secrets, and its edge to the host.

The engine and the plugin make calls; lifecycles and clients ask `get_current_context`.
"""

from gpuform.providers.context.clock import (
    CLOCK_VARIABLE,
    EMULATOR_VARIABLE,
    Clock,
    OtherEmulator,
    SystemClock,
    clock_from,
    find_emulator,
    synchronised,
)
from gpuform.providers.context.polling import (
    PASSING,
    PollResult,
    PollSchedule,
    format_duration,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.context.provider_context import (
    FOLDER,
    READS_ONLY,
    HostBoundary,
    ProviderContext,
    ReadsOnly,
    create_hosted_context,
    get_current_context,
    unexpected,
    use_context,
)
from gpuform.providers.context.spans import span, tracing
from gpuform.providers.context.stock_host import adapt_to_stock_host
from gpuform.providers.context.transport import get_trust, in_process, mount, mounted

__all__ = [
    "CLOCK_VARIABLE",
    "EMULATOR_VARIABLE",
    "FOLDER",
    "PASSING",
    "READS_ONLY",
    "Clock",
    "HostBoundary",
    "OtherEmulator",
    "PollResult",
    "PollSchedule",
    "ProviderContext",
    "ReadsOnly",
    "SystemClock",
    "adapt_to_stock_host",
    "clock_from",
    "create_hosted_context",
    "find_emulator",
    "format_duration",
    "get_current_context",
    "get_trust",
    "in_process",
    "mount",
    "mounted",
    "span",
    "synchronised",
    "tracing",
    "unexpected",
    "use_context",
    "wait_until_done",
    "wait_until_gone",
]
