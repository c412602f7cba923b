"""Test Slurm commands in pods, through the official Kubernetes client."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from processes.limits import LAST_RESORT
from support.schedulers.emulated_slurm import NODES, SlurmCluster, create_slurm_cluster

from gpuform.providers.emulator.server import serve


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with serve(seed="slurm") as server:
        yield create_slurm_cluster(server)


@pytest.fixture
def core(cluster: SlurmCluster) -> Iterator[client.CoreV1Api]:
    with closing(config.new_client_from_config_dict(yaml.safe_load(cluster.kubeconfig))) as api:
        yield client.CoreV1Api(api)


def run(core: client.CoreV1Api, pod: str, container: str, *command: str) -> Any:
    socket = stream(
        core.connect_get_namespaced_pod_exec,
        pod,
        "slurm",
        container=container,
        command=list(command),
        stdout=True,
        stderr=True,
        stdin=False,
        tty=False,
        _preload_content=False,
    )
    socket.run_forever(timeout=LAST_RESORT)
    socket.sock.shutdown()  # the client leaves it open
    return socket.read_stdout(timeout=0), socket.read_stderr(timeout=0), socket.returncode


def test_the_pods_of_slurm_run_in_a_slurm_cluster(core: client.CoreV1Api) -> None:
    pods = core.list_namespaced_pod("slurm").items
    phases = {pod.metadata.labels["app.kubernetes.io/name"]: pod.status.phase for pod in pods}
    assert phases == {"slurmctld": "Running", "login": "Running", "slurmd": "Running"}


def test_a_command_returns_output_errors_and_exit_code(core: client.CoreV1Api) -> None:
    out, err, code = run(core, "slurm-controller-0", "slurmctld", "sinfo")
    assert (err, code) == ("", 0)
    assert out.splitlines()[1].split() == [
        "all*",
        "up",
        "infinite",
        "3",
        "idle",
        "slurm-worker-[0-2]",
    ]
    out, err, code = run(core, "slurm-controller-0", "slurmctld", "scontrol", "requeue", "7")
    assert (out, err, code) == ("", "Invalid job id specified for job 7\n", 1)
    assert run(core, "slurm-controller-0", "slurmctld", "vi")[2] == 127


def test_jobs_are_submitted_in_the_login_pod(cluster: SlurmCluster, core: client.CoreV1Api) -> None:
    (login,) = core.list_namespaced_pod(
        "slurm", label_selector="app.kubernetes.io/name=login"
    ).items
    submitted = ("sbatch", f"--nodelist={NODES[0]}", "--wrap=sleep 600")
    out, _, code = run(core, login.metadata.name, "login", *submitted)
    assert (out, code) == ("Submitted batch job 1\n", 0)
    cluster.advance(300)
    out, _, _ = run(core, login.metadata.name, "login", "squeue")
    assert out.splitlines()[1].split() == ["1", "all", "wrap", "root", "R", "5:00", "1", NODES[0]]
    cluster.advance(310)
    assert len(run(core, login.metadata.name, "login", "squeue")[0].splitlines()) == 1


def test_exec_without_a_token_is_refused(cluster: SlurmCluster) -> None:
    document = yaml.safe_load(cluster.kubeconfig)
    document["users"][0]["user"]["token"] = "stolen"
    with (
        closing(config.new_client_from_config_dict(document)) as api,
        pytest.raises(ApiException) as no,
    ):
        run(client.CoreV1Api(api), "slurm-controller-0", "slurmctld", "sinfo")
    assert "401" in str(no.value)
