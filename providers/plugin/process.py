"""Run the plugin's process: a gRPC server on a local port that lives as long as the engine.

`main` calls `serve`; the calls are answered by `servicer`.
"""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from gpuform.providers.engine_log import EngineLog
from gpuform.providers.plugin.servicer import Servicer

MAX_THREADS = 512
"""Upper limit of simultaneous calls.

Threads mostly wait; the engine's `--parallel` decides their number.
"""

OPTIONS = (
    ("grpc.max_receive_message_length", 400 * 1024 * 1024),
    ("grpc.server_max_unrequested_time_in_server", 30 * 60),  # seconds
)
"""Options of the gRPC server, equal to those of Pulumi's Python servers (_grpc_settings.py)."""

PARENT_CHECK_SECONDS = 2.0
STOP_GRACE_SECONDS = 5.0


def serve(engine_address: str, port_descriptor: int) -> None:
    """Serve the plugin, and write the server's port to the file descriptor `port_descriptor`.

    Returns after SIGTERM, SIGINT or the end of the parent process. Each of these cancels the
    running calls, as `Cancel` does, and leaves them STOP_GRACE_SECONDS to answer.
    """
    # Read before the port is written: until then the parent waits, and cannot have ended.
    parent = os.getppid()
    servicer = Servicer(EngineLog(engine_address))
    server = grpc.server(
        ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="call"), options=OPTIONS
    )
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    stop_requested = _set_event_on_signals()
    os.write(port_descriptor, f"{port}\n".encode())
    # An engine that was killed sends no signal; its end shows as another parent.
    while not stop_requested.wait(PARENT_CHECK_SECONDS) and os.getppid() == parent:
        pass
    servicer.cancelled.set()
    server.stop(STOP_GRACE_SECONDS).wait()


def _set_event_on_signals() -> threading.Event:
    """Return an event that SIGTERM and SIGINT set from now on."""
    stop_requested = threading.Event()

    def request_stop(_number: int, _frame: FrameType | None) -> None:
        stop_requested.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, request_stop)
    return stop_requested
