"""Fake the schedulers of the nodes of an SCP pool, and their jobs."""

from dataclasses import dataclass, field
from typing import Any

from hostile.fakes.answers import Answer, PlatformRequest
from hostile.fakes.faults import CHANGE, LIST
from hostile.fakes.kubernetes import Kubernetes, Misbehavior
from hostile.fakes.scp import get_state
from hostile.fakes.simulation import Json, PlatformObject, Simulation
from hostile.fakes.slurm import Misbehavior as SlurmMisbehavior
from hostile.fakes.slurm import Slurm

LAG_S = 30.0

# How Kubernetes answers during a step.
HONEST = "honest"
MOODS: dict[str, Json] = {
    HONEST: {},
    "pages": {"page_size": 1},
    "shifting pages": {"page_size": 1, "shifts_pages": True},
    "first page alone": {"page_size": 1, "drops_continue": True},
    "one page again and again": {"page_size": 1, "repeats_page": True},
    "expired pages": {"page_size": 1, "expired_tokens": 2},
    "foreign": {"is_foreign": True},
    "empty": {"hidden_nodes": "all", "hidden_namespaces": {"ml"}},
    "without nodes": {"hidden_nodes": "all"},
    "another kind": {"wrong_kind": "NodeList"},
    "doubled": {"is_doubled": True},
    "partial": {"partial_lists": 2},
    "late": {"lag_s": LAG_S},
    "forbidden nodes": {"forbidden": {"nodes"}},
    "forbidden pods": {"forbidden": {"pods"}},
}

SLURM_MOODS: dict[str, Json] = {
    HONEST: {},
    "without nodes": {},
    "hidden jobs": {"hides_jobs": True},
    "doubled": {"doubles_nodes": True},
    "cut": {"cuts_output": True},
    "late": {"lag_s": LAG_S},
}

# Which names the scheduler has for the nodes.
SAME, ADDRESS, DOMAIN, UNKNOWN = "same", "address", "domain", "unknown"
NAMINGS = (SAME, ADDRESS, DOMAIN, UNKNOWN)
STATIC = "static"
"""As SAME, and Slurm keeps a deleted node as DOWN, with its drain, until its name returns."""
SLURM_NAMINGS = (SAME, STATIC, ADDRESS, UNKNOWN)


@dataclass
class Job:
    """A job on a node between two moments."""

    name: str
    node_id: str
    begins: float
    ends: float

    def is_running_at(self, moment: float) -> bool:
        return self.begins <= moment < self.ends


