"""Fake Together's GPU clusters, from its reference: clusters, shared volumes, regions."""

import base64
from typing import Any

from hostile.fakes.answers import Answer, PlatformRequest
from hostile.fakes.faults import CHANGE, CREATE, DELETE, GET, LIST
from hostile.fakes.simulation import NEVER, Json, PlatformObject, Simulation
from hostile.planted import COLLEAGUES_KEY, KUBECONFIG, OUR_KEY

_KEYS = (OUR_KEY, COLLEAGUES_KEY)
_CLUSTER_STAGES = [
    (0.0, "Scheduled"),
    (1.0, "WaitingForControlPlaneNodes"),
    (2.0, "WaitingForDataPlaneNodes"),
    (4.0, "InstallingDrivers"),
    (6.0, "RunningAcceptanceTests"),
    (8.0, "Ready"),
]
_VOLUME_STAGES = [(0.0, "scheduled"), (1.0, "provisioning"), (3.0, "available")]
_CLUSTER_DELETION_SECONDS, _VOLUME_DELETION_SECONDS, _LATE_DELETION_SECONDS = 4.0, 3.0, 120.0
_REGIONS = [
    {
        "name": name,
        "supported_instance_types": ["H100_SXM", "H200_SXM"],
        "driver_versions": [{"cuda_version": "12.6", "nvidia_driver_version": "560"}],
    }
    for name in ("us-central-8", "us-central-4")
]


def _answer_error(status: int, message: str) -> Answer:
    return Answer(status, {"error": {"message": message, "type": "invalid_request_error"}})


