"""Run the provider plugin in a process of its own, and call it as the Pulumi engine does."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import grpc
from conformance.described import doubles
from conformance.verbs import Checked, Diffed, Properties, Refused, Seen
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from gpuform.providers.forms import Form
from gpuform.providers.plugin.wire import from_struct, mark_secrets, to_struct, unwrap_all_secrets
from gpuform.providers.values import Secret


@dataclass(frozen=True)
class PluginHost:
    """A process of the plugin without any configuration."""

    stub: provider_pb2_grpc.ResourceProviderStub
    process: subprocess.Popen[bytes]
    directory: Path
    log: Path

    @property
    def printed(self) -> str:
        """Return what the process has written to standard error."""
        return self.log.read_text()


@contextlib.contextmanager
def running_plugin(
    directory: Path, environ: Mapping[str, str], engine: str = ""
) -> Iterator[PluginHost]:
    """Run `pulumi-resource-gpuform ENGINE`, as the Pulumi engine starts it."""
    directory.mkdir(exist_ok=True)
    log = directory / "plugin.log"
    command = [sys.executable, "-m", "gpuform.providers.plugin", *([engine] if engine else [])]
    with log.open("w") as stream:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env={**os.environ, **environ},
            stdout=subprocess.PIPE,
            stderr=stream,
        )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(provider_pb2.ConfigureRequest(args=Struct(), acceptSecrets=True))
            yield PluginHost(stub, process, directory, log)
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class PluginVerbs:
    """Call the operations through the plugin's gRPC; secrets arrive marked, and only they."""

    lifecycle: type[Any]
    stub: provider_pb2_grpc.ResourceProviderStub
    name: str = "thing"
    timeout: float = 0.0

    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> Checked:
        request = provider_pb2.CheckRequest(
            urn=self.urn, olds=self._sent(olds or {}), news=self._sent(news)
        )
        answer = self.stub.Check(request)
        failures = {failure.property: failure.reason for failure in answer.failures}
        return Checked(self._got(answer.inputs), failures)

    def diff(self, id_: str, olds: Properties, news: Properties) -> Diffed:
        request = provider_pb2.DiffRequest(
            id=id_, urn=self.urn, olds=self._sent(olds), news=self._sent(news)
        )
        with refusing():
            answer = self.stub.Diff(request)
        changes = answer.changes == provider_pb2.DiffResponse.DIFF_SOME
        assert answer.hasDetailedDiff
        assert changes == bool(answer.detailedDiff) == bool(answer.diffs)
        return Diffed(changes, list(answer.replaces), answer.deleteBeforeReplace)

    def create(self, inputs: Properties) -> Seen:
        request = provider_pb2.CreateRequest(
            urn=self.urn, properties=self._sent(inputs), timeout=self.timeout
        )
        try:
            answer = self.stub.Create(request)
        except grpc.RpcError as error:
            answer = partial(error)
            assert unwrap_all_secrets(from_struct(answer.inputs)) == unwrap_all_secrets(
                from_struct(request.properties)
            )
        return Seen(answer.id, self._got(answer.properties))

    def read(self, id_: str, outputs: Properties) -> Seen:
        sent = self._sent(outputs)
        request = provider_pb2.ReadRequest(id=id_, urn=self.urn, properties=sent, inputs=sent)
        with refusing():
            answer = self.stub.Read(request)
        if not answer.id:
            assert not answer.HasField("properties")
            return Seen("", {})
        return Seen(answer.id, self._got(answer.properties), self._got(answer.inputs))

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        request = provider_pb2.UpdateRequest(
            id=id_, urn=self.urn, olds=self._sent(olds), news=self._sent(news), timeout=self.timeout
        )
        try:
            answer = self.stub.Update(request)
        except grpc.RpcError as error:
            answer = partial(error)
            assert answer.id == id_
        return self._got(answer.properties)

    def delete(self, id_: str, outputs: Properties) -> None:
        request = provider_pb2.DeleteRequest(
            id=id_, urn=self.urn, properties=self._sent(outputs), timeout=self.timeout
        )
        with refusing():
            self.stub.Delete(request)

    def within(self, seconds: float) -> "PluginVerbs":
        """The same, with a custom timeout."""
        return replace(self, timeout=seconds)

    @property
    def urn(self) -> str:
        type_ = Form.PLUGIN.build_type(self.lifecycle.platform, self.lifecycle.kind)
        return f"urn:pulumi:dev::conformance::{type_}::{self.name}"

    def _sent(self, properties: Mapping[str, Any]) -> Struct:
        return to_struct(mark_secrets(doubles(properties), {}, self.lifecycle.list_secret_names()))

    def _got(self, properties: Struct) -> Properties:
        struct = from_struct(properties)
        for name in struct.keys() & set(self.lifecycle.list_secret_names()):
            assert isinstance(struct[name], Secret), name
        got: Properties = unwrap_all_secrets(struct)
        return got


def partial(error: grpc.RpcError) -> provider_pb2.ErrorResourceInitFailed:
    """Return the object that exists despite the error; raise Refused if there is none."""
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            (packed,) = status_pb2.Status.FromString(value).details
            from_string = provider_pb2.ErrorResourceInitFailed.FromString(packed.value)
            assert list(from_string.reasons)
            return from_string
    raise Refused(error.details()) from error


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    try:
        yield
    except grpc.RpcError as error:
        raise Refused(error.details()) from error
