"""Pulumi's own dynamic provider host, in its own process, over gRPC: what `pulumi up` uses."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct
from processes.limits import LAST_RESORT
from pulumi.dynamic.dynamic import serialize_provider
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc

from gpuform.providers.calls import stock_host
from gpuform.providers.emulator.server import Server, environment, serve
from gpuform.providers.together.cluster import ClusterLifecycle
from gpuform.providers.together.shared_volume import SharedVolumeLifecycle


def _struct(values: dict[str, Any]) -> Struct:
    struct = Struct()
    struct.update(values)
    return struct


def _dict(struct: Struct) -> dict[str, Any]:
    found: dict[str, Any] = MessageToDict(struct)
    return found


def test_the_pool_of_a_worker_is_found() -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        found: Future[object] = pool.submit(lambda: stock_host.pool_of(sys._getframe()))
        assert found.result() is pool
    assert stock_host.pool_of(sys._getframe()) is None


def test_nothing_is_touched_outside_that_host() -> None:
    with ThreadPoolExecutor(max_workers=1) as pool:
        pool.submit(stock_host.adapt_to_stock_host).result()
        assert pool._max_workers == 1


@pytest.fixture
def server() -> Iterator[Server]:
    with serve(seed="tests") as server:
        yield server


@pytest.fixture
def host(server: Server, tmp_path: Path) -> Iterator[provider_pb2_grpc.ResourceProviderStub]:
    variables = {**os.environ, **environment(server.url)}
    command = [sys.executable, "-m", "pulumi.dynamic", "127.0.0.1:1"]
    process = subprocess.Popen(command, cwd=tmp_path, env=variables, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = provider_pb2_grpc.ResourceProviderStub(channel)
            stub.Configure(provider_pb2.ConfigureRequest(args=_struct({})))
            yield stub
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_volume_lives_and_dies(host: Any, server: Server, tmp_path: Path) -> None:
    provider = serialize_provider(SharedVolumeLifecycle())
    news = {
        "volume_name": "data",
        "size_tib": 2,
        "region": "us-central-8",
        "__provider": provider,
    }
    checked = host.Check(provider_pb2.CheckRequest(news=_struct(news)))
    assert list(checked.failures) == []
    created = host.Create(provider_pb2.CreateRequest(properties=checked.inputs))
    outs = _dict(created.properties)
    assert (outs["ready"], outs["size_tib"], outs["__provider"]) == (True, 2, provider)
    same = host.Diff(
        provider_pb2.DiffRequest(id=created.id, olds=created.properties, news=checked.inputs)
    )
    assert same.changes == provider_pb2.DiffResponse.DIFF_NONE
    bigger = _struct({**_dict(checked.inputs), "size_tib": 3})
    update = provider_pb2.UpdateRequest(id=created.id, olds=created.properties, news=bigger)
    updated = host.Update(update)
    assert _dict(updated.properties)["size_tib"] == 3
    read = host.Read(provider_pb2.ReadRequest(id=created.id, properties=updated.properties))
    assert _dict(read.inputs)["size_tib"] == 3
    host.Delete(provider_pb2.DeleteRequest(id=created.id, properties=updated.properties))
    gone = host.Read(provider_pb2.ReadRequest(id=created.id, properties=updated.properties))
    assert gone.id == ""
    assert list((tmp_path / ".gpuform" / "records").iterdir()) == []


@pytest.mark.slow
def test_unknown_values_and_failures_pass_the_wire(host: Any) -> None:
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
    checked = host.Check(provider_pb2.CheckRequest(news=_struct(news)))
    assert [failure.property for failure in checked.failures] == ["num_gpus"]
    assert _dict(checked.inputs)["volume_id"] == news["volume_id"]


@pytest.mark.slow
def test_many_calls_run_at_a_time(host: Any, server: Server) -> None:
    """Twelve creates meet at a barrier, which four threads could never reach together."""
    together = threading.Barrier(12, timeout=LAST_RESORT)
    inner = server._http.app

    def app(environ: Any, start_response: Any) -> Any:
        if environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"].endswith("/volumes"):
            together.wait()
        return inner(environ, start_response)

    provider = serialize_provider(SharedVolumeLifecycle())
    host.Check(provider_pb2.CheckRequest(news=_struct({"__provider": provider})))
    server._http.app = app
    requests = [
        provider_pb2.CreateRequest(
            properties=_struct(
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
    answers = [host.Create.future(request) for request in requests]
    ready = [_dict(answer.result().properties)["ready"] for answer in answers]
    assert ready == [True] * 12
