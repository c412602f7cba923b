"""Test Pulumi's dynamic provider host, in its own process, over gRPC, as `pulumi up` uses it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.empty_pb2 import Empty
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from processes.commands import run_gpuform
from processes.limits import LAST_RESORT
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc
from support.platforms.emulator_hooks import watch_requests

from gpuform.providers.context import stock_host
from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.records import Intent
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend


def _to_struct(values: dict[str, Any]) -> Struct:
    struct = Struct()
    struct.update(values)
    return struct


def _to_dict(struct: Struct) -> dict[str, Any]:
    message_to_dict: dict[str, Any] = MessageToDict(struct)
    return message_to_dict


def test_the_thread_pool_of_a_worker_is_found() -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        future: Future[object] = pool.submit(lambda: stock_host.find_thread_pool(sys._getframe()))
        assert future.result() is pool
    assert stock_host.find_thread_pool(sys._getframe()) is None


def test_other_processes_are_not_patched() -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(stock_host.adapt_to_stock_host).result()
        assert pool._max_workers == 1


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(seed="tests") as server:
        yield server


@pytest.fixture
def host(server: Server, tmp_path: Path) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    with start_host(tmp_path, environment(server.url)) as stub:
        yield stub


@contextmanager
def start_host(
    folder: Path, variables: Mapping[str, str], engine: str = "127.0.0.1:1", command: str = ""
) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    """Start the host like the Pulumi CLI; with `command`, below a `pulumi` process."""
    argv = [sys.executable, "-m", "pulumi.dynamic", engine]
    executable = None
    if command:
        script = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[2:]).returncode)"
        argv, executable = ["pulumi", "-c", script, command, *argv], sys.executable
    with (folder / "stderr").open("w") as errors:
        process = subprocess.Popen(
            argv,
            executable=executable,
            cwd=folder,
            env={**os.environ, **variables},
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
        )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(provider_pb2.ConfigureRequest(args=_to_struct({})))
            yield stub
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


class Engine(engine_pb2_grpc.EngineServicer):
    """Pulumi's engine, of which a host only needs the log."""

    def __init__(self) -> None:
        self.logged: list[engine_pb2.LogRequest] = []

    def Log(  # noqa: N802 - the protocol's name
        self, request: engine_pb2.LogRequest, _context: grpc.ServicerContext
    ) -> Empty:
        self.logged.append(request)
        return Empty()


