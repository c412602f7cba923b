"""Fake the schedulers of the nodes of an SCP pool, and their jobs."""

from dataclasses import dataclass, field
from typing import Any

from hostile.fakes.answers import Answer, Call
from hostile.fakes.faults import CHANGE, LIST
from hostile.fakes.kubernetes import Kubernetes, Manners
from hostile.fakes.scp import get_state
from hostile.fakes.slurm import Manners as SlurmManners
from hostile.fakes.slurm import Slurm
from hostile.fakes.world import Json, Thing, World

LAG_S = 30.0

# What Kubernetes is like for as long as a step lasts.
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

# By which names the scheduler knows the nodes.
SAME, ADDRESS, DOMAIN, UNKNOWN = "same", "address", "domain", "unknown"
NAMINGS = (SAME, ADDRESS, DOMAIN, UNKNOWN)
STATIC = "static"
"""The same, and Slurm keeps a node that is gone as DOWN, with its drain, until the name is back."""
SLURM_NAMINGS = (SAME, STATIC, ADDRESS, UNKNOWN)


@dataclass
class Job:
    """A job on a node between two moments."""

    name: str
    node_id: str
    begins: float
    ends: float

    def runs_at(self, moment: float) -> bool:
        return self.begins <= moment < self.ends


@dataclass
class Fleet:
    world: World
    naming: str = SAME
    jobs: list[Job] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.kubernetes = Kubernetes(self)
        self._joined: dict[str, str] = {}
        """Ids of nodes, and their names in Kubernetes."""

    def now(self) -> float:
        return self.world.now

    def behave(self, mood: str) -> None:
        self._synchronize()
        manners = Manners(**MOODS[mood])
        if MOODS[mood].get("hidden_nodes") == "all":
            manners.hidden_nodes = set(self._joined.values())
        self.kubernetes.manners = manners

    def run_job(self, node: Thing, seconds: float) -> None:
        """Start a job on the node, if it has joined."""
        self._synchronize()
        if node.id in self._joined:
            name = f"job-{len(self.jobs)}"
            self.jobs.append(Job(name, node.id, self.world.now, self.world.now + seconds))
            self.kubernetes.run(self._joined[node.id], name, gpus=8, owner="Job")

    def jobs_on(self, node: Thing, moment: float) -> list[Job]:
        return [job for job in self.jobs if job.node_id == node.id and job.runs_at(moment)]

    def describe_use(self) -> list[tuple[str, bool]]:
        """Return the name of each node that has joined, and whether a job runs there now."""
        self._synchronize()
        running = {job.node_id for job in self.jobs if job.runs_at(self.world.now)}
        return [(name, id_ in running) for id_, name in self._joined.items()]

    def ran_since(self, moment: float) -> bool:
        """Return whether any job has run since then."""
        return any(job.ends > moment for job in self.jobs)

    def kind(self, call: Call) -> str:
        return self.kubernetes.kind(call)

    def refuse(self, status: int, text: str) -> Answer:
        reason = {404: "NotFound", 409: "Conflict"}.get(status, "InternalError")
        body = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        return Answer(status, {**body, "reason": reason, "message": text, "code": status})

    def serve(self, call: Call) -> Answer:
        self._synchronize()
        answer = self.kubernetes.serve(call)
        if call.path[-1] == "eviction" and answer.status < 300:
            self._end_early(call.path[-2])
        return answer

    def _end_early(self, name: str) -> None:
        for job in self.jobs:
            if job.name == name:
                job.ends = min(job.ends, self.world.now)

    def _synchronize(self) -> None:
        """Let nodes join when they run, and leave when they are gone; end jobs that are over."""
        nodes = {item.id: item for item in self.world.all_of("scp", "node")}
        for id_ in self._joined.keys() - nodes.keys():
            self.kubernetes.remove_node(self._joined.pop(id_))
        for id_ in nodes.keys() - self._joined.keys():
            if get_state(self.world, nodes[id_]) == "RUNNING":
                self._joined[id_] = name = self._name(nodes[id_])
                self.kubernetes.add_node(name, **self._describe(nodes[id_]))
        for job in self.jobs:
            is_known = f"ml/{job.name}" in self.kubernetes.jobs_on(
                self._joined.get(job.node_id, "")
            )
            if is_known and not job.runs_at(self.world.now):
                self.kubernetes.end(job.name)

    def _name(self, node: Thing) -> str:
        address = node.data["policy_ip"]
        return {
            ADDRESS: f"ip-{address.replace('.', '-')}",
            DOMAIN: f"{node.name}.cluster.example.net",
            UNKNOWN: f"worker-{node.id[:8]}",
        }.get(self.naming, node.name)

    def _describe(self, node: Thing) -> dict[str, Any]:
        if self.naming == UNKNOWN:
            return {}
        return {"addresses": {"InternalIP": node.data["policy_ip"]}}


class SlurmFleet(Fleet):
    """A fleet with a Slurm, whose commands arrive over HTTP as a list of words."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.slurm = Slurm(self, ())

    def behave(self, mood: str) -> None:
        self._synchronize()
        manners = SlurmManners(**SLURM_MOODS.get(mood, {}))
        if mood == "without nodes":
            manners.hides_nodes = set(self.slurm.nodes)
        self.slurm.manners = manners

    def run_job(self, node: Thing, seconds: float) -> None:
        self._synchronize()
        if node.id in self._joined:
            name = f"job-{len(self.jobs)}"
            self.jobs.append(Job(name, node.id, self.world.now, self.world.now + seconds))
            self.slurm.start(self._joined[node.id], name, seconds / 60)

    def kind(self, call: Call) -> str:
        words = call.body["command"]
        return LIST if words[0] == "squeue" or words[1:2] == ["show"] else CHANGE

    def refuse(self, status: int, text: str) -> Answer:
        return Answer(status, {"error": text})

    def serve(self, call: Call) -> Answer:
        self._synchronize()
        output = self.slurm.run(call.body["command"])
        cancelled = {job.name for job in self.slurm.jobs if job.state == "CANCELLED"}
        for name in cancelled:
            self._end_early(name)
        return Answer(
            200, {"stdout": output.stdout, "stderr": output.stderr, "code": output.exit_code}
        )

    def _synchronize(self) -> None:
        """Let nodes join when they run; what is gone leaves, or is DOWN where nodes are static."""
        nodes = {item.id: item for item in self.world.all_of("scp", "node")}
        for id_ in self._joined.keys() - nodes.keys():
            name = self._joined.pop(id_)
            self.slurm.end_node(name, is_static=self.naming == STATIC)
            for job in self.jobs:
                if job.node_id == id_:
                    job.ends = min(job.ends, self.world.now)
        for id_ in nodes.keys() - self._joined.keys():
            if get_state(self.world, nodes[id_]) == "RUNNING":
                self._joined[id_] = name = self._name(nodes[id_])
                is_known = self.naming != UNKNOWN
                self.slurm.add_node(name, nodes[id_].data["policy_ip"] if is_known else name)
