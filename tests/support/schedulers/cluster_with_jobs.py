"""A Together cluster on the emulator, with jobs in its Kubernetes."""

from dataclasses import dataclass, field
from typing import Any

import yaml

from gpuform.providers.records import Drains
from gpuform.providers.together.cluster import ClusterLifecycle

Properties = dict[str, Any]

KUBERNETES_PATH = "/api/v1/"
MINUTE = 60.0
PROGRAM = {"__provider": "pickled"}


class Killed(BaseException):
    """Raised where the process is killed in a test."""


@dataclass
class Cluster:
    """A Together cluster of four ready workers, with the inputs and outputs of its state."""

    emulator: Any
    id: str
    inputs: Properties
    outs: Properties
    lifecycle: ClusterLifecycle = field(default_factory=ClusterLifecycle)

    def declare(self, num_gpus: float = 24.0, **drain: Any) -> Properties:
        """Return the cluster's inputs with another size and drain settings."""
        return {**self.inputs, "num_gpus": num_gpus, "drain": drain, **PROGRAM}

    def update(self, news: Properties, **fields: Any) -> Properties:
        with self.emulator.use_context_of(**fields):
            outs = self.lifecycle.update(self.id, {**self.outs, **PROGRAM}, news).outs
        self.outs = dict(outs)
        return self.outs

    def predict_removals(self, news: Properties) -> dict[str, tuple[str, list[str]]] | None:
        """Return reason and jobs of each removed node of an update to `news`.

        None if the removals are unknown.
        """
        with self.emulator.use_context_of(preview=True):
            removed_nodes = self.lifecycle.predict_removed_nodes(
                self.id, {**self.outs, **PROGRAM}, news
            )
        if removed_nodes is None:
            return None
        return {
            node.name: (node.because, [job.id for job in node.jobs]) for node in removed_nodes.nodes
        }

    def refresh(self, **fields: Any) -> None:
        with self.emulator.use_context_of(**fields):
            self.outs = dict(self.lifecycle.read(self.id, self.outs).outs)

    def list_changed_paths(self, news: Properties) -> list[str]:
        with self.emulator.use_context_of():
            changes = self.lifecycle.list_changes({**self.outs, **PROGRAM}, news, self.id)
        return [change.path for change in changes]

    def start_pod(self, worker: int, minutes: float | None = None, **fields: Any) -> str:
        """Start a pod on a worker and return the pod's name.

        Without `minutes` the pod never ends by itself.
        """
        name = f"on-{worker}"
        runs_for = {} if minutes is None else {"runs_for": minutes * MINUTE}
        body = {"name": name, "namespace": "ml", "node": f"train-worker-{worker}", **runs_for}
        self.call_emulated_kubernetes("POST", "pods", {**body, **fields})
        return f"ml/{name}"

    def call_emulated_kubernetes(self, method: str, path: str, body: Any = None) -> Any:
        url = f"/_emulator/kubernetes/{self.id}/{path}"
        answer = self.emulator.http.request(method, url, json=body)
        answer.raise_for_status()
        return answer.json()

    @property
    def pod_ends(self) -> dict[str, str]:
        """Return how each pod ended: succeeded, evicted or killed."""
        ends = {end["pod"]: end["how"] for end in self.call_emulated_kubernetes("GET", "ended")}
        return {pod: how for pod, how in ends.items() if not pod.startswith("kube-system/")}

    @property
    def _description(self) -> Any:
        return self.emulator.send_as_somebody_else("GET", f"/clusters/{self.id}")

    @property
    def workers(self) -> list[str]:
        nodes = self._description["gpu_worker_nodes"]
        return sorted(node["host_name"].removeprefix("train-worker-") for node in nodes)

    def call_kubernetes(self, method: str = "GET", path: str = "nodes", body: Any = None) -> Any:
        """Send a request to the cluster's Kubernetes, as somebody who has the kubeconfig does."""
        token = yaml.safe_load(self.outs["kube_config"])["users"][0]["user"]["token"]
        headers = {"Authorization": f"Bearer {token}"}
        if method == "PATCH":
            headers["Content-Type"] = "application/merge-patch+json"
        url = f"/kubernetes/{self.id}/{path if path.startswith('apis') else f'api/v1/{path}'}"
        answer = self.emulator.http.request(method, url, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json()

    @property
    def cordoned(self) -> list[str]:
        nodes = self.call_kubernetes()["items"]
        names = (n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable"))
        return sorted(name.removeprefix("train-worker-") for name in names)

    @property
    def exists(self) -> bool:
        clusters = self.emulator.send_as_somebody_else("GET", "/clusters")["clusters"]
        return self.id in [cluster["cluster_id"] for cluster in clusters]

    @property
    def sent_updates(self) -> list[Any]:
        return [request["body"] for request in self.emulator.list_requests("PUT")]

    @property
    def drain_record(self) -> Any:
        return Drains.from_intents(self.emulator.intents).find(self.id)

    def assert_unchanged(self) -> None:
        assert (self.workers, self.cordoned, self.drain_record) == (["0", "1", "2", "3"], [], None)
        assert "killed" not in self.pod_ends.values()


def create_cluster(emulator: Any, declared: Properties) -> Cluster:
    """Create a cluster of four ready workers."""
    lifecycle = ClusterLifecycle()
    with emulator.use_context_of():
        inputs = lifecycle.check({}, {**declared, "num_gpus": 32.0}).inputs
        created = lifecycle.create({**inputs, **PROGRAM})
    return Cluster(emulator, created.id, dict(inputs), dict(created.outs))
