"""Emulate Lens, which monitors the GPU nodes of the other emulated platforms; no key is needed.

`app` mounts the routes under `/lens` through `create_parts`; all are read-only (platform document,
'Endpoints'). A node that is being created, or is stopped, is not counted. Records of the AIOS
registry are no machines.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flask import Response, request
from pydantic import BaseModel, Field, JsonValue

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.routing import (
    EmulatorParts,
    PlatformApi,
    PlatformControls,
    PlatformSettings,
    RouteTable,
    answer_json,
)
from gpuform.providers.emulator.scp.catalogue import PRODUCTS
from gpuform.providers.emulator.scp.nodes import GPUS_PER_NODE, ScpInventory
from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.clusters import TensorOneInventory
from gpuform.providers.emulator.together.operations import TogetherOperations


@dataclass(frozen=True)
class Node:
    """A monitored node: a worker, a server or a cluster of one of the platforms."""

    name: str
    gpu_model: str
    gpus: int
    is_healthy: bool = True


def list_nodes(store: Store, now: float) -> list[Node]:
    """Return the monitored nodes at `now`: Together's, then SCP's, then TensorOne's.

    Each platform's nodes are in the order of creation.
    """
    return [
        *_list_together_nodes(store, now),
        *_list_scp_nodes(store, now),
        *_list_tensorone_nodes(store, now),
    ]


def _list_together_nodes(store: Store, now: float) -> Iterator[Node]:
    """Yield the running workers of Together's clusters as monitored nodes."""
    for cluster in TogetherOperations(store, now).list_clusters():
        settings = cluster.settings
        for node in (*cluster.workers, *cluster.preemptible):
            if node.is_running(now):
                yield Node(node.host_name, settings.gpu_type, settings.machine.num_gpus)


def _list_scp_nodes(store: Store, now: float) -> Iterator[Node]:
    """Yield SCP's running, editing and failed GPU nodes as monitored nodes.

    Failed ones are unhealthy.
    """
    for node in ScpInventory(store, now).list_live_nodes():
        state = node.get_state(now)
        # A node in ERROR is counted and faulty; a stopped one is not at work.
        if state in ("RUNNING", "EDITING", "ERROR"):
            model = PRODUCTS[node.identity.product_type_id].gpu_model
            yield Node(node.name, model, GPUS_PER_NODE, is_healthy=state != "ERROR")


def _list_tensorone_nodes(store: Store, now: float) -> Iterator[Node]:
    """Yield TensorOne's running and failed clusters, each as one monitored node.

    Failed ones are unhealthy.
    """
    for cluster in TensorOneInventory(store, now).list_clusters():
        status = cluster.get_status(now)
        if status in ("running", "error"):
            spec = cluster.spec
            yield Node(cluster.details.name, spec.gpu_type, spec.gpu_count, status == "running")


class Stat(BaseModel, extra="forbid", frozen=True):
    """The GPUs of a workload, and how busy they are, from 0 to 1."""

    gpuRequest: int = Field(ge=0)  # noqa: N815 - the document's name
    gpuUtilization: float = Field(ge=0, le=1)  # noqa: N815 - as above


class Consumer(BaseModel, extra="forbid", frozen=True):
    """A workload, as the document shows it, which takes GPUs of the nodes in their order."""

    kind: str
    name: str
    namespace: str
    uid: str
    stat: Stat
    pods: None = None
    source: str


class Failure(BaseModel, extra="forbid", frozen=True):
    """The code and the message of a failed answer."""

    code: int
    message: str


class LensSettings(PlatformSettings):
    """What tests can set of Lens."""

    kind = "lens.settings"

    consumers: tuple[Consumer, ...] = ()
    """The workloads on the monitored nodes."""

    overview: Mapping[str, JsonValue] = {}
    """Fields of the overview, by the document's names, that replace counted ones."""

    heatmap: dict[str, Any] | None = None
    """A complete heatmap that replaces the computed one."""

    total: int | None = None
    """The number of consumers that pages report, instead of the true number."""

    failure: Failure | None = None
    """The failure of every answer, with status 200."""

    garbled: bool = False
    """Whether the unit of temperatures is sent as the document has it, â„ƒ."""


Json = dict[str, Any]

# An RDMA port for each of eight GPUs; ours.
PORTS_PER_NODE = 8
HOTTEST_COUNT = 5
_IDLE_WATTS, _FULL_WATTS = 100.0, 750.0
_IDLE_DEGREES, _FULL_DEGREES = 35.0, 85.0


@dataclass(frozen=True)
class Gpu:
    """A GPU of a node; `use` is from 0 to 1, None where no workload has the GPU."""

    node: Node
    device: int
    use: float | None


