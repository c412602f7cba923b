"""The log of the Pulumi engine: the plugin and the dynamic host show their messages there."""

import logging
import threading
from contextlib import suppress

import grpc
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

from gpuform.schemas.safe_text import escape_invisible_lines

logger = logging.getLogger("gpuform")

SECONDS = 5.0
"""How long telling may take: no work waits for an engine that has gone."""


class EngineLog:
    """The engine's log, by its address; without one, the plugin's standard error."""

    def __init__(self, address: str = "") -> None:
        self._lock = threading.Lock()
        self._told: set[str] = set()
        self._stub: engine_pb2_grpc.EngineStub | None = None
        if address:
            self.attach(address)

    def attach(self, address: str) -> None:
        """Tells the engine at this address from now on."""
        self._stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(address))

    def progress(self, urn: str, text: str) -> None:
        """Shows what is going on with a resource, for as long as it goes on."""
        self._log(engine_pb2.INFO, text, urn, ephemeral=True)

    def warning(self, urn: str, text: str) -> None:
        """Shows a warning of a resource, to stay."""
        self._log(engine_pb2.WARNING, text, urn)

    def once(self, text: str) -> None:
        """Shows a note of the whole run, once."""
        with self._lock:
            if text in self._told:
                return
            self._told.add(text)
        self._log(engine_pb2.INFO, text, "")

    def _log(
        self,
        severity: engine_pb2.LogSeverity.ValueType,
        text: str,
        urn: str,
        *,
        ephemeral: bool = False,
    ) -> None:
        text = escape_invisible_lines(text)
        if self._stub is None:
            logger.info("%s", text)
            return
        request = engine_pb2.LogRequest(
            severity=severity, message=text, urn=urn, ephemeral=ephemeral
        )
        with suppress(grpc.RpcError):
            self._stub.Log(request, timeout=SECONDS)
