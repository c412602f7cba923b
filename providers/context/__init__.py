"""Provide the context of a provider operation: clock, deadline, cancellation, secrets and polling.

The engine and the plugin create contexts; lifecycles and clients read `get_current_context`.
"""

from gpuform.providers.context.clock import (
    CLOCK_VARIABLE,
    EMULATOR_VARIABLE,
    Clock,
    OtherEmulator,
    SystemClock,
    create_wsgi_transport,
    find_emulator,
    find_mounted_transport,
    get_clock,
    get_trust,
    mount_transport,
    synchronize_clock,
)
from gpuform.providers.context.polling import (
    TRANSIENT_ERRORS,
    PollResult,
    PollSchedule,
    format_duration,
    wait_until_done,
    wait_until_gone,
)
from gpuform.providers.context.provider_context import (
    FOLDER,
    CallProgress,
    HostBoundary,
    ProviderContext,
    ReadsOnly,
    create_hosted_context,
    describe_unexpected_error,
    get_current_context,
    get_run_context,
    trace_span,
    use_context,
    write_trace,
)
from gpuform.providers.context.run_context import (
    READS_ONLY,
    RunContext,
    create_thread_pool,
    read_run_context,
    use_run_context,
)
from gpuform.providers.context.stock_host import adapt_to_stock_host
from gpuform.providers.context.telemetry import is_exported, trace_run

__all__ = [
    "CLOCK_VARIABLE",
    "EMULATOR_VARIABLE",
    "FOLDER",
    "READS_ONLY",
    "TRANSIENT_ERRORS",
    "CallProgress",
    "Clock",
    "HostBoundary",
    "OtherEmulator",
    "PollResult",
    "PollSchedule",
    "ProviderContext",
    "ReadsOnly",
    "RunContext",
    "SystemClock",
    "adapt_to_stock_host",
    "create_hosted_context",
    "create_thread_pool",
    "create_wsgi_transport",
    "describe_unexpected_error",
    "find_emulator",
    "find_mounted_transport",
    "format_duration",
    "get_clock",
    "get_current_context",
    "get_run_context",
    "get_trust",
    "is_exported",
    "mount_transport",
    "read_run_context",
    "synchronize_clock",
    "trace_run",
    "trace_span",
    "use_context",
    "use_run_context",
    "wait_until_done",
    "wait_until_gone",
    "write_trace",
]
