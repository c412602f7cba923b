"""Control an emulator's jobs and nodes, and record its fleet over the clock.

`player` samples the fleet whenever the clock has moved; what a run has cost the fleet is a sum over
these samples. What is known of the platform beside the state is seeded, too: `sealed_states` leaves
out objects that are gone, and `worker` breaks nodes that do not work.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from gpuform.providers.emulator.routing import TRUSTED
from gpuform.providers.emulator.server import Server
from gpuform.schemas.plan import Plan, PropertyChange, ResourceDrift
from gpuform.schemas.resource_facts import NodeHealth
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import type_of
from gpuform.stacks.pricing import list_entry_nodes
from gpuform.stacks.testing.cases import get_address
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
        """Return the present state of the fleet on the emulator, without the broken nodes."""
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
        data = {(entry["platform"], entry["key"]): entry["label"] for entry in answer["data"]}
        excused = dict(self.excused)
        return FleetState(now, working, billed, self.urn, excused, frozenset(nodes), data)

    def _describe_fleet(self) -> Mapping[str, Any]:
        """Return the fleet from the emulator, cached until an object or a timeline changes.

        Most samples of a wait are equal.
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
        """Return the GPUs to expect at any time of a plan between two states of the fleet."""
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
    """Return the GPUs missing in the target from the first to the last sample, and for how long.

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
    """Return the labels of stored data lost between two states of the fleet."""
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
    """Return the names of the jobs ended before the end of the work."""
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
    answer = server.app.test_client().get(f"/_emulator/slurm/{cluster_id}/jobs")
    return answer.status_code < 400


def break_node(server: Server, platform: str, owner: str, node: str) -> None:
    """Break a node of a cluster or fabric for good, where the platform's emulator can."""
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


@dataclass(frozen=True, slots=True)
class ObservedNodes:
    """How many nodes the platform has last reported for a resource, and which do not work."""

    count: int
    failed: tuple[str, ...]


def list_observed_nodes(
    resources: Iterable[ResourceState], drift: Sequence[ResourceDrift]
) -> dict[str, ObservedNodes]:
    """Return the nodes of each resource with nodes, by URN: as drifted, or as in the state."""
    observed_nodes = {}
    for resource in resources:
        records = list_entry_nodes(resource)
        if records and not resource.delete:
            failed = [node.name for node in records if node.health_state is NodeHealth.UNHEALTHY]
            observed_nodes[resource.urn] = ObservedNodes(len(records), tuple(failed))
    for item in drift:
        if item.nodes is not None and item.urn in observed_nodes:
            observed_nodes[item.urn] = ObservedNodes(item.nodes, item.failed_nodes)
    return observed_nodes


def apply_drift(resources: list[Any], drift: Sequence[ResourceDrift]) -> list[Any]:
    """Return the resources of a state's JSON, changed by the drift a refresh has found.

    Resources that are gone are left out, and inputs have the values of the platform.
    """
    by_urn = {item.urn: item for item in drift}
    gone = {item.urn for item in drift if item.is_gone}
    for resource in resources:
        if (item := by_urn.get(resource["urn"])) is not None:
            for change in item.changes:
                _set_input(resource.get("inputs") or {}, change)
    return [resource for resource in resources if resource["urn"] not in gone]


def _set_input(inputs: Any, change: PropertyChange) -> None:
    """Write the changed value into the inputs, unless the inputs have no value there."""
    *parents, last = property_paths.parse(change.path)
    container = inputs
    for key in parents:
        container = _get_item(container, key)
    # Outputs drift as well, and the value of a secret is unknown.
    if change.secret or change.after == MASK or _get_item(container, last) is None:
        return
    if change.after is not None:
        container[last] = change.after
    elif isinstance(container, dict):
        del container[last]


def _get_item(container: Any, key: str | int) -> Any:
    """Return the item of a mapping or list; None if there is none."""
    try:
        return container[key]
    except (KeyError, IndexError, TypeError):
        return None


def break_observed_nodes(
    server: Server,
    observed_nodes: Mapping[str, ObservedNodes],
    owners: Mapping[str, Owner],
    fleet: FleetState,
) -> frozenset[tuple[str, str, str]]:
    """Break the emulator's nodes in place of failed or missing ones, and return which.

    Nodes may have other names on the emulator: then the last ones of the same owner are broken.
    """
    broken: set[tuple[str, str, str]] = set()
    for urn, nodes in observed_nodes.items():
        owner = owners.get(urn)
        names = sorted(name for *key, name in fleet.nodes if tuple(key) == owner)
        count = len(set(nodes.failed)) + max(0, len(names) - nodes.count)
        if owner is None or not count:
            continue
        failed = [name for name in names if name in nodes.failed]
        others = [name for name in names if name not in nodes.failed]
        for name in [*failed, *reversed(others)][:count]:
            break_node(server, *owner, name)
            broken.add((*owner, name))
    return frozenset(broken)


def describe_drift(drift: Iterable[ResourceDrift]) -> Iterator[str]:
    """Yield each drift found by the plan's refresh, for people: clusters.train: num_gpus is 8."""
    for item in drift:
        facts = ["no longer exists"] if item.is_gone else []
        facts += [
            f"{change.path} is {change.after}"
            for change in item.changes
            if not (change.secret or change.after is None)
        ]
        if item.failed_nodes:
            facts.append(f"broken: {', '.join(item.failed_nodes)}")
        yield f"{get_address(type_of(item.urn), item.urn)}: {', '.join(facts) or 'changed'}"


def start_known_jobs(server: Server, plan: Plan) -> Iterator[StartedJob]:
    """Start the jobs reported by a scheduler for the plan, on nodes of the same clusters."""
    objects = list_objects(server).get("together", {}).get("clusters", ())
    names = {item["name"] for item in objects}
    for change in plan.changes:
        if change.leaving is None or not names:
            continue
        for node in change.leaving.busy:
            cluster = node.name.rsplit("-worker-", 1)[0]
            for job in node.jobs:
                if cluster in names:
                    yield start_job(server, cluster, node.name, job.name)


_PAID_KINDS: Final = ("clusters", "volumes")
"""Kinds of the emulator's objects that cost money, and have the ids of resources."""


def find_unknown_objects(
    objects: Mapping[str, Mapping[str, Sequence[Mapping[str, str]]]], known_ids: Collection[str]
) -> frozenset[str]:
    """Return platform, kind and name of each cluster and volume whose id is not among `known_ids`.

    `objects` have id, name and status, by platform and kind. Those that are being deleted do not
    count.
    """
    return frozenset(
        f"{platform} {kind.removesuffix('s')} {item['name']}"
        for platform, kinds in objects.items()
        for kind in _PAID_KINDS
        for item in kinds.get(kind, ())
        if item["id"] not in known_ids and not item["status"].lower().startswith("delet")
    )
