"""Run the services that a program talks to, with their errors, their log and what is printed."""

import contextlib
import io
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TextIO

import grpc
from google.protobuf import empty_pb2
from pulumi import RunError
from pulumi.runtime.proto import engine_pb2, resource_pb2

from gpuform.providers.operations import Settings
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


@dataclass(frozen=True, slots=True)
class Program:
    """What to run, and for which stack.

    `directory` is where the program is: its folder, or its file, as Pulumi.yaml's `main` says;
    `root` is where Pulumi.yaml is. `config` is in plain text under full keys.
    """

    project: str
    stack: str
    directory: Path
    root: Path
    config: Mapping[str, str]
    secret_keys: Sequence[str]
    parallel: int

    def secrets(self) -> set[str]:
        """The secret values of the configuration, and the platforms' keys wherever they are."""
        configured = {self.config[key] for key in self.secret_keys}
        return {*configured, *Settings(config=self.config.get).list_secrets()}


class _Lines(io.TextIOBase):
    """Stands for a text stream and makes an event of every line of each thread.

    What a listener prints goes to the real stream.
    """

    def __init__(self, events: EventBus, severity: Severity, real: TextIO) -> None:
        self._events, self._severity, self._real = events, severity, real
        self._begun: dict[int, str] = {}

    def write(self, text: str) -> int:
        if self._events.is_emitting_here:
            return self._real.write(text)
        thread = threading.get_ident()
        *lines, rest = (self._begun.pop(thread, "") + text).split("\n")
        if rest:
            self._begun[thread] = rest
        for line in lines:
            self._events.emit(Diagnostic(self._severity, line))
        return len(text)

    def close(self) -> None:
        while self._begun:
            self._events.emit(Diagnostic(self._severity, self._begun.popitem()[1]))
        super().close()


@contextlib.contextmanager
def print_to_events(events: EventBus) -> Iterator[None]:
    """What programs and providers print becomes diagnostics."""
    out = _Lines(events, "info", sys.stdout)
    err = _Lines(events, "info#err", sys.stderr)
    with out, err, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
