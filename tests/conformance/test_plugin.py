"""Test the provider plugin's process: one line printed, Cancel, progress, termination."""

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription, convert_integers_to_doubles
from conformance.kinds import FAST_KIND, for_all, for_each
from conformance.plugin import PluginHost, PluginOperations, start_plugin, unpack_partial_failure
from conformance.scp_kinds import NODE_POOL
from conformance.together_kinds import SHARED_VOLUME
from google.protobuf.empty_pb2 import Empty
from processes.limits import LAST_RESORT
from pulumi.runtime.proto import engine_pb2_grpc, provider_pb2

from gpuform.providers.emulator.server import environment
from gpuform.providers.importing import build_secret_variable
from gpuform.providers.plugin.wire import from_struct, to_struct, unwrap_all_secrets

pytestmark = pytest.mark.slow

CREATES = 64

one_kind = pytest.mark.parametrize("description", [FAST_KIND], ids=str, indirect=True)


@one_kind
def test_64_slow_creates_run_concurrently(
    description: KindDescription, plugin: PluginHost, platform: Platform
) -> None:
    type_ = PluginOperations(description.lifecycle, plugin.stub).urn
    requests = [
        provider_pb2.CreateRequest(
            urn=f"{type_}-{number}",
            properties=to_struct(
                convert_integers_to_doubles(description.build_numbered_inputs(number))
            ),
        )
        for number in range(CREATES)
    ]
    with platform.hold_creates(description, CREATES):
        answers = [plugin.stub.Create.future(request) for request in requests]
        created = [from_struct(answer.result().properties) for answer in answers]
    assert [item["ready"] for item in created] == [True] * CREATES
    assert platform.count_creates(description) == CREATES
    # A host of Pulumi's never says that it has stored an id: the records stay, each with its own.
    records = (plugin.directory / ".gpuform" / "records").glob("*.json")
    assert all(json.loads(record.read_text())["id"] for record in records)


class Engine(engine_pb2_grpc.EngineServicer):
    """Record the log requests of a plugin, like Pulumi's engine."""

    def __init__(self) -> None:
        self.log_requests: list[Any] = []
        self.has_logged = threading.Event()

    def Log(self, request: Any, _context: Any) -> Empty:  # noqa: N802 - the protocol's name
        self.log_requests.append(request)
        self.has_logged.set()
        return Empty()


