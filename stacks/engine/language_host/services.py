"""Provide the engine service of Pulumi's protocol: log messages, RPC errors and printed lines.

Monitors and `run_program` use this module; messages become events.
"""

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

from gpuform.providers.context import RunContext
from gpuform.providers.operations import Settings
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.machine import require_version
from gpuform.stacks.engine.planning import Diagnostic, EventBus, Severity

# Without SECRETS the SDK would send secrets as plain values. Transforms, hooks and output values
# are left out: programs that use them need the Pulumi CLI.
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
    """The interface to which the SDK declares resources; implementations may have more."""

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Declare a resource, and return its URN, id and outputs."""


class RpcError(grpc.RpcError):  # type: ignore[misc]  # grpc ships no types
    """The error that a gRPC stub would raise."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        super().__init__(details)
        self._code = code
        self._details = details

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._details


def build_unimplemented_method(name: str) -> Callable[[object], NoReturn]:
    """Return a method answering UNIMPLEMENTED, like a server without this method.

    Raises:
        AttributeError: `name` does not begin with a capital letter, as the protocol's names do.
    """
    if not name[:1].isupper():
        raise AttributeError(name)

    def answer(_request: object) -> NoReturn:
        raise RpcError(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")

    return answer


class _LogRequest(Protocol):
    severity: int
    message: str
    urn: str


@dataclass(slots=True)
class Engine:
    """The service by which a program logs; it never blocks, because the event loop calls it."""

    events: EventBus

    def Log(self, request: _LogRequest) -> empty_pb2.Empty:  # noqa: N802
        """Emit a message logged by the program as an event.

        A logged error alone does not fail the run.
        """
        severity = _SEVERITIES.get(request.severity, "info")
        # As under the CLI, a logged error alone does not fail the run.
        self.events.emit(Diagnostic(severity, request.message, request.urn))
        return empty_pb2.Empty()

    def warn(self, text: str) -> None:
        """Show a warning of a topology."""
        self.events.emit(Diagnostic("warning", text))

    def RequirePulumiVersion(  # noqa: N802
        self, request: engine_pb2.RequirePulumiVersionRequest
    ) -> Any:
        """Check that the program's range contains the Pulumi version which gpuform follows.

        Raises RunError if the version is outside, or if the text is not a range.
        """
        try:
            require_version(request.pulumi_version_range, "the program")
        except EngineError as error:
            raise RunError(str(error)) from None
        return engine_pb2.RequirePulumiVersionResponse()


@dataclass(frozen=True, slots=True)
class Program:
    """A program, the stack for which it runs, and what the run was asked.

    `directory` is the program's folder or file, as `main` in Pulumi.yaml names it; `root` is the
    folder of Pulumi.yaml. `config` holds decrypted values under full keys.
    """

    project: str
    stack: str
    directory: Path
    root: Path
    config: Mapping[str, str]
    secret_keys: Sequence[str]
    parallel: int
    run_context: RunContext

    @property
    def settings(self) -> Settings:
        """The settings of lookups: the run's environment, then the configuration."""
        return Settings(config=self.config.get, environ=self.run_context.environ)

    def collect_secrets(self) -> set[str]:
        """Return the configuration's secret values, and the platforms' keys from all sources."""
        configured = {self.config[key] for key in self.secret_keys}
        return {*configured, *self.settings.list_secrets()}


class _LineStream(io.TextIOBase):
    """A text stream that turns every line of each thread into an event.

    Output of an event listener goes to the real stream.
    """

    def __init__(self, events: EventBus, severity: Severity, real: TextIO) -> None:
        self._events, self._severity, self._real = events, severity, real
        self._unfinished_lines: dict[int, str] = {}

    def write(self, text: str) -> int:
        """Send each complete line as an event; an unfinished one of a thread waits for its end.

        Text written while an event is being sent goes directly to the real stream.
        """
        if self._events.is_emitting_here:
            return self._real.write(text)
        thread = threading.get_ident()
        *lines, rest = (self._unfinished_lines.pop(thread, "") + text).split("\n")
        if rest:
            self._unfinished_lines[thread] = rest
        for line in lines:
            self._events.emit(Diagnostic(self._severity, line))
        return len(text)

    def close(self) -> None:
        """Send the unfinished lines as events, and close the stream."""
        while self._unfinished_lines:
            self._events.emit(Diagnostic(self._severity, self._unfinished_lines.popitem()[1]))
        super().close()


@contextlib.contextmanager
def print_to_events(events: EventBus) -> Iterator[None]:
    """Turn the output of programs and providers into diagnostics."""
    out = _LineStream(events, "info", sys.stdout)
    err = _LineStream(events, "info#err", sys.stderr)
    with out, err, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        yield
