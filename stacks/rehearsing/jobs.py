"""Start jobs on emulated clusters, find out which have ended, break nodes, send other controls."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from gpuform.providers.emulator.routing import TRUSTED
from gpuform.providers.emulator.server import Server
from gpuform.stacks.testing.events import list_objects

JOB_S: Final = 4 * 3600.0
"""How many seconds a job runs: longer than a drain waits unless more is declared."""


@dataclass(frozen=True, slots=True)
class StartedJob:
    """A job on a Together cluster, in its Slurm or else as a pod."""

    cluster_id: str
    name: str
    in_slurm: bool
    done_at: float
    """When the job's work is done, by the clock."""


def start_job(server: Server, cluster: str, node: str, name: str) -> StartedJob:
    """Start a job of `JOB_S` seconds on a node of the cluster with a name, and return the job.

    Raises AssertionError if the cluster or the node does not exist.
    """
    cluster_id = find_id(server, "together", "clusters", cluster)
    in_slurm = _has_slurm(server, cluster_id)
    if in_slurm:
        # A node has another name in Slurm: slurm-worker-0 for train-worker-0.
        slurm_node = "-".join(["slurm", *node.rsplit("-", 2)[1:]])
        body = {"name": name, "nodes": [slurm_node], "runs_for": JOB_S, "can_requeue": False}
        send_control(server, "POST", f"slurm/{cluster_id}/jobs", body)
    else:
        body = {"name": name, "node": node, "runs_for": JOB_S}
        send_control(server, "POST", f"kubernetes/{cluster_id}/pods", body)
    return StartedJob(cluster_id, name, in_slurm, server.clock.now() + JOB_S)


def list_ended_jobs(server: Server, jobs: Iterable[StartedJob]) -> tuple[str, ...]:
    """Return the names of the jobs that have ended before their work was done."""
    return tuple(job.name for job in jobs if _has_ended(server, job))


def _has_ended(server: Server, job: StartedJob) -> bool:
    if not job.in_slurm:
        ended_pods = send_control(server, "GET", f"kubernetes/{job.cluster_id}/ended", None)
        return any(
            pod["pod"] == f"default/{job.name}" and pod["how"] != "succeeded" for pod in ended_pods
        )
    # The jobs of a deleted cluster are gone with its Slurm.
    if not _has_slurm(server, job.cluster_id):
        return server.clock.now() < job.done_at
    jobs = send_control(server, "GET", f"slurm/{job.cluster_id}/jobs", None)
    return any(
        item["wanted"]["name"] == job.name and set(item["ended"]) - {"completed"} for item in jobs
    )


def _has_slurm(server: Server, cluster_id: str) -> bool:
    path = f"/_emulator/slurm/{cluster_id}/jobs"
    return server.app.test_client().get(path).status_code < 400


def break_node(server: Server, platform: str, owner: str, node: str) -> None:
    """Break a node of a cluster or fabric for good, where the emulator of its platform can."""
    if platform == "scp":
        node_id = find_id(server, "scp", "gpu_nodes", node)
        send_control(server, "POST", f"scp/gpu-nodes/{node_id}", {"state": "ERROR"})
    elif platform == "together":
        cluster_id = find_id(server, "together", "clusters", owner)
        send_control(server, "POST", f"kubernetes/{cluster_id}/nodes/{node}", {"ready": False})


def find_id(server: Server, platform: str, kind: str, name: str) -> str:
    """Return the id of an object on the emulator. Raises AssertionError if there is none."""
    for item in list_objects(server)[platform][kind]:
        if item["name"] == name:
            return str(item["id"])
    raise AssertionError(f"no {kind} of {platform} is named {name}")


def send_control(server: Server, method: str, path: str, body: Any) -> Any:
    """Send a request to a control of the emulator, and return the answer's JSON.

    Raises AssertionError for an error: a rehearsal names only what it has found there.
    """
    answer = server.app.test_client().open(
        f"/_emulator/{path}", method=method, json=body, environ_overrides={TRUSTED: True}
    )
    if answer.status_code >= 400:
        raise AssertionError(f"{method} {path}: {answer.get_data(as_text=True)}")
    return answer.get_json(silent=True)
