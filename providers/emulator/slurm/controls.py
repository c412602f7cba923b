"""Control a cluster's Slurm for tests under `/_emulator/slurm/`, and run Slurm's commands in pods
as `kubectl exec` carries them.

Frames of `v4.channel.k8s.io` begin with the number of a channel: 1 is stdout, 2 stderr, and 3 says
at the end how it went.
"""

import json
import socket
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flask import Response, request
from pydantic import BaseModel, ConfigDict
from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.kubernetes.streams import Execution
from gpuform.providers.emulator.routing import PlatformControls, RouteTable, answer_json
from gpuform.providers.emulator.slurm.commands import Result, run
from gpuform.providers.emulator.slurm.estate import Slurm
from gpuform.providers.emulator.slurm.jobs import JobRequest, Measure
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import ApiError
from gpuform.providers.emulator.together.operations import TogetherOperations


class _Command(BaseModel):
    model_config = ConfigDict(extra="forbid")
    command: list[str]


class _Controller(BaseModel):
    model_config = ConfigDict(extra="forbid")
    is_answering: bool


class _Measures(Measure):
    node: str = ""


class SlurmControls(PlatformControls):
    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/<cluster_id>/run", self._run),
            ("POST", "/<cluster_id>/jobs", self._add_job),
            ("GET", "/<cluster_id>/jobs", self._list_jobs),
            ("POST", "/<cluster_id>/measures", self._set_measure),
            ("POST", "/<cluster_id>/controller", self._set_controller),
        )

    def _run(self, cluster_id: str) -> Response:
        """A command, as in a pod of Slurm: `{"command": ["squeue"]}`."""
        wanted = _Command.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            result = run(slurm, wanted.command)
        return answer_json({"stdout": result.out, "stderr": result.err, "code": result.code})

    def _add_job(self, cluster_id: str) -> Response:
        """A job of any kind and length; it starts at once where there is room."""
        wanted = JobRequest.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            (job,) = slurm.submit(wanted)
        return answer_json(job.model_dump(mode="json"), 201)

    def _list_jobs(self, cluster_id: str) -> Response:
        with self._slurm(cluster_id) as slurm:
            return answer_json([job.model_dump(mode="json") for job in slurm.jobs])

    def _set_measure(self, cluster_id: str) -> Response:
        """What scripts find on a node: `{"node": "slurm-worker-1", "figure": 312.5}`.

        Without a node, on all that have none of their own. Jobs that run are not changed.
        """
        wanted = _Measures.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            slurm.set_measure(wanted.node, Measure(**wanted.model_dump(exclude={"node"})))
        return answer_json(wanted.model_dump(mode="json"))

    def _set_controller(self, cluster_id: str) -> Response:
        """Whether slurmctld answers; jobs go on without it."""
        wanted = _Controller.model_validate_json(request.get_data())
        with self._slurm(cluster_id) as slurm:
            slurm.set_answering(is_answering=wanted.is_answering)
        return answer_json({"is_answering": wanted.is_answering})

    @contextmanager
    def _slurm(self, cluster_id: str) -> Iterator[Slurm]:
        now = self._clock.now()
        self._store.remove_expired(now)
        cluster = TogetherOperations(self._store, now).get_cluster(cluster_id)
        if cluster.settings.cluster_type != "SLURM":
            raise ApiError(404, f"cluster {cluster_id!r} has no Slurm")
        slurm = Slurm(self._store, cluster, now)
        yield slurm
        slurm.keep()


_PROTOCOL = "v4.channel.k8s.io"


class SlurmExecutor:
    """Runs what is executed in the pods of Slurm."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __call__(self, execution: Execution) -> Any:
        with self._store.transaction():
            now = self._clock.now()
            cluster = TogetherOperations(self._store, now).get_cluster(execution.cluster_id)
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