class Together:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def classify_request(self, request: PlatformRequest) -> str:
        is_volume = request.path[2:5] == ("clusters", "storage", "volumes")
        if request.method == "POST":
            return CREATE
        if request.method == "PUT":
            # gpuform asks for its rights by changing nothing of a cluster that cannot exist.
            return GET if request.path[-1].startswith("00000000-") else CHANGE
        if request.method == "DELETE":
            return DELETE
        is_list = (is_volume and len(request.path) == 5) or request.path[2:] == ("clusters",)
        return LIST if is_list else GET

    def refuse(self, status: int, text: str) -> Answer:
        return _answer_error(status, text)

    def serve(self, request: PlatformRequest) -> Answer:
        if request.headers.get("Authorization") not in [f"Bearer {key}" for key in _KEYS]:
            return _answer_error(401, "Invalid API key provided")
        match (request.method, *request.path):
            case ("GET", "v1", "compute", "regions"):
                return Answer(200, {"regions": _REGIONS})
            case (method, "v1", "compute", "clusters", "storage", "volumes", *rest):
                return self._route_volumes(request, method, rest)
            case (method, "v1", "compute", "clusters", *rest) if len(rest) < 2:
                return self._route_clusters(request, method, rest)
        return _answer_error(404, f"no route {request.method} /{'/'.join(request.path)}")

    def _route_clusters(self, request: PlatformRequest, method: str, rest: list[str]) -> Answer:
        if not rest:
            if method == "POST":
                return self._create_cluster(request)
            platform_objects = self._simulation.list_shown("together", "cluster")
            return Answer(
                200, {"clusters": [self._render_cluster(item) for item in platform_objects]}
            )
        platform_object = self._simulation.find_visible_object("together", "cluster", rest[0])
        if platform_object is None:
            return _answer_error(404, f"cluster {rest[0]} not found")
        if method == "PUT":
            return self._change_cluster(request, platform_object)
        if method == "DELETE":
            if not request.ignored:
                within = _LATE_DELETION_SECONDS if request.late else _CLUSTER_DELETION_SECONDS
                self._simulation.delete_object(request.actor, platform_object, within)
            return Answer(200, {"cluster_id": platform_object.id})
        return Answer(200, self._render_cluster(platform_object))

    def _create_cluster(self, request: PlatformRequest) -> Answer:
        sent = request.body if isinstance(request.body, dict) else {}
        for name in ("cluster_name", "region", "gpu_type", "num_gpus", "billing_type"):
            if not sent.get(name):
                return _answer_error(400, f"{name} is required")
        if not isinstance(sent["num_gpus"], int) or sent["num_gpus"] % 8:
            return _answer_error(400, "num_gpus must be a multiple of 8")
        if not ("cuda_version" in sent and "nvidia_driver_version" in sent):
            return _answer_error(400, "cuda version and nvidia driver version are required")
        if sent.get("volume_id"):
            volume = self._simulation.find_object("together", "volume", sent["volume_id"])
            if volume is None or self._get_volume_status(volume) != "available":
                return _answer_error(400, "Shared volume does not exist in the datacenter")
        id_ = self._simulation.create_id()
        platform_object = self._simulation.add_object(
            request.actor,
            "together",
            "cluster",
            id_,
            sent["cluster_name"],
            dict(sent),
            delay=request.delay,
        )
        return Answer(200, self._render_cluster(platform_object))

    def _change_cluster(self, request: PlatformRequest, platform_object: PlatformObject) -> Answer:
        sent = {name: request.body[name] for name in request.body or {} if name != "cluster_id"}
        if platform_object.deletion_requested_at != NEVER:
            return _answer_error(409, "the cluster is being deleted")
        if not request.ignored:
            if (
                sent.get("num_gpus", platform_object.data["num_gpus"])
                != platform_object.data["num_gpus"]
            ):
                platform_object.busy_since = (
                    self._simulation.now - 2.0
                )  # new workers are waited for
            self._simulation.change_object(request.actor, platform_object, **sent)
        return Answer(200, self._render_cluster(platform_object))

    def _render_cluster(self, platform_object: PlatformObject) -> Json:
        status = self._simulation.find_stage(platform_object, _CLUSTER_STAGES)
        if self._simulation.now >= platform_object.deletion_requested_at:
            status = "Deleting"
        ready = status == "Ready"
        data = platform_object.data
        volume = self._simulation.find_object("together", "volume", data.get("volume_id") or "")
        return {
            "cluster_id": platform_object.id,
            "cluster_name": platform_object.name,
            "cluster_type": data.get("cluster_type") or "KUBERNETES",
            "region": data["region"],
            "gpu_type": data["gpu_type"],
            "num_gpus": data["num_gpus"],
            "billing_type": data["billing_type"],
            "cuda_version": data["cuda_version"],
            "nvidia_driver_version": data["nvidia_driver_version"],
            "status": status,
            "project_id": "proj-1",
            "kube_config": base64.b64encode(KUBECONFIG.encode()).decode() if ready else "",
            "control_plane_nodes": [],
            "gpu_worker_nodes": self._render_workers(platform_object) if ready else [],
            "volumes": [self._render_volume(volume)] if volume else [],
            "add_ons": [],
            "phase_transitions": [],
            "num_cpu_workers": 0,
            "num_reserved_gpus": 0,
            "num_capacity_pool_gpus": 0,
            "desired_preemptible_gpus": 0,
            "allocated_preemptible_gpus": 0,
            "control_plane_ready": ready,
            "created_at": self._simulation.format_creation_time(platform_object),
        }

    def _render_workers(self, platform_object: PlatformObject) -> list[Json]:
        return [
            {
                "node_id": f"{platform_object.id}-{number}",
                "host_name": f"{platform_object.name}-worker-{number}",
                "status": "NODE_PHASE_RUNNING",
                "num_gpus": 8,
                "num_cpu_cores": 192,
                "memory_gib": 2048,
                "networks": [],
                "phase_transitions": [],
                "instance_id": f"i-{platform_object.id}-{number}",
                "marked_for_deletion": False,
            }
            for number in range(platform_object.data["num_gpus"] // 8)
        ]

    def _route_volumes(self, request: PlatformRequest, method: str, rest: list[str]) -> Answer:
        sent: Json = request.body if isinstance(request.body, dict) else {}
        if not rest and method == "POST":
            for name in ("volume_name", "size_tib", "region"):
                if not sent.get(name):
                    return _answer_error(400, f"{name} is required")
            id_ = self._simulation.create_id()
            platform_object = self._simulation.add_object(
                request.actor,
                "together",
                "volume",
                id_,
                sent["volume_name"],
                dict(sent),
                delay=request.delay,
            )
            return Answer(200, self._render_volume(platform_object))
        if not rest and method == "GET":
            platform_objects = self._simulation.list_shown("together", "volume")
            return Answer(
                200, {"volumes": [self._render_volume(item) for item in platform_objects]}
            )
        id_ = rest[0] if rest else str(sent.get("volume_id"))
        result = self._simulation.find_visible_object("together", "volume", id_)
        if result is None:
            return _answer_error(404, f"volume {id_} not found")
        return self._route_one_volume(request, method, result, sent)

    def _route_one_volume(
        self, request: PlatformRequest, method: str, platform_object: PlatformObject, sent: Json
    ) -> Answer:
        if method == "PUT":
            if sent.get("size_tib", 0) < platform_object.data["size_tib"]:
                return _answer_error(400, "a volume only grows")
            if not request.ignored:
                self._simulation.change_object(
                    request.actor, platform_object, size_tib=sent["size_tib"]
                )
        if method == "DELETE":
            if self._get_volume_status(platform_object) == "bound":
                return _answer_error(409, "the volume is attached to a cluster")
            if not request.ignored:
                within = _LATE_DELETION_SECONDS if request.late else _VOLUME_DELETION_SECONDS
                self._simulation.delete_object(request.actor, platform_object, within)
            return Answer(200, {"success": True})
        return Answer(200, self._render_volume(platform_object))

    def _get_volume_status(self, platform_object: PlatformObject) -> str:
        if self._simulation.now >= platform_object.deletion_requested_at:
            return "deleting"
        clusters = self._simulation.list_existing("together", "cluster")
        if any(cluster.data.get("volume_id") == platform_object.id for cluster in clusters):
            return "bound"
        return self._simulation.find_stage(platform_object, _VOLUME_STAGES)

    def _render_volume(self, platform_object: PlatformObject) -> dict[str, Any]:
        return {
            "volume_id": platform_object.id,
            "volume_name": platform_object.name,
            "size_tib": platform_object.data["size_tib"],
            "status": self._get_volume_status(platform_object),
        }
