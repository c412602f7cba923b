"""Fake Primus-Lens from its page `clusters.md`: a healthy cluster and the fleet's GPUs, or not."""

import copy
from typing import Any

from hostile.fakes.answers import Answer, PlatformRequest
from hostile.fakes.faults import GET
from hostile.fakes.fleet import Fleet
from hostile.fakes.simulation import Json, Simulation

_OVERVIEW: Json = {
    "totalNodes": 4,
    "healthyNodes": 4,
    "faultyNodes": 0,
    "fullyIdleNodes": 4,
    "partiallyIdleNodes": 0,
    "busyNodes": 0,
    "allocationRate": 0.0,
    "utilization": 0.0,
    "storageStat": {
        "totalCapacity": "1000TB",
        "usedCapacity": "0TB",
        "availableCapacity": "1000TB",
        "utilizationRate": 0.0,
    },
    "rdmaClusterStat": {"totalPorts": 32, "activePorts": 32, "bandwidth": "400Gbps"},
}

# How Lens describes the cluster during a step.
HEALTHY, FALSE_CODE = "healthy", "false code"
MOODS = (HEALTHY, FALSE_CODE, "sick", "sentinels", "partial", "empty", "no data", "texts")
FLEET_MOODS = (*MOODS, "foreign", "stale")
"""FLEET_MOODS has two more: data of another cluster, and data of a time without jobs."""
_HEATMAP_GPUS = 5
"""How many GPUs the heatmap has."""


class Lens:
    """A Lens, which can only be read."""

    def __init__(self, simulation: Simulation, fleet: Fleet) -> None:
        self._simulation = simulation
        self._fleet = fleet

    def classify_request(self, request: PlatformRequest) -> str:
        return GET

    def refuse(self, status: int, text: str) -> Answer:
        return Answer(status, {"code": status, "message": text, "traceId": "t"})

    def serve(self, request: PlatformRequest) -> Answer:
        data: object
        code: object = 0
        match request.path:
            case ("api", "clusters", "overview"):
                data = self._build_overview()
                code = False if self._simulation.lens_mood == FALSE_CODE else 0
            case ("api", "clusters", "consumers"):
                data = self._build_consumers()
            case ("api", "clusters", "gpuHeatmap"):
                data = self._build_heatmap()
            case _:
                return self.refuse(404, "no such page")
        return Answer(200, {"code": code, "message": "success", "data": data, "traceId": "t"})

    def _build_overview(self) -> Any:
        """Return the overview; only an honest one of a healthy cluster lets a gate open."""
        overview = copy.deepcopy(_OVERVIEW)
        match self._simulation.lens_mood:
            case "sick":
                return {**overview, "healthyNodes": 0, "faultyNodes": 4}
            case "sentinels":
                return _set_numbers(overview, -1)
            case "partial":
                return {name: overview[name] for name in overview if "Nodes" not in name}
            case "empty":
                return {}
            case "no data":
                return None
            case "texts":
                return {**overview, "healthyNodes": "many", "totalNodes": "4"}
        if self._simulation.lens_mood == HEALTHY:
            self._simulation.was_healthy = True
        return overview

    def _build_consumers(self) -> Json:
        jobs = self._fleet.jobs if self._simulation.lens_mood not in ("foreign", "stale") else []
        consumers = [
            {
                "kind": "Job",
                "name": job.name,
                "namespace": "ml",
                "uid": f"uid-{job.name}",
                "stat": {"gpuRequest": 8, "gpuUtilization": 0.95},
                "pods": None,
                "source": "k8s",
            }
            for job in jobs
            if job.is_running_at(self._simulation.now)
        ]
        return {"data": consumers, "total": len(consumers)}

    def _build_heatmap(self) -> Any:
        match self._simulation.lens_mood:
            case "empty":
                return {}
            case "no data":
                return None
        busy, idle = {"power": 700, "temperature": 80, "utilization": 95}, {"temperature": 30}
        units = {"power": "W", "temperature": "℃", "utilization": "%"}
        heatmap: Json = {}
        for serial, (metric, unit) in enumerate(units.items()):
            points = [
                {
                    "nodeName": name,
                    "deviceId": device,
                    "value": (busy if is_busy else idle).get(metric, 0.4),
                    "gpuModel": "H100",
                }
                for name, is_busy in self._list_node_use()
                for device in range(8)
            ]
            points.sort(key=lambda point: -float(str(point["value"])))
            count = 2 if self._simulation.lens_mood == "partial" else _HEATMAP_GPUS
            scale = {"serial": serial, "unit": unit, "yAxisMax": 100, "yAxisMin": 0}
            heatmap[metric] = {**scale, "data": points[:count]}
        return _set_numbers(heatmap, -1) if self._simulation.lens_mood == "sentinels" else heatmap

    def _list_node_use(self) -> list[tuple[str, bool]]:
        """Return each node's name, and whether the node's GPUs are busy."""
        if self._simulation.lens_mood == "foreign":
            return [("somebody-1", False)]
        is_old = self._simulation.lens_mood == "stale"
        return [(name, is_busy and not is_old) for name, is_busy in self._fleet.describe_use()]


def _set_numbers(value: Any, number: int) -> Any:
    if isinstance(value, dict):
        return {name: _set_numbers(item, number) for name, item in value.items()}
    return number if isinstance(value, int | float) else value
