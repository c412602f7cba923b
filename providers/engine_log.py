"""Show messages in the log of the Pulumi engine, for the plugin and the dynamic host."""

import logging
import threading
from contextlib import suppress

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from gpuform.schemas.safe_text import escape_invisible_lines

logger = logging.getLogger("gpuform")

LOG_TIMEOUT_S = 5.0
"""Longest time of a message in seconds: no work waits for an engine that has gone."""


class EngineLog:
    """The engine's log at an address; without an address, the plugin's standard error."""

    def __init__(self, address: str = "") -> None:
        self._lock = threading.Lock()
        self._shown_texts: set[str] = set()
        self._stub: engine_pb2_grpc.EngineStub | None = None
        if address:
            self.attach(address)

    def attach(self, address: str) -> None:
        """Connect the log to Pulumi's engine at `address`: later messages appear there."""
        self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address))

    def show_progress(self, urn: str, message: str) -> None:
        """Show the progress of a resource, until the next progress message."""
        self._log(engine_pb2.INFO, message, urn, ephemeral=True)

    def show_warning(self, urn: str, message: str) -> None:
        """Show a warning at a resource in Pulumi's output, which stays after the run."""
        self._log(engine_pb2.WARNING, message, urn)

    def show_once(self, message: str) -> None:
        """Show a message about the whole run in Pulumi's output, unless shown before."""
        with self._lock:
            if message in self._shown_texts:
                return
            self._shown_texts.add(message)
        self._log(engine_pb2.INFO, message, "")

    def _log(
        self,
        severity: engine_pb2.LogSeverity.ValueType,
        message: str,
        urn: str,
        *,
        ephemeral: bool = False,
    ) -> None:
        """Send an escaped message to Pulumi's engine, or to Python's log without an engine.

        Waits at most `LOG_TIMEOUT_S`, and ignores an engine that does not answer. Python's log gets
        every message as info.
        """
        message = escape_invisible_lines(message)
        if self._stub is None:
            logger.info("%s", message)
            return
        request = engine_pb2.LogRequest(
            severity=severity, message=message, urn=urn, ephemeral=ephemeral
        )
        with suppress(grpc.RpcError):
            self._stub.Log(request, timeout=LOG_TIMEOUT_S)
