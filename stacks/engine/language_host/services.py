"""Answer Pulumi's protocol for programs: the resource monitor and the engine service.

`Monitor` and `Recorder` are resource monitors: the first plans and runs declarations, the second
only records them. Messages and printed lines become events.
"""

import contextlib
import io
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol, TextIO

import grpc
from google.protobuf import empty_pb2
from pulumi import RunError
from pulumi.runtime.proto import engine_pb2, resource_pb2

from gpuform.providers import values
from gpuform.providers.context import RunContext
from gpuform.providers.operations import Settings
from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.machine import require_version
from gpuform.stacks.engine.planning import Diagnostic, EventBus, Severity
from gpuform.stacks.engine.registration import Read, Registration, parse_read, parse_registration

# Without SECRETS the SDK would send secrets as plain values. Transforms, hooks and output values
# are left out: programs that use them need the Pulumi CLI.
_FEATURES = (
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


def raise_unavailable() -> NoReturn:
    """Raise the RPC error on which the SDK stops quietly: the run has ended."""
    raise RpcError(grpc.StatusCode.UNAVAILABLE, "the run has ended")


class Ended(Exception):
    """The run has ended: it accepts no declarations and has reported every error."""


@dataclass(frozen=True, slots=True)
class ResourceResult:
    """The result of a declaration.

    `outputs` are None for components, and for a resource that is `unknown` because the run left it
    out. A `failed` resource is unknown to the rest of the run. An empty id is not known yet.
    """

    urn: str
    id: str = ""
    outputs: PropertyMap | None = None
    failed: bool = False
    unknown: bool = False


@dataclass(frozen=True, slots=True)
class ProgramTarget:
    """Project, stack and root folder that a program runs for."""

    project: str
    stack: str
    root: str


class ProgramMonitor(ABC):
    """The resource monitor of one program: answers the SDK's requests, and topologies directly.

    The SDK calls the methods of the protocol as it would call gRPC stubs, each on a thread of its
    own. Subclasses handle requests and declarations.
    """

    target: ProgramTarget
    preview: bool

    @abstractmethod
    def handle_request(
        self, request: Any, parse: Callable[..., Registration | Read]
    ) -> ResourceResult:
        """Parse a request of the SDK with `parse`, and return the result of the declaration.

        Raises RpcError if the run has ended or the request is malformed.
        """

    @abstractmethod
    def track_work(self) -> AbstractContextManager[None]:
        """Return a context whose block counts as running work of the program.

        When all of the running work waits for a checkpoint, the checkpoint is written at once.
        """

    @abstractmethod
    def declare(
        self, declaration: Registration | Read
    ) -> ResourceResult | Callable[[], ResourceResult]:
        """Plan a resource and return the result, or a function for the blocking part.

        Topologies declare their resources so, from one thread. The function may run on any thread.

        Raises:
            Ended: the run has ended; the function may raise it too.
        """

    @abstractmethod
    def export(self, urn: str, outputs: PropertyMap) -> None:
        """Record the outputs of a component or of the stack."""

    def parse_request(
        self, request: Any, parse: Callable[..., Registration | Read]
    ) -> Registration | Read:
        """Return the declaration in a request. Raises EngineError."""
        target = self.target
        return parse(request, stack=target.stack, project=target.project, root=target.root)

    def GetDeploymentInfo(self, _request: empty_pb2.Empty) -> Any:  # noqa: N802 - the protocol's name
        """Return the stack, whether the run is a preview, and the supported features."""
        # Without the configuration: the SDK reads only the features of this answer.
        return resource_pb2.DeploymentInfo(
            project=self.target.project,
            stack=self.target.stack,
            organization="organization",
            dryRun=self.preview,
            supportedFeatures=_FEATURES,
        )

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Answer a registration of the program with URN, id and outputs of the resource.

        A failed registration is answered with the result FAIL while the run continues. Raises
        RpcError if the run is stopped or the request is malformed.
        """
        answer = self.handle_request(request, parse_registration)
        return resource_pb2.RegisterResourceResponse(
            urn=answer.urn,
            id=answer.id,
            # As the stock engine: the answer about a component has no outputs, whatever is in the
            # state.
            object=None if answer.outputs is None else values.to_struct(answer.outputs),
            unknown=answer.unknown,
            result=_to_result_code(answer),
        )

    def ReadResource(  # noqa: N802
        self, request: resource_pb2.ReadResourceRequest
    ) -> resource_pb2.ReadResourceResponse:
        """Answer a read of the program with the object's outputs.

        A failed read is answered with the result FAIL while the run continues. Raises RpcError if
        the run is stopped or the request is malformed.
        """
        answer = self.handle_request(request, parse_read)
        return resource_pb2.ReadResourceResponse(
            urn=answer.urn,
            id=answer.id,
            properties=None if answer.outputs is None else values.to_struct(answer.outputs),
            unknown=answer.unknown,
            result=_to_result_code(answer),
        )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Record the outputs of a component or of the stack; return an empty answer."""
        self.export(request.urn, value_json.from_struct(request.outputs))
        return empty_pb2.Empty()

    def SignalAndWaitForShutdown(self, _request: empty_pb2.Empty) -> empty_pb2.Empty:  # noqa: N802
        """Return an empty answer at once: there is nothing to wait for."""
        return empty_pb2.Empty()

    def SupportsFeature(  # noqa: N802
        self, _request: resource_pb2.SupportsFeatureRequest
    ) -> resource_pb2.SupportsFeatureResponse:
        """Return False for every feature; GetDeploymentInfo names the supported features."""
        return resource_pb2.SupportsFeatureResponse(hasSupport=False)

    def __getattr__(self, name: str) -> Callable[[object], NoReturn]:
        # The protocol's names begin with a capital letter. The SDK falls back when a method is
        # UNIMPLEMENTED; any other error ends the program.
        if not name[:1].isupper():
            raise AttributeError(name)

        def answer(_request: object) -> NoReturn:
            raise RpcError(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")

        return answer


def _to_result_code(answer: ResourceResult) -> Any:
    """Return the protocol's FAIL for the answer of a failed resource, else SUCCESS."""
    return resource_pb2.FAIL if answer.failed else resource_pb2.SUCCESS


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

    def warn(self, message: str) -> None:
        """Show a warning of a topology."""
        self.events.emit(Diagnostic("warning", message))

    def RequirePulumiVersion(  # noqa: N802
        self, request: engine_pb2.RequirePulumiVersionRequest
    ) -> Any:
        """Check that the program's range contains the Pulumi version gpuform follows.

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
        """Send each complete line as an event; a thread's unfinished line waits for the rest.

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
