"""Primus-Lens, from its page `clusters.md`: a healthy cluster of four nodes."""

from hostile.fakes.answers import Answer, Call
from hostile.fakes.faults import GET

_OVERVIEW = {
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


class Lens:
    """Can only be read."""

    def kind(self, call: Call) -> str:
        return GET

    def serve(self, call: Call) -> Answer:
        data: object
        match call.path:
            case ("api", "clusters", "overview"):
                data = _OVERVIEW
            case ("api", "clusters", "consumers"):
                data = {"data": [], "total": 0}
            case ("api", "clusters", "gpuHeatmap"):
                units = {"power": "W", "temperature": "℃", "utilization": "%"}
                data = {
                    name: {"serial": 1, "unit": unit, "yAxisMax": 100, "yAxisMin": 0, "data": []}
                    for name, unit in units.items()
                }
            case _:
                return Answer(404, {"code": 404, "message": "no such page", "traceId": "t"})
        return Answer(200, {"code": 0, "message": "success", "data": data, "traceId": "t"})
