"""Slurm's commands in a pod of Slurm, through the Kubernetes API of the cluster.

Slow to import, for `kubernetes` is.
"""

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from kubernetes.stream.ws_client import ERROR_CHANNEL
from urllib3.exceptions import HTTPError

from gpuform.providers.errors import GpuformError, UnknownOutcome, Unreachable
from gpuform.providers.slurm.commands import Output
from gpuform.schemas.slurm import SlurmInputs

_SECONDS = 60


@dataclass(frozen=True)
class PodCommands:
    """A running pod that has the labels; Slinky's controller has the administrator's rights."""

    inputs: SlurmInputs
    kubeconfig: str = field(repr=False)

    @property
    def place(self) -> str:
        return f"exec in {self.inputs.namespace}/{self.inputs.pod_selector}"

    def run(self, command: Sequence[str], *, is_change: bool = False) -> Output:

        try:
            pod = self._pod()
        except (ApiException, HTTPError) as error:
            raise Unreachable(
                f"Kubernetes does not tell the pods of Slurm ({self.place}): {_told(error)}",
                hint="the cluster's kubeconfig must be allowed to list pods and to exec in them",
            ) from error
        try:
            return self._exec(pod, command)
        except (ApiException, HTTPError, OSError) as error:
            kind = UnknownOutcome if is_change else Unreachable
            raise kind(
                f"exec in pod {self.inputs.namespace}/{pod} failed: {_told(error)}",
                hint="the cluster's kubeconfig must be allowed to create pods/exec there",
            ) from error

    def _pod(self) -> str:

        pods = client.CoreV1Api(self._client()).list_namespaced_pod(
            self.inputs.namespace,
            label_selector=self.inputs.pod_selector,
            _request_timeout=_SECONDS,
        )
        running = sorted(pod.metadata.name for pod in pods.items if _runs(pod))
        if not running:
            raise GpuformError(
                f"no pod of Slurm runs ({self.place}): {len(pods.items)} do not",
                hint="say where it is with `slurm: {namespace: ..., pod_selector: ...}`",
            )
        return str(running[0])

    def _exec(self, pod: str, command: Sequence[str]) -> Output:

        socket = stream(
            # `stream` changes its client: it gets one of its own.
            client.CoreV1Api(self._client()).connect_get_namespaced_pod_exec,
            pod,
            self.inputs.namespace,
            container=self.inputs.container,
            command=list(command),
            stdout=True,
            stderr=True,
            stdin=False,
            tty=False,
            _preload_content=False,
            _request_timeout=_SECONDS,
        )
        try:
            socket.run_forever(timeout=_SECONDS)
            if socket.is_open():
                raise TimeoutError(f"`{' '.join(command[:3])}` did not end within {_SECONDS} s")
            out, err = socket.read_stdout(timeout=0), socket.read_stderr(timeout=0)
            return Output(out, err, _code(socket.read_channel(ERROR_CHANNEL, timeout=0)))
        finally:
            socket.close()

    def _client(self) -> Any:

        return client.ApiClient(_configuration(self.kubeconfig))


@functools.lru_cache(maxsize=16)  # each one leaves files with its certificates until the end
def _configuration(kubeconfig: str) -> Any:

    configuration = client.Configuration()
    try:
        config.load_kube_config_from_dict(
            yaml.safe_load(kubeconfig), client_configuration=configuration
        )
    except (config.ConfigException, yaml.YAMLError, TypeError, ValueError) as error:
        raise GpuformError(
            "the kubeconfig of the cluster cannot be used to ask its Slurm",
            hint="read it anew with `gpuform refresh`",
        ) from error
    return configuration


def _runs(pod: Any) -> bool:
    is_leaving = pod.metadata.deletion_timestamp is not None
    return pod.status.phase == "Running" and not is_leaving


def _code(status: str) -> int:
    """The exit code in the Status that ends an exec; raises OSError when there is none."""
    try:
        told = json.loads(status)
        if told["status"] == "Success":
            return 0
        causes = told.get("details", {}).get("causes", [])
        return next(int(each["message"]) for each in causes if each["reason"] == "ExitCode")
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise OSError(f"it ended without an exit code: {status[:200]}") from error


def _told(error: Exception) -> str:
    reason = getattr(error, "reason", None)
    status = getattr(error, "status", None)
    return f"{status} {reason}" if status else str(reason or error)[:300]
