"""Fake Samsung's Multi-node GPU Cluster 1.2, from its reference: nodes and their fabrics."""

from typing import Any

from hostile.fakes import behavior
from hostile.fakes.answers import Answer, PlatformRequest, select_page_rows
from hostile.fakes.faults import CHANGE, CREATE, DELETE, GET, LIST
from hostile.fakes.simulation import PLATFORM, Json, PlatformObject, Simulation
from hostile.planted import COLLEAGUES_KEY, OUR_KEY, OUR_SECRET_KEY
from hostile.signing import sign

_SECRETS = {OUR_KEY: OUR_SECRET_KEY, COLLEAGUES_KEY: COLLEAGUES_KEY}
_ACCOUNT = "f5c8e56a4d9b49a8bd89e14758a32d53"
_NODE, _FABRIC = "node", "fabric"
_STAGES = [(0.0, "CREATING"), (6.0, "RUNNING")]
_DELETION_SECONDS, _LATE_DELETION_SECONDS = 4.0, 120.0
_SWITCH_SECONDS = 4.0
_MAX_SERVERS = 5
"""Of one create."""
_POOL = "POOL001-krw1a"
_IMAGES = [
    {
        "created_at": "2024-07-11 08:56:59",
        "id": "IMAGE-7XFMaJpLsapKvskFMjCtmm",
        "name": "Ubuntu 22.04 for BM",
        "os_distro": "UBUNTU",
        "priority": 20,
        "scp_image_type": "STANDARD",
        "scp_os_version": "22.04",
    },
    {
        "created_at": "2025-07-11 08:56:59",
        "id": "IMAGE-8XFMaJpLsapKvskFMjCtmm",
        "name": "RHEL 9.4 for BM",
        "os_distro": "RHEL",
        "priority": 30,
        "scp_image_type": "STANDARD",
        "scp_os_version": "9.4",
    },
]
_PRODUCTS = [
    {
        "created_at": "2024-05-17T00:23:17Z",
        "created_by": "90dddfc2b1e04edba54ba2b41539a9ac",
        "description": "vCPU 16 | Memory 128G | Disk 480G",
        "id": "f90e8ef54cc2451b825608e9f95f7bcb",
        "modified_at": "2024-05-17T00:23:17Z",
        "modified_by": "90dddfc2b1e04edba54ba2b41539a9ac",
        "name": "s2v16m128_metal",
        "product_attrs": {
            "compute_class_type_name": "GPU H100 Metal-2",
            "compute_class_type_value": "g2_metal",
            "cpu_value": "64",
            "disk_unit": "GB",
            "disk_value": "480",
            "gpu_model": "H100",
            "memory_value": "128",
        },
        "state": "AVAILABLE",
        "type": "SCALE",
    }
]


def _answer_error(status: int, detail: str) -> Answer:
    return Answer(status, {"errors": [{"status": status, "title": "Error", "detail": detail}]})


def _answer_accepted(resource_id: str) -> Answer:
    body = {"account_id": _ACCOUNT, "request_id": "req-1", "resource_id": resource_id}
    return Answer(202, body)


