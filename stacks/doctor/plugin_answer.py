"""Starts a plugin as the Pulumi CLI does, and asks it who it is."""

import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Final

import grpc
from google.protobuf.empty_pb2 import Empty as Nothing
from pulumi.runtime.proto import provider_pb2_grpc

from gpuform.providers.errors import GpuformError
from gpuform.schemas.visible import visible

LIMIT_SECONDS: Final = 30.0
_INSTALL: Final = "gpuform plugin install"
_TEXT: Final = 300


def version_of(program: Path, environ: Mapping[str, str], limit: float = LIMIT_SECONDS) -> str:
    """The version that a plugin says it has; its process is ended.

    Raises GpuformError when it cannot be started, prints something before its port, ends, or does
    not answer in time.
    """
    with _started(program, environ) as process:
        return _asked(_port(process, program, limit), program, limit)


@contextmanager
def _started(program: Path, environ: Mapping[str, str]) -> "Iterator[subprocess.Popen[str]]":
    try:
        process = subprocess.Popen(  # noqa: S603 - the program that the CLI would start
            [str(program)],
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )
    except OSError as error:
        raise GpuformError(
            f"{program} cannot be started: {error.strerror or error}", hint=_INSTALL
        ) from None
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _port(process: "subprocess.Popen[str]", program: Path, limit: float) -> int:
    assert process.stdout  # noqa: S101 - it is a pipe
    lines: Queue[str] = Queue()
    threading.Thread(target=lambda: lines.put(_line(process)), daemon=True).start()
    try:
        first = lines.get(timeout=limit)
    except Empty:
        raise GpuformError(
            f"{program} has not told its port after {limit:g} s", hint=_INSTALL
        ) from None
    if not first:
        raise GpuformError(f"{program} ended before it told its port{_why(process)}", hint=_INSTALL)
    told = first.strip()
    if not told.isdecimal():
        raise GpuformError(
            f"{program} prints before its port: {visible(told[:_TEXT])!r}. Pulumi takes the first "
            "line for the port",
            hint="find what prints when Python starts there (sitecustomize.py, a .pth file, "
            "PYTHONSTARTUP), and have it print to standard error",
        )
    return int(told)


def _line(process: "subprocess.Popen[str]") -> str:
    return process.stdout.readline() if process.stdout else ""


def _why(process: "subprocess.Popen[str]") -> str:
    """The last line of what it complained of."""
    lines = process.stderr.read().strip().splitlines() if process.stderr else []
    return f": {visible(lines[-1][:_TEXT])}" if lines else ""


def _asked(port: int, program: Path, limit: float) -> str:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        asking = provider_pb2_grpc.ResourceProviderStub(channel)
        try:
            answer = asking.GetPluginInfo(Nothing(), timeout=limit, wait_for_ready=True)
        except grpc.RpcError as error:
            said = error.details() or error.code().name
            raise GpuformError(
                f"{program} listens on port {port} and does not answer GetPluginInfo: "
                f"{visible(said[:_TEXT])}",
                hint=_INSTALL,
            ) from None
    return str(answer.version)
