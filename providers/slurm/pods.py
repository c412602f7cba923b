"""Run Slurm's commands in a pod of Slurm, through the `exec` of the cluster's Kubernetes API.

`scheduler.create_command_runner` returns a `PodCommandRunner` for `slurm: {via: exec}`.
"""

import json
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from urllib.parse import urlencode

import websocket

from gpuform.providers.context import get_current_context
from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_access
from gpuform.providers.slurm.processes import CommandOutput
from gpuform.schemas.slurm import SlurmInputs

_TIMEOUT_S = 60
# The protocol of `kubectl exec`: the first byte of a frame is its channel.
_PROTOCOL = "v4.channel.k8s.io"
_STDOUT_CHANNEL, _STDERR_CHANNEL, _STATUS_CHANNEL = 1, 2, 3


@dataclass(frozen=True)
class PodCommandRunner:
    """Runs commands in a running pod that has the declared labels, by default Slinky's controller.

    The controller has the rights of Slurm's administrator. `kubeconfig` is YAML, and `cluster` the
    cluster's name for messages.
    """

    inputs: SlurmInputs
    kubeconfig: str = field(repr=False)
    cluster: str

    @property
    def label(self) -> str:
        """Return the place of the commands for messages: the labels and namespace of the pods."""
        return f"in pods {self.inputs.pod_selector} of namespace {self.inputs.namespace}"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        """Run `command` in a running pod to the end, and return output and exit code.

        A command that prints nothing for 60 seconds counts as interrupted. `as_user` has no effect:
        the pod's one user is Slurm's administrator.

        Raises:
            Unreachable: the command was not run, or changes nothing and was interrupted.
            UnknownOutcome: nobody knows whether a change was made.
            GpuformError: no pod runs, or this process may change nothing.
        """
        # The pod has one user, who is Slurm's administrator.
        del as_user  # the pod has one user
        pod = self._find_running_pod()
        if is_change:
            get_current_context().authorize_change()
        with self._open_exec_socket(pod, command, is_change=is_change) as socket:
            try:
                return _read_output(socket)
            except (websocket.WebSocketException, OSError, ValueError) as error:
                error_type = UnknownOutcome if is_change else Unreachable
                raise error_type(
                    f"`{' '.join(command[:3])}` in pod {pod} did not end: {error}",
                    hint=f"check the pod: `kubectl -n {self.inputs.namespace} exec "
                    f"{shlex.quote(pod)} -- scontrol ping`",
                ) from error

    def _find_running_pod(self) -> str:
        """Return the name of the first running pod with the declared labels.

        Raises:
            GpuformError: no such pod runs.
        """
        pods = get_kubernetes_client(self.kubeconfig, self.cluster).list_objects(
            f"/api/v1/namespaces{build_path(self.inputs.namespace)}/pods",
            labelSelector=self.inputs.pod_selector,
        )
        # Sorted: all commands of a run go to the same pod while it runs.
        running = sorted(
            str(pod["metadata"]["name"])
            for pod in pods
            if (pod.get("status") or {}).get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
        )
        if not running:
            raise GpuformError(
                f"no pod of Slurm runs in cluster {self.cluster} ({self.label})",
                hint="declare where Slurm runs: "
                "`slurm: {namespace: ..., pod_selector: ..., container: ...}`",
            )
        return running[0]

    @contextmanager
    def _open_exec_socket(
        self, pod: str, command: Sequence[str], *, is_change: bool
    ) -> Iterator[websocket.WebSocket]:
        """Start a command in a pod, and yield the socket of the output, closed afterwards.

        Raises:
            MissingCredentials: the kubeconfig cannot be used; see `load_access`.
            Unreachable: the command was not started, or changes nothing.
            UnknownOutcome: nobody knows whether a changing command was started.
        """
        access = load_access(self.kubeconfig, self.cluster)
        query = [("command", word) for word in command]
        query += [("container", self.inputs.container), ("stdout", "true"), ("stderr", "true")]
        path = f"/api/v1/namespaces{build_path(self.inputs.namespace)}/pods{build_path(pod)}/exec"
        try:
            socket = websocket.create_connection(
                f"ws{access.server.removeprefix('http')}{path}?{urlencode(query)}",
                timeout=_TIMEOUT_S,
                header=dict(access.headers()),
                subprotocols=[_PROTOCOL],
                sslopt={"context": access.tls, "server_hostname": access.tls_server_name},
            )
        except (websocket.WebSocketException, OSError) as error:
            status = getattr(error, "status_code", None)
            # Kubernetes answers 4xx before it starts the command; after any other error it may have
            # run.
            is_unknown = is_change and (status is None or status >= 500)
            error_type = UnknownOutcome if is_unknown else Unreachable
            raise error_type(
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


def _read_output(socket: websocket.WebSocket) -> CommandOutput:
    """Return the output of a command, read until the server closes the socket.

    Raises:
        ValueError: the status at the end has no exit code.
        WebSocketException: the connection broke.
    """
    data_by_channel = {
        _STDOUT_CHANNEL: bytearray(),
        _STDERR_CHANNEL: bytearray(),
        _STATUS_CHANNEL: bytearray(),
    }
    while True:
        opcode, data = socket.recv_data()
        if opcode == websocket.ABNF.OPCODE_CLOSE:
            break
        if data and data[0] in data_by_channel:
            data_by_channel[data[0]] += data[1:]
    stdout, stderr = (
        data_by_channel[channel].decode(errors="replace")
        for channel in (_STDOUT_CHANNEL, _STDERR_CHANNEL)
    )
    return CommandOutput(
        stdout, stderr, _parse_exit_code(data_by_channel[_STATUS_CHANNEL].decode(errors="replace"))
    )


def _parse_exit_code(status: str) -> int:
    """Return the exit code in the Status object at the end of an exec.

    Raises:
        ValueError: the text has no exit code.
    """
    try:
        details = json.loads(status)
        if details["status"] == "Success":
            return 0
        causes = details["details"]["causes"]
        return next(int(cause["message"]) for cause in causes if cause["reason"] == "ExitCode")
    except (ValueError, KeyError, TypeError, StopIteration):
        raise ValueError(f"the answer has no exit code: {status[:200]!r}") from None
