"""Slurm's commands in the pods of Slurm: `kubectl exec` as the API server carries it.

Frames of `v4.channel.k8s.io` begin with the number of a channel: 1 is stdout, 2 stderr, and 3 says
at the end how it went.
"""

import json
from typing import Any

from simple_websocket import ConnectionClosed, Server

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.kubernetes.exec import Execution
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
        socket = Server.accept(execution.environ, subprotocols=[_PROTOCOL])
        try:
            for channel, text in ((1, result.out), (2, result.err), (3, _status(result))):
                if text:
                    socket.send(bytes([channel]) + text.encode())
            socket.close()
        except ConnectionClosed:
            pass  # the client did not wait for the end


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
