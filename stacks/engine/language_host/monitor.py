"""The resource monitor and the engine interface that an in-process Pulumi program talks to.

The SDK calls these methods as it would call gRPC stubs, each on a thread of its own, which waits
until the resource is done.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import resource_pb2

from gpuform.providers.context import trace_span
from gpuform.schemas.errors import UserError
from gpuform.stacks.engine import values
from gpuform.stacks.engine.errors import USE_THE_CLI, EngineError
from gpuform.stacks.engine.executing import (
    DefaultProviders,
    ProviderRequest,
    StepError,
    StepExecutor,
    Stopped,
)
from gpuform.stacks.engine.language_host.language import Answer, Ended
from gpuform.stacks.engine.language_host.services import FEATURES, RpcError, unimplemented
from gpuform.stacks.engine.planning import (
    CheckFailed,
    EventBus,
    PlanConstraint,
    Step,
    StepDone,
    StepGenerator,
    format_property_problem,
)
from gpuform.stacks.engine.registration import (
    Read,
    Registered,
    Registration,
    Rule,
    from_request,
    read_from_request,
    source_of,
    with_file_hashes,
)
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import (
    BUILTIN_PACKAGE,
    PLUGIN_PACKAGE,
    STACK_TYPE,
    in_dynamic_form,
    is_plugin,
    is_provider,
)
from gpuform.stacks.engine.values import PropertyMap, PropertyValue

_Made = TypeVar("_Made")


def _unavailable() -> NoReturn:
    """How a program learns that the run has ended: the SDK stops quietly."""
    raise RpcError(grpc.StatusCode.UNAVAILABLE, "the run has ended")


@dataclass(frozen=True, slots=True)
class ProgramTarget:
    """The stack that a program runs for."""

    project: str
    stack: str
    root: str


@dataclass(slots=True)
class Monitor:
    """Serves one run of one program."""

    target: ProgramTarget
    generator: StepGenerator
    executor: StepExecutor
    providers: DefaultProviders
    events: EventBus
    preview: bool
    rules: Iterable[Rule] = ()
    constraint: PlanConstraint | None = None
    declared: list[Registration | Read] = field(default_factory=list)
    checked: Registered = field(default_factory=Registered)
    stack_outputs: PropertyMap | None = None
    _steps: dict[str, Step] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _gate: threading.Condition = field(default_factory=threading.Condition)
    _answering: int = 0
    _closed: bool = False

    def close(self) -> None:
        """Answers nothing more; returns when the resources that are being done are done.

        A program that fails does not wait for its own requests, and their threads go on.
        """
        with self._gate:
            self._closed = True
            self._gate.wait_for(lambda: not self._answering)

    @contextmanager
    def _answer(self) -> Iterator[None]:
        with self._gate:
            if self._closed:
                _unavailable()
            self._answering += 1
        try:
            yield
        finally:
            with self._gate:
                self._answering -= 1
                self._gate.notify_all()

    def GetDeploymentInfo(self, _request: empty_pb2.Empty) -> Any:  # noqa: N802
        return resource_pb2.DeploymentInfo(
            project=self.target.project,
            stack=self.target.stack,
            organization="organization",
            dryRun=self.preview,
            supportedFeatures=FEATURES,
        )

    def RegisterResource(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceRequest
    ) -> resource_pb2.RegisterResourceResponse:
        answer = self._answered(request, from_request)
        return resource_pb2.RegisterResourceResponse(
            urn=answer.urn,
            id=answer.id,
            object=None if answer.outputs is None else values.to_struct(answer.outputs),
            unknown=answer.unknown,
            result=_result(answer),
        )

    def _answered(self, request: Any, read: Callable[..., Registration | Read]) -> Answer:
        with self._answer(), self.executor.snapshot.track_work():
            if self.executor.is_stopping:
                _unavailable()
            target = self.target
            try:
                asked = read(request, stack=target.stack, project=target.project, root=target.root)
            except EngineError as error:
                self._tell(None, error)
                _unavailable()
            try:
                return self._guarded(asked, lambda: self._finish(asked, self._plan(asked)))
            except Ended:
                _unavailable()

    def working(self) -> AbstractContextManager[None]:
        return self.executor.snapshot.track_work()

    def declare(self, asked: Registration | Read) -> Answer | Callable[[], Answer]:
        if self.executor.is_stopping:
            raise Ended

        def begin() -> Answer | Callable[[], Answer]:
            steps = self._plan(asked)
            if isinstance(steps, Answer) or not self.executor.may_block(steps):
                return self._finish(asked, steps)
            return lambda: self._guarded(asked, lambda: self._finish_later(asked, steps))

        return self._guarded(asked, begin)

    def _guarded(self, asked: Registration | Read, work: Callable[[], _Made]) -> _Made | Answer:
        """What `work` makes. What has failed has been told; the program goes on without it, as far
        as it can."""
        try:
            return work()
        except Stopped:
            raise Ended from None
        except StepError:
            pass  # it has been told
        except EngineError as error:
            self._tell(asked, error)
        if self.executor.is_stopping:
            raise Ended
        return Answer(asked.urn, failed=True)

    def _finish_later(self, asked: Registration | Read, steps: list[Step]) -> Answer:
        with self.executor.snapshot.track_work():
            return self._finish(asked, steps)

    def _plan(self, asked: Registration | Read) -> list[Step] | Answer:
        """The steps of what is declared; an answer where there is nothing to do."""
        asked = replace(asked, inputs=with_file_hashes(asked.inputs))
        if isinstance(asked, Read):
            return self._plan_read(asked)
        with trace_span("step", "plan", asked.urn), self._lock:
            if self._needs_a_failure(asked):
                if not self.preview:
                    self.generator.keep_skipped_resource(asked)
                return self._skipped(asked)
            self._declare(asked)
            return self._generate(asked)

    def _plan_read(self, read: Read) -> list[Step] | Answer:
        with self._lock:
            if {read.parent, *read.dependencies} & self.executor.failed:
                return self._skipped(read)
            self._declare(read)
            return self.generator.generate_read_steps(read, self._provider(read))

    def _finish(self, asked: Registration | Read, steps: list[Step] | Answer) -> Answer:
        if isinstance(steps, Answer):
            return steps
        state, skipped = self._run(asked.urn, steps), steps[-1].skipped
        if isinstance(asked, Read):
            return Answer(state.urn, state.id, state.outputs, unknown=skipped)
        told = asked.custom and not skipped
        outputs = state.outputs if told else None
        return Answer(state.urn, "" if skipped else state.id, outputs, unknown=skipped)

    def _declare(self, asked: Registration | Read) -> None:
        source = source_of(asked, self.target.root)
        if source is not None:
            self.events.sources[asked.urn] = source
        if self.constraint is not None:
            self.constraint.check_declared(asked)
        self.declared.append(asked)

    def _generate(self, registration: Registration) -> list[Step]:
        is_served = registration.custom and not is_provider(registration.type)
        provider = self._provider(registration) if is_served else ""
        steps = self.generator.generate_steps(registration, provider)
        if is_provider(registration.type):
            self.executor.host.plugins.configure(registration.urn, steps[-1].state.inputs)
        self._apply_rules(registration, steps[-1])
        return steps

    def _provider(self, asked: Registration | Read) -> str:
        """The reference of the provider of a resource: an explicit one, else the default one."""
        if asked.provider:
            step = self._steps.get(asked.provider)
            if step is None:
                raise EngineError(f"{asked.urn}: there is no provider {asked.provider}")
            return f"{asked.provider}::{step.state.id or values.UNKNOWN_TEXT}"
        package = asked.type.split(":", 1)[0]
        is_versioned = package == PLUGIN_PACKAGE
        said = (asked.version, asked.plugin_download_url) if is_versioned else ()
        return self.providers.register(ProviderRequest(package, *said), self.executor)

    def _run(self, urn: str, steps: list[Step]) -> ResourceState:
        self.executor.run_steps(steps)
        with self._lock:
            self._steps[urn] = next(step for step in reversed(steps) if step.op.is_logical)
        return steps[-1].state

    def _needs_a_failure(self, registration: Registration) -> bool:
        urns = {registration.parent, registration.deleted_with, *registration.dependencies}
        urns.update(registration.replace_with)
        return bool(urns & self.executor.failed)

    def _skipped(self, asked: Registration | Read) -> Answer:
        self.executor.skip_resource(asked.urn)
        return Answer(asked.urn, failed=True)

    def _apply_rules(self, registration: Registration, step: Step) -> None:
        if step.new is None or step.skipped:
            return
        type_ = in_dynamic_form(registration.type)  # rules hold in either form
        checked = replace(registration, inputs=step.new.inputs, type=type_)
        self.checked.add(checked)
        problems = [
            (problem.path, format_property_problem(registration, problem.path, problem.reason))
            for rule in self.rules
            for problem in rule(checked, self.checked)
        ]
        if problems:
            raise CheckFailed(problems)

    def _tell(self, registration: Registration | Read | None, error: EngineError) -> None:
        urn = registration.urn if registration else ""
        if not isinstance(error, CheckFailed):
            self.executor.fail_resource(urn, error)
            return
        for path, message in error.problems:
            self.executor.fail_resource(urn, EngineError(message, error.hint, path=path))

    def ReadResource(  # noqa: N802
        self, request: resource_pb2.ReadResourceRequest
    ) -> resource_pb2.ReadResourceResponse:
        answer = self._answered(request, read_from_request)
        return resource_pb2.ReadResourceResponse(
            urn=answer.urn,
            id=answer.id,
            properties=None if answer.outputs is None else values.to_struct(answer.outputs),
            unknown=answer.unknown,
            result=_result(answer),
        )

    def RegisterResourceOutputs(  # noqa: N802
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        with self._answer():
            self.export(request.urn, values.from_struct(request.outputs))
        return empty_pb2.Empty()

    def export(self, urn: str, outputs: PropertyMap) -> None:
        with self._lock:
            step = self._steps.get(urn)
        if step is None or step.skipped:
            return
        try:
            outputs = with_file_hashes(outputs)
        except EngineError as error:
            self.executor.fail_resource(urn, error)
            return
        if step.state.type == STACK_TYPE:
            self.stack_outputs = {key: _unmarked(value) for key, value in outputs.items()}
            return
        if self.preview:
            step.state.outputs = outputs
        else:
            self.executor.snapshot.record_outputs(step.state, outputs)
        self.events.emit(StepDone(step, self.preview))

    @property
    def stack(self) -> Step | None:
        """The root stack's step, once the program has registered it."""
        with self._lock:
            return next((s for s in self._steps.values() if s.state.type == STACK_TYPE), None)

    def Invoke(  # noqa: N802
        self, request: resource_pb2.ResourceInvokeRequest
    ) -> resource_pb2.ResourceInvokeResponse:
        if is_plugin(request.tok):
            return self._invoke(request)
        if request.tok != f"{BUILTIN_PACKAGE}:pulumi:getResource":
            self._refuse(f"the program calls the function {request.tok}")
        urn = str(values.from_struct(request.args).get("urn"))
        with self._lock:
            step = self._steps.get(urn)
        if step is None:
            raise RpcError(grpc.StatusCode.UNKNOWN, f"unknown resource {urn}")
        found: PropertyMap = {"urn": urn, "id": step.state.id, "state": step.state.outputs}
        return _invoked(found)

    def _invoke(
        self, request: resource_pb2.ResourceInvokeRequest
    ) -> resource_pb2.ResourceInvokeResponse:
        """One of gpuform's functions, asked under a provider as resources are."""
        with self._answer():
            try:
                with self._lock:
                    reference = request.provider or self.providers.register(
                        ProviderRequest(PLUGIN_PACKAGE, request.version, request.pluginDownloadURL),
                        self.executor,
                    )
                plugins, arguments = self.executor.host.plugins, values.from_struct(request.args)
                return _invoked(plugins.invoke(request.tok, arguments, reference))
            except Stopped:
                _unavailable()
            except StepError:
                message = f"{request.tok}: its provider could not be configured"
            except UserError as error:
                message = f"{request.tok}: {error}"
        raise RpcError(grpc.StatusCode.UNKNOWN, message)

    def Call(self, request: resource_pb2.ResourceCallRequest) -> NoReturn:  # noqa: N802
        self._refuse(f"the program calls the method {request.tok}")

    def RegisterPackage(  # noqa: N802
        self, request: resource_pb2.RegisterPackageRequest
    ) -> NoReturn:
        self._refuse(f"the program uses the package {request.name}")

    def SignalAndWaitForShutdown(self, _request: empty_pb2.Empty) -> empty_pb2.Empty:  # noqa: N802
        return empty_pb2.Empty()

    def SupportsFeature(  # noqa: N802
        self, _request: resource_pb2.SupportsFeatureRequest
    ) -> resource_pb2.SupportsFeatureResponse:
        return resource_pb2.SupportsFeatureResponse(hasSupport=False)

    def __getattr__(self, name: str) -> Callable[[object], NoReturn]:
        return unimplemented(name)

    def _refuse(self, what: str) -> NoReturn:
        message = f"{what}, which the embedded engine cannot do"
        self.executor.fail_resource("", EngineError(message, USE_THE_CLI))
        raise RpcError(grpc.StatusCode.UNKNOWN, message)


def _result(answer: Answer) -> Any:
    return resource_pb2.FAIL if answer.failed else resource_pb2.SUCCESS


def _invoked(found: PropertyMap) -> resource_pb2.ResourceInvokeResponse:
    answer = resource_pb2.ResourceInvokeResponse()
    getattr(answer, "return").CopyFrom(values.to_struct(found))  # a word of Python's own
    return answer


def _unmarked(value: PropertyValue) -> PropertyValue:
    """An exported value without the mark that the SDK puts on resources in previews."""
    if isinstance(value, dict):
        return {key: _unmarked(v) for key, v in value.items() if key != "@isPulumiResource"}
    if isinstance(value, list):
        return [_unmarked(item) for item in value]
    return value