@pytest.fixture
def engine() -> Iterator[tuple[Engine, str]]:
    recording_engine = Engine()
    server = grpc.server(ThreadPoolExecutor(4))
    engine_pb2_grpc.add_EngineServicer_to_server(recording_engine, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield recording_engine, f"127.0.0.1:{port}"
    server.stop(None).wait()


@one_kind
def test_cancel_ends_a_wait_at_once_and_keeps_the_id(
    description: KindDescription, platform: Platform, tmp_path: Path, engine: tuple[Engine, str]
) -> None:
    """Use the machine's clock, by which nothing becomes ready within a test."""
    reported, address = engine
    variables = {**environment(platform.server.url), "GPUFORM_CLOCK": ""}
    with start_plugin(tmp_path / "plugin", variables, address) as plugin:
        verbs = PluginOperations(description.lifecycle, plugin.stub)
        request = provider_pb2.CreateRequest(
            urn=verbs.urn,
            properties=to_struct(convert_integers_to_doubles(description.valid_inputs)),
        )
        answer = plugin.stub.Create.future(request)
        assert reported.has_logged.wait(LAST_RESORT)
        plugin.stub.Cancel(Empty())
        with pytest.raises(grpc.RpcError) as caught:
            answer.result(LAST_RESORT)
        retained = unpack_partial_failure(caught.value)
        assert platform.list_ids(description) == {retained.id}
        assert "interrupted" in "".join(retained.reasons)
        assert from_struct(retained.properties)["ready"] is False
        plugin.stub.Cancel(Empty())


@one_kind
def test_progress_is_logged_at_the_resource_and_standard_output_has_only_the_port(
    description: KindDescription, platform: Platform, tmp_path: Path, engine: tuple[Engine, str]
) -> None:
    reported, address = engine
    with start_plugin(tmp_path / "plugin", environment(platform.server.url), address) as plugin:
        verbs = PluginOperations(description.lifecycle, plugin.stub)
        created = verbs.create(convert_integers_to_doubles(description.valid_inputs))
        verbs.delete(created.id, created.outputs)
        progress = [item for item in reported.log_requests if item.ephemeral]
        assert progress
        assert {item.urn for item in progress} == {verbs.urn}
        plugin.process.send_signal(signal.SIGTERM)
        assert plugin.process.stdout is not None
        assert plugin.process.stdout.read() == b""
        assert plugin.process.wait(LAST_RESORT) == 0


NOISY = """
import os

import gpuform.providers.plugin.process as process

serve = process.serve


def noisy(*arguments):
    print("a library prints", flush=True)
    os.write(1, b"and another one\\n")
    os.system("echo and what it starts")
    serve(*arguments)


process.serve = noisy

from gpuform.providers.plugin.main import main

main()
"""


def test_output_of_libraries_is_not_on_standard_output(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", NOISY],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().strip().isdigit()
        process.terminate()
        out, err = process.communicate(timeout=LAST_RESORT)
    assert out == b""
    assert err.split(b"\n")[:3] == [b"a library prints", b"and another one", b"and what it starts"]


@one_kind
def test_custom_timeouts_are_used(
    description: KindDescription, plugin: PluginHost, platform: Platform
) -> None:
    platform.add_fault(
        "GET", description.object_path, status_override=description.pending_status, count=None
    )
    verbs = PluginOperations(description.lifecycle, plugin.stub, timeout=120.0)
    created = verbs.create(convert_integers_to_doubles(description.valid_inputs))
    assert created.outputs["ready"] is False
    assert "not done after 2m" in created.outputs["not_ready_reason"]


@for_all
def test_an_import_reads_all_inputs_that_a_program_declares(
    description: KindDescription, platform: Platform, tmp_path: Path
) -> None:
    password = description.valid_inputs.get("os_user_password", "")
    variables = {
        **environment(platform.server.url),
        build_secret_variable("os_user_password"): password,
    }
    with start_plugin(tmp_path / "plugin", variables) as plugin:
        verbs = PluginOperations(description.lifecycle, plugin.stub)
        created = verbs.create(convert_integers_to_doubles(description.valid_inputs))
        request = provider_pb2.ReadRequest(id=created.id + description.import_suffix, urn=verbs.urn)
        read = plugin.stub.Read(request)
        checked = plugin.stub.Check(
            provider_pb2.CheckRequest(urn=verbs.urn, olds=read.inputs, news=read.inputs)
        )
        assert read.id == created.id
        assert list(checked.failures) == []
        inputs = unwrap_all_secrets(from_struct(read.inputs))
        assert "os_user_password" not in inputs  # the CLI would write it into a program
        total = {**inputs, **({"os_user_password": password} if password else {})}
        outputs = unwrap_all_secrets(from_struct(read.properties))
        assert not verbs.diff(created.id, outputs, verbs.check(total, inputs).inputs).changes


@for_each([SHARED_VOLUME, NODE_POOL])
def test_an_import_reports_inputs_that_the_platform_does_not(
    description: KindDescription, plugin: PluginHost, platform: Platform
) -> None:
    verbs = PluginOperations(description.lifecycle, plugin.stub)
    id_ = verbs.create(convert_integers_to_doubles(description.valid_inputs)).id
    requests = {
        SHARED_VOLUME.kind: f"{id_}@us-central-8",
        NODE_POOL.kind: "GPUFORM_OS_USER_PASSWORD",
    }
    with pytest.raises(grpc.RpcError) as caught:
        plugin.stub.Read(provider_pb2.ReadRequest(id=id_, urn=verbs.urn))
    assert requests[description.kind] in caught.value.details()
    assert verbs.read(id_, {}).id == id_  # `.get` needs less


@for_each([SHARED_VOLUME])
def test_an_import_refuses_invalid_inputs(
    description: KindDescription, plugin: PluginHost, platform: Platform
) -> None:
    verbs = PluginOperations(description.lifecycle, plugin.stub)
    id_ = verbs.create(convert_integers_to_doubles(description.valid_inputs)).id
    with pytest.raises(grpc.RpcError) as caught:
        plugin.stub.Read(provider_pb2.ReadRequest(id=f"{id_}@us-central-88", urn=verbs.urn))
    assert "us-central-88 is not a region" in caught.value.details()
    missing = plugin.stub.Read(provider_pb2.ReadRequest(id="gone@us-central-8", urn=verbs.urn))
    assert not missing.HasField("properties")
