"""Plan and run the declarations of a program, as its in-process resource monitor.

The SDK's requests and the declarations of topologies wait until the resource is done. The monitor
asks the step generator for steps and hands them to the step executor.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import resource_pb2

from gpuform.providers import values
from gpuform.providers.context import trace_span
from gpuform.providers.values import PropertyMap, PropertyValue
from gpuform.schemas.errors import EngineError, GpuformError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.digests import RegistrationIndex, Rule
from gpuform.stacks.engine.executing import (
    DefaultProviders,
    ProviderRequest,
    StepError,
    StepExecutor,
    Stopped,
)
from gpuform.stacks.engine.file_hashes import add_file_hashes
from gpuform.stacks.engine.language_host.services import (
    Ended,
    ProgramMonitor,
    ProgramTarget,
    ResourceResult,
    RpcError,
    raise_unavailable,
)
from gpuform.stacks.engine.machine import USE_THE_CLI
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
    Registration,
    find_source,
)
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import (
    BUILTIN_PACKAGE,
    PLUGIN_PACKAGE,
    STACK_TYPE,
    is_plugin,
    is_provider,
    to_dynamic_type,
)

_FAILURES = (Stopped, StepError, GpuformError)
"""The ways in which the declaration of a resource may fail."""


@dataclass(slots=True)
class Monitor(ProgramMonitor):
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
    checked: RegistrationIndex = field(default_factory=RegistrationIndex)
    stack_outputs: PropertyMap | None = None
    _steps: dict[str, Step] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _gate: threading.Condition = field(default_factory=threading.Condition)
    _answering: int = 0
    _closed: bool = False

    def close(self) -> None:
        """Refuse further requests, and return when the running ones are done.

        A failed program does not wait for its own requests, and their threads continue.
        """
        with self._gate:
            self._closed = True
            self._gate.wait_for(lambda: not self._answering)

    @contextmanager
    def _track_request(self) -> Iterator[None]:
        """Count the request as being answered; after `close` raise UNAVAILABLE instead."""
        with self._gate:
            if self._closed:
                raise_unavailable()
            self._answering += 1
        try:
            yield
        finally:
            with self._gate:
                self._answering -= 1
                self._gate.notify_all()

    def handle_request(
        self, request: Any, parse: Callable[..., Registration | Read]
    ) -> ResourceResult:
        """Parse a program's request, plan and run its declaration, and return the result.

        Errors are reported to the user. A stopping run and a malformed request are answered with
        UNAVAILABLE, with which the SDK ends the program quietly.
        """
        with self._track_request(), self.track_work():
            # On UNAVAILABLE the SDK ends the program quietly; another code would raise in the
            # program.
            if self.executor.is_stopping:
                raise_unavailable()
            try:
                declaration = self.parse_request(request, parse)
            except EngineError as error:
                self._report_error(None, error)
                raise_unavailable()
            try:
                return self._run_and_answer(declaration, self._plan_declaration(declaration))
            except _FAILURES as error:
                try:
                    return self._answer_failure(declaration, error)
                except Ended:
                    raise_unavailable()

    def track_work(self) -> AbstractContextManager[None]:
        """Count the context as running work, able to wait for a checkpoint."""
        return self.executor.snapshot.track_work()

    def declare(
        self, declaration: Registration | Read
    ) -> ResourceResult | Callable[[], ResourceResult]:
        """Plan a declaration of a topology and return the result for the program.

        If its steps may take time, return instead a function that runs them and returns the result.
        Failures are reported, and give a failed result. Raises Ended if the run is stopped.
        """
        if self.executor.is_stopping:
            raise Ended

        try:
            steps = self._plan_declaration(declaration)
            if isinstance(steps, ResourceResult) or not self.executor.may_block(steps):
                return self._run_and_answer(declaration, steps)
        except _FAILURES as error:
            return self._answer_failure(declaration, error)
        return partial(self._run_planned, declaration, steps)

    def _run_planned(self, declaration: Registration | Read, steps: list[Step]) -> ResourceResult:
        """Run the steps as tracked work, and return the program's result.

        Failures are reported, and give a failed result. Raises Ended if the run is stopped.
        """
        try:
            with self.track_work():
                return self._run_and_answer(declaration, steps)
        except _FAILURES as error:
            return self._answer_failure(declaration, error)

    def _answer_failure(self, declaration: Registration | Read, error: Exception) -> ResourceResult:
        """Report the error, unless reported already, and return a failed result.

        The program continues without the failed resource as far as possible. Raises Ended if the
        run is stopped.
        """
        # The executor has reported the reason of a StepError.
        if isinstance(error, GpuformError):
            self._report_error(declaration, error)
        if isinstance(error, Stopped) or self.executor.is_stopping:
            raise Ended from None
        # Pulumi's result FAIL: all outputs are unknown, and the program continues.
        return ResourceResult(declaration.urn, failed=True)

    def _plan_declaration(self, declaration: Registration | Read) -> list[Step] | ResourceResult:
        """Return the steps of a declaration, or a failed result if a dependency has failed.

        A resource that is skipped so stays in the state. Raises EngineError, also for a broken rule
        or a difference from the saved plan.
        """
        declaration = replace(declaration, inputs=add_file_hashes(declaration.inputs))
        # As in Pulumi's engine, steps are generated one at a time: each decision may depend on the
        # earlier ones.
        with trace_span("step", "plan", declaration.urn), self._lock:
            if self._depends_on_failure(declaration):
                if isinstance(declaration, Registration) and not self.preview:
                    self.generator.keep_skipped_resource(declaration)
                # Later declarations that depend on this one are skipped too.
                self.executor.skip_resource(declaration.urn)
                return ResourceResult(declaration.urn, failed=True)
            self._record_declaration(declaration)
            if isinstance(declaration, Registration):
                return self._generate_steps(declaration)
            provider = self._get_provider_reference(declaration)
            return self.generator.generate_read_steps(declaration, provider)

    def _run_and_answer(
        self, declaration: Registration | Read, steps: list[Step] | ResourceResult
    ) -> ResourceResult:
        """Run the steps and return the program's result; a result in place of `steps` is returned.

        The outputs of a skipped resource are unknown.
        """
        if isinstance(steps, ResourceResult):
            return steps
        state, skipped = self._run_steps(declaration.urn, steps), steps[-1].skipped
        if isinstance(declaration, Read):
            return ResourceResult(state.urn, state.id, state.outputs, unknown=skipped)
        has_outputs = declaration.custom and not skipped
        outputs = state.outputs if has_outputs else None
        return ResourceResult(state.urn, "" if skipped else state.id, outputs, unknown=skipped)

    def _record_declaration(self, declaration: Registration | Read) -> None:
        """Record the declaration with the source line.

        Raises PlanExceeded if the declaration differs from the saved plan.
        """
        source = find_source(declaration, self.target.root)
        if source is not None:
            self.events.sources[declaration.urn] = source
        if self.constraint is not None:
            self.constraint.check_declared(declaration)
        self.declared.append(declaration)

    def _generate_steps(self, registration: Registration) -> list[Step]:
        """Return the steps of a registration; a provider resource is put into use.

        Raises EngineError, also for a broken rule.
        """
        is_served = registration.custom and not is_provider(registration.type)
        provider = self._get_provider_reference(registration) if is_served else ""
        steps = self.generator.generate_steps(registration, provider)
        if is_provider(registration.type):
            self.executor.host.plugins.configure(registration.urn, steps[-1].state.inputs)
        self._apply_rules(registration, steps[-1])
        return steps

    def _get_provider_reference(self, declaration: Registration | Read) -> str:
        """Return the reference of the explicit provider, else of the package's default one.

        The default provider is registered if needed. Raises EngineError for an unknown provider.
        """
        if declaration.provider:
            step = self._steps.get(declaration.provider)
            if step is None:
                raise EngineError(f"{declaration.urn}: unknown provider {declaration.provider}")
            return f"{declaration.provider}::{step.state.id or values.UNKNOWN_TEXT}"
        package = declaration.type.split(":", 1)[0]
        is_versioned = package == PLUGIN_PACKAGE
        source = (declaration.version, declaration.plugin_download_url) if is_versioned else ()
        return self.providers.register(ProviderRequest(package, *source), self.executor)

    def _run_steps(self, urn: str, steps: list[Step]) -> ResourceState:
        """Run the steps and return the last one's state. Raises Stopped or StepError."""
        self.executor.run_steps(steps)
        with self._lock:
            # Of the steps of a replacement, the logical one stands for the resource.
            self._steps[urn] = next(step for step in reversed(steps) if step.op.is_logical)
        return steps[-1].state

    def _depends_on_failure(self, declaration: Registration | Read) -> bool:
        """Return True if the parent or another dependency has failed or was skipped."""
        urns = {declaration.parent, *declaration.dependencies}
        if isinstance(declaration, Registration):
            urns.update((declaration.deleted_with, *declaration.replace_with))
        return bool(urns & self.executor.failed)

    def _apply_rules(self, registration: Registration, step: Step) -> None:
        """Raise CheckFailed with all problems found by the rules in the registration.

        The registration is kept for the rules of later ones. Skipped steps and deletions are not
        checked.
        """
        if step.new is None or step.skipped:
            return
        # Rules know the dynamic form of a type, and hold for the plugin form too.
        type_ = to_dynamic_type(registration.type)
        checked = replace(registration, inputs=step.new.inputs, type=type_)
        self.checked.add(checked)
        problems = [
            (problem.path, format_property_problem(registration, problem.path, problem.reason))
            for rule in self.rules
            for problem in rule(checked, self.checked)
        ]
        if problems:
            raise CheckFailed(problems)

    def _report_error(self, registration: Registration | Read | None, error: GpuformError) -> None:
        """Report the error as a failure of the resource; of a failed check each problem.

        A real run stops.
        """
        urn = registration.urn if registration else ""
        if not isinstance(error, CheckFailed):
            self.executor.fail_resource(urn, error)
            return
        for path, message in error.problems:
            self.executor.fail_resource(urn, EngineError(message, error.hint, path=path))

    def RegisterResourceOutputs(  # noqa: N802 - the protocol's name
        self, request: resource_pb2.RegisterResourceOutputsRequest
    ) -> empty_pb2.Empty:
        """Record the outputs of a component or of the stack, unless the run has ended."""
        with self._track_request():
            return ProgramMonitor.RegisterResourceOutputs(self, request)

    def export(self, urn: str, outputs: PropertyMap) -> None:
        """Record the outputs of a component or of the stack.

        The stack's outputs are only remembered, to be recorded at the end of the run. Outputs of an
        unknown or skipped resource are dropped. An unreadable file in the outputs is reported, not
        raised.
        """
        with self._lock:
            step = self._steps.get(urn)
        if step is None or step.skipped:
            return
        try:
            outputs = add_file_hashes(outputs)
        except EngineError as error:
            self.executor.fail_resource(urn, error)
            return
        # The outputs of the stack may come before other resources are done: `Deployment` records
        # them at the end.
        if step.state.type == STACK_TYPE:
            self.stack_outputs = {
                key: _strip_resource_mark(value) for key, value in outputs.items()
            }
            return
        if self.preview:
            step.state.outputs = outputs
        else:
            self.executor.snapshot.record_outputs(step.state, outputs)
        self.events.emit(StepDone(step, self.preview))

    @property
    def stack(self) -> Step | None:
        """The root stack's step, or None before the program registers the stack."""
        with self._lock:
            return next((s for s in self._steps.values() if s.state.type == STACK_TYPE), None)

    def Invoke(  # noqa: N802
        self, request: resource_pb2.ResourceInvokeRequest
    ) -> resource_pb2.ResourceInvokeResponse:
        """Answer a call of gpuform's functions or of Pulumi's `getResource`; refuse all others.

        Raises RpcError for a refused function, which also fails the run, and for a resource that
        this run has not registered yet.
        """
        if is_plugin(request.tok):
            return self._invoke_function(request)
        # The SDK calls this function to make a resource out of a resource reference.
        if request.tok != f"{BUILTIN_PACKAGE}:pulumi:getResource":
            self._refuse_feature(f"the program calls the function {request.tok}")
        urn = str(value_json.from_struct(request.args).get("urn"))
        with self._lock:
            step = self._steps.get(urn)
        if step is None:
            raise RpcError(grpc.StatusCode.UNKNOWN, f"unknown resource {urn}")
        result: PropertyMap = {"urn": urn, "id": step.state.id, "state": step.state.outputs}
        return _build_invoke_response(result)

    def _invoke_function(
        self, request: resource_pb2.ResourceInvokeRequest
    ) -> resource_pb2.ResourceInvokeResponse:
        """Call one of gpuform's functions with the request's provider, or else the default one.

        Raises RpcError if the function or the provider fails.
        """
        with self._track_request():
            try:
                with self._lock:
                    reference = request.provider or self.providers.register(
                        ProviderRequest(PLUGIN_PACKAGE, request.version, request.pluginDownloadURL),
                        self.executor,
                    )
                plugins, arguments = (
                    self.executor.host.plugins,
                    value_json.from_struct(request.args),
                )
                return _build_invoke_response(plugins.invoke(request.tok, arguments, reference))
            except Stopped:
                raise_unavailable()
            except StepError:
                # The reasons were already reported as events.
                message = f"{request.tok}: its provider could not be configured"
            except GpuformError as error:
                message = f"{request.tok}: {error}"
        raise RpcError(grpc.StatusCode.UNKNOWN, message)

    def Call(self, request: resource_pb2.ResourceCallRequest) -> NoReturn:  # noqa: N802
        """Refuse the call of a resource's method, which fails the run. Raises RpcError."""
        self._refuse_feature(f"the program calls the method {request.tok}")

    def RegisterPackage(  # noqa: N802
        self, request: resource_pb2.RegisterPackageRequest
    ) -> NoReturn:
        """Refuse the registration of a parameterized package, which fails the run.

        Raises RpcError.
        """
        self._refuse_feature(f"the program uses the package {request.name}")

    def _refuse_feature(self, feature: str) -> NoReturn:
        """Report an unsupported feature as a failure of the run, and raise RpcError."""
        message = f"{feature}, which the embedded engine does not support"
        self.executor.fail_resource("", EngineError(message, USE_THE_CLI))
        raise RpcError(grpc.StatusCode.UNKNOWN, message)


def _build_invoke_response(result: PropertyMap) -> resource_pb2.ResourceInvokeResponse:
    """Build the response to a function call from the function's result."""
    answer = resource_pb2.ResourceInvokeResponse()
    # The field's name is a keyword of Python.
    getattr(answer, "return").CopyFrom(values.to_struct(result))
    return answer


def _strip_resource_mark(value: PropertyValue) -> PropertyValue:
    """Return an exported value without the SDK's mark on resources in previews."""
    if isinstance(value, dict):
        return {
            key: _strip_resource_mark(v) for key, v in value.items() if key != "@isPulumiResource"
        }
    if isinstance(value, list):
        return [_strip_resource_mark(item) for item in value]
    return value
