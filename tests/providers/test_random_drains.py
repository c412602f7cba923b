"""Test random pools whose Kubernetes or Slurm lags, hides nodes, pages and changes names.

Whatever happens: no node is given to the platform while a job really runs on it.
"""

import json
import random
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hostile.fakes.answers import PlatformRequest as Request
from hostile.fakes.kubernetes import Kubernetes, render_kubeconfig
from hostile.fakes.kubernetes import Misbehavior as KubernetesMisbehavior
from hostile.fakes.slurm import Misbehavior as SlurmMisbehavior
from hostile.fakes.slurm import Slurm
from support.clocks.fake_clock import FakeClock

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.draining import DrainOperation, DrainTarget, NodeEviction, Worker
from gpuform.providers.errors import GpuformError
from gpuform.providers.kubernetes.client import KubernetesClient
from gpuform.providers.kubernetes.kubeconfig import load_access
from gpuform.providers.kubernetes.scheduler import KubernetesScheduler
from gpuform.providers.records import FolderRecords, Intents
from gpuform.providers.slurm.scheduler import SlurmScheduler
from gpuform.schemas.policies.drain import DrainInputs

PLAYS = 100


class InProcessTransport(httpx.BaseTransport):
    """Call the stand-in without a network."""

    def __init__(self, cluster: Kubernetes) -> None:
        self._cluster = cluster

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        call = Request(
            actor="ours",
            method=request.method,
            path=tuple(request.url.path.strip("/").split("/")),
            query=dict(request.url.params),
            body=json.loads(request.content) if request.content else None,
            headers={"Authorization": request.headers.get("Authorization", "")},
            address=str(request.url),
        )
        answer = self._cluster.serve(call)
        return httpx.Response(
            answer.status,
            content=answer.encode_body(),
            headers={"Content-Type": answer.content_type},
        )


class Play:
    """A pool of nodes with jobs that start and end during one removal."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.clock = FakeClock()
        self.clock.time = 1_780_000_000.0
        self.workers = [
            Worker(
                f"train-{number}",
                aliases=(f"id-{number}",),
                addresses=(f"10.0.0.{number}",),
                is_failed=self.random.random() < 0.1,
            )
            for number in range(self.random.randint(1, 5))
        ]
        self.names = {worker.name: self._name(worker) for worker in self.workers}

    def _name(self, worker: Worker) -> str:
        """Return the scheduler's name of the worker."""
        return self.random.choice([worker.name, worker.name, f"ip-{worker.name[-1]}"])

    def build_eviction(self) -> NodeEviction:
        count = self.random.randint(1, len(self.workers))
        chosen = self.random.sample([worker.name for worker in self.workers], count)
        if self.random.random() < 0.5:
            return NodeEviction(dict.fromkeys(chosen, "deleted"))
        return NodeEviction(
            count=count, requested_names=chosen if self.random.random() < 0.3 else ()
        )

    def policy(self) -> DrainInputs:
        on_busy = self.random.choice(["wait", "fail", "evict"])
        return DrainInputs(on_busy=on_busy, wait_minutes=None if on_busy == "fail" else 30)


