"""Answer the gRPC calls of Pulumi's engine with gpuform's lifecycles.

`process` serves the class `Servicer`. Errors reach the user as their message, without a traceback.
Every answer marks as secret what the models declare secret and what the program passed as secret.
After `Cancel`, which Pulumi also sends at the end of every run, no call waits any more.
"""

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, Never, TypeVar

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.struct_pb2 import Struct
from pulumi.dynamic import ReadResult
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from gpuform.providers.context import (
    ProviderContext,
    create_hosted_context,
    describe_unexpected_error,
    use_context,
)
from gpuform.providers.engine_log import EngineLog
from gpuform.providers.errors import GpuformError
from gpuform.providers.importing import import_object
from gpuform.providers.lifecycle.traits import Properties, to_properties
from gpuform.providers.operations import Settings
from gpuform.providers.plugin.locations import get_plugin_version
from gpuform.providers.plugin.settings import (
    call_function,
    create_settings,
    find_input_problems,
    get_lifecycle_by_token,
    list_secret_inputs,
    read_stack_config,
)
from gpuform.providers.plugin.wire import (
    CallStatus,
    PartialFailure,
    build_detailed_diff,
    from_struct,
    get_top_level_property,
    mark_secrets,
    to_struct,
    unwrap_all_secrets,
)
from gpuform.providers.records import refuse_incomplete_destroy
from gpuform.providers.repairing import describe_repair
from gpuform.providers.values import collect_secret_texts
from gpuform.schemas.changes import requires_action
from gpuform.schemas.policies.repair import NodeRepair

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Method = Callable[["Servicer", Request, grpc.ServicerContext], Answer]


def report_errors(method: Method[Request, Answer]) -> Method[Request, Answer]:
    """Decorate a protocol method: an error ends the call with a message, without a traceback.

    The message of an unexpected error omits the error's text, which may contain secrets. A
    PartialFailure also sends its details to the engine.
    """

    @wraps(method)
    def call_method(self: "Servicer", request: Request, context: grpc.ServicerContext) -> Answer:
        try:
            return method(self, request, context)
        except PartialFailure as failure:
            status = failure.status
        except GpuformError as error:
            status = CallStatus(str(error))
        except Exception as error:  # noqa: BLE001 - its text may contain secrets
            status = CallStatus(describe_unexpected_error(method.__name__, error))
        context.abort_with_status(status)
        # `abort_with_status` raises; this line is for the type checker.
        raise AssertionError("the call has ended")

    return call_method


