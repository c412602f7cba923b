"""Fake TensorOne's clusters, from its example of an answer and its public pages."""

from typing import Any

from hostile.fakes.answers import Answer, PlatformRequest, select_page_rows
from hostile.fakes.faults import CHANGE, CREATE, DELETE, GET, LIST
from hostile.fakes.simulation import NEVER, Json, PlatformObject, Simulation, format_time
from hostile.planted import COLLEAGUES_KEY, OUR_KEY

_KEYS = (OUR_KEY, COLLEAGUES_KEY)
_STAGES = [(0.0, "pending"), (3.0, "starting"), (6.0, "running")]
_DELETION_SECONDS, _LATE_DELETION_SECONDS, _SWITCH_SECONDS = 4.0, 120.0, 4.0
_REQUIRED = ("name", "gpu_type", "gpu_count", "storage_gb", "region", "project_id")
_RATE = {
    "X-RateLimit-Limit": "10000",
    "X-RateLimit-Remaining": "9000",
    "X-RateLimit-Window": "3600",
}


class TensorOne:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def classify_request(self, request: PlatformRequest) -> str:
        is_collection = request.path == ("v1", "clusters")
        if request.method == "GET":
            return LIST if is_collection else GET
        if request.method == "DELETE":
            return DELETE
        return CREATE if is_collection else CHANGE

    def refuse(self, status: int, text: str) -> Answer:
        codes = {404: "RESOURCE_NOT_FOUND", 409: "STATE_CONFLICT"}
        return self._answer_error(status, codes.get(status, "INTERNAL_ERROR"), text)

    def serve(self, request: PlatformRequest) -> Answer:
        answer = self._route(request)
        reset = {"X-RateLimit-Reset": str(int(self._simulation.read_clock()) + 3600)}
        return Answer(**{**vars(answer), "headers": {**_RATE, **reset}})

    def _route(self, request: PlatformRequest) -> Answer:
        if request.headers.get("Authorization") not in [f"Bearer {key}" for key in _KEYS]:
            return self._answer_error(401, "UNAUTHORIZED", "Invalid API key")
        rest = request.path[2:]
        if not rest:
            return (
                self._create_cluster(request)
                if request.method == "POST"
                else self._list_clusters(request)
            )
        platform_object = self._simulation.find_visible_object("tensorone", "cluster", rest[0])
        if platform_object is None:
            details = {"resource": "cluster", "id": rest[0]}
            return self._answer_error(404, "RESOURCE_NOT_FOUND", "Cluster not found", details)
        match (request.method, *rest[1:]):
            case ("GET",):
                return self._answer_data(200, self._render_cluster(platform_object))
            case ("PUT",):
                return self._change_cluster(request, platform_object, request.body or {})
            case ("DELETE",):
                return self._delete_cluster(request, platform_object)
            case ("POST", "start" | "stop" as switch):
                more = (request.body or {}).get("update_configuration") or {}
                switched = {"switched": (switch, self._simulation.now)}
                return self._change_cluster(request, platform_object, {**more, **switched})
        return self._answer_error(404, "RESOURCE_NOT_FOUND", "no such route")

    def _answer_error(
        self, status: int, code: str, message: str, details: Json | None = None
    ) -> Answer:
        return Answer(
            status,
            {
                "error": code,
                "message": message,
                "code": status,
                "details": details or {},
                "request_id": "req_1",
                "timestamp": format_time(self._simulation.read_clock()),
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

    def _create_cluster(self, request: PlatformRequest) -> Answer:
        sent: Json = request.body if isinstance(request.body, dict) else {}
        for name in _REQUIRED:
            if not sent.get(name):
                details = {"field": name, "reason": "required"}
                return self._answer_error(400, "VALIDATION_ERROR", f"{name} is required", details)
        id_ = self._simulation.create_id("cluster_")
        platform_object = self._simulation.add_object(
            request.actor,
            "tensorone",
            "cluster",
            id_,
            sent["name"],
            dict(sent),
            delay=request.delay,
        )
        return self._answer_data(201, self._render_cluster(platform_object))

    def _list_clusters(self, request: PlatformRequest) -> Answer:
        query = request.query
        page = int(query.get("page", 1))
        limit = min(self._simulation.behavior.page_cap or 100, int(query.get("limit", 20)))
        matching = [
            row
            for item in reversed(self._simulation.list_shown("tensorone", "cluster"))
            if _matches(row := self._render_cluster(item), query)
        ]
        total = len(matching)
        pagination = {
            "page": page,
            "limit": limit,
            "total": total,
            "total_pages": -(-total // limit),
        }
        page_rows = select_page_rows(request, matching, (page - 1) * limit, limit)
        return self._answer_data(200, {"clusters": page_rows, "pagination": pagination})

    def _change_cluster(
        self, request: PlatformRequest, platform_object: PlatformObject, changes: Json
    ) -> Answer:
        if platform_object.deletion_requested_at != NEVER:
            return self._answer_error(409, "STATE_CONFLICT", "The cluster is being deleted")
        if not request.ignored:
            self._simulation.change_object(request.actor, platform_object, **changes)
        return self._answer_data(200, self._render_cluster(platform_object))

    def _delete_cluster(self, request: PlatformRequest, platform_object: PlatformObject) -> Answer:
        sent: Json = request.body if isinstance(request.body, dict) else {}
        if sent.get("confirm_deletion") != "DELETE":
            return self._answer_error(400, "VALIDATION_ERROR", "confirm_deletion must be DELETE")
        status = self._get_status(platform_object)
        if status == "running" and not sent.get("force"):
            details = {"current_state": status, "required_state": "stopped"}
            return self._answer_error(409, "STATE_CONFLICT", "The cluster is running", details)
        if not request.ignored:
            self._simulation.delete_object(
                request.actor,
                platform_object,
                _LATE_DELETION_SECONDS if request.late else _DELETION_SECONDS,
            )
        return self._answer_data(200, {"id": platform_object.id, "status": "deleting"})

    def _get_status(self, platform_object: PlatformObject) -> str:
        now = self._simulation.now
        if now >= platform_object.deletion_requested_at:
            return "deleting"
        switch, moment = platform_object.data.get("switched", ("", 0.0))
        if switch:
            over, under_way = {
                "start": ("running", "starting"),
                "stop": ("stopped", "stopping"),
            }[switch]
            return over if now >= moment + _SWITCH_SECONDS else under_way
        if platform_object.data.get("auto_start") is False:
            return "stopped" if now >= platform_object.created_at + _SWITCH_SECONDS else "pending"
        return self._simulation.find_stage(platform_object, _STAGES)

    def _render_cluster(self, platform_object: PlatformObject) -> Json:
        data, status = platform_object.data, self._get_status(platform_object)
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
                "last_status_change": format_time(
                    platform_object.busy_since + self._simulation.behavior.clock_skew
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
                    "last_connection": format_time(self._simulation.read_clock()),
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
            "uptime_seconds": int(self._simulation.now - platform_object.created_at),
            "created_at": self._simulation.format_creation_time(platform_object),
            "updated_at": format_time(self._simulation.read_clock()),
            "tags": data.get("tags") or {},
        }


def _matches(row: Json, query: Any) -> bool:
    configuration = row["configuration"]
    comparable_fields = {
        "status": row["status"],
        "region": configuration["region"],
        "gpu_type": configuration["gpu_type"],
        "project_id": row["project_info"]["project_id"],
    }
    searched = query.get("search", "")
    return (searched in row["name"] or searched in row["description"]) and all(
        comparable_fields[name] == query[name] for name in comparable_fields if query.get(name)
    )
