"""Run a program without changing anything: record its declarations and answer with given outputs.

The topology export and `convert` call `record` to learn what a program declares; `run_program` runs
it.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import resource_pb2

from gpuform.providers import values
from gpuform.providers.values import PropertyMap
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.language_host import language
from gpuform.stacks.engine.language_host.language import TopologyRunner, run_program
from gpuform.stacks.engine.language_host.monitor import ProgramTarget
from gpuform.stacks.engine.language_host.services import (
    FEATURES,
    Engine,
    Program,
    RpcError,
    build_unimplemented_method,
    print_to_events,
)
from gpuform.stacks.engine.planning import EventBus
from gpuform.stacks.engine.project import import_project_modules
from gpuform.stacks.engine.registration import Read, Registration, parse_read, parse_registration
from gpuform.stacks.engine.urn import STACK_TYPE, type_of

Answer = Callable[[Registration | Read], tuple[str, PropertyMap]]
"""Return the id and the outputs of a declaration."""


@dataclass(slots=True)
class Recorded:
    """The declarations of a program in the order of its requests, and its outputs."""

    declared: list[Registration | Read] = field(default_factory=list)
    outputs: PropertyMap = field(default_factory=dict)


def record(
    program: Program,
    answer: Answer,
    config: Mapping[str, str],
    run_topology: TopologyRunner | None = None,
) -> Recorded:
    """Run the program as a preview with `config`, and return all declarations.

    `answer` returns id and outputs of each declared resource. `run_topology` runs a program that is
    a
    topology. The text that the program prints is dropped.

    Raises:
        ProgramError: the program failed.
        EngineError: `answer` failed, or the program needs the Pulumi CLI.
    """
    monitor = Recorder(ProgramTarget(program.project, program.stack, str(program.root)), answer)
    events = EventBus()
    with (
        import_project_modules(program.directory, program.run_context.environ),
        print_to_events(events),
    ):
        run_program(
            replace(program, config=config),
            monitor,
            Engine(events),
            preview=True,
            is_stopped=lambda: bool(monitor.failures),
            run_topology=run_topology,
        )
    if monitor.failures:
        raise monitor.failures[0]
    return monitor.recorded


@dataclass(slots=True)
class Recorder:
    """A resource monitor that records requests and executes none."""

    target: ProgramTarget
    answer: Answer
    recorded: Recorded = field(default_factory=Recorded)
    failures: list[EngineError] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def GetDeploymentInfo(self, _request: empty_pb2.Empty) -> Any:  # noqa: N802 - the protocol's
        """Return the stack and the supported features; the run is always a preview."""
        return resource_pb2.DeploymentInfo(
            project=self.target.project,
            stack=self.target.stack,
            organization="organization",
            dryRun=True,
            supportedFeatures=FEATURES,
        )

    def RegisterResource(  # noqa: N802
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        """Record a declaration, and return the URN with id and outputs of the function `answer`.

        A component has no id and no outputs.
        """
        registration = self._record_request(request, parse_registration)
        id_, outputs = self._answer_request(registration) if registration.custom else ("", {})
        return resource_pb2.RegisterResourceResponse(
            urn=registration.urn,
            id=id_,
            object=values.to_struct(outputs) if registration.custom else None,
        )

    def ReadResource(  # noqa: N802
        self, request: resource_pb2.ReadResourceRequest
    ) -> resource_pb2.ReadResourceResponse:
        """Record a declaration that reads a resource, and return the outputs from `answer`."""
        read = self._record_request(request, parse_read)
        _, outputs = self._answer_request(read)
        return resource_pb2.ReadResourceResponse(
            urn=read.urn, id=read.id, properties=values.to_struct(outputs)
        )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Record the outputs of the stack; outputs of components are ignored."""
        if type_of(request.urn) == STACK_TYPE:
            self.recorded.outputs = value_json.from_struct(request.outputs)
        return empty_pb2.Empty()

    def track_work(self) -> AbstractContextManager[None]:
        """Return a context that does nothing: a recording writes no checkpoints."""
        return nullcontext()

    def declare(self, declaration: Registration | Read) -> language.ResourceResult:
        """Record the declaration; return the id and outputs from `answer`, none for a component.

        A read keeps the declared id. An error of `answer` is kept in `failures` and raised as
        Ended.
        """
        self.recorded.declared.append(declaration)
        if isinstance(declaration, Registration) and not declaration.custom:
            return language.ResourceResult(declaration.urn)
        try:
            id_, outputs = self.answer(declaration)
        except EngineError as error:
            self.failures.append(error)
            raise language.Ended from error
        return language.ResourceResult(
            declaration.urn, declaration.id if isinstance(declaration, Read) else id_, outputs
        )

    def export(self, urn: str, outputs: PropertyMap) -> None:
        """Record the outputs of the stack; outputs of components are ignored."""
        if type_of(urn) == STACK_TYPE:
            self.recorded.outputs = outputs

    def SupportsFeature(self, _request: object) -> Any:  # noqa: N802
        """Return that the feature is not supported; GetDeploymentInfo names the supported ones."""
        return resource_pb2.SupportsFeatureResponse(hasSupport=False)

    def SignalAndWaitForShutdown(self, _request: empty_pb2.Empty) -> empty_pb2.Empty:  # noqa: N802
        """Return an empty answer at once: there is nothing to wait for."""
        return empty_pb2.Empty()

    def __getattr__(self, name: str) -> Callable[[object], NoReturn]:
        return build_unimplemented_method(name)

    def _record_request(self, request: Any, read: Callable[..., Any]) -> Any:
        """Parse the request with `read`, record the declaration and return it.

        A malformed request is kept as a failure, and ends the program.
        """
        target = self.target
        try:
            declaration = read(
                request, stack=target.stack, project=target.project, root=target.root
            )
        except EngineError as error:
            self._raise_failure(error)
        with self._lock:
            self.recorded.declared.append(declaration)
        return declaration

    def _answer_request(self, declaration: Registration | Read) -> tuple[str, PropertyMap]:
        """Return id and outputs by the function `answer`; an error ends the program."""
        try:
            return self.answer(declaration)
        except EngineError as error:
            self._raise_failure(error)

    def _raise_failure(self, error: EngineError) -> NoReturn:
        """Record the error, and raise the RPC error on which the SDK stops quietly."""
        self.failures.append(error)
        raise RpcError(grpc.StatusCode.UNAVAILABLE, "the run has ended") from error