@dataclass
class Fleet:
    """The nodes of SCP pools as their Kubernetes shows them, and the jobs on them."""

    simulation: Simulation
    naming: str = SAME
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kubernetes = Kubernetes(self)
        self._joined: dict[str, str] = {}
        """Ids of nodes, and their names in Kubernetes."""

    def now(self) -> float:
        return self.simulation.now

    def set_mood(self, mood: str) -> None:
        self._synchronize()
        misbehavior = Misbehavior(**MOODS[mood])
        if MOODS[mood].get("hidden_nodes") == "all":
            misbehavior.hidden_nodes = set(self._joined.values())
        self.kubernetes.misbehavior = misbehavior

    def run_job(self, node: PlatformObject, seconds: float) -> None:
        """Start a job on the node after the node's join."""
        self._synchronize()
        if node.id in self._joined:
            name = f"job-{len(self.jobs)}"
            self.jobs.append(Job(name, node.id, self.simulation.now, self.simulation.now + seconds))
            self.kubernetes.start_pod(self._joined[node.id], name, gpus=8, owner="Job")

    def list_jobs_on(self, node: PlatformObject, moment: float) -> list[Job]:
        return [job for job in self.jobs if job.node_id == node.id and job.is_running_at(moment)]

    def describe_use(self) -> list[tuple[str, bool]]:
        """Return the name of each joined node, and whether a job runs on the node."""
        self._synchronize()
        running = {job.node_id for job in self.jobs if job.is_running_at(self.simulation.now)}
        return [(name, id_ in running) for id_, name in self._joined.items()]

    def has_run_since(self, moment: float) -> bool:
        """Return whether any job has run since then."""
        return any(job.ends > moment for job in self.jobs)

    def classify_request(self, request: PlatformRequest) -> str:
        return self.kubernetes.classify_request(request)

    def refuse(self, status: int, text: str) -> Answer:
        reason = {404: "NotFound", 409: "Conflict"}.get(status, "InternalError")
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return Answer(status, {**body, "reason": reason, "message": text, "code": status})

    def serve(self, request: PlatformRequest) -> Answer:
        self._synchronize()
        answer = self.kubernetes.serve(request)
        if request.path[-1] == "eviction" and answer.status < 300:
            self._end_early(request.path[-2])
        return answer

    def _end_early(self, name: str) -> None:
        for job in self.jobs:
            if job.name == name:
                job.ends = min(job.ends, self.simulation.now)

    def _synchronize(self) -> None:
        """Join running nodes, remove deleted ones, and end the jobs whose time is over."""
        nodes = {item.id: item for item in self.simulation.list_existing("scp", "node")}
        for id_ in self._joined.keys() - nodes.keys():
            self.kubernetes.remove_node(self._joined.pop(id_))
        for id_ in nodes.keys() - self._joined.keys():
            if get_state(self.simulation, nodes[id_]) == "RUNNING":
                self._joined[id_] = name = self._get_scheduler_name(nodes[id_])
                self.kubernetes.add_node(name, **self._describe(nodes[id_]))
        for job in self.jobs:
            is_known = f"ml/{job.name}" in self.kubernetes.list_jobs_on(
                self._joined.get(job.node_id, "")
            )
            if is_known and not job.is_running_at(self.simulation.now):
                self.kubernetes.end_pod(job.name)

    def _get_scheduler_name(self, node: PlatformObject) -> str:
        address = node.data["policy_ip"]
        return {
            ADDRESS: f"ip-{address.replace('.', '-')}",
            DOMAIN: f"{node.name}.cluster.example.net",
            UNKNOWN: f"worker-{node.id[:8]}",
        }.get(self.naming, node.name)

    def _describe(self, node: PlatformObject) -> dict[str, Any]:
        if self.naming == UNKNOWN:
            return {}
        return {"addresses": {"InternalIP": node.data["policy_ip"]}}


class SlurmFleet(Fleet):
    """A fleet with a Slurm, whose commands arrive over HTTP as a list of words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.slurm = Slurm(self, ())

    def set_mood(self, mood: str) -> None:
        self._synchronize()
        misbehavior = SlurmMisbehavior(**SLURM_MOODS.get(mood, {}))
        if mood == "without nodes":
            misbehavior.hides_nodes = set(self.slurm.nodes)
        self.slurm.misbehavior = misbehavior

    def run_job(self, node: PlatformObject, seconds: float) -> None:
        self._synchronize()
        if node.id in self._joined:
            name = f"job-{len(self.jobs)}"
            self.jobs.append(Job(name, node.id, self.simulation.now, self.simulation.now + seconds))
            self.slurm.start_job(self._joined[node.id], name, seconds / 60)

    def classify_request(self, request: PlatformRequest) -> str:
        words = request.body["command"]
        return LIST if words[0] == "squeue" or words[1:2] == ["show"] else CHANGE

    def refuse(self, status: int, text: str) -> Answer:
        return Answer(status, {"error": text})

    def serve(self, request: PlatformRequest) -> Answer:
        self._synchronize()
        output = self.slurm.run(request.body["command"])
        cancelled = {job.name for job in self.slurm.jobs if job.state == "CANCELLED"}
        for name in cancelled:
            self._end_early(name)
        return Answer(
            200, {"stdout": output.stdout, "stderr": output.stderr, "code": output.exit_code}
        )

    def _synchronize(self) -> None:
        """Join running nodes; remove deleted ones, or mark them as DOWN where nodes are static."""
        nodes = {item.id: item for item in self.simulation.list_existing("scp", "node")}
        for id_ in self._joined.keys() - nodes.keys():
            name = self._joined.pop(id_)
            self.slurm.end_node(name, is_static=self.naming == STATIC)
            for job in self.jobs:
                if job.node_id == id_:
                    job.ends = min(job.ends, self.simulation.now)
        for id_ in nodes.keys() - self._joined.keys():
            if get_state(self.simulation, nodes[id_]) == "RUNNING":
                self._joined[id_] = name = self._get_scheduler_name(nodes[id_])
                is_known = self.naming != UNKNOWN
                self.slurm.add_node(name, nodes[id_].data["policy_ip"] if is_known else name)
