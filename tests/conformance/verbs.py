"""Define the operations of a lifecycle as each host calls them: one interface, three hosts.

`EngineVerbs` goes through the embedded engine's provider host, in this process; `StockVerbs`
through the SDK's own dynamic host, a process that serves gRPC as it does for `pulumi up`;
`plugin.PluginVerbs` through the provider plugin.
Properties are plain values with gpuform's `UNKNOWN`, numbers doubles, without `__provider`.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import grpc
from conformance.described import doubles
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from gpuform.providers.context import ProviderContext
from gpuform.schemas.values import UNKNOWN
from gpuform.stacks.engine import values
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.provider_host.providers import ProviderError

Properties = dict[str, Any]

PROVIDER_KEY = "__provider"


class Refused(Exception):
    """An error that a provider raised, as the host reports it."""


@dataclass(frozen=True)
class Checked:
    inputs: Properties
    failures: Mapping[str, str]


@dataclass(frozen=True)
class Diffed:
    changes: bool | None
    replaces: list[str]
    delete_first: bool


@dataclass(frozen=True)
class Seen:
    """An object as `create` or `read` returns it; the id is empty if the object is gone."""

    id: str
    outputs: Properties
    inputs: Properties | None = None


class Verbs(Protocol):
    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] = ...) -> Checked: ...
    def diff(self, id_: str, olds: Properties, news: Properties) -> Diffed: ...
    def create(self, inputs: Properties) -> Seen: ...
    def read(self, id_: str, outputs: Properties) -> Seen: ...
    def update(self, id_: str, olds: Properties, news: Properties) -> Properties: ...
    def delete(self, id_: str, outputs: Properties) -> None: ...


def pickle_lifecycle(lifecycle: type[Any]) -> str:
    """Return the `__provider` property of a lifecycle."""
    encoded: str = serialize_provider(lifecycle())
    return encoded


@dataclass(frozen=True)
class EngineVerbs:
    """Call the operations through the embedded engine's provider host."""

    lifecycle: type[Any]
    new_call: Callable[[str, float | None], ProviderContext]
    config: Mapping[str, str]
    urn: str = "urn:pulumi:dev::project::type::thing"

    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> Checked:
        olds = self._sent(olds) if olds else {}
        inputs, failures = self._host.check(self.urn, olds, self._sent(news))
        return Checked(
            self._got(inputs), {failure.property: failure.reason for failure in failures}
        )

    def diff(self, id_: str, olds: Properties, news: Properties) -> Diffed:
        with _convert_errors():
            diff = self._host.diff(self.urn, id_, self._sent(olds), self._sent(news))
        return Diffed(diff.changes, list(diff.replaces), diff.delete_before_replace)

    def create(self, inputs: Properties) -> Seen:
        with _convert_errors():
            created = self._host.create(self.urn, self._sent(inputs), None)
        return Seen(created.id, self._got(created.outputs))

    def read(self, id_: str, outputs: Properties) -> Seen:
        with _convert_errors():
            read_result = self._host.read(self.urn, id_, {}, self._sent(outputs))
        if read_result is None:
            return Seen("", {})
        created, inputs = read_result
        return Seen(
            created.id, self._got(created.outputs), None if inputs is None else self._got(inputs)
        )

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        with _convert_errors():
            created = self._host.update(self.urn, id_, self._sent(olds), self._sent(news), None)
        return self._got(created.outputs)

    def delete(self, id_: str, outputs: Properties) -> None:
        with _convert_errors():
            self._host.delete(self.urn, id_, self._sent(outputs), None)

    @property
    def _host(self) -> ProviderHost:
        return ProviderHost("project", self.config, self.new_call)

    def _sent(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        sent = _replace_value(doubles(properties), UNKNOWN, values.UNKNOWN)
        return {**sent, PROVIDER_KEY: pickle_lifecycle(self.lifecycle)}

    def _got(self, properties: Mapping[str, Any]) -> Properties:
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
class StockVerbs:
    """Call the operations through `python -m pulumi.dynamic`, as the Pulumi engine does."""

    lifecycle: type[Any]
    stub: provider_pb2_grpc.ResourceProviderStub

    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> Checked:
        request = provider_pb2.CheckRequest(
            olds=self._sent(olds) if olds else to_struct({}), news=self._sent(news)
        )
        answer = self.stub.Check(request)
        failures = {failure.property: failure.reason for failure in answer.failures}
        return Checked(self._got(answer.inputs), failures)

    def diff(self, id_: str, olds: Properties, news: Properties) -> Diffed:
        request = provider_pb2.DiffRequest(id=id_, olds=self._sent(olds), news=self._sent(news))
        with _convert_errors():
            answer = self.stub.Diff(request)
        changes = {
            provider_pb2.DiffResponse.DIFF_NONE: False,
            provider_pb2.DiffResponse.DIFF_SOME: True,
        }
        return Diffed(
            changes.get(answer.changes), list(answer.replaces), answer.deleteBeforeReplace
        )

    def create(self, inputs: Properties) -> Seen:
        with _convert_errors():
            answer = self.stub.Create(provider_pb2.CreateRequest(properties=self._sent(inputs)))
        return Seen(answer.id, self._got(answer.properties))

    def read(self, id_: str, outputs: Properties) -> Seen:
        sent = self._sent(outputs)
        request = provider_pb2.ReadRequest(id=id_, properties=sent, inputs=sent)
        with _convert_errors():
            answer = self.stub.Read(request)
        inputs = self._got(answer.inputs) if answer.HasField("inputs") else None
        return Seen(answer.id, self._got(answer.properties), inputs)

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        request = provider_pb2.UpdateRequest(id=id_, olds=self._sent(olds), news=self._sent(news))
        with _convert_errors():
            return self._got(self.stub.Update(request).properties)

    def delete(self, id_: str, outputs: Properties) -> None:
        with _convert_errors():
            self.stub.Delete(provider_pb2.DeleteRequest(id=id_, properties=self._sent(outputs)))

    def _sent(self, properties: Mapping[str, Any]) -> Struct:
        sent = _replace_value(doubles(properties), UNKNOWN, values.UNKNOWN_TEXT)
        return to_struct({**sent, PROVIDER_KEY: pickle_lifecycle(self.lifecycle)})

    def _got(self, properties: Struct) -> Properties:
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
