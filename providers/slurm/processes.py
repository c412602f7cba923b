"""Run Slurm's commands: on this machine, over SSH, or in a pod of Slurm.

`scheduler.create_command_runner` chooses the runner for the declared `slurm: {via: ...}`: a
`PodCommandRunner`, which uses the `exec` of the cluster's Kubernetes API, for `via: exec`.
"""

import json
import os
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol
from urllib.parse import urlencode

import websocket

from gpuform.providers.context import get_current_context, get_run_context
from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.http import build_path
from gpuform.providers.kubernetes.client import get_kubernetes_client
from gpuform.providers.kubernetes.kubeconfig import load_access
from gpuform.schemas.policies.drain import SlurmInputs
from gpuform.schemas.safe_text import escape_invisible


@dataclass(frozen=True)
class CommandOutput:
    """What a finished command has printed, and its exit code."""

    stdout: str
    stderr: str
    exit_code: int


class CommandRunner(Protocol):
    """A place where Slurm's commands can be run. Safe for many threads."""

    @property
    def label(self) -> str:
        """Return the runner's place for messages, like `ssh ada@slurm-login`."""

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        """Run `command` without a shell to the end, and return the output.

        Another exit code than 0 is no error.

        Args:
            command: program and arguments. A relative path starts at the user's home, or at the
                pod's own folder.
            is_change: the command changes something: it needs an administrator's rights.
            as_user: the change is one that any user may make for itself, as submitting a job.

        Raises:
            Unreachable: the command was certainly not run, or it changes nothing and was
                interrupted.
            UnknownOutcome: nobody knows whether a change was made.
            GpuformError: the runner cannot start the command, or this process may change nothing.
        """


_TIMEOUT_S = 60
_SUDO = ("sudo", "-n", "--")
# What would choose other jobs, other clusters or other words than the commands ask for.
_IGNORED_VARIABLES = ("SQUEUE_", "SCONTROL_", "SCANCEL_", "SLURM_CLUSTERS", "SLURM_TIME_FORMAT")
_JOB_VARIABLES = {
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"),
    *("SLURM_CONF", "SLURM_CONF_SERVER", "SLURM_JWT"),
}
_SSH_REMEDIES = (
    ("host key verification failed", "log in once by hand, and compare the host's key"),
    ("permission denied", "ssh must connect without a password: load your key with `ssh-add`"),
    ("could not resolve", "set `host` to a name that your SSH configuration or DNS knows"),
)


@dataclass(frozen=True)
class LocalCommandRunner:
    """Runs commands on this machine, which is a client of the Slurm."""

    sudo: bool = False
    label: str = "this machine"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        """Run `command` on this machine to the end, and return output and exit code.

        A change runs under sudo if so declared, but not `as_user`: then the command gets only the
        environment variables that a job needs.

        Raises:
            UnknownOutcome: a changing command did not end within 60 seconds.
            Unreachable: any other command did not end within 60 seconds.
            GpuformError: the program is missing, or this process may change nothing.
        """
        sudo = _SUDO if self.sudo and is_change and not as_user else ()
        environment = _build_environment()
        if as_user:
            # A job gets what its submission has: nobody's keys, and no defaults of this shell.
            environment = {
                name: value for name, value in environment.items() if name in _JOB_VARIABLES
            }
        return _run_process([*sudo, *command], self.label, environment, is_change=is_change)


@dataclass(frozen=True)
class SshCommandRunner:
    """Runs commands on a login node by the user's own `ssh`, with its configuration and keys."""

    inputs: SlurmInputs
    options: Sequence[str] = ()
    """Further options of ssh."""

    @property
    def label(self) -> str:
        """Return the place of the commands for messages, such as `ssh ada@slurm-login`."""
        user = f"{self.inputs.user}@" if self.inputs.user else ""
        return f"ssh {user}{self.inputs.host}"

    def run(
        self, command: Sequence[str], *, is_change: bool = False, as_user: bool = False
    ) -> CommandOutput:
        """Run `command` on the login node to the end, and return output and exit code.

        A change runs under sudo, unless `as_user` or declared otherwise.

        Raises:
            UnknownOutcome: ssh failed (exit code 255) or took over 60 seconds, and the command
                changes something.
            Unreachable: the same happened to a command that changes nothing.
            GpuformError: this machine has no ssh, or this process may change nothing.
        """
        is_administrator = is_change and not as_user and self.inputs.sudo is not False
        sudo = _SUDO if is_administrator else ()
        # sshd hands the words to a shell as one.
        remote = shlex.join([*sudo, *command])
        result = _run_process(
            [*self._build_ssh_command(), remote],
            self.label,
            _build_environment(),
            is_change=is_change,
        )
        # 255 is ssh's own code: it could not connect, or lost the connection while the command ran.
        if result.exit_code != 255:
            return result
        message = escape_invisible(" ".join(result.stderr.split()))[-300:] or "no message"
        hint = next((remedy for part, remedy in _SSH_REMEDIES if part in message.lower()), None)
        error_type = UnknownOutcome if is_change else Unreachable
        raise error_type(
            f"{self.label} failed: {message}", hint=hint or f"run `{self.label}` by hand"
        )

    def _build_ssh_command(self) -> list[str]:
        """Return the ssh command for the login node, which never asks for a password."""
        user = ("-l", self.inputs.user) if self.inputs.user else ()
        port = ("-p", str(self.inputs.port)) if self.inputs.port else ()
        batch_options = (
            "-o",
            "BatchMode=yes",
            "-o",
            "ConnectTimeout=15",
            "-o",
            "ServerAliveInterval=15",
        )
        return ["ssh", "-T", *batch_options, *self.options, *user, *port, "--", self.inputs.host]


def _build_environment() -> dict[str, str]:
    """Return the run's environment without variables which change Slurm's commands."""
    variables = get_run_context().environ.items()
    return {name: value for name, value in variables if not name.startswith(_IGNORED_VARIABLES)}


def _run_process(
    command: Sequence[str], label: str, environment: Mapping[str, str], *, is_change: bool
) -> CommandOutput:
    """Run a process to its end, for 60 seconds at most, and return the output with its exit code.

    The process gets no input, and starts in the user's home. An interruption of gpuform does not
    reach it.

    Raises:
        UnknownOutcome: a changing command did not end in time.
        Unreachable: any other command did not end in time.
        GpuformError: the program cannot be started, or this process may change nothing.
    """
    if is_change:
        get_current_context().authorize_change()
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home() raises where there is none
    try:
        process = subprocess.run(  # noqa: S603 - the command is ours, and no shell reads it
            command,
            # No input: ssh and sudo would wait for a password that nobody can type.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            timeout=_TIMEOUT_S,
            # English messages: hints and errors are recognized by their text.
            env={**environment, "LC_ALL": "C"},
            cwd=home if os.path.isdir(home) else None,  # noqa: PTH112
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # Ctrl-C ends the run after this command, not within it
        )
    except subprocess.TimeoutExpired as error:
        error_type = UnknownOutcome if is_change else Unreachable
        raise error_type(
            f"`{' '.join(command[:3])}` did not end within {_TIMEOUT_S} seconds ({label})",
            hint="check that slurmctld answers: `scontrol ping`",
        ) from error
    except OSError as error:
        raise GpuformError(
            f"{command[0]} cannot run on this machine: {error.strerror}",
            hint="install the command, or declare another way with `slurm: {via: ...}`",
        ) from error
    return CommandOutput(process.stdout, process.stderr, process.returncode)


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
