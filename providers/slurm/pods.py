"""Slurm's commands in a pod of Slurm, through the Kubernetes API of the cluster."""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

import websocket

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.http import at
from gpuform.providers.kubernetes.client import client_by
from gpuform.providers.kubernetes.kubeconfig import access_by
from gpuform.providers.slurm.processes import Output
from gpuform.schemas.slurm import SlurmInputs

_SECONDS = 60
# The protocol of `kubectl exec`: the first byte of a frame is its channel.
_PROTOCOL = "v4.channel.k8s.io"
_OUT, _ERR, _STATUS = 1, 2, 3


@dataclass(frozen=True)
class PodCommands:
    """A running pod that has the labels; Slinky's controller has the administrator's rights.

    `kubeconfig` is YAML, and `cluster` what people call the cluster.
    """

    inputs: SlurmInputs
    kubeconfig: str = field(repr=False)
    cluster: str

    @property
    def place(self) -> str:
        return f"in pods {self.inputs.pod_selector} of namespace {self.inputs.namespace}"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> Output:
        del as_user  # the pod has one user
        pod = self._pod()
        if is_change:
            get_current_context().authorize_change()
        with self._connected(pod, command, is_change=is_change) as socket:
            try:
                return _output(socket)
            except (websocket.WebSocketException, OSError, ValueError) as error:
                kind = UnknownOutcome if is_change else Unreachable
                raise kind(
                    f"`{' '.join(command[:3])}` in pod {pod} did not come to its end: {error}",
                    hint="look into the pod: `kubectl -n "
                    f"{self.inputs.namespace} exec {shlex.quote(pod)} -- scontrol ping`",
                ) from error

    def _pod(self) -> str:
        pods = client_by(self.kubeconfig, self.cluster).list(
            f"/api/v1/namespaces{at(self.inputs.namespace)}/pods",
            labelSelector=self.inputs.pod_selector,
        )
        running = sorted(
            str(pod["metadata"]["name"])
            for pod in pods
            if (pod.get("status") or {}).get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        )
        if not running:
            raise GpuformError(
                f"no pod of Slurm runs in cluster {self.cluster} ({self.place})",
                hint="say where: `slurm: {namespace: ..., pod_selector: ..., container: ...}`",
            )
        return running[0]

    @contextmanager
    def _connected(
        self, pod: str, command: Sequence[str], *, is_change: bool
    ) -> Iterator[websocket.WebSocket]:
        access = access_by(self.kubeconfig, self.cluster)
        asked = [("command", word) for word in command]
        asked += [("container", self.inputs.container), ("stdout", "true"), ("stderr", "true")]
        path = f"/api/v1/namespaces{at(self.inputs.namespace)}/pods{at(pod)}/exec"
        try:
            socket = websocket.create_connection(
                f"ws{access.server.removeprefix('http')}{path}?{urlencode(asked)}",
                timeout=_SECONDS,
                header=dict(access.headers()),
                subprotocols=[_PROTOCOL],
                sslopt={"context": access.tls},
            )
        except (websocket.WebSocketException, OSError) as error:
            status = getattr(error, "status_code", None)
            is_unknown = is_change and (status is None or status >= 500)
            kind = UnknownOutcome if is_unknown else Unreachable
            raise kind(
                f"exec in pod {pod} of cluster {self.cluster} failed: {status or error}",
                hint="its kubeconfig must be allowed to exec there (`pods/exec`), and `slurm: "
                "{container: ...}` must name a container of the pod",
            ) from None  # the request's headers are in it
        try:
            yield socket
        finally:
            # Once the other side has ended the connection, `close` does nothing: the socket would
            # stay open.
            socket.shutdown()  # type: ignore[no-untyped-call]


def _output(socket: websocket.WebSocket) -> Output:
    """What comes until the status; raises ValueError where that is none."""
    texts = {_OUT: bytearray(), _ERR: bytearray(), _STATUS: bytearray()}
    while True:
        opcode, data = socket.recv_data()
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            break
        if data and data[0] in texts:
            texts[data[0]] += data[1:]
    out, err = (texts[each].decode(errors="replace") for each in (_OUT, _ERR))
    return Output(out, err, _code(texts[_STATUS].decode(errors="replace")))


def _code(status: str) -> int:
    """The exit code in the Status that ends an exec."""
    try:
        told = json.loads(status)
        if told["status"] == "Success":
            return 0
        causes = told["details"]["causes"]
        return next(int(each["message"]) for each in causes if each["reason"] == "ExitCode")
    except (ValueError, KeyError, TypeError, StopIteration):
        raise ValueError(f"no exit code in {status[:200]!r}") from None
