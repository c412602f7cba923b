"""Slurm's commands in the pods of Slurm: `kubectl exec` as the API server carries it.

Frames of `v4.channel.k8s.io` begin with the number of a channel: 1 is stdout, 2 stderr, and 3 says
at the end how it went.
"""

import json
import socket
from collections.abc import Iterable
from typing import Any

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.kubernetes.streams import Execution
from gpuform.providers.emulator.slurm.commands import Result, run
from gpuform.providers.emulator.slurm.estate import Slurm
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.operations import Operations

_PROTOCOL = "v4.channel.k8s.io"


class SlurmExecutor:
    """Runs what is executed in the pods of Slurm."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __call__(self, execution: Execution) -> Any:
        with self._store.transaction():
            now = self._clock.now()
            cluster = Operations(self._store, now).cluster(execution.cluster_id)
            slurm = Slurm(self._store, cluster, now)
            result = run(slurm, execution.command)
            slurm.keep()
        texts = ((1, result.out), (2, result.err), (3, _status(result)))
        frames = [bytes([channel]) + text.encode() for channel, text in texts if text]
        _answer(execution.environ, frames)


def _answer(environ: Any, frames: Iterable[bytes]) -> None:
    """The whole websocket, from the server's side: nobody sends anything but the end of it."""
    connection: socket.socket = environ["werkzeug.socket"]
    websocket = WSConnection(ConnectionType.SERVER)
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode(), value.encode())
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    websocket.initiate_upgrade_connection(headers, environ["PATH_INFO"])
    list(websocket.events())
    messages = [BytesMessage(data=frame) for frame in frames]
    try:
        for each in (AcceptConnection(subprotocol=_PROTOCOL), *messages, CloseConnection(1000)):
            # One by one: the official client does not see what came in the same record of TLS.
            connection.sendall(websocket.send(each))
        while connection.recv(4096):
            pass  # until the client has read it all and hangs up
    except OSError:
        return  # it has not waited for the end


def _status(result: Result) -> str:
    if not result.code:
        return json.dumps({"metadata": {}, "status": "Success"})
    return json.dumps(
        {
            "metadata": {},
            "status": "Failure",
            "message": f"command terminated with non-zero exit code: exit status {result.code}",
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": str(result.code)}]},
        }
    )
