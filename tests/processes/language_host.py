"""Be the program `pulumi-language-python` for policy packs: run plugins written in Python.

Pulumi's own host of Python programs is a program of its releases and no Go module of the proxy. The
CLI starts this script with its address, and asks for `RunPlugin` with the folder of a policy pack.
The protocol is that of `pulumi/proto/pulumi/language.proto`.
"""

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import language_pb2, language_pb2_grpc, plugin_pb2


class Host(language_pb2_grpc.LanguageRuntimeServicer):
    """The parts of a language host that the CLI calls for policy packs."""

    def Handshake(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return language_pb2.LanguageHandshakeResponse()

    def GetPluginInfo(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return plugin_pb2.PluginInfo(version="1.0.0")

    def GetRequiredPackages(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return language_pb2.GetRequiredPackagesResponse()

    def InstallDependencies(self, _request: Any, _context: Any) -> Iterator[Any]:  # noqa: N802
        return iter(())

    def Cancel(self, _request: Any, _context: Any) -> Any:  # noqa: N802
        return empty_pb2.Empty()

    def RunPlugin(self, request: Any, _context: Any) -> Iterator[Any]:  # noqa: N802
        """Run the policy pack, and yield what it prints and its exit code."""
        folder = request.info.program_directory
        command = [sys.executable, "-u", "-m", "pulumi.policy", *request.args, folder]
        environ = dict(pair.split("=", 1) for pair in request.env)
        with subprocess.Popen(command, cwd=folder, env=environ, stdout=subprocess.PIPE) as plugin:
            assert plugin.stdout is not None
            for line in plugin.stdout:
                yield language_pb2.RunPluginResponse(stdout=line)
            yield language_pb2.RunPluginResponse(exitcode=plugin.wait())


def main() -> None:
    """Serve on a free port, and print the port, as plugins do."""
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
    language_pb2_grpc.add_LanguageRuntimeServicer_to_server(Host(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)  # noqa: T201 - the protocol of plugins
    threading.Event().wait()


if __name__ == "__main__":
    main()