class Scp:
    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    def classify_request(self, request: PlatformRequest) -> str:
        if request.method == "GET":
            return LIST if request.path[1:] in (("gpu-nodes",), ("cluster-fabrics",)) else GET
        if request.path[1:] == ("gpu-nodes",):
            return CREATE if request.method == "POST" else DELETE
        return CHANGE

    def refuse(self, status: int, text: str) -> Answer:
        return _answer_error(status, text)

    def serve(self, request: PlatformRequest) -> Answer:
        refusal = self._check_signature(request)
        if refusal is not None:
            return refusal
        match (request.method, *request.path):
            case ("GET", "v1", "gpu-nodes", "images"):
                return Answer(200, {"images": _IMAGES})
            case ("GET", "v1", "gpu-nodes", "products"):
                return Answer(200, {"products": _PRODUCTS})
            case ("GET", "v1", "cluster-fabrics", "node-pools"):
                pool = {"node_pool_id": _POOL, "cluster_fabric_details": []}
                return Answer(200, {"count": 1, "node_pools": [pool]})
            case (_, "v1", "cluster-fabrics", *rest):
                return self._route_fabrics(request, rest)
            case (_, "v1", "gpu-nodes", *rest):
                return self._route_nodes(request, rest)
        return _answer_error(404, "Not Found")

    def _check_signature(self, request: PlatformRequest) -> Answer | None:
        key = request.headers.get("Scp-Accesskey", "")
        secret = _SECRETS.get(key)
        moment = request.headers.get("Scp-Timestamp", "")
        if secret is None or request.headers.get("Scp-Signature") != sign(
            secret, request.method, request.address, moment, key
        ):
            return _answer_error(401, "The signature is not valid")
        return None

    def _route_nodes(self, request: PlatformRequest, rest: list[str]) -> Answer:
        match (request.method, *rest):
            case ("POST",):
                return self._create_nodes(request)
            case ("DELETE",):
                return self._delete_nodes(request)
            case ("GET",):
                return self._list_nodes(request)
            case ("POST", "start" | "stop" as switch):
                return self._switch_power(request, switch)
            case (method, id_, *path_rest):
                platform_object = self._simulation.find_visible_object("scp", _NODE, id_)
                if platform_object is None:
                    return _answer_error(404, f"GPU Node {id_} is not found")
                return self._route_one_node(request, platform_object, method, path_rest)
        return _answer_error(404, "Not Found")

    def _route_one_node(
        self,
        request: PlatformRequest,
        platform_object: PlatformObject,
        method: str,
        path_rest: list[str],
    ) -> Answer:
        changes: Json = {}
        match (method, *path_rest):
            case ("GET",):
                return Answer(200, self._render_node(platform_object))
            case ("PUT", "lock"):
                changes = {"lock_enabled": True}
            case ("PUT", "unlock"):
                changes = {"lock_enabled": False}
            case ("POST", "public-nat-ip"):
                changes = {"policy_use_nat": True, "policy_nat": "203.0.113.7"}
            case ("DELETE", "public-nat-ip"):
                changes = {"policy_use_nat": False, "policy_nat": None}
            case _:
                return _answer_error(404, "Not Found")
        if not request.ignored:
            self._simulation.change_object(request.actor, platform_object, **changes)
        status = 202 if "public-nat-ip" in path_rest else 200
        return Answer(status, {"gpu_node_id": platform_object.id})

    def _create_nodes(self, request: PlatformRequest) -> Answer:
        sent: Json = request.body if isinstance(request.body, dict) else {}
        servers = sent.get("server_details") or []
        fabric_details = sent.get("cluster_fabric_details") or {}
        if len(servers) > _MAX_SERVERS:
            return _answer_error(400, f"At most {_MAX_SERVERS} servers can be created at once")
        if not servers or not fabric_details.get("cluster_fabric_name") or not sent.get("image_id"):
            return _answer_error(
                400, "cluster_fabric_name, image_id and server_details are required"
            )
        fabric = self._find_or_create_fabric(fabric_details, sent, request.delay)
        if fabric is None:
            return _answer_error(
                404, f"Cluster Fabric {fabric_details['cluster_fabric_id']} is not found"
            )
        created_nodes = [self._create_node(request, fabric, server, sent) for server in servers]
        return _answer_accepted(self._answer_ids(created_nodes, fabric))

    def _answer_ids(self, created_nodes: list[PlatformObject], fabric: PlatformObject) -> str:
        """Return the `resource_id` of the answer to a create: one id, as the document has it."""
        ids = [node.id for node in created_nodes]
        match self._simulation.behavior.batch_ids:
            case behavior.ALL:
                return ",".join(ids)
            case behavior.FEWER:
                return ", ".join(ids[:-1])
            case behavior.MORE:
                return ",".join([self._simulation.create_id(), *ids])
            case behavior.FABRIC:
                return fabric.id
            case behavior.REQUEST:
                return "req-002daa83-52d9-41e8-9b0f-d31d35610f65"
            case behavior.STRANGER:
                names = [node.name for node in created_nodes]
                nodes = self._simulation.list_existing("scp", _NODE)
                others = [node.id for node in nodes if node.name not in names]
                return others[0] if others else self._simulation.create_id()
            case behavior.NONE:
                return ""
        return ids[0]

    def _find_or_create_fabric(
        self, fabric_details: Json, sent: Json, delay: float
    ) -> PlatformObject | None:
        """Return the fabric with the id in the request, or a new one."""
        id_ = fabric_details.get("cluster_fabric_id")
        if id_:
            return self._simulation.find_object("scp", _FABRIC, id_)
        name = fabric_details["cluster_fabric_name"]
        data = {"node_pool_id": fabric_details["node_pool_id"], "region_id": sent["region_id"]}
        return self._simulation.add_object(
            PLATFORM, "scp", _FABRIC, self._simulation.create_id(), name, data, delay=delay
        )

    def _create_node(
        self, request: PlatformRequest, fabric: PlatformObject, server: Json, sent: Json
    ) -> PlatformObject:
        number = self._simulation.get_next_number()
        data = {
            "fabric": fabric.id,
            "made_in": [fabric.name, server["gpu_node_name"].rpartition("-")[0]],
            "image_id": sent["image_id"],
            "init_script": sent.get("init_script"),
            "lock_enabled": bool(sent.get("lock_enabled")),
            "network_id": sent["subnet_id"],
            "region_id": sent["region_id"],
            "vpc_id": sent["vpc_id"],
            "root_account": sent["os_user_id"],
            "product_type_id": server["server_type_id"],
            "policy_ip": server.get("ip_address") or f"192.168.0.{number % 250 + 1}",
            "policy_use_nat": bool(server.get("nat_enabled")),
            "policy_nat": "203.0.113.7" if server.get("nat_enabled") else None,
        }
        name = server["gpu_node_name"]
        id_ = self._simulation.create_id()
        platform_object = self._simulation.add_object(
            request.actor, "scp", _NODE, id_, name, data, delay=request.delay
        )
        platform_object.sent = sent
        return platform_object

    def _delete_nodes(self, request: PlatformRequest) -> Answer:
        ids = (request.body or {}).get("gpu_node_ids") or []
        platform_objects = [self._simulation.find_visible_object("scp", _NODE, id_) for id_ in ids]
        for id_, platform_object in zip(ids, platform_objects, strict=True):
            if platform_object is None:
                return _answer_error(404, f"GPU Node {id_} is not found")
            if platform_object.data["lock_enabled"]:
                return _answer_error(400, f"GPU Node {platform_object.name} is locked")
        if not request.ignored:
            for platform_object in platform_objects:
                assert platform_object
                self._simulation.delete_object(
                    request.actor,
                    platform_object,
                    _LATE_DELETION_SECONDS if request.late else _DELETION_SECONDS,
                )
        return _answer_accepted(",".join(ids))

    def _switch_power(self, request: PlatformRequest, switch: str) -> Answer:
        ids = request.body["gpu_node_ids"]
        for platform_object in [
            self._simulation.find_visible_object("scp", _NODE, id_) for id_ in ids
        ]:
            if platform_object is not None and not request.ignored:
                self._simulation.change_object(
                    request.actor, platform_object, switched=(switch, self._simulation.now)
                )
        return _answer_accepted(",".join(ids))

    def _list_nodes(self, request: PlatformRequest) -> Answer:
        nodes = [self._render_node(node) for node in self._simulation.list_shown("scp", _NODE)]
        same = ("gpu_node_name", "state", "vpc_id", "cluster_fabric_name", "cluster_fabric_id")
        matching_nodes = [node for node in nodes if _matches(node, request.query, same)]
        return self._answer_page(request, "gpu_nodes", matching_nodes)

    def _answer_page(self, request: PlatformRequest, name: str, rows: list[Json]) -> Answer:
        size, page = int(request.query.get("size") or 20), int(request.query.get("page") or 0)
        field, _, order = request.query.get("sort", "created_at:desc").partition(":")
        rows.sort(key=lambda item: str(item.get(field)), reverse=order == "desc")
        size = min(size, self._simulation.behavior.page_cap or size)
        page_rows = select_page_rows(request, rows, page * size, size)
        return Answer(200, {name: page_rows, "count": len(rows)})

    def _route_fabrics(self, request: PlatformRequest, rest: list[str]) -> Answer:
        if rest == ["modify-members"]:
            for id_ in request.body["gpu_node_id_list"]:
                platform_object = self._simulation.find_visible_object("scp", _NODE, id_)
                if platform_object is not None and not request.ignored:
                    to = request.body["after_cluster_fabric_id"]
                    self._simulation.change_object(request.actor, platform_object, fabric=to)
            return _answer_accepted("")
        # A fabric goes with its last node.
        fabrics = [
            fabric
            for fabric in self._simulation.list_shown("scp", _FABRIC)
            if self._list_members(fabric)
        ]
        if rest:
            matching_fabrics = [fabric for fabric in fabrics if fabric.id == rest[0]]
            if matching_fabrics:
                return Answer(200, self._render_fabric(matching_fabrics[0]))
            return _answer_error(404, f"Cluster Fabric {rest[0]} is not found")
        fabric_rows = [self._render_fabric(fabric) for fabric in fabrics]
        expected = {
            "cluster_name" if name == "cluster_fabric_name" else name: value
            for name, value in request.query.items()
        }
        same = ("cluster_name", "state", "node_pool_id")
        return self._answer_page(
            request,
            "cluster_fabrics",
            [fabric for fabric in fabric_rows if _matches(fabric, expected, same)],
        )

    def _list_members(self, fabric: PlatformObject) -> list[PlatformObject]:
        nodes = self._simulation.list_shown("scp", _NODE)
        return [node for node in nodes if node.data["fabric"] == fabric.id]

    def _render_node(self, platform_object: PlatformObject) -> Json:
        fabric = self._simulation.find_object("scp", _FABRIC, platform_object.data["fabric"])
        own = {"fabric", "made_in", "switched", "broken"}
        fields = {name: value for name, value in platform_object.data.items() if name not in own}
        return {
            **fields,
            "id": platform_object.id,
            "account_id": _ACCOUNT,
            "gpu_node_name": platform_object.name,
            "state": get_state(self._simulation, platform_object),
            "cluster_fabric_id": fabric.id if fabric else None,
            "cluster_fabric_name": fabric.name if fabric else "",
            "node_pool_id": fabric.data["node_pool_id"] if fabric else "",
            "image_version": _find_image_name(platform_object.data["image_id"]),
            "os_type": "LINUX",
            "server_type": "s2v16m128_metal",
            "pfs_ip": ["10.252.128.2", "10.252.128.3"],
            "time_zone": "Asia/Seoul",
            **self._render_timestamps(platform_object),
        }

    def _render_timestamps(self, platform_object: PlatformObject) -> Json:
        user, moment = (
            "90dddfc2b1e04edba54ba2b41539a9ac",
            self._simulation.format_creation_time(platform_object),
        )
        return {
            "created_at": moment,
            "created_by": user,
            "modified_at": moment,
            "modified_by": user,
        }

    def _render_fabric(self, platform_object: PlatformObject) -> Json:
        members = self._list_members(platform_object)
        details = [
            {
                "gpu_node_id": member.id,
                "gpu_node_name": member.name,
                "policy_ip": member.data["policy_ip"],
                "product_type_id": member.data["product_type_id"],
                "server_type": "s2v16m128_metal",
                "state": get_state(self._simulation, member),
            }
            for member in members
        ]
        return {
            "id": platform_object.id,
            "account_id": _ACCOUNT,
            "cluster_name": platform_object.name,
            "description": "",
            "state": "RUNNING",
            "node_pool_id": platform_object.data["node_pool_id"],
            "region_id": platform_object.data["region_id"],
            "server_type": "s2v16m128_metal",
            "product_id": "f90e8ef54cc2451b825608e9f95f7bcb",
            "pirp_id": "20",
            "used_server_count": len(members),
            "gpu_node_details": details,
            **self._render_timestamps(platform_object),
        }


def get_state(simulation: Simulation, platform_object: PlatformObject) -> str:
    """Return the state of a node, in Samsung's words."""
    if simulation.now >= platform_object.deletion_requested_at:
        return "TERMINATING"
    if platform_object.data.get("broken"):
        return "ERROR"
    switch, moment = platform_object.data.get("switched", ("", 0.0))
    if switch:
        is_over = simulation.now >= moment + _SWITCH_SECONDS
        over, under_way = {
            "start": ("RUNNING", "STARTING"),
            "stop": ("STOPPED", "STOPPING"),
        }[switch]
        return over if is_over else under_way
    return simulation.find_stage(platform_object, _STAGES)


def _find_image_name(image_id: str) -> str:
    return next((image["name"] for image in _IMAGES if image["id"] == image_id), "unknown")


def _matches(row: Json, query: Any, names: tuple[str, ...]) -> bool:
    return all(row[name] == query[name] for name in names if query.get(name))
