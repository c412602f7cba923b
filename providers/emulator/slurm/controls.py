"""Run Slurm's commands in pods, as `kubectl exec` carries them, and let tests change a Slurm.

The controls are under `/_emulator/slurm/`; the emulated Together gives `SlurmExecutor` to its
Kubernetes. Frames of `v4.channel.k8s.io` begin with the number of a channel: 1 is stdout, 2 stderr,
and 3 says at the end how the command went.
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
from gpuform.providers.emulator.slurm.commands import CommandResult, run_command
from gpuform.providers.emulator.slurm.jobs import JobRequest, Measurement
from gpuform.providers.emulator.slurm.scheduler import SlurmCluster
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.together.catalogue import TogetherApiError
from gpuform.providers.emulator.together.operations import TogetherOperations


class _CommandBody(BaseModel):
    """A command with its arguments."""

    model_config = ConfigDict(extra="forbid")
    command: list[str]


class _ControllerBody(BaseModel):
    """Whether the controller answers."""

    model_config = ConfigDict(extra="forbid")
    is_answering: bool


class _MeasurementBody(Measurement):
    """A measurement with its node; "" is every node without a measurement of its own."""

    node: str = ""


class SlurmControls(PlatformControls):
    """Run commands, add and list jobs, set measurements of nodes, stop the controller."""

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/<cluster_id>/run", self._run_command),
            ("POST", "/<cluster_id>/jobs", self._add_job),
            ("GET", "/<cluster_id>/jobs", self._list_jobs),
            ("POST", "/<cluster_id>/measures", self._set_measurement),
            ("POST", "/<cluster_id>/controller", self._set_controller),
        )

    def _run_command(self, cluster_id: str) -> Response:
        """Run a command as in a pod of Slurm, `{"command": ["squeue"]}`, and answer its output."""
        body = _CommandBody.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            result = run_command(slurm, body.command)
        return answer_json({"stdout": result.out, "stderr": result.err, "code": result.code})

    def _add_job(self, cluster_id: str) -> Response:
        """Submit the job in the body, of any kind and length, and answer the job.

        The job starts at once where nodes are free.
        """
        job_request = JobRequest.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            (job,) = slurm.submit(job_request)
        return answer_json(job.model_dump(mode="json"), 201)

    def _list_jobs(self, cluster_id: str) -> Response:
        """Answer all jobs that the Slurm ever had, also those that squeue no longer lists."""
        with self._open_slurm(cluster_id) as slurm:
            return answer_json([job.model_dump(mode="json") for job in slurm.jobs])

    def _set_measurement(self, cluster_id: str) -> Response:
        """Set the measurement that scripts make on a node, and answer the measurement.

        The body is `{"node": "slurm-worker-1", "figure": 312.5}` or such. Without a node, it is the
        measurement on all nodes that have none of their own. Running jobs are not changed.
        """
        body = _MeasurementBody.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            slurm.set_measurement(body.node, Measurement(**body.model_dump(exclude={"node"})))
        return answer_json(body.model_dump(mode="json"))

    def _set_controller(self, cluster_id: str) -> Response:
        """Set whether slurmctld answers commands; jobs go on without the controller."""
        body = _ControllerBody.model_validate_json(request.get_data())
        with self._open_slurm(cluster_id) as slurm:
            slurm.set_answering(is_answering=body.is_answering)
        return answer_json({"is_answering": body.is_answering})

    @contextmanager
    def _open_slurm(self, cluster_id: str) -> Iterator[SlurmCluster]:
        """Give a cluster's Slurm to the block, and save the Slurm unless the block raises.

        Raises `ApiError` 404 for an unknown cluster, and for one without Slurm.
        """
        now = self._clock.now()
        self._store.remove_expired(now)
        cluster = TogetherOperations(self._store, now).get_cluster(cluster_id)
        if cluster.settings.cluster_type != "SLURM":
            raise TogetherApiError(404, f"cluster {cluster_id!r} has no Slurm")
        slurm = SlurmCluster(self._store, cluster, now)
        yield slurm
        # Not after an error: a control that fails changes nothing.
        slurm.save()


_WEBSOCKET_PROTOCOL = "v4.channel.k8s.io"


class SlurmExecutor:
    """Runs the commands that clients execute in the pods of Slurm."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def __call__(self, execution: Execution) -> Any:
        with self._store.transaction():
            now = self._clock.now()
            cluster = TogetherOperations(self._store, now).get_cluster(execution.cluster_id)
            slurm = SlurmCluster(self._store, cluster, now)
            result = run_command(slurm, execution.command)
            slurm.save()
        # Outside of the transaction: the client may read slowly.
        outputs = ((1, result.out), (2, result.err), (3, _build_exec_status(result)))
        frames = [bytes([channel]) + output.encode() for channel, output in outputs if output]
        _send_frames(execution.environ, frames)


def _send_frames(environ: Any, frames: Iterable[bytes]) -> None:
    """Accept the request's websocket, send all frames, and wait until the client hangs up.

    A client that hangs up early is no error.
    """
    connection: socket.socket = environ["werkzeug.socket"]
    websocket = WSConnection(ConnectionType.SERVER)
    # WSGI has changed the names of headers; wsproto wants them as they were sent.
    headers = [
        (name.removeprefix("HTTP_").replace("_", "-").lower().encode(), value.encode())
        for name, value in environ.items()
        if name.startswith("HTTP_")
    ]
    websocket.initiate_upgrade_connection(headers, environ["PATH_INFO"])
    list(websocket.events())
    messages = [BytesMessage(data=frame) for frame in frames]
    try:
        for event in (
            AcceptConnection(subprotocol=_WEBSOCKET_PROTOCOL),
            *messages,
            CloseConnection(1000),
        ):
            # One by one: the official client does not see what came in the same record of TLS.
            connection.sendall(websocket.send(event))
        while connection.recv(4096):
            pass  # until the client has read it all and hangs up
    except OSError:
        return  # the client has not waited for the end


def _build_exec_status(result: CommandResult) -> str:
    """Return the Kubernetes Status of a command as JSON, which clients read from channel 3.

    A command that fails has its exit code as a cause.
    """
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
