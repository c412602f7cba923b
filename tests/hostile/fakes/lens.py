"""Primus-Lens, from its page `clusters.md`: a healthy cluster of four nodes, or none of that."""

import copy
from typing import Any

from hostile.fakes.answers import Answer, Call
from hostile.fakes.faults import GET
from hostile.fakes.world import Json, World

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

# What Lens says of the cluster, for as long as a step lasts.
HEALTHY, FALSE_CODE = "healthy", "false code"
MOODS = (HEALTHY, FALSE_CODE, "sick", "sentinels", "partial", "empty", "no data", "texts")


class Lens:
    """Can only be read."""

    def __init__(self, world: World) -> None:
        self._world = world

    def kind(self, call: Call) -> str:
        return GET

    def refuse(self, status: int, text: str) -> Answer:
        return Answer(status, {"code": status, "message": text, "traceId": "t"})

    def serve(self, call: Call) -> Answer:
        data: object
        code: object = 0
        match call.path:
            case ("api", "clusters", "overview"):
                data = self._overview()
                code = False if self._world.lens_mood == FALSE_CODE else 0
            case ("api", "clusters", "consumers"):
                data = {"data": [], "total": 0}
            case ("api", "clusters", "gpuHeatmap"):
                units = {"power": "W", "temperature": "℃", "utilization": "%"}
                data = {
                    name: {"serial": 1, "unit": unit, "yAxisMax": 100, "yAxisMin": 0, "data": []}
                    for name, unit in units.items()
                }
            case _:
                return self.refuse(404, "no such page")
        return Answer(200, {"code": code, "message": "success", "data": data, "traceId": "t"})

    def _overview(self) -> Any:
        """Return the overview; only an honest one of a healthy cluster lets a gate open."""
        shown = copy.deepcopy(_OVERVIEW)
        match self._world.lens_mood:
            case "sick":
                return {**shown, "healthyNodes": 0, "faultyNodes": 4}
            case "sentinels":
                return _set_numbers(shown, -1)
            case "partial":
                return {name: shown[name] for name in shown if "Nodes" not in name}
            case "empty":
                return {}
            case "no data":
                return None
            case "texts":
                return {**shown, "healthyNodes": "many", "totalNodes": "4"}
        if self._world.lens_mood == HEALTHY:
            self._world.was_healthy = True
        return shown


def _set_numbers(value: Any, number: int) -> Any:
    if isinstance(value, dict):
        return {name: _set_numbers(each, number) for name, each in value.items()}
    return number if isinstance(value, int | float) else value