def assign_gpus(nodes: Sequence[Node], consumers: Sequence[Consumer]) -> list[Gpu]:
    """Return all GPUs of `nodes`; the first GPUs of healthy nodes are in use by `consumers`.

    Each workload in turn takes as many GPUs as requested, while there are any. Faulty nodes' GPUs
    and the rest have no `use`.
    """
    uses = iter(
        [
            consumer.stat.gpuUtilization
            for consumer in consumers
            for _ in range(consumer.stat.gpuRequest)
        ]
    )
    return [
        Gpu(node, device, next(uses, None) if node.is_healthy else None)
        for node in nodes
        for device in range(node.gpus)
    ]


def build_overview(nodes: Sequence[Node], gpus: Sequence[Gpu], stored_tib: int) -> Json:
    """Return Lens's overview in the document's form: counts of nodes, GPUs, storage and ports.

    `stored_tib` is the size of all volumes. Faulty nodes are neither idle nor busy.
    """
    healthy = [node for node in nodes if node.is_healthy]
    used_gpus = [gpu for gpu in gpus if gpu.use is not None]
    used_counts = [(node, sum(gpu.node is node for gpu in used_gpus)) for node in healthy]
    idle = sum(count == 0 for _, count in used_counts)
    # A node without GPUs is idle, not busy.
    busy = sum(0 < node.gpus == count for node, count in used_counts)
    return {
        "totalNodes": len(nodes),
        "healthyNodes": len(healthy),
        "faultyNodes": len(nodes) - len(healthy),
        "fullyIdleNodes": idle,
        "partiallyIdleNodes": len(healthy) - idle - busy,
        "busyNodes": busy,
        "allocationRate": _compute_rate(len(used_gpus), len(gpus)),
        "utilization": _compute_rate(sum(gpu.use or 0.0 for gpu in used_gpus), len(used_gpus)),
        "storageStat": {
            "totalCapacity": f"{stored_tib}TB",
            "usedCapacity": "0TB",
            "availableCapacity": f"{stored_tib}TB",
            "utilizationRate": 0.0,
        },
        "rdmaClusterStat": {
            "totalPorts": PORTS_PER_NODE * len(nodes),
            "activePorts": PORTS_PER_NODE * len(healthy),
            "bandwidth": "400Gbps",
        },
    }


def build_heatmap(gpus: Sequence[Gpu], temperature_unit: str) -> Json:
    """Return the heatmap of Lens: the GPUs with the highest power, temperature and utilization.

    Power is in watts, utilization in percent.
    """
    return {
        "power": _build_hottest(gpus, (_IDLE_WATTS, _FULL_WATTS), 2, "W", (850, 0)),
        "temperature": _build_hottest(
            gpus, (_IDLE_DEGREES, _FULL_DEGREES), 3, temperature_unit, (110, 20)
        ),
        "utilization": _build_hottest(gpus, (0.0, 100.0), 1, "%", (100, 0)),
    }


def _build_hottest(
    gpus: Sequence[Gpu], span: tuple[float, float], serial: int, unit: str, axis: tuple[int, int]
) -> Json:
    """Return one part of the heatmap: the `HOTTEST_COUNT` GPUs with the highest values.

    `span` is the value of an idle and of a fully used GPU, `axis` the largest and smallest value of
    the chart, `serial` and `unit` are the document's.
    """
    low, high = span
    points = [
        {
            "nodeName": gpu.node.name,
            "deviceId": gpu.device,
            "value": round(low + (high - low) * (gpu.use or 0.0), 1),
            "gpuModel": gpu.node.gpu_model,
        }
        for gpu in gpus
    ]
    # Sorting is stable: equally hot GPUs stay in the order of their nodes.
    top = sorted(points, key=lambda point: -float(str(point["value"])))[:HOTTEST_COUNT]
    return {"serial": serial, "unit": unit, "yAxisMax": axis[0], "yAxisMin": axis[1], "data": top}


def _compute_rate(part: float, total: int) -> float:
    """Return `part` as a share of `total`, from 0 to 1 with four digits; 0 without a total."""
    return round(part / total, 4) if total else 0.0


_FOLDER = "/api/clusters"
_DEGREES = "℃"


