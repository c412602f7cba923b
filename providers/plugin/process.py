"""The process of the plugin: a gRPC server on a port of this machine, for as long as its engine."""

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import grpc
from pulumi.runtime.proto import provider_pb2_grpc

from gpuform.providers.engine_log import EngineLog
from gpuform.providers.plugin.servicer import Servicer

THREADS = 512
"""Waiting is cheap, requests are limited per platform: the engine's `--parallel` decides."""

OPTIONS = (
    ("grpc.max_receive_message_length", 400 * 1024 * 1024),
    ("grpc.server_max_unrequested_time_in_server", 30 * 60),  # seconds
)
"""As Pulumi's own servers in Python have them (pulumi/runtime/_grpc_settings.py)."""

WATCH_SECONDS = 2.0
ENDING_SECONDS = 5.0


def serve(engine: str, announced: int) -> None:
    """Writes its port to the file descriptor `announced`, and serves until it is ended.

    A signal, and the end of the process that started it, do what `Cancel` does and end it after
    what is on the wire.
    """
    parent = os.getppid()  # while it waits for the port, it is there
    servicer = Servicer(EngineLog(engine))
    server = grpc.server(ThreadPoolExecutor(THREADS, thread_name_prefix="call"), options=OPTIONS)
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    ended = _ended_by_signals()
    os.write(announced, f"{port}\n".encode())
    while not ended.wait(WATCH_SECONDS) and os.getppid() == parent:
        pass
    servicer.cancelled.set()
    server.stop(ENDING_SECONDS).wait()


def _ended_by_signals() -> threading.Event:
    ended = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        ended.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return ended
