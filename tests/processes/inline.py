"""Run `pulumi` with the folder's Python program inline, as Pulumi's Automation API does.

`python inline.py PULUMI up --yes ...`: the program runs in this process, which the CLI calls by
`--client`, so that no host of Python programs is needed. The exit code is that of the CLI.
"""

import os
import runpy
import signal
import subprocess
import sys
from concurrent import futures
from pathlib import Path

import grpc
from pulumi.automation._server import LanguageServer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import language_pb2_grpc


def run_program() -> None:
    """Run the program of the folder as the main module."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    runpy.run_path(folder, run_name="__main__")


def main() -> None:
    pulumi, *arguments = sys.argv[1:]
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=4), options=_GRPC_CHANNEL_OPTIONS)
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(LanguageServer(run_program), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    client = f"--client=127.0.0.1:{port}"
    with subprocess.Popen([pulumi, *arguments, client, "--exec-kind", "auto.inline"]) as cli:
        # Ctrl-C reaches both processes; what is sent to this one alone goes to the CLI.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda number, _frame: cli.send_signal(number))
        code = cli.wait()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
