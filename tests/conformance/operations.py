"""Define the operations of a lifecycle as each host calls them: one interface, three hosts.

`EngineOperations` calls the embedded engine's provider host in this process, `StockOperations` the
SDK's dynamic host over gRPC, and `plugin.PluginOperations` the provider plugin. Properties are
plain values with gpuform's `UNKNOWN`, without `__provider`, and all numbers are doubles.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from conformance.kind_descriptions import convert_integers_to_doubles
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from gpuform.providers import values
from gpuform.providers.context import ProviderContext, read_run_context
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.engine.dynamic_providers import ProviderError
from gpuform.stacks.engine.provider_host import ProviderHost

Properties = dict[str, Any]

PROVIDER_KEY = "__provider"


class Refused(Exception):
    """An error that a provider raised, as the host reports it."""


@dataclass(frozen=True)
class CheckResult:
    inputs: Properties
    failures: Mapping[str, str]


@dataclass(frozen=True)
class DiffResult:
    changes: bool | None
    replaces: list[str]
    delete_first: bool


@dataclass(frozen=True)
class ObjectResult:
    """An object as `create` or `read` returns it; the id is empty if the object is gone."""

    id: str
    outputs: Properties
    inputs: Properties | None = None


class Operations(Protocol):
    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] = ...) -> CheckResult: ...
    def diff(self, id_: str, olds: Properties, news: Properties) -> DiffResult: ...
    def create(self, inputs: Properties) -> ObjectResult: ...
    def read(self, id_: str, outputs: Properties) -> ObjectResult: ...
    def update(self, id_: str, olds: Properties, news: Properties) -> Properties: ...
    def delete(self, id_: str, outputs: Properties) -> None: ...


def pickle_lifecycle(lifecycle: type[Any]) -> str:
    """Return the `__provider` property of a lifecycle."""
    encoded: str = serialize_provider(lifecycle())
    return encoded


@dataclass(frozen=True)
class EngineOperations:
    """Call the operations through the embedded engine's provider host."""

    lifecycle: type[Any]
    new_call: Callable[[str, float | None], ProviderContext]
    config: Mapping[str, str]
    urn: str = "urn:pulumi:dev::project::type::thing"

    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> CheckResult:
        olds = self._to_engine_values(olds) if olds else {}
        inputs, failures = self._host.check(self.urn, olds, self._to_engine_values(news))
        return CheckResult(
            self._from_engine_values(inputs),
            {failure.property: failure.reason for failure in failures},
        )

    def diff(self, id_: str, olds: Properties, news: Properties) -> DiffResult:
        with _convert_errors():
            diff = self._host.diff(
                self.urn, id_, self._to_engine_values(olds), self._to_engine_values(news)
            )
        return DiffResult(diff.changes, list(diff.replaces), diff.delete_before_replace)

    def create(self, inputs: Properties) -> ObjectResult:
        with _convert_errors():
            created = self._host.create(self.urn, self._to_engine_values(inputs), None)
        return ObjectResult(created.id, self._from_engine_values(created.outputs))

    def read(self, id_: str, outputs: Properties) -> ObjectResult:
        with _convert_errors():
            read_result = self._host.read(self.urn, id_, {}, self._to_engine_values(outputs))
        if read_result is None:
            return ObjectResult("", {})
        created, inputs = read_result
        return ObjectResult(
            created.id,
            self._from_engine_values(created.outputs),
            None if inputs is None else self._from_engine_values(inputs),
        )

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        with _convert_errors():
            created = self._host.update(
                self.urn, id_, self._to_engine_values(olds), self._to_engine_values(news), None
            )
        return self._from_engine_values(created.outputs)

    def delete(self, id_: str, outputs: Properties) -> None:
        with _convert_errors():
            self._host.delete(self.urn, id_, self._to_engine_values(outputs), None)

    @property
    def _host(self) -> ProviderHost:
        return ProviderHost("project", self.config, self.new_call, read_run_context())

    def _to_engine_values(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        sent = _replace_value(convert_integers_to_doubles(properties), UNKNOWN, values.UNKNOWN)
        return {**sent, PROVIDER_KEY: pickle_lifecycle(self.lifecycle)}

    def _from_engine_values(self, properties: Mapping[str, Any]) -> Properties:
        own = {key: value for key, value in properties.items() if key != PROVIDER_KEY}
        result: Properties = _replace_value(own, values.UNKNOWN, UNKNOWN)
        return result


@contextmanager
def _convert_errors() -> Iterator[None]:
    try:
        yield
    except ProviderError as error:
        raise Refused(str(error)) from error
    except grpc.RpcError as error:
        raise Refused(error.details()) from error


@dataclass(frozen=True)
class StockOperations:
    """Call the operations through `python -m pulumi.dynamic`, as the Pulumi engine does."""

    lifecycle: type[Any]
    stub: provider_pb2_grpc.ResourceProviderStub

    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> CheckResult:
        request = provider_pb2.CheckRequest(
            olds=self._to_struct(olds) if olds else to_struct({}), news=self._to_struct(news)
        )
        answer = self.stub.Check(request)
        failures = {failure.property: failure.reason for failure in answer.failures}
        return CheckResult(self._from_struct(answer.inputs), failures)

    def diff(self, id_: str, olds: Properties, news: Properties) -> DiffResult:
        request = provider_pb2.DiffRequest(
            id=id_, olds=self._to_struct(olds), news=self._to_struct(news)
        )
        with _convert_errors():
            answer = self.stub.Diff(request)
        changes = {
            provider_pb2.DiffResponse.DIFF_NONE: False,
            provider_pb2.DiffResponse.DIFF_SOME: True,
        }
        return DiffResult(
            changes.get(answer.changes), list(answer.replaces), answer.deleteBeforeReplace
        )

    def create(self, inputs: Properties) -> ObjectResult:
        with _convert_errors():
            answer = self.stub.Create(
                provider_pb2.CreateRequest(properties=self._to_struct(inputs))
            )
        return ObjectResult(answer.id, self._from_struct(answer.properties))

    def read(self, id_: str, outputs: Properties) -> ObjectResult:
        sent = self._to_struct(outputs)
        request = provider_pb2.ReadRequest(id=id_, properties=sent, inputs=sent)
        with _convert_errors():
            answer = self.stub.Read(request)
        inputs = self._from_struct(answer.inputs) if answer.HasField("inputs") else None
        return ObjectResult(answer.id, self._from_struct(answer.properties), inputs)

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        request = provider_pb2.UpdateRequest(
            id=id_, olds=self._to_struct(olds), news=self._to_struct(news)
        )
        with _convert_errors():
            return self._from_struct(self.stub.Update(request).properties)

    def delete(self, id_: str, outputs: Properties) -> None:
        with _convert_errors():
            self.stub.Delete(
                provider_pb2.DeleteRequest(id=id_, properties=self._to_struct(outputs))
            )

    def _to_struct(self, properties: Mapping[str, Any]) -> Struct:
        sent = _replace_value(convert_integers_to_doubles(properties), UNKNOWN, values.UNKNOWN_TEXT)
        return to_struct({**sent, PROVIDER_KEY: pickle_lifecycle(self.lifecycle)})

    def _from_struct(self, properties: Struct) -> Properties:
        message_to_dict = MessageToDict(properties)
        # The host copies the provider to every answer: without it the next call would fail.
        assert message_to_dict.pop(PROVIDER_KEY) == pickle_lifecycle(self.lifecycle)
        got: Properties = _replace_value(message_to_dict, values.UNKNOWN_TEXT, UNKNOWN)
        return got


def to_struct(properties: Mapping[str, Any]) -> Struct:
    """Return properties for Pulumi's wire; None is dropped at the top level."""
    wire_struct = Struct()
    wire_struct.update({key: value for key, value in properties.items() if value is not None})
    return wire_struct


def _replace_value(value: Any, old: Any, new: Any) -> Any:
    """Return the value with `new` for `old` at every depth."""
    if isinstance(value, Mapping):
        return {key: _replace_value(item, old, new) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_value(item, old, new) for item in value]
    return new if value is old or (isinstance(old, str) and value == old) else value
