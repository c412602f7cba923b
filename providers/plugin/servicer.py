"""The provider plugin's side of Pulumi's protocol, over the same lifecycles as every other host.

An error is exactly its message, without a traceback. What is secret in the models is marked in
every answer, and so is what was given as a secret. After `Cancel`, which Pulumi also sends at the
end of every run, nothing waits any more.
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

from gpuform.providers.context import ProviderContext as LifecycleCall
from gpuform.providers.context import create_hosted_context, describe_unexpected_error, use_context
from gpuform.providers.engine_log import EngineLog
from gpuform.providers.errors import GpuformError
from gpuform.providers.importing import imported
from gpuform.providers.operations import Settings
from gpuform.providers.plugin.places import plugin_version
from gpuform.providers.plugin.settings import (
    call_function,
    lifecycle_of,
    problems,
    secret_inputs,
    settings_of,
    stack_config,
)
from gpuform.providers.plugin.unsettled import refuse_to_forget
from gpuform.providers.plugin.wire import (
    PartialFailure,
    Status,
    detailed,
    from_struct,
    marked,
    revealed,
    to_struct,
    top_level,
)
from gpuform.providers.properties import Properties, plain
from gpuform.providers.repairing import repair_text
from gpuform.providers.values import secret_texts
from gpuform.schemas.changes import requires_action

Request = TypeVar("Request")
Answer = TypeVar("Answer")
Method = Callable[["Servicer", Request, grpc.ServicerContext], Answer]


def answering(method: Method[Request, Answer]) -> Method[Request, Answer]:
    """A method of the protocol whose errors reach the user as their message alone."""

    @wraps(method)
    def answer(self: "Servicer", request: Request, context: grpc.ServicerContext) -> Answer:
        try:
            return method(self, request, context)
        except PartialFailure as failure:
            status = failure.status
        except GpuformError as error:
            status = Status(str(error))
        except Exception as error:  # noqa: BLE001 - its text may hold values: none may pass
            status = Status(describe_unexpected_error(method.__name__, error))
        context.abort_with_status(status)
        raise AssertionError("the call has ended")

    return answer


@dataclass
class Servicer(provider_pb2_grpc.ResourceProviderServicer):
    """One provider: the default one of a stack, or an explicit one with settings of its own."""

    log: EngineLog = field(default_factory=EngineLog)
    config: Mapping[str, str] = field(default_factory=stack_config)
    cancelled: threading.Event = field(default_factory=threading.Event)
    settings: Settings = field(default_factory=Settings)
    _of_imports: dict[str, Properties] = field(default_factory=dict, repr=False)
    """By URN, the secrets of what was imported, which are no inputs yet."""

    def __post_init__(self) -> None:
        self.settings = settings_of({}, self.config)

    # --- the plugin itself -----------------------------------------------------------------------

    @answering
    def Handshake(  # noqa: N802 - the protocol's name
        self, request: provider_pb2.ProviderHandshakeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        if request.engine_address:
            self.log.attach(request.engine_address)
        return provider_pb2.ProviderHandshakeResponse(
            accept_secrets=True, accept_resources=True, accept_outputs=True
        )

    @answering
    def Attach(  # noqa: N802
        self, request: plugin_pb2.PluginAttach, _context: grpc.ServicerContext
    ) -> Empty:
        self.log.attach(request.address)
        return Empty()

    @answering
    def GetPluginInfo(  # noqa: N802
        self, _request: Empty, _context: grpc.ServicerContext
    ) -> plugin_pb2.PluginInfo:
        return plugin_pb2.PluginInfo(version=plugin_version())

    @answering
    def GetSchema(  # noqa: N802
        self, request: provider_pb2.GetSchemaRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        from gpuform.providers.plugin.package_schema import package_schema  # noqa: PLC0415 - heavy

        if request.subpackage_name:
            raise GpuformError(f"gpuform has no package {request.subpackage_name} in it")
        return provider_pb2.GetSchemaResponse(schema=json.dumps(package_schema()))

    @answering
    def Cancel(self, _request: Empty, _context: grpc.ServicerContext) -> Empty:  # noqa: N802
        self.cancelled.set()
        return Empty()

    # --- its configuration -----------------------------------------------------------------------

    @answering
    def CheckConfig(  # noqa: N802
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        inputs = from_struct(request.news)
        return provider_pb2.CheckResponse(
            inputs=to_struct(marked(inputs, {}, secret_inputs())),
            failures=[
                provider_pb2.CheckFailure(property=each.path, reason=each.reason)
                for each in problems(revealed(inputs))
            ],
        )

    @answering
    def DiffConfig(  # noqa: N802
        self, request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        """Other settings never replace a resource: they may be a new key of the same account."""
        olds, news = revealed(from_struct(request.olds)), revealed(from_struct(request.news))
        changed = sorted(name for name in {*olds, *news} if olds.get(name) != news.get(name))
        changes = provider_pb2.DiffResponse.DIFF_SOME if changed else _NONE
        return provider_pb2.DiffResponse(changes=changes, diffs=changed)

    @answering
    def Configure(  # noqa: N802
        self, request: provider_pb2.ConfigureRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        inputs = from_struct(request.args)
        if not request.HasField("args"):
            inputs = {key.rpartition(":")[2]: value for key, value in request.variables.items()}
        self.settings = settings_of(revealed(inputs), self.config)
        if request.urn:
            refuse_to_forget(create_hosted_context(request.urn).intents)
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, acceptOutputs=True, acceptResources=True, supportsPreview=True
        )

    # --- resources -------------------------------------------------------------------------------

    @answering
    def Check(  # noqa: N802
        self, request: provider_pb2.CheckRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        lifecycle, news = self._lifecycle(request), from_struct(request.news)
        if request.news == request.olds:  # so an import asks whether what it has read is complete
            news = {**self._of_imports.get(request.urn, {}), **news}
        with self._calling(request):
            result = lifecycle.check(_arguments(request.olds), revealed(news))
        return provider_pb2.CheckResponse(
            inputs=_struct(lifecycle, result.inputs, news),
            failures=[
                provider_pb2.CheckFailure(property=each.property, reason=each.reason)
                for each in result.failures
            ],
        )

    @answering
    def Diff(  # noqa: N802
        self, request: provider_pb2.DiffRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.DiffResponse:
        lifecycle = self._lifecycle(request)
        olds, news = _arguments(request.olds), _arguments(request.news)
        with self._calling(request) as served:
            # Pulumi does not say whether it plans or shows what a refresh found: update and delete
            # refuse what may not be done.
            served.refreshing = True
            result = lifecycle.diff(request.id, olds, news)
            found = lifecycle.list_changes(olds, news, request.id)
        details = detailed(found, olds, news)
        replaces = [change.path for change in found if change.replaces]
        is_remade = any(change.replaces and change.repair is not None for change in found)
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if requires_action(found) else _NONE,
            replaces=list(dict.fromkeys(map(top_level, replaces))),
            deleteBeforeReplace=bool(result.delete_before_replace) or is_remade,
            diffs=list(dict.fromkeys(map(top_level, details))),
            detailedDiff=details,
            hasDetailedDiff=True,
        )

    @answering
    def Create(  # noqa: N802
        self, request: provider_pb2.CreateRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.CreateResponse:
        lifecycle, given = self._lifecycle(request), from_struct(request.properties)
        if request.preview:
            previewed = lifecycle.predict_outputs(revealed(given))
            return provider_pb2.CreateResponse(properties=_struct(lifecycle, previewed, given))
        with self._calling(request) as served:
            made = lifecycle.create(revealed(given))
        answer = provider_pb2.CreateResponse(
            id=made.id, properties=_struct(lifecycle, made.outs, given)
        )
        if served.init_errors:
            raise PartialFailure(
                answer.id, answer.properties, request.properties, served.init_errors
            )
        return answer

    @answering
    def Read(  # noqa: N802
        self, request: provider_pb2.ReadRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.ReadResponse:
        lifecycle = self._lifecycle(request)
        olds, inputs = from_struct(request.properties), from_struct(request.inputs)
        with self._calling(request):
            if request.HasField("inputs"):
                found = lifecycle.read(request.id, revealed(olds))
            else:
                found = self._imported(request, lifecycle)
        if not found.id:
            return provider_pb2.ReadResponse()  # without properties: there is no such object
        return provider_pb2.ReadResponse(
            id=found.id,
            properties=_struct(lifecycle, found.outs or {}, olds),
            inputs=_struct(lifecycle, found.inputs or {}, inputs or olds),
        )

    def _imported(self, request: provider_pb2.ReadRequest, lifecycle: Any) -> ReadResult:
        found = imported(type(lifecycle), request.id, self.settings)
        outs, inputs = found.outs or {}, found.inputs or {}
        secrets = {*lifecycle.list_secret_names()} & lifecycle.inputs.model_fields.keys()
        self._of_imports[request.urn] = {
            name: outs[name] for name in secrets if name in outs and name not in inputs
        }
        return found

    @answering
    def Update(  # noqa: N802
        self, request: provider_pb2.UpdateRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.UpdateResponse:
        lifecycle, given = self._lifecycle(request), from_struct(request.news)
        if request.preview:
            with self._calling(request) as served:
                olds, news = _arguments(request.olds), revealed(given)
                for change in lifecycle.list_changes(olds, news, request.id):
                    if change.repair is not None:  # Pulumi's own plan has no words for it
                        served.on_warning(repair_text(change.repair))
            previewed = lifecycle.predict_outputs(news)
            return provider_pb2.UpdateResponse(properties=_struct(lifecycle, previewed, given))
        with self._calling(request) as served:
            made = lifecycle.update(request.id, _arguments(request.olds), revealed(given))
        answer = provider_pb2.UpdateResponse(properties=_struct(lifecycle, made.outs or {}, given))
        if served.init_errors:
            raise PartialFailure(
                request.id, answer.properties, request.old_inputs, served.init_errors
            )
        return answer

    @answering
    def Delete(  # noqa: N802
        self, request: provider_pb2.DeleteRequest, _context: grpc.ServicerContext
    ) -> Empty:
        lifecycle = self._lifecycle(request)
        with self._calling(request):
            lifecycle.delete(request.id, _arguments(request.properties))
        return Empty()

    # --- functions, and what there is none of ----------------------------------------------------

    @answering
    def Invoke(  # noqa: N802
        self, request: provider_pb2.InvokeRequest, _context: grpc.ServicerContext
    ) -> provider_pb2.InvokeResponse:
        found = call_function(request.tok, _arguments(request.args), self.settings)
        answer = provider_pb2.InvokeResponse()
        getattr(answer, "return").CopyFrom(to_struct(found))  # a word of Python's own
        return answer

    def Call(self, request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        _refuse(context, f"the resources of gpuform have no methods, as {request.tok} would be")

    def Construct(self, request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        _refuse(
            context, f"gpuform has no component {request.type}: its resources are no components"
        )

    def Parameterize(self, _request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        _refuse(context, "the package gpuform takes no parameters")

    def List(self, _request: Any, context: grpc.ServicerContext) -> Never:  # noqa: N802
        _refuse(
            context, "the plugin lists no resources: `gpuform orphans` tells what a stack lacks"
        )

    @answering
    def GetMapping(  # noqa: N802
        self, _request: Any, _context: grpc.ServicerContext
    ) -> provider_pb2.GetMappingResponse:
        return provider_pb2.GetMappingResponse()

    @answering
    def GetMappings(  # noqa: N802
        self, _request: Any, _context: grpc.ServicerContext
    ) -> provider_pb2.GetMappingsResponse:
        return provider_pb2.GetMappingsResponse()

    def _lifecycle(self, request: Any) -> Any:
        return lifecycle_of(request.type or _type_of(request.urn)).with_settings(self.settings)

    def _calling(self, request: Any) -> AbstractContextManager[LifecycleCall]:
        urn = request.urn
        served = replace(
            create_hosted_context(urn),
            timeout=getattr(request, "timeout", 0.0) or None,
            cancelled=self.cancelled,
            on_progress=lambda text: self.log.progress(urn, text),
            on_warning=lambda text: self.log.warning(urn, text),
            on_skipped_check=self.log.once,
        )
        for _, value in request.ListFields():
            if isinstance(value, Struct):
                served.add_secrets(secret_texts(from_struct(value)))
        return use_context(served)


_NONE = provider_pb2.DiffResponse.DIFF_NONE


def _type_of(urn: str) -> str:
    """The resource's own type: the last of the chain in its URN, `...::<types>::<name>`."""
    parts = urn.split("::", 3)
    return parts[2].rsplit("$", 1)[-1] if len(parts) == 4 else urn


def _arguments(struct: Struct) -> Properties:
    return revealed(from_struct(struct))


def _struct(lifecycle: Any, answer: Mapping[str, Any], given: Mapping[str, Any]) -> Struct:
    names, inputs = lifecycle.list_secret_names(), lifecycle.inputs.model_fields
    return to_struct(marked(plain(answer), given, names, inputs))


def _refuse(context: grpc.ServicerContext, message: str) -> Never:
    context.abort(grpc.StatusCode.UNIMPLEMENTED, message)
    raise AssertionError("the call has ended")
