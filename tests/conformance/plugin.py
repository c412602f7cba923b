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
from conformance.kind_descriptions import convert_integers_to_doubles
from conformance.operations import CheckResult, DiffResult, ObjectResult, Properties, Refused
from google.protobuf.struct_pb2 import Struct
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from gpuform.providers.platform import Form
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
    def printed_text(self) -> str:
        """Return the process's stderr."""
        return self.log.read_text()


@contextlib.contextmanager
def start_plugin(
    directory: Path, environ: Mapping[str, str], engine: str = ""
) -> Iterator[PluginHost]:
    """Run `pulumi-resource-gpuform ENGINE` like the Pulumi engine until the block ends."""
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
class PluginOperations:
    """Call the operations through the plugin's gRPC; secrets arrive marked, and only they."""

    lifecycle: type[Any]
    stub: provider_pb2_grpc.ResourceProviderStub
    name: str = "thing"
    timeout: float = 0.0

    def check(self, news: Mapping[str, Any], olds: Mapping[str, Any] | None = None) -> CheckResult:
        request = provider_pb2.CheckRequest(
            urn=self.urn, olds=self._to_struct(olds or {}), news=self._to_struct(news)
        )
        answer = self.stub.Check(request)
        failures = {failure.property: failure.reason for failure in answer.failures}
        return CheckResult(self._from_struct(answer.inputs), failures)

    def diff(self, id_: str, olds: Properties, news: Properties) -> DiffResult:
        request = provider_pb2.DiffRequest(
            id=id_, urn=self.urn, olds=self._to_struct(olds), news=self._to_struct(news)
        )
        with convert_refusals():
            answer = self.stub.Diff(request)
        changes = answer.changes == provider_pb2.DiffResponse.DIFF_SOME
        assert answer.hasDetailedDiff
        assert changes == bool(answer.detailedDiff) == bool(answer.diffs)
        return DiffResult(changes, list(answer.replaces), answer.deleteBeforeReplace)

    def create(self, inputs: Properties) -> ObjectResult:
        request = provider_pb2.CreateRequest(
            urn=self.urn, properties=self._to_struct(inputs), timeout=self.timeout
        )
        try:
            answer = self.stub.Create(request)
        except grpc.RpcError as error:
            answer = unpack_partial_failure(error)
            assert unwrap_all_secrets(from_struct(answer.inputs)) == unwrap_all_secrets(
                from_struct(request.properties)
            )
        return ObjectResult(answer.id, self._from_struct(answer.properties))

    def read(self, id_: str, outputs: Properties) -> ObjectResult:
        sent = self._to_struct(outputs)
        request = provider_pb2.ReadRequest(id=id_, urn=self.urn, properties=sent, inputs=sent)
        with convert_refusals():
            answer = self.stub.Read(request)
        if not answer.id:
            assert not answer.HasField("properties")
            return ObjectResult("", {})
        return ObjectResult(
            answer.id, self._from_struct(answer.properties), self._from_struct(answer.inputs)
        )

    def update(self, id_: str, olds: Properties, news: Properties) -> Properties:
        request = provider_pb2.UpdateRequest(
            id=id_,
            urn=self.urn,
            olds=self._to_struct(olds),
            news=self._to_struct(news),
            timeout=self.timeout,
        )
        try:
            answer = self.stub.Update(request)
        except grpc.RpcError as error:
            answer = unpack_partial_failure(error)
            assert answer.id == id_
        return self._from_struct(answer.properties)

    def delete(self, id_: str, outputs: Properties) -> None:
        request = provider_pb2.DeleteRequest(
            id=id_, urn=self.urn, properties=self._to_struct(outputs), timeout=self.timeout
        )
        with convert_refusals():
            self.stub.Delete(request)

    def with_timeout(self, seconds: float) -> "PluginOperations":
        """Return the same operations with a custom timeout in seconds."""
        return replace(self, timeout=seconds)

    @property
    def urn(self) -> str:
        type_ = Form.PLUGIN.build_type(self.lifecycle.platform, self.lifecycle.kind)
        return f"urn:pulumi:dev::conformance::{type_}::{self.name}"

    def _to_struct(self, properties: Mapping[str, Any]) -> Struct:
        return to_struct(
            mark_secrets(
                convert_integers_to_doubles(properties), {}, self.lifecycle.list_secret_names()
            )
        )

    def _from_struct(self, properties: Struct) -> Properties:
        struct = from_struct(properties)
        for name in struct.keys() & set(self.lifecycle.list_secret_names()):
            assert isinstance(struct[name], Secret), name
        got: Properties = unwrap_all_secrets(struct)
        return got


def unpack_partial_failure(error: grpc.RpcError) -> provider_pb2.ErrorResourceInitFailed:
    """Return the existing object in `error`, or raise Refused without one."""
    for key, value in error.trailing_metadata():
        if key == "grpc-status-details-bin":
            (packed,) = status_pb2.Status.FromString(value).details
            from_string = provider_pb2.ErrorResourceInitFailed.FromString(packed.value)
            assert list(from_string.reasons)
            return from_string
    raise Refused(error.details()) from error


@contextlib.contextmanager
def convert_refusals() -> Iterator[None]:
    """Raise Refused in place of a gRPC error."""
    try:
        yield
    except grpc.RpcError as error:
        raise Refused(error.details()) from error
