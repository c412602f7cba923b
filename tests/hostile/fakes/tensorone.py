"""TensorOne's clusters, from its example of an answer and its public pages."""

from typing import Any

from hostile.fakes.answers import Answer, Call, choose_page
from hostile.fakes.faults import CHANGE, CREATE, DELETE, GET, LIST
from hostile.fakes.world import NEVER, Json, Thing, World, written
from hostile.planted import COLLEAGUES_KEY, OUR_KEY

_KEYS = (OUR_KEY, COLLEAGUES_KEY)
_STAGES = [(0.0, "pending"), (3.0, "starting"), (6.0, "running")]
_LEAVES, _LATE, _SWITCHES = 4.0, 120.0, 4.0
_REQUIRED = ("name", "gpu_type", "gpu_count", "storage_gb", "region", "project_id")
_RATE = {
    "X-RateLimit-Limit": "10000",
    "X-RateLimit-Remaining": "9000",
    "X-RateLimit-Window": "3600",
}


class TensorOne:
    def __init__(self, world: World) -> None:
        self._world = world

    def kind(self, call: Call) -> str:
        is_collection = call.path == ("v1", "clusters")
        if call.method == "GET":
            return LIST if is_collection else GET
        if call.method == "DELETE":
            return DELETE
        return CREATE if is_collection else CHANGE

    def refuse(self, status: int, text: str) -> Answer:
        codes = {404: "RESOURCE_NOT_FOUND", 409: "STATE_CONFLICT"}
        return self._error(status, codes.get(status, "INTERNAL_ERROR"), text)

    def serve(self, call: Call) -> Answer:
        answer = self._answer(call)
        reset = {"X-RateLimit-Reset": str(int(self._world.clock()) + 3600)}
        return Answer(**{**vars(answer), "headers": {**_RATE, **reset}})

    def _answer(self, call: Call) -> Answer:
        if call.headers.get("Authorization") not in [f"Bearer {key}" for key in _KEYS]:
            return self._error(401, "UNAUTHORIZED", "Invalid API key")
        rest = call.path[2:]
        if not rest:
            return self._make(call) if call.method == "POST" else self._list(call)
        thing = self._world.find("tensorone", "cluster", rest[0])
        if thing is None:
            details = {"resource": "cluster", "id": rest[0]}
            return self._error(404, "RESOURCE_NOT_FOUND", "Cluster not found", details)
        match (call.method, *rest[1:]):
            case ("GET",):
                return self._told(200, self._cluster(thing))
            case ("PUT",):
                return self._change(call, thing, call.body or {})
            case ("DELETE",):
                return self._remove(call, thing)
            case ("POST", "start" | "stop" as switch):
                more = (call.body or {}).get("update_configuration") or {}
                switched = {"switched": (switch, self._world.now)}
                return self._change(call, thing, {**more, **switched})
        return self._error(404, "RESOURCE_NOT_FOUND", "no such route")

    def _error(self, status: int, code: str, message: str, details: Json | None = None) -> Answer:
        return Answer(
            status,
            {
                "error": code,
                "message": message,
                "code": status,
                "details": details or {},
                "request_id": "req_1",
                "timestamp": written(self._world.clock()),
            },
        )

    def _told(self, status: int, data: Any) -> Answer:
        meta = {
            "request_id": "req_1",
            "response_time_ms": 9,
            "cache_hit": False,
            "data_freshness_seconds": 0,
        }
        return Answer(status, {"success": True, "data": data, "meta": meta})

    def _make(self, call: Call) -> Answer:
        sent: Json = call.body if isinstance(call.body, dict) else {}
        for name in _REQUIRED:
            if not sent.get(name):
                details = {"field": name, "reason": "required"}
                return self._error(400, "VALIDATION_ERROR", f"{name} is required", details)
        id_ = self._world.new_id("cluster_")
        thing = self._world.add(
            call.actor, "tensorone", "cluster", id_, sent["name"], dict(sent), delay=call.delay
        )
        return self._told(201, self._cluster(thing))

    def _list(self, call: Call) -> Answer:
        asked = call.query
        page = int(asked.get("page", 1))
        limit = min(self._world.behavior.page_cap or 100, int(asked.get("limit", 20)))
        found = [
            shown
            for each in reversed(self._world.listed("tensorone", "cluster"))
            if _matches(shown := self._cluster(each), asked)
        ]
        total = len(found)
        pagination = {
            "page": page,
            "limit": limit,
            "total": total,
            "total_pages": -(-total // limit),
        }
        shown = choose_page(call, found, (page - 1) * limit, limit)
        return self._told(200, {"clusters": shown, "pagination": pagination})

    def _change(self, call: Call, thing: Thing, changes: Json) -> Answer:
        if thing.leaves != NEVER:
            return self._error(409, "STATE_CONFLICT", "The cluster is being deleted")
        if not call.ignored:
            self._world.change(call.actor, thing, **changes)
        return self._told(200, self._cluster(thing))

    def _remove(self, call: Call, thing: Thing) -> Answer:
        sent: Json = call.body if isinstance(call.body, dict) else {}
        if sent.get("confirm_deletion") != "DELETE":
            return self._error(400, "VALIDATION_ERROR", "confirm_deletion must be DELETE")
        status = self._status(thing)
        if status == "running" and not sent.get("force"):
            details = {"current_state": status, "required_state": "stopped"}
            return self._error(409, "STATE_CONFLICT", "The cluster is running", details)
        if not call.ignored:
            self._world.remove(call.actor, thing, _LATE if call.late else _LEAVES)
        return self._told(200, {"id": thing.id, "status": "deleting"})

    def _status(self, thing: Thing) -> str:
        now = self._world.now
        if now >= thing.leaves:
            return "deleting"
        switch, moment = thing.data.get("switched", ("", 0.0))
        if switch:
            over, under_way = {
                "start": ("running", "starting"),
                "stop": ("stopped", "stopping"),
            }[switch]
            return over if now >= moment + _SWITCHES else under_way
        if thing.data.get("auto_start") is False:
            return "stopped" if now >= thing.made + _SWITCHES else "pending"
        return self._world.stage(thing, _STAGES)

    def _cluster(self, thing: Thing) -> Json:
        data, status = thing.data, self._status(thing)
        health = dict.fromkeys(
            ("gpu_health", "storage_health", "network_health", "docker_health"), "healthy"
        )
        count = data["gpu_count"]
        return {
            "id": thing.id,
            "name": data["name"],
            "description": data.get("description") or "",
            "status": status,
            "status_details": {
                "message": f"Cluster is {status}",
                "last_status_change": written(thing.busy_since + self._world.behavior.clock_skew),
                "health_checks": health,
            },
            "configuration": {
                "gpu_type": data["gpu_type"],
                "gpu_count": count,
                "cpu_cores": data.get("cpu_cores") or 8 * count,
                "memory_gb": data.get("memory_gb") or 64 * count,
                "storage_gb": data["storage_gb"],
                "storage_type": "nvme",
                "region": data["region"],
                "availability_zone": f"{data['region']}a",
            },
            "project_info": {
                "project_id": data["project_id"],
                "project_name": "ML",
                "owner_id": "user_789",
                "owner_email": "researcher@example.net",
            },
            "template_info": {
                "template_id": data.get("template_id") or "",
                "template_name": "PyTorch",
                "template_version": "v2.1.0",
                "docker_image": data.get("docker_image") or "tensorone/pytorch:2.1-cuda11.8",
            },
            "network": {
                "private_ip": "10.0.1.15",
                "public_ip": "203.0.113.42",
                "proxy_url": "https://cluster.example.net",
                "ssh_connection": {
                    "host": "ssh.example.net",
                    "port": 22,
                    "username": "root",
                    "status": "connected",
                    "connection_string": "ssh root@ssh.example.net",
                    "last_connection": written(self._world.clock()),
                },
                "port_mappings": [],
                "security_groups": data.get("security_groups") or [],
                "firewall_rules": [],
            },
            "cost": {"current_hourly_rate": 2.0 * count, "currency": "USD"},
            "storage": {"volumes": [], "snapshots": []},
            "environment": {
                "variables": data.get("environment_variables") or {},
                "secrets": [],
                "runtime_info": {},
            },
            "auto_terminate": data.get("auto_terminate") or {"enabled": False},
            "uptime_seconds": int(self._world.now - thing.made),
            "created_at": self._world.created_at(thing),
            "updated_at": written(self._world.clock()),
            "tags": data.get("tags") or {},
        }


def _matches(shown: Json, asked: Any) -> bool:
    configuration = shown["configuration"]
    told = {
        "status": shown["status"],
        "region": configuration["region"],
        "gpu_type": configuration["gpu_type"],
        "project_id": shown["project_info"]["project_id"],
    }
    searched = asked.get("search", "")
    return (searched in shown["name"] or searched in shown["description"]) and all(
        told[name] == asked[name] for name in told if asked.get(name)
    )