@dataclass
class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """Answers for one provider: a stack's default one, or an explicit one with its own settings."""

    log: EngineLog = field(default_factory=EngineLog)
    config: Mapping[str, str] = field(default_factory=read_stack_config)
    cancelled: threading.Event = field(default_factory=threading.Event)
    settings: Settings = field(default_factory=Settings)
    _imported_secrets: dict[str, Properties] = field(default_factory=dict, repr=False)
    _planned_repairs: list[NodeRepair] = field(default_factory=list, repr=False)
    _checked_olds: dict[str, Properties] = field(default_factory=dict, repr=False)
    """Secret inputs read by an import, by URN. `Check` completes the inputs with the secrets."""

    def __post_init__(self) -> None:
        self.settings = create_settings({}, self.config)

    # --- the plugin's process --------------------------------------------------------------------

    @report_errors
    def Handshake(  # noqa: N802 - the protocol's name
        self, request: provider_pb2.ProviderHandshakeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        """Attach to the engine's log, and answer which features of the protocol are supported."""
        if request.engine_address:
            self.log.attach(request.engine_address)
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, accept_resources=True, accept_outputs=True
        )

    @report_errors
    def Attach(  # noqa: N802
        self, request: plugin_pb2.PluginAttach, _context: grpc.ServicerContext
    ) -> Empty:
        """Send messages to the engine at the requested address from now on."""
        self.log.attach(request.address)
        return Empty()

    @report_errors
    def GetPluginInfo(  # noqa: N802
        self, _request: Empty, _context: grpc.ServicerContext
    ) -> plugin_pb2.PluginInfo:
        """Return the plugin's version."""
        return plugin_pb2.PluginInfo(version=get_plugin_version())

    @report_errors
    def GetSchema(  # noqa: N802
        self, request: provider_pb2.GetSchemaRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        """Return the package schema as JSON. A request for a subpackage is an error."""
        from gpuform.providers.plugin.package_schema import build_package_schema  # noqa: PLC0415 - heavy

        if request.subpackage_name:
            raise GpuformError(f"gpuform has no subpackage {request.subpackage_name}")
        return provider_pb2.GetSchemaResponse(schema=json.dumps(build_package_schema()))

    @report_errors
    def Cancel(self, _request: Empty, _context: grpc.ServicerContext) -> Empty:  # noqa: N802
        """Set the event that ends every wait of this plugin, in running and in later calls."""
        self.cancelled.set()
        return Empty()

    # --- the configuration of the provider -------------------------------------------------------

    @report_errors
    def CheckConfig(  # noqa: N802
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        """Return the provider's inputs with secrets marked, and the problems of the inputs."""
        inputs = from_struct(request.news)
        return provider_pb2.CheckResponse(
            inputs=to_struct(mark_secrets(inputs, {}, list_secret_inputs())),
            failures=[
                provider_pb2.CheckFailure(property=problem.path, reason=problem.reason)
                for problem in find_input_problems(unwrap_all_secrets(inputs))
            ],
        )

    @report_errors
    def DiffConfig(  # noqa: N802
        self, request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        """Return which settings of the provider differ between old and new inputs."""
        olds, news = (
            unwrap_all_secrets(from_struct(request.olds)),
            unwrap_all_secrets(from_struct(request.news)),
        )
        changed = sorted(name for name in {*olds, *news} if olds.get(name) != news.get(name))
        changes = provider_pb2.DiffResponse.DIFF_SOME if changed else _NO_CHANGES
        # No `replaces`: a new key may belong to the same account.
        return provider_pb2.DiffResponse(changes=changes, diffs=changed)

    @report_errors
    def Configure(  # noqa: N802
        self, request: provider_pb2.ConfigureRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Set the settings for later calls, and refuse a destroy with unfinished creates."""
        inputs = from_struct(request.args)
        if not request.HasField("args"):
            # Without `args` the engine sends variables, whose keys begin with the package's name.
            inputs = {key.rpartition(":")[2]: value for key, value in request.variables.items()}
        self.settings = create_settings(unwrap_all_secrets(inputs), self.config)
        # The engine configures a provider before it deletes any resource.
        if request.urn:
            context = create_hosted_context(request.urn)
            refuse_incomplete_destroy(context.intents, creates_anew=context.run.creates_anew)
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, acceptOutputs=True, acceptResources=True, supportsPreview=True
        )

    # --- resources -------------------------------------------------------------------------------

    @report_errors
    def Check(  # noqa: N802
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        """Return the resource's inputs in normal form, and the problems of the inputs.

        The inputs of an import are completed with the secrets that `Read` has stored.
        """
        lifecycle, news = self._get_lifecycle(request), from_struct(request.news)
        olds = _struct_to_values(request.olds)
        # An import checks the inputs that it has read, as both the old and the new ones.
        if request.news == request.olds:
            news = {**self._imported_secrets.get(request.urn, {}), **news}
        # Pulumi checks a replacement twice: with the inputs of the old object, then without.
        existing_inputs = self._checked_olds.get(request.urn)
        with self._enter_context(request, existing_inputs=existing_inputs):
            if olds:
                self._checked_olds[request.urn] = olds
            result = lifecycle.check(olds, unwrap_all_secrets(news))
        return provider_pb2.CheckResponse(
            inputs=_answer_to_struct(lifecycle, result.inputs, news),
            failures=[
                provider_pb2.CheckFailure(property=failure.property, reason=failure.reason)
                for failure in result.failures
            ],
        )

    @report_errors
    def Diff(  # noqa: N802
        self, request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        """Return the changed properties, and the ones whose change replaces the resource.

        Forbidden changes are refused by update and delete, not here.
        """
        lifecycle = self._get_lifecycle(request)
        olds, news = _struct_to_values(request.olds), _struct_to_values(request.news)
        # Pulumi asks for a diff in plans and in refreshes, and does not say in which: update and
        # delete refuse forbidden changes later.
        with self._enter_context(request, refreshing=True):
            result = lifecycle.diff(request.id, olds, news)
            changes = lifecycle.list_changes(olds, news, request.id)
        # Pulumi's process of a plugin serves one run: later resources test what this one repairs.
        self._planned_repairs += [
            change.repair for change in changes if change.repair and not change.repair.is_withdrawal
        ]
        detailed_diff = build_detailed_diff(changes, olds, news)
        replacing_paths = [change.path for change in changes if change.replaces]
        # A repair that replaces an object deletes the broken one before it creates another.
        is_recreated = any(change.replaces and change.repair is not None for change in changes)
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME
            if requires_action(changes)
            else _NO_CHANGES,
            replaces=list(dict.fromkeys(map(get_top_level_property, replacing_paths))),
            deleteBeforeReplace=bool(result.delete_before_replace) or is_recreated,
            diffs=list(dict.fromkeys(map(get_top_level_property, detailed_diff))),
            detailedDiff=detailed_diff,
            hasDetailedDiff=True,
        )

    @report_errors
    def Create(  # noqa: N802
        self, request: provider_pb2.CreateRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CreateResponse:
        """Create the resource, or predict the outputs in a preview.

        An object that is not ready ends the call with PartialFailure, which reports the object's id
        to the engine.
        """
        lifecycle, inputs = self._get_lifecycle(request), from_struct(request.properties)
        if request.preview:
            predicted_outputs = lifecycle.predict_outputs(unwrap_all_secrets(inputs))
            return provider_pb2.CreateResponse(
                properties=_answer_to_struct(lifecycle, predicted_outputs, inputs)
            )
        with self._enter_context(request) as context:
            create_result = lifecycle.create(unwrap_all_secrets(inputs))
        answer = provider_pb2.CreateResponse(
            id=create_result.id, properties=_answer_to_struct(lifecycle, create_result.outs, inputs)
        )
        # The object exists and is not ready: without its id in the state, a rerun creates another.
        if context.progress.init_errors:
            raise PartialFailure(
                answer.id, answer.properties, request.properties, context.progress.init_errors
            )
        return answer

    @report_errors
    def Read(  # noqa: N802
        self, request: provider_pb2.ReadRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ReadResponse:
        """Read the resource for a refresh, or an existing object for an import.

        The answer is empty if the object does not exist.
        """
        lifecycle = self._get_lifecycle(request)
        olds, inputs = from_struct(request.properties), from_struct(request.inputs)
        with self._enter_context(request):
            # A refresh sends the recorded inputs; an import has none.
            if request.HasField("inputs"):
                read_result = lifecycle.read(request.id, unwrap_all_secrets(olds))
            else:
                read_result = self._read_import(request, lifecycle)
        if not read_result.id:
            return provider_pb2.ReadResponse()  # an empty answer: the object does not exist
        return provider_pb2.ReadResponse(
            id=read_result.id,
            properties=_answer_to_struct(lifecycle, read_result.outs or {}, olds),
            inputs=_answer_to_struct(lifecycle, read_result.inputs or {}, inputs or olds),
        )

    def _read_import(self, request: provider_pb2.ReadRequest, lifecycle: Any) -> ReadResult:
        """Return the imported object, and store its secret inputs under the URN for `Check`."""
        read_result = import_object(type(lifecycle), request.id, self.settings)
        outputs, inputs = read_result.outs or {}, read_result.inputs or {}
        secrets = {*lifecycle.list_secret_names()} & lifecycle.inputs.model_fields.keys()
        self._imported_secrets[request.urn] = {
            name: outputs[name] for name in secrets if name in outputs and name not in inputs
        }
        return read_result

    @report_errors
    def Update(  # noqa: N802
        self, request: provider_pb2.UpdateRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.UpdateResponse:
        """Update the resource in place, or predict the outputs in a preview.

        A preview reports repairs as warnings. An object that is not ready ends the call with
        PartialFailure.
        """
        lifecycle, inputs = self._get_lifecycle(request), from_struct(request.news)
        if request.preview:
            with self._enter_context(request) as context:
                olds, news = _struct_to_values(request.olds), unwrap_all_secrets(inputs)
                for change in lifecycle.list_changes(olds, news, request.id):
                    # Pulumi's plan cannot show a repair: report it as a warning.
                    if change.repair is not None:
                        context.on_warning(describe_repair(change.repair))
            predicted_outputs = lifecycle.predict_outputs(news)
            return provider_pb2.UpdateResponse(
                properties=_answer_to_struct(lifecycle, predicted_outputs, inputs)
            )
        with self._enter_context(request) as context:
            update_result = lifecycle.update(
                request.id, _struct_to_values(request.olds), unwrap_all_secrets(inputs)
            )
        answer = provider_pb2.UpdateResponse(
            properties=_answer_to_struct(lifecycle, update_result.outs or {}, inputs)
        )
        if context.progress.init_errors:
            raise PartialFailure(
                request.id, answer.properties, request.old_inputs, context.progress.init_errors
            )
        return answer

    @report_errors
    def Delete(  # noqa: N802
        self, request: provider_pb2.DeleteRequest, _context: grpc.ServicerContext
    ) -> Empty:
        """Delete the resource's object, and wait until the object is gone."""
        lifecycle = self._get_lifecycle(request)
        with self._enter_context(request):
            lifecycle.delete(request.id, _struct_to_values(request.properties))
        return Empty()

    # --- functions, and unsupported calls --------------------------------------------------------

    @report_errors
    def Invoke(  # noqa: N802
        self, request: provider_pb2.InvokeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.InvokeResponse:
        """Call a look-up function, and return the function's result."""
        result = call_function(request.tok, _struct_to_values(request.args), self.settings)
        answer = provider_pb2.InvokeResponse()
        getattr(answer, "return").CopyFrom(to_struct(result))  # `return` is a keyword of Python
        return answer

    def Call(self, request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        """Refuse the call of a method: resources of gpuform have none."""
        _refuse_call(context, f"resources of gpuform have no methods: cannot call {request.tok}")

    def Construct(self, request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        """Refuse the construction of a component: gpuform has none."""
        _refuse_call(context, f"gpuform has no components: cannot construct {request.type}")

    def Parameterize(self, _request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        """Refuse parameters: the package takes none."""
        _refuse_call(context, "the package gpuform takes no parameters")

    def List(self, _request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        """Refuse to list resources: `gpuform orphans` lists objects that a stack lacks."""
        _refuse_call(
            context,
            "the plugin cannot list resources: `gpuform orphans` lists objects that a stack lacks",
        )

    @report_errors
    def GetMapping(  # noqa: N802
        self, _request: Any, _context: grpc.ServicerContext
    ) -> provider_pb2.GetMappingResponse:
        """Return an empty answer: gpuform has no mapping to convert other tools' programs."""
        return provider_pb2.GetMappingResponse()

    @report_errors
    def GetMappings(  # noqa: N802
        self, _request: Any, _context: grpc.ServicerContext
    ) -> provider_pb2.GetMappingsResponse:
        """Return an empty answer: gpuform has no mappings to convert other tools' programs."""
        return provider_pb2.GetMappingsResponse()

    def _get_lifecycle(self, request: Any) -> Any:
        """Return the lifecycle of the request's resource type, with the provider's settings."""
        return get_lifecycle_by_token(
            request.type or _get_type_from_urn(request.urn)
        ).with_settings(self.settings)

    def _enter_context(self, request: Any, **facts: Any) -> AbstractContextManager[ProviderContext]:
        """Return a context manager for a request's ProviderContext: timeout, cancellation and log.

        `facts` are further fields. Secrets in the request's properties are masked in messages and
        logs.
        """
        urn = request.urn
        provider_context = replace(
            create_hosted_context(urn),
            timeout=getattr(request, "timeout", 0.0) or None,
            cancelled=self.cancelled,
            on_progress=lambda message: self.log.show_progress(urn, message),
            on_warning=lambda message: self.log.show_warning(urn, message),
            on_skipped_check=self.log.show_once,
            planned_repairs=tuple(self._planned_repairs),
            **facts,
        )
        # Secrets of every property map of the request are masked in messages and logs.
        for _, value in request.ListFields():
            if isinstance(value, Struct):
                provider_context.add_secrets(collect_secret_texts(from_struct(value)))
        return use_context(provider_context)


_NO_CHANGES = provider_pb2.DiffResponse.DIFF_NONE


def _get_type_from_urn(urn: str) -> str:
    """Return the resource's own type: the last of the type chain in `...::<types>::<name>`.

    Any text of another form is returned unchanged.
    """
    parts = urn.split("::", 3)
    return parts[2].rsplit("$", 1)[-1] if len(parts) == 4 else urn


def _struct_to_values(struct: Struct) -> Properties:
    """Return the properties of a Struct as plain values, with secrets unwrapped."""
    return unwrap_all_secrets(from_struct(struct))


def _answer_to_struct(
    lifecycle: Any, answer: Mapping[str, Any], sent_properties: Mapping[str, Any]
) -> Struct:
    """Return a lifecycle's answer as a Struct, with the secret properties marked.

    Secret are the kind's own secrets, and values secret in `sent_properties`.
    """
    names, inputs = lifecycle.list_secret_names(), lifecycle.inputs.model_fields
    return to_struct(mark_secrets(to_properties(answer), sent_properties, names, inputs))


def _refuse_call(context: grpc.ServicerContext, message: str) -> Never:
    """End the call with the status UNIMPLEMENTED and the message."""
    context.abort(grpc.StatusCode.UNIMPLEMENTED, message)
    raise AssertionError("the call has ended")
