"""What is the same in every service that a program talks to: its errors, and its log."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import grpc
from google.protobuf import empty_pb2
from pulumi import RunError
from pulumi.runtime.proto import engine_pb2, resource_pb2

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.machine import require_version
from gpuform.stacks.engine.planning import Diagnostic, EventBus, Severity

FEATURES = (
    resource_pb2.RESOURCE_MONITOR_FEATURE_SECRETS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_RESOURCE_REFERENCES,
    resource_pb2.RESOURCE_MONITOR_FEATURE_ALIAS_SPECS,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACEMENT_TRIGGER,
    resource_pb2.RESOURCE_MONITOR_FEATURE_DELETED_WITH,
    resource_pb2.RESOURCE_MONITOR_FEATURE_REPLACE_WITH,
)

_SEVERITIES: dict[int, Severity] = {
    engine_pb2.DEBUG: "debug",
    engine_pb2.INFO: "info",
    engine_pb2.WARNING: "warning",
    engine_pb2.ERROR: "error",
}


class ResourceMonitor(Protocol):
    """What a program declares its resources to; other methods of the protocol may be there."""

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse: ...


class RpcError(grpc.RpcError):  # type: ignore[misc]  # grpc ships no types
    """What a gRPC stub would raise."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


def unimplemented(name: str) -> Callable[[object], NoReturn]:
    """A method of the protocol that a monitor has not, as a server without it would answer.

    Raises AttributeError for names that are none of the protocol's.
    """
    if not name[:1].isupper():
        raise AttributeError(name)

    def answer(_request: object) -> NoReturn:
        raise RpcError(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")

    return answer


class _Logged(Protocol):
    severity: int
    message: str
    urn: str


@dataclass(slots=True)
class Engine:
    """The part of the protocol by which a program logs. Never waits: the loop's thread calls it."""

    events: EventBus

    def Log(self, request: _Logged) -> empty_pb2.Empty:  # noqa: N802
        severity = _SEVERITIES.get(request.severity, "info")
        self.events.emit(Diagnostic(severity, request.message, request.urn))
        return empty_pb2.Empty()

    def warn(self, text: str) -> None:
        """The same for a topology."""
        self.events.emit(Diagnostic("warning", text))

    def RequirePulumiVersion(  # noqa: N802
        self, request: engine_pb2.RequirePulumiVersionRequest
    ) -> Any:
        try:
            require_version(request.pulumi_version_range, "the program")
        except EngineError as error:
            raise RunError(str(error)) from None
        return engine_pb2.RequirePulumiVersionResponse()