class LensApi(PlatformApi):
    """Lens's API, as `app` mounts it."""

    name = "lens"
    prefix = "/lens"

    def _list_routes(self) -> RouteTable:
        """Return method, path and view of Lens's overview, consumers and heatmap."""
        return (
            ("GET", f"{_FOLDER}/overview", self._answer_overview),
            ("GET", f"{_FOLDER}/consumers", self._answer_consumers),
            ("GET", f"{_FOLDER}/gpuHeatmap", self._answer_heatmap),
        )

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error in Lens's form: code, message and trace id."""
        content = {"code": status, "message": message, "traceId": self._create_trace_id()}
        return answer_json(content, status)

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return one entry `overview`: how many of the monitored nodes are healthy."""
        with self._store.transaction():
            nodes = self._load_platform()
            status = f"{sum(node.is_healthy for node in nodes)} of {len(nodes)} healthy"
            return {"overviews": [{"id": "overview", "name": "overview", "status": status}]}

    def _load_platform(self) -> list[Node]:
        """Return the nodes of all emulated platforms, monitored at the clock's present time.

        Removes expired objects of the store first.
        """
        now = self._clock.now()
        self._store.remove_expired(now)
        return list_nodes(self._store, now)

    def _list_gpus(self, nodes: list[Node]) -> list[Gpu]:
        """Return the GPUs of the nodes, assigned to the workloads in the settings."""
        return assign_gpus(nodes, LensSettings.load(self._store).consumers)

    def _answer_overview(self, nodes: list[Node]) -> Response:
        """Answer with the counts of nodes, GPUs and storage.

        Members in the setting `overview`, and then statuses of injected faults (`name=value`),
        replace counted ones.
        """
        now = self._clock.now()
        volumes = [
            volume.to_json(now) for volume in TogetherOperations(self._store, now).list_volumes()
        ]
        size = sum(volume["size_tib"] for volume in volumes)
        view = build_overview(nodes, self._list_gpus(nodes), size)
        # Objects are merged member by member, so that a test may replace a single number.
        for name, value in LensSettings.load(self._store).overview.items():
            if isinstance(value, dict):
                view[name] = {**view.get(name, {}), **value}
            else:
                view[name] = value
        path = request.path.removeprefix(self.prefix)
        overrides = self._faults.take_overrides(request.method, path, [path], self.name)
        for rule in overrides.values():
            _set_overridden_value(view, rule.status_override or "")
        return self._answer_data(view)

    def _answer_consumers(self, _: list[Node]) -> Response:
        """Answer with a page of the workloads in the settings: `data` inside `data`, as documented.

        `total` is the number of all workloads, or the setting `total`. Answers 400 for a page
        number or page size that is not a positive integer.
        """
        try:
            number = int(request.args.get("pageNum", "1"))
            size = int(request.args.get("pageSize", "10"))
        except ValueError:
            # Refused below like any number that is too small.
            number = size = 0
        if number < 1 or size < 1:
            return self.answer_error(400, "pageNum and pageSize must be positive integers")
        settings = LensSettings.load(self._store)
        page = settings.consumers[(number - 1) * size : number * size]
        total = len(settings.consumers) if settings.total is None else settings.total
        return self._answer_data(
            {"data": [consumer.model_dump() for consumer in page], "total": total}
        )

    def _answer_heatmap(self, nodes: list[Node]) -> Response:
        """Answer with the hottest GPUs, or the heatmap in the settings."""
        settings = LensSettings.load(self._store)
        # The document's own sign is UTF-8 that was read as Windows-1252.
        unit = _DEGREES.encode().decode("cp1252") if settings.garbled else _DEGREES
        view = settings.heatmap or build_heatmap(self._list_gpus(nodes), unit)
        return self._answer_data(view)

    def _answer_data(self, data: object) -> Response:
        """Answer 200 with `data` and code 0, or with the failure that a test has set instead.

        Both have a trace id.
        """
        failure = LensSettings.load(self._store).failure
        # Lens answers 200 to its failures, too; the code is in the body.
        if failure is not None:
            content: dict[str, object] = failure.model_dump()
        else:
            content = {"code": 0, "message": "success", "data": data}
        return answer_json({**content, "traceId": self._create_trace_id()})

    def _create_trace_id(self) -> str:
        """Return a new trace id, `trace-` and 8 characters, computed from the store's seed."""
        return f"trace-{self._store.create_id()[:8]}"


def _set_overridden_value(view: dict[str, Any], status: str) -> None:
    """Set the member of an overview named by a fault's status, such as `faultyNodes=3`, in place.

    Members of `rdmaClusterStat` are set there. Digits become a number.
    """
    name, _, value = status.partition("=")
    parent = view["rdmaClusterStat"] if name in view["rdmaClusterStat"] else view
    parent[name] = int(value) if value.isdecimal() else value


class LensControls(PlatformControls):
    """What tests do to Lens: settings alone."""

    settings = LensSettings


def create_parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Return Lens's part of the emulator: the API, and the test controls under `lens`."""
    return EmulatorParts(
        (LensApi(store, clock, faults),), {"lens": LensControls(store, clock).create_blueprint()}
    )