class KubernetesPlay(Play):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.cluster = Kubernetes(self.clock)
        for worker in self.workers:
            if self.random.random() < 0.9:
                self._join(worker)
        self.doubled = ""
        """The node whose address another one has; it is never hidden, for nobody could tell."""
        if self.random.random() < 0.1:
            twin = self.random.choice(self.workers)
            self.doubled = self.names[twin.name]
            self.cluster.add_node("twin", addresses={"InternalIP": twin.addresses[0]})
        self.clock.time += 60
        self.cluster.before = lambda _: self.change_cluster()
        self.jobs = 0

    def _join(self, worker: Worker) -> None:
        fields: dict[str, Any] = {"addresses": {"InternalIP": worker.addresses[0]}}
        if self.random.random() < 0.3:
            fields = {"provider_id": f"scp:///kr-west1/{worker.aliases[0]}"}
        self.cluster.add_node(self.names[worker.name], **fields)

    def change_cluster(self) -> None:
        """Start or end a job, or change the faults, between two requests."""
        dice = self.random.random()
        open_nodes = [
            name
            for name, node in self.cluster.objects["nodes"].items()
            if not node["spec"].get("unschedulable")
        ]
        if dice < 0.15 and open_nodes:
            self.jobs += 1
            owner = self.random.choice(["", "ReplicaSet", "Job"])
            position = self.random.choice(["ml", "ml", "gpu-operator"])
            self.cluster.start_pod(
                self.random.choice(open_nodes), f"job-{self.jobs}", position, owner=owner, gpus=8
            )
        elif dice < 0.3:
            running = [key for key in self.cluster.objects["pods"] if "kube-proxy" not in key]
            if running:
                namespace, name = self.random.choice(running).split("/")
                self.cluster.end_pod(name, namespace)
        elif dice < 0.4:
            self.cluster.misbehavior = self._choose_fault()

    def _choose_fault(self) -> KubernetesMisbehavior:
        """Choose a fault of paged and lagging lists, or none."""
        hidden = self.random.sample(sorted(self.names.values()), len(self.names) // 2 + 1)
        faults: list[dict[str, Any]] = [
            {"expired_tokens": self.random.randint(1, 9)},
            {"shifts_pages": True},
            {"drops_continue": True},
            {"is_foreign": True},
            {"hidden_nodes": {*hidden} - {self.doubled}},
            {"hidden_namespaces": {"kube-system", "ml", "gpu-operator"}},
            {"forbidden": {self.random.choice(["nodes", "pods"])}},
            {"wrong_kind": self.random.choice(["PodList", "NodeList", "List"])},
            {"is_doubled": True},
            {"partial_lists": 1},
            {},
        ]
        return KubernetesMisbehavior(
            page_size=self.random.choice([0, 1, 2, 3]),
            lag_s=self.random.choice([0.0, 0.0, 3.0, 8.0]),
            **self.random.choice(faults),
        )

    def scheduler(self) -> KubernetesScheduler:
        access = load_access(render_kubeconfig("http://127.0.0.1:1"), "train")
        return KubernetesScheduler(
            KubernetesClient(access, "train", transport=InProcessTransport(self.cluster))
        )

    def list_jobs_on(self, worker: str) -> list[str]:
        return self.cluster.list_jobs_on(self.names[worker])


class SlurmPlay(Play):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.slurm = Slurm(self.clock, [])
        for worker in self.workers:
            if self.random.random() < 0.9:
                self.slurm.nodes[self.names[worker.name]] = {
                    "state": "IDLE",
                    "drain": False,
                    "reason": "",
                    "address": worker.addresses[0],
                }
        self.clock.time += 60
        self._run, self.slurm.run = self.slurm.run, self._run_between  # type: ignore[method-assign]

    def _run_between(self, *arguments: Any, **flags: Any) -> Any:
        self.change_cluster()
        return self._run(*arguments, **flags)

    def change_cluster(self) -> None:
        dice = self.random.random()
        busy = {node for job in self.slurm.jobs for node in job.nodes if job.state == "RUNNING"}
        open_nodes = [
            name
            for name, node in self.slurm.nodes.items()
            if not node["drain"] and name not in busy
        ]
        if dice < 0.2 and open_nodes:
            minutes = self.random.choice([1, 10, 600])
            self.slurm.start_job(self.random.choice(open_nodes), "train", minutes)
        elif dice < 0.35:
            self.slurm.misbehavior = SlurmMisbehavior(
                lag_s=self.random.choice([0.0, 0.0, 3.0, 8.0]),
                hides_jobs=self.random.random() < 0.2,
                cuts_output=self.random.random() < 0.1,
                doubles_nodes=self.random.random() < 0.1,
                hides_nodes=set(self.names.values()) if self.random.random() < 0.1 else set(),
            )

    def scheduler(self) -> SlurmScheduler:
        return SlurmScheduler(self.slurm)

    def list_jobs_on(self, worker: str) -> list[str]:
        return self.slurm.list_jobs_on(self.names[worker])


def generate_plays(kind: type[KubernetesPlay | SlurmPlay]) -> Iterator[KubernetesPlay | SlurmPlay]:
    for seed in range(PLAYS):
        yield kind(seed)


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", [KubernetesPlay, SlurmPlay])
def test_no_node_is_removed_while_a_job_runs_on_it(
    kind: type[KubernetesPlay | SlurmPlay], tmp_path_factory: pytest.TempPathFactory
) -> None:
    removed = 0
    for seed, play in enumerate(generate_plays(kind)):
        records = FolderRecords(tmp_path_factory.mktemp("records"))
        call = ProviderContext(clock=play.clock, intents=Intents(records))
        subject = DrainTarget("p1", "pool train", play.workers)
        scheduler = play.scheduler()
        draining = DrainOperation(call, subject, lambda made=scheduler: made, play.policy())  # type: ignore[misc]
        eviction = play.build_eviction()
        try:
            with use_context(call):
                drain = draining.drain_nodes(eviction)
        except GpuformError:
            continue
        assert drain is not None
        removed += len(drain.chosen)
        hurt = {name: jobs for name in drain.chosen if (jobs := play.list_jobs_on(name))}
        assert hurt == {}, f"seed {seed}: {eviction}"
    assert removed > PLAYS / 10, removed
