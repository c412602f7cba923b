"""Run the SDK's dynamic provider host in a process of its own, as the Pulumi engine starts it."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
from conformance.operations import to_struct
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc


@dataclass
class StockHost:
    """A process of the SDK's dynamic provider host."""

    stub: provider_pb2_grpc.ResourceProviderStub
    directory: Path
    log: Path

    def configure(self, config: dict[str, Any]) -> None:
        self.stub.Configure(provider_pb2.ConfigureRequest(args=to_struct(config)))

    @property
    def printed_text(self) -> str:
        """Return the process's stdout and stderr."""
        return self.log.read_text()


@contextlib.contextmanager
def start_host(directory: Path, environ: dict[str, str]) -> Iterator[StockHost]:
    """Run `python -m pulumi.dynamic ADDRESS` like the Pulumi engine."""
    directory.mkdir(exist_ok=True)
    log = directory / "host.log"
    command = [sys.executable, "-m", "pulumi.dynamic", "127.0.0.1:1"]
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
            host = StockHost(provider_pb2_grpc.ResourceProviderStub(channel), directory, log)
            host.configure({})
            yield host
    finally:
        process.kill()
        process.communicate()
