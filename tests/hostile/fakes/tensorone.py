"""Fake TensorOne's clusters, from its example of an answer and its public pages."""

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
        platform_object = self._world.find("tensorone", "cluster", rest[0])
        if platform_object is None:
            details = {"resource": "cluster", "id": rest[0]}
            return self._error(404, "RESOURCE_NOT_FOUND", "Cluster not found", details)
        match (call.method, *rest[1:]):
            case ("GET",):
                return self._answer_data(200, self._cluster(platform_object))
            case ("PUT",):
                return self._change(call, platform_object, call.body or {})
            case ("DELETE",):
                return self._remove(call, platform_object)
            case ("POST", "start" | "stop" as switch):
                more = (call.body or {}).get("update_configuration") or {}
                switched = {"switched": (switch, self._world.now)}
                return self._change(call, platform_object, {**more, **switched})
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

    def _answer_data(self, status: int, data: Any) -> Answer:
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
        platform_object = self._world.add(
            call.actor, "tensorone", "cluster", id_, sent["name"], dict(sent), delay=call.delay
        )
        return self._answer_data(201, self._cluster(platform_object))

    def _list(self, call: Call) -> Answer:
        requests = call.query
        page = int(requests.get("page", 1))
        limit = min(self._world.behavior.page_cap or 100, int(requests.get("limit", 20)))
        matching = [
            page_rows
            for item in reversed(self._world.listed("tensorone", "cluster"))
            if _matches(page_rows := self._cluster(item), requests)
        ]
        total = len(matching)
        pagination = {
            "page": page,
            "limit": limit,
            "total": total,
            "total_pages": -(-total // limit),
        }
        page_rows = choose_page(call, matching, (page - 1) * limit, limit)
        return self._answer_data(200, {"clusters": page_rows, "pagination": pagination})

    def _change(self, call: Call, platform_object: Thing, changes: Json) -> Answer:
        if platform_object.leaves != NEVER:
            return self._error(409, "STATE_CONFLICT", "The cluster is being deleted")
        if not call.ignored:
            self._world.change(call.actor, platform_object, **changes)
        return self._answer_data(200, self._cluster(platform_object))

    def _remove(self, call: Call, platform_object: Thing) -> Answer:
        sent: Json = call.body if isinstance(call.body, dict) else {}
        if sent.get("confirm_deletion") != "DELETE":
            return self._error(400, "VALIDATION_ERROR", "confirm_deletion must be DELETE")
        status = self._status(platform_object)
        if status == "running" and not sent.get("force"):
            details = {"current_state": status, "required_state": "stopped"}
            return self._error(409, "STATE_CONFLICT", "The cluster is running", details)
        if not call.ignored:
            self._world.remove(call.actor, platform_object, _LATE if call.late else _LEAVES)
        return self._answer_data(200, {"id": platform_object.id, "status": "deleting"})

    def _status(self, platform_object: Thing) -> str:
        now = self._world.now
        if now >= platform_object.leaves:
            return "deleting"
        switch, moment = platform_object.data.get("switched", ("", 0.0))
        if switch:
            over, under_way = {
                "start": ("running", "starting"),
                "stop": ("stopped", "stopping"),
            }[switch]
            return over if now >= moment + _SWITCHES else under_way
        if platform_object.data.get("auto_start") is False:
            return "stopped" if now >= platform_object.made + _SWITCHES else "pending"
        return self._world.stage(platform_object, _STAGES)

    def _cluster(self, platform_object: Thing) -> Json:
        data, status = platform_object.data, self._status(platform_object)
        health = dict.fromkeys(
            ("gpu_health", "storage_health", "network_health", "docker_health"), "healthy"
        )
        count = data["gpu_count"]
        return {
            "id": platform_object.id,
            "name": data["name"],
            "description": data.get("description") or "",
            "status": status,
            "status_details": {
                "message": f"Cluster is {status}",
                "last_status_change": written(
                    platform_object.busy_since + self._world.behavior.clock_skew
                ),
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
            "uptime_seconds": int(self._world.now - platform_object.made),
            "created_at": self._world.created_at(platform_object),
            "updated_at": written(self._world.clock()),
            "tags": data.get("tags") or {},
        }


def _matches(row: Json, query: Any) -> bool:
    configuration = row["configuration"]
    messages = {
        "status": row["status"],
        "region": configuration["region"],
        "gpu_type": configuration["gpu_type"],
        "project_id": row["project_info"]["project_id"],
    }
    searched = query.get("search", "")
    return (searched in row["name"] or searched in row["description"]) and all(
        messages[name] == query[name] for name in messages if query.get(name)
    )
