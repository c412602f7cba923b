"""A Together cluster over the emulated platform, with jobs in its Kubernetes."""

from dataclasses import dataclass, field
from typing import Any

import yaml

from gpuform.providers.records import Drains
from gpuform.providers.together.cluster import ClusterLifecycle

Properties = dict[str, Any]

IN_KUBERNETES = "/api/v1/"
MINUTE = 60.0
PROGRAM = {"__provider": "pickled"}


class Killed(BaseException):
    """The process died here."""


@dataclass
class Cluster:
    """One of four workers that is Ready, as the state has it."""

    emulator: Any
    id: str
    inputs: Properties
    outs: Properties
    lifecycle: ClusterLifecycle = field(default_factory=ClusterLifecycle)

    def declared(self, num_gpus: float = 24.0, **drain: Any) -> Properties:
        return {**self.inputs, "num_gpus": num_gpus, "drain": drain, **PROGRAM}

    def update(self, news: Properties, **fields: Any) -> Properties:
        with self.emulator.use_context_of(**fields):
            outs = self.lifecycle.update(self.id, {**self.outs, **PROGRAM}, news).outs
        self.outs = dict(outs)
        return self.outs

    def leaving(self, news: Properties) -> dict[str, tuple[str, list[str]]] | None:
        with self.emulator.use_context_of(preview=True):
            found = self.lifecycle.predict_removed_nodes(self.id, {**self.outs, **PROGRAM}, news)
        if found is None:
            return None
        return {node.name: (node.because, [job.id for job in node.jobs]) for node in found.nodes}

    def refresh(self, **fields: Any) -> None:
        with self.emulator.use_context_of(**fields):
            self.outs = dict(self.lifecycle.read(self.id, self.outs).outs)

    def plan(self, news: Properties) -> list[str]:
        with self.emulator.use_context_of():
            found = self.lifecycle.list_changes({**self.outs, **PROGRAM}, news, self.id)
        return [change.path for change in found]

    def run(self, worker: int, minutes: float | None = None, **fields: Any) -> str:
        """Starts a pod on a worker; it ends by itself, or never."""
        name = f"on-{worker}"
        runs_for = {} if minutes is None else {"runs_for": minutes * MINUTE}
        body = {"name": name, "namespace": "ml", "node": f"train-worker-{worker}", **runs_for}
        self.control("POST", "pods", {**body, **fields})
        return f"ml/{name}"

    def control(self, method: str, path: str, body: Any = None) -> Any:
        url = f"/_emulator/kubernetes/{self.id}/{path}"
        answer = self.emulator.http.request(method, url, json=body)
        answer.raise_for_status()
        return answer.json()

    @property
    def ended(self) -> dict[str, str]:
        """How pods ended: succeeded, evicted or killed."""
        found = {each["pod"]: each["how"] for each in self.control("GET", "ended")}
        return {pod: how for pod, how in found.items() if not pod.startswith("kube-system/")}

    @property
    def _shown(self) -> Any:
        return self.emulator.send_as_somebody_else("GET", f"/clusters/{self.id}")

    @property
    def workers(self) -> list[str]:
        nodes = self._shown["gpu_worker_nodes"]
        return sorted(node["host_name"].removeprefix("train-worker-") for node in nodes)

    def kubernetes(self, method: str = "GET", path: str = "nodes", body: Any = None) -> Any:
        """What somebody else does in the cluster."""
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
        nodes = self.kubernetes()["items"]
        names = (n["metadata"]["name"] for n in nodes if n["spec"].get("unschedulable"))
        return sorted(name.removeprefix("train-worker-") for name in names)

    @property
    def is_there(self) -> bool:
        clusters = self.emulator.send_as_somebody_else("GET", "/clusters")["clusters"]
        return self.id in [each["cluster_id"] for each in clusters]

    @property
    def puts(self) -> list[Any]:
        return [each["body"] for each in self.emulator.list_requests("PUT")]

    @property
    def record(self) -> Any:
        return Drains.from_intents(self.emulator.intents).find(self.id)

    def assert_unchanged(self) -> None:
        assert (self.workers, self.cordoned, self.record) == (["0", "1", "2", "3"], [], None)
        assert "killed" not in self.ended.values()


def create_cluster(emulator: Any, declared: Properties) -> Cluster:
    """One of four workers, Ready."""
    lifecycle = ClusterLifecycle()
    with emulator.use_context_of():
        inputs = lifecycle.check({}, {**declared, "num_gpus": 32.0}).inputs
        created = lifecycle.create({**inputs, **PROGRAM})
    return Cluster(emulator, created.id, dict(inputs), dict(created.outs))