@pytest.fixture
def engine() -> Iterator[tuple[Engine, str]]:
    recording_engine = Engine()
    server = grpc.server(ThreadPoolExecutor(4))
    engine_pb2_grpc.add_EngineServicer_to_server(recording_engine, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield recording_engine, f"127.0.0.1:{port}"
    server.stop(None)


def _list_posts(server: Server) -> list[str]:
    """Return the paths of the POST requests so far."""
    with urllib.request.urlopen(f"{server.url}/_emulator/requests") as answer:
        return [request["path"] for request in json.load(answer) if request["method"] == "POST"]


def build_cluster_inputs(**inputs: Any) -> Struct:
    return _to_struct(
        {
            "cluster_name": "train",
            "region": "us-central-8",
            "gpu_type": "H100_SXM",
            "num_gpus": 16,
            "driver_version": "CUDA_12_6_560",
            "billing_type": "ON_DEMAND",
            "__provider": serialize_provider(ClusterLifecycle()),
            **inputs,
        }
    )


URN = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:Cluster::train"
VOLUME = "urn:pulumi:dev::demo::pulumi-python:dynamic/gpuform.together:SharedVolume::data"


@pytest.mark.slow
def test_progress_and_warnings_are_shown_at_their_resource(
    engine: tuple[Engine, str], server: Server, tmp_path: Path
) -> None:
    log, address = engine
    former = {"scale_down": {"wait": "1h"}}
    with start_host(tmp_path, environment(server.url), address) as host:
        host.Check(provider_pb2.CheckRequest(urn=URN, news=build_cluster_inputs(**former)))
        host.Create(provider_pb2.CreateRequest(urn=URN, properties=build_cluster_inputs()))
    assert {log_entry.urn for log_entry in log.logged} == {URN}
    progress = [log_entry for log_entry in log.logged if log_entry.severity == engine_pb2.INFO]
    assert progress
    assert all(log_entry.ephemeral for log_entry in progress)
    assert (tmp_path / "stderr").read_text() == ""


@pytest.mark.slow
def test_skipped_checks_of_a_plan_are_shown_once(
    engine: tuple[Engine, str], server: Server, tmp_path: Path
) -> None:
    log, address = engine
    keyless = {**environment(server.url), "TOGETHER_API_KEY": ""}
    with start_host(tmp_path, keyless, address) as host:
        for _ in range(2):
            host.Check(provider_pb2.CheckRequest(urn=URN, news=build_cluster_inputs()))
    (note,) = [
        log_entry.message for log_entry in log.logged if "were not checked" in log_entry.message
    ]
    assert "regions, GPU types and driver versions" in note


@pytest.mark.slow
def test_an_error_is_shown_without_a_traceback(host: Any) -> None:
    request = provider_pb2.CreateRequest(urn=URN, properties=build_cluster_inputs(region="nowhere"))
    with pytest.raises(grpc.RpcError) as failed:
        host.Create(request)
    message = failed.value.details()
    assert "nowhere" in message
    assert "Traceback" not in message
    assert "File" not in message


@pytest.mark.slow
def test_an_interruption_ends_the_wait_and_keeps_the_id(server: Server, tmp_path: Path) -> None:
    variables = environment(server.url)
    variables.pop("GPUFORM_CLOCK")  # the emulator's clock stands still: it is never ready
    with start_host(tmp_path, variables) as host:
        creating = host.Create.future(
            provider_pb2.CreateRequest(urn=URN, properties=build_cluster_inputs())
        )
        while not _list_posts(server):
            assert not creating.done()
            time.sleep(0.05)
        host.Cancel(Empty())
        created = creating.result(timeout=LAST_RESORT)
        outs = _to_dict(created.properties)
        assert created.id
        assert outs["ready"] is False
        host.Cancel(Empty())  # the CLI also says so at the end of every run


@pytest.mark.slow
@pytest.mark.parametrize("command", ["destroy", "up"])
def test_a_destroy_is_refused_with_an_unresolved_interrupted_create(
    command: str, server: Server, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    backend = f"file://{tmp_path}"
    variables = {**environment(server.url), "PULUMI_BACKEND_URL": backend}
    gpuform = run_gpuform(
        tmp_path, "stack", "init", "dev", **variables, PULUMI_CONFIG_PASSPHRASE=""
    )
    assert gpuform.code == 0, gpuform.stderr
    with start_host(tmp_path, variables) as host:
        volume = _to_struct(
            {
                "volume_name": "data",
                "size_tib": 2,
                "region": "us-central-8",
                "__provider": serialize_provider(SharedVolumeLifecycle()),
            }
        )
        create = host.Create(provider_pb2.CreateRequest(urn=VOLUME, properties=volume))
    intent = Intent(URN, "together", "Cluster", "train", "us-central-8", 1.0, id="c-1")
    open_intents(Backend.open(backend), "demo", "dev").record(intent)
    request = provider_pb2.DeleteRequest(urn=VOLUME, id=create.id, properties=create.properties)
    with start_host(tmp_path, variables, command=command) as host:
        if command == "up":
            host.Delete(request)
            return
        for _ in range(2):
            with pytest.raises(grpc.RpcError) as refused:
                host.Delete(request)
            assert "an interrupted create of Cluster 'train'" in refused.value.details()
            assert "`pulumi destroy` deletes the object" in refused.value.details()


@pytest.mark.slow
def test_a_volume_is_created_updated_and_deleted(host: Any, server: Server, tmp_path: Path) -> None:
    provider = serialize_provider(SharedVolumeLifecycle())
    news = {
        "volume_name": "data",
        "size_tib": 2,
        "region": "us-central-8",
        "__provider": provider,
    }
    checked = host.Check(provider_pb2.CheckRequest(news=_to_struct(news)))
    assert list(checked.failures) == []
    created = host.Create(provider_pb2.CreateRequest(properties=checked.inputs))
    outs = _to_dict(created.properties)
    assert (outs["ready"], outs["size_tib"], outs["__provider"]) == (True, 2, provider)
    same = host.Diff(
        provider_pb2.DiffRequest(id=created.id, olds=created.properties, news=checked.inputs)
    )
    assert same.changes == provider_pb2.DiffResponse.DIFF_NONE
    bigger = _to_struct({**_to_dict(checked.inputs), "size_tib": 3})
    update = provider_pb2.UpdateRequest(id=created.id, olds=created.properties, news=bigger)
    updated = host.Update(update)
    assert _to_dict(updated.properties)["size_tib"] == 3
    read = host.Read(provider_pb2.ReadRequest(id=created.id, properties=updated.properties))
    assert _to_dict(read.inputs)["size_tib"] == 3
    host.Delete(provider_pb2.DeleteRequest(id=created.id, properties=updated.properties))
    read_result = host.Read(provider_pb2.ReadRequest(id=created.id, properties=updated.properties))
    assert read_result.id == ""
    assert list((tmp_path / ".gpuform" / "records").iterdir()) == []


@pytest.mark.slow
def test_unknown_values_and_failures_survive_the_wire(host: Any) -> None:
    news = {
        "cluster_name": "train",
        "region": "us-central-8",
        "gpu_type": "H100_SXM",
        "num_gpus": 12,
        "driver_version": "CUDA_12_6_560",
        "billing_type": "ON_DEMAND",
        "volume_id": "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "__provider": serialize_provider(ClusterLifecycle()),
    }
    checked = host.Check(provider_pb2.CheckRequest(news=_to_struct(news)))
    assert [failure.property for failure in checked.failures] == ["num_gpus"]
    assert _to_dict(checked.inputs)["volume_id"] == news["volume_id"]


@pytest.mark.slow
def test_many_calls_run_concurrently(host: Any, server: Server) -> None:
    """Twelve creates wait at a barrier, which four threads could never reach together."""
    together = threading.Barrier(12, timeout=LAST_RESORT)

    def wait_at_barrier(environ: dict[str, Any]) -> None:
        if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"].endswith("/volumes"):
            together.wait()

    provider = serialize_provider(SharedVolumeLifecycle())
    host.Check(provider_pb2.CheckRequest(news=_to_struct({"__provider": provider})))
    requests = [
        provider_pb2.CreateRequest(
            properties=_to_struct(
                {
                    "volume_name": f"data-{number}",
                    "size_tib": 1,
                    "region": "us-central-8",
                    "__provider": provider,
                }
            )
        )
        for number in range(12)
    ]
    with watch_requests(server, wait_at_barrier):
        answers = [host.Create.future(request) for request in requests]
        ready = [_to_dict(answer.result().properties)["ready"] for answer in answers]
    assert ready == [True] * 12
