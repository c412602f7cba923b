"""Control an emulator's jobs and nodes, and record its fleet over the clock.

`player` samples the fleet whenever the clock has moved; what a run has cost the fleet is a sum over
these samples.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from gpuform.providers.emulator.routing import TRUSTED
from gpuform.providers.emulator.server import Server
from gpuform.stacks.testing.events import list_objects

SECONDS_PER_HOUR: Final = 3600.0
_FLEET_PATH: Final = "/_emulator/fleet"

Owner = tuple[str, str]
"""Platform, and the cluster or fabric that has the GPUs."""


@dataclass(frozen=True, slots=True)
class FleetState:
    """The fleet at one moment of the clock (Unix seconds).

    Attributes:
        working: GPUs on which jobs can run, by owner.
        billed: GPUs that the platform charges, by platform.
        urn: the resource whose step ran then; empty between runs.
        excused: GPUs that the hazard itself takes from their owner, with or without the plan.
        nodes: the nodes that work, each as platform, owner and name.
        data: labels of the stored data, by platform and key.
    """

    at: float
    working: Mapping[Owner, int]
    billed: Mapping[str, int]
    urn: str = ""
    excused: Mapping[Owner, int] = field(default_factory=dict)
    nodes: frozenset[tuple[str, str, str]] = frozenset()
    data: Mapping[tuple[str, str], str] = field(default_factory=dict)


@dataclass(slots=True)
class FleetRecorder:
    """Samples the fleet of an emulator.

    Attributes:
        server: the emulator, whose store nobody else changes.
        failed_nodes: names of nodes that a hazard has broken, by platform and owner.
        excused: GPUs that the hazard takes by itself from now on, by owner.
        urn: the resource whose step runs now; empty between runs.
        samples: the fleet over the clock, oldest first.
    """

    server: Server
    failed_nodes: set[tuple[str, str, str]] = field(default_factory=set)
    excused: dict[Owner, int] = field(default_factory=dict)
    urn: str = ""
    samples: list[FleetState] = field(default_factory=list)
    _answer: Mapping[str, Any] = field(default_factory=dict)
    _described: tuple[int, float, float] = (-1, 0.0, 0.0)
    """The changes until the answer, and the times from and until which it is the same."""

    def sample(self, now: float) -> None:
        """Add the fleet of the time `now`; of several samples of one time the last one stays.

        The first sample stays in any case: it is the fleet before the run, whose first request may
        come at the same time.
        """
        if len(self.samples) > 1 and self.samples[-1].at == now:
            self.samples.pop()
        self.samples.append(self.read(now))

    def read(self, now: float) -> FleetState:
        """Return the fleet as the emulator has it, without the broken nodes."""
        answer = self._describe_fleet()
        working: Counter[Owner] = Counter()
        billed: Counter[str] = Counter()
        nodes = set()
        for node in answer["nodes"]:
            key = (node["platform"], node["owner"], node["name"])
            billed[node["platform"]] += node["gpus"] if node["is_billed"] else 0
            if node["works"] and key not in self.failed_nodes:
                working[key[:2]] += node["gpus"]
                nodes.add(key)
        return FleetState(
            now,
            working,
            billed,
            self.urn,
            dict(self.excused),
            frozenset(nodes),
            _index_data(answer["data"]),
        )

    def _describe_fleet(self) -> Mapping[str, Any]:
        """Return the emulator's answer, which depends on the objects and the time alone.

        It stays until an object is changed or a timeline goes on: most samples of a wait are equal.
        """
        store, clock = self.server.store, self.server.clock
        changes, begin, end = self._described
        if changes != store.change_count or not begin <= clock.now() < end:
            app = self.server.app
            # Past the gate and the log, which take longer than the answer.
            with app.test_request_context(_FLEET_PATH):
                self._answer = app.make_response(app.dispatch_request()).get_json()
            # The answer removes what has expired.
            self._described = store.change_count, clock.now(), clock.find_quiet_end()
        return self._answer


def _index_data(entries: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    return {(entry["platform"], entry["key"]): entry["label"] for entry in entries}


@dataclass(frozen=True, slots=True)
class FleetTarget:
    """The GPUs that should work all the time: those that the fleet has before and after the plan.

    Attributes:
        by_owner: GPUs by the owner that has them before and after.
        moved: GPUs that move from some owners to others.
        urns: the resource of each owner, and the resources that it depends on. Steps are played one
            after the other, but independent ones run side by side in truth: time counts for an
            owner only during the steps of these resources, and between runs.
    """

    by_owner: Mapping[Owner, int]
    moved: int = 0
    urns: Mapping[Owner, frozenset[str]] = field(default_factory=dict)

    @classmethod
    def from_states(
        cls, before: FleetState, after: FleetState, urns: Mapping[Owner, frozenset[str]]
    ) -> "FleetTarget":
        """Return the target of a plan that leads from one state of the fleet to another."""
        by_owner = {
            owner: min(gpus, after.working.get(owner, 0)) for owner, gpus in before.working.items()
        }
        total = min(sum(before.working.values()), sum(after.working.values()))
        moved = max(0, total - sum(by_owner.values()))
        return cls({owner: gpus for owner, gpus in by_owner.items() if gpus}, moved, urns)

    def list_missing(self, state: FleetState) -> dict[Owner | None, int]:
        """Return how many GPUs of the target do not work, by owner; None stands for moved ones.

        GPUs that the hazard excuses are not missing.
        """
        missing: dict[Owner | None, int] = {
            owner: gpus - state.working.get(owner, 0) - state.excused.get(owner, 0)
            for owner, gpus in self.by_owner.items()
        }
        # Moved GPUs are at work wherever there are more than an owner has to have.
        excess = sum(
            max(0, gpus - self.by_owner.get(owner, 0)) for owner, gpus in state.working.items()
        )
        excused = sum(gpus for owner, gpus in state.excused.items() if owner not in self.by_owner)
        missing[None] = self.moved - excess - excused
        return {owner: gpus for owner, gpus in missing.items() if gpus > 0}

    def should_count(self, owner: Owner | None, urn: str) -> bool:
        """Return True if time during a step of the resource counts for the owner."""
        return not urn or owner is None or urn in self.urns.get(owner, frozenset())


@dataclass(frozen=True, slots=True)
class FleetLoss:
    """The GPUs that did not work during a run: the most at a time, for how long, and GPU-hours."""

    gpus: int
    seconds: float
    gpu_hours: float


def measure_loss(target: FleetTarget, samples: Sequence[FleetState]) -> FleetLoss:
    """Return what the target lacked from the first to the last sample.

    Between two samples the fleet is that of the first one. The GPUs are the sum of the most that
    each owner lacked; the seconds are those of the owner that lacked GPUs for longest.
    """
    most: Counter[Owner | None] = Counter()
    seconds: dict[Owner | None, float] = {}
    gpu_seconds = 0.0
    for state, next_state in pairwise(samples):
        length = next_state.at - state.at
        for owner, gpus in target.list_missing(state).items() if length > 0 else ():
            if target.should_count(owner, state.urn):
                most[owner] = max(most[owner], gpus)
                seconds[owner] = seconds.get(owner, 0.0) + length
                gpu_seconds += gpus * length
    for owner, gpus in target.list_missing(samples[-1]).items():
        most[owner] = max(most[owner], gpus)
    longest = max(seconds.values(), default=0.0)
    return FleetLoss(sum(most.values()), round(longest), round(gpu_seconds / SECONDS_PER_HOUR, 2))


def sum_billed_hours(samples: Sequence[FleetState], until: float) -> dict[str, float]:
    """Return the charged GPU-hours by platform from the first sample until the time `until`.

    After the last sample the fleet stays as it is.
    """
    hours: dict[str, float] = {}
    for state, next_at in zip(samples, [*(item.at for item in samples[1:]), until], strict=True):
        for platform, gpus in state.billed.items():
            length = max(0.0, next_at - state.at)
            hours[platform] = hours.get(platform, 0.0) + gpus * length / SECONDS_PER_HOUR
    return hours


def list_lost_data(before: FleetState, after: FleetState) -> tuple[str, ...]:
    """Return the labels of stored data that existed before the run and is gone after it."""
    return tuple(sorted(label for key, label in before.data.items() if key not in after.data))


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
