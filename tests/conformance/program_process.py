"""Run a program in a process of its own, with a gRPC server over the engine's own monitor."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
from processes.limits import LAST_RESORT
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import engine_pb2_grpc, resource_pb2_grpc

from gpuform.stacks.engine.language_host import Program
from gpuform.stacks.engine.language_host.language import ProgramError

EXEC = Path(__file__).with_name("language_exec.py")


class ForwardingServicer:
    """Forward every method of a service to an object that implements it for one process."""

    def __init__(self, served: object) -> None:
        self._served = served

    def __getattr__(self, name: str) -> Callable[[Any, grpc.ServicerContext], Any]:
        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            try:
                method = getattr(self._served, name)
            except AttributeError:
                context.abort(grpc.StatusCode.UNIMPLEMENTED, f"unknown method {name}")
            try:
                return method(request)
            except grpc.RpcError as error:
                context.abort(error.code(), error.details())

        return serve


@contextlib.contextmanager
def serve_monitor(monitor: object, engine: object) -> Iterator[str]:
    """Serve the monitor and the engine over gRPC, and yield the address."""
    # A registration holds its thread until the resource is done.
    server = grpc.server(ThreadPoolExecutor(64), options=_GRPC_CHANNEL_OPTIONS)
    resource_pb2_grpc.add_ResourceMonitorServicer_to_server(ForwardingServicer(monitor), server)
    engine_pb2_grpc.add_EngineServicer_to_server(ForwardingServicer(engine), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(grace=None).wait()


def run_program_in_process(
    program: Program,
    monitor: object,
    engine: object,
    *,
    preview: bool,
    is_stopped: Callable[[], bool],
    run_topology: object,
) -> None:
    """Run the program as the Pulumi CLI's language host does, in place of `run_program`.

    A topology is run by the SDK here, whatever the engine would run it with.
    """
    with serve_monitor(monitor, engine) as address:
        finished = subprocess.run(
            [
                *(sys.executable, "-u", str(EXEC)),
                *("--monitor", address, "--engine", address),
                *("--project", program.project, "--stack", program.stack),
                *("--pwd", str(program.directory), "--dry_run", str(preview).lower()),
                *("--parallel", str(program.parallel), "--root_directory", str(program.root)),
                *("--organization", "organization", "."),
            ],
            env={
                **os.environ,
                "PULUMI_CONFIG": json.dumps(dict(program.config)),
                "PULUMI_CONFIG_SECRET_KEYS": json.dumps(list(program.secret_keys)),
            },
            capture_output=True,
            text=True,
            timeout=LAST_RESORT,
            check=False,
        )
    if finished.returncode != 0 and not is_stopped():
        raise ProgramError(finished.stderr)
