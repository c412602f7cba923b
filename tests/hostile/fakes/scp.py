"""Samsung's Multi-node GPU Cluster 1.2, from its reference: nodes and their fabrics."""

from typing import Any

from hostile.fakes import behavior
from hostile.fakes.answers import Answer, Call, choose_page
from hostile.fakes.faults import CHANGE, CREATE, DELETE, GET, LIST
from hostile.fakes.world import PLATFORM, Json, Thing, World
from hostile.planted import COLLEAGUES_KEY, OUR_KEY, OUR_SECRET_KEY
from hostile.signing import sign

_SECRETS = {OUR_KEY: OUR_SECRET_KEY, COLLEAGUES_KEY: COLLEAGUES_KEY}
_ACCOUNT = "f5c8e56a4d9b49a8bd89e14758a32d53"
_NODE, _FABRIC = "node", "fabric"
_STAGES = [(0.0, "CREATING"), (6.0, "RUNNING")]
_LEAVES, _LATE = 4.0, 120.0
_SWITCHES = 4.0
_MOST_SERVERS = 5
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


def _error(status: int, detail: str) -> Answer:
    return Answer(status, {"errors": [{"status": status, "title": "Error", "detail": detail}]})


def _moved(answer: str) -> Answer:
    body = {"account_id": _ACCOUNT, "request_id": "req-1", "resource_id": answer}
    return Answer(202, body)


class Scp:
    def __init__(self, world: World) -> None:
        self._world = world

    def kind(self, call: Call) -> str:
        if call.method == "GET":
            return LIST if call.path[1:] in (("gpu-nodes",), ("cluster-fabrics",)) else GET
        if call.path[1:] == ("gpu-nodes",):
            return CREATE if call.method == "POST" else DELETE
        return CHANGE

    def refuse(self, status: int, text: str) -> Answer:
        return _error(status, text)

    def serve(self, call: Call) -> Answer:
        refused = self._refuse(call)
        if refused is not None:
            return refused
        match (call.method, *call.path):
            case ("GET", "v1", "gpu-nodes", "images"):
                return Answer(200, {"images": _IMAGES})
            case ("GET", "v1", "gpu-nodes", "products"):
                return Answer(200, {"products": _PRODUCTS})
            case ("GET", "v1", "cluster-fabrics", "node-pools"):
                pool = {"node_pool_id": _POOL, "cluster_fabric_details": []}
                return Answer(200, {"count": 1, "node_pools": [pool]})
            case (_, "v1", "cluster-fabrics", *rest):
                return self._fabrics(call, rest)
            case (_, "v1", "gpu-nodes", *rest):
                return self._nodes(call, rest)
        return _error(404, "Not Found")

    def _refuse(self, call: Call) -> Answer | None:
        key = call.headers.get("Scp-Accesskey", "")
        secret = _SECRETS.get(key)
        moment = call.headers.get("Scp-Timestamp", "")
        if secret is None or call.headers.get("Scp-Signature") != sign(
            secret, call.method, call.address, moment, key
        ):
            return _error(401, "The signature is not valid")
        return None

    def _nodes(self, call: Call, rest: list[str]) -> Answer:
        match (call.method, *rest):
            case ("POST",):
                return self._make(call)
            case ("DELETE",):
                return self._remove(call)
            case ("GET",):
                return self._list_nodes(call)
            case ("POST", "start" | "stop" as switch):
                return self._switch(call, switch)
            case (method, id_, *what):
                thing = self._world.find("scp", _NODE, id_)
                if thing is None:
                    return _error(404, f"GPU Node {id_} is not found")
                return self._one_node(call, thing, method, what)
        return _error(404, "Not Found")

    def _one_node(self, call: Call, thing: Thing, method: str, what: list[str]) -> Answer:
        changes: Json = {}
        match (method, *what):
            case ("GET",):
                return Answer(200, self._node(thing))
            case ("PUT", "lock"):
                changes = {"lock_enabled": True}
            case ("PUT", "unlock"):
                changes = {"lock_enabled": False}
            case ("POST", "public-nat-ip"):
                changes = {"policy_use_nat": True, "policy_nat": "203.0.113.7"}
            case ("DELETE", "public-nat-ip"):
                changes = {"policy_use_nat": False, "policy_nat": None}
            case _:
                return _error(404, "Not Found")
        if not call.ignored:
            self._world.change(call.actor, thing, **changes)
        status = 202 if "public-nat-ip" in what else 200
        return Answer(status, {"gpu_node_id": thing.id})

    def _make(self, call: Call) -> Answer:
        sent: Json = call.body if isinstance(call.body, dict) else {}
        servers = sent.get("server_details") or []
        wanted = sent.get("cluster_fabric_details") or {}
        if len(servers) > _MOST_SERVERS:
            return _error(400, f"At most {_MOST_SERVERS} servers can be created at once")
        if not servers or not wanted.get("cluster_fabric_name") or not sent.get("image_id"):
            return _error(400, "cluster_fabric_name, image_id and server_details are required")
        fabric = self._fabric_of(wanted, sent, call.delay)
        if fabric is None:
            return _error(404, f"Cluster Fabric {wanted['cluster_fabric_id']} is not found")
        made = [self._make_node(call, fabric, server, sent) for server in servers]
        return _moved(self._answer_ids(made, fabric))

    def _answer_ids(self, made: list[Thing], fabric: Thing) -> str:
        """Return the `resource_id` of the answer to a create: one id, as the document has it."""
        ids = [each.id for each in made]
        match self._world.behavior.batch_ids:
            case behavior.ALL:
                return ",".join(ids)
            case behavior.FEWER:
                return ", ".join(ids[:-1])
            case behavior.MORE:
                return ",".join([self._world.new_id(), *ids])
            case behavior.FABRIC:
                return fabric.id
            case behavior.REQUEST:
                return "req-002daa83-52d9-41e8-9b0f-d31d35610f65"
            case behavior.STRANGER:
                names = [each.name for each in made]
                nodes = self._world.all_of("scp", _NODE)
                others = [each.id for each in nodes if each.name not in names]
                return others[0] if others else self._world.new_id()
            case behavior.NONE:
                return ""
        return ids[0]

    def _fabric_of(self, wanted: Json, sent: Json, delay: float) -> Thing | None:
        """The one that is named by its id, or a new one."""
        id_ = wanted.get("cluster_fabric_id")
        if id_:
            return self._world.get("scp", _FABRIC, id_)
        name = wanted["cluster_fabric_name"]
        data = {"node_pool_id": wanted["node_pool_id"], "region_id": sent["region_id"]}
        return self._world.add(
            PLATFORM, "scp", _FABRIC, self._world.new_id(), name, data, delay=delay
        )

    def _make_node(self, call: Call, fabric: Thing, server: Json, sent: Json) -> Thing:
        number = self._world.number()
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
        id_ = self._world.new_id()
        thing = self._world.add(call.actor, "scp", _NODE, id_, name, data, delay=call.delay)
        thing.sent = sent
        return thing

    def _remove(self, call: Call) -> Answer:
        ids = (call.body or {}).get("gpu_node_ids") or []
        things = [self._world.find("scp", _NODE, id_) for id_ in ids]
        for id_, thing in zip(ids, things, strict=True):
            if thing is None:
                return _error(404, f"GPU Node {id_} is not found")
            if thing.data["lock_enabled"]:
                return _error(400, f"GPU Node {thing.name} is locked")
        if not call.ignored:
            for thing in things:
                assert thing
                self._world.remove(call.actor, thing, _LATE if call.late else _LEAVES)
        return _moved(",".join(ids))

    def _switch(self, call: Call, switch: str) -> Answer:
        ids = call.body["gpu_node_ids"]
        for thing in [self._world.find("scp", _NODE, id_) for id_ in ids]:
            if thing is not None and not call.ignored:
                self._world.change(call.actor, thing, switched=(switch, self._world.now))
        return _moved(",".join(ids))

    def _list_nodes(self, call: Call) -> Answer:
        nodes = [self._node(each) for each in self._world.listed("scp", _NODE)]
        same = ("gpu_node_name", "state", "vpc_id", "cluster_fabric_name", "cluster_fabric_id")
        found = [each for each in nodes if _matches(each, call.query, same)]
        return self._paged(call, "gpu_nodes", found)

    def _paged(self, call: Call, name: str, found: list[Json]) -> Answer:
        size, page = int(call.query.get("size") or 20), int(call.query.get("page") or 0)
        field, _, order = call.query.get("sort", "created_at:desc").partition(":")
        found.sort(key=lambda each: str(each.get(field)), reverse=order == "desc")
        size = min(size, self._world.behavior.page_cap or size)
        shown = choose_page(call, found, page * size, size)
        return Answer(200, {name: shown, "count": len(found)})

    def _fabrics(self, call: Call, rest: list[str]) -> Answer:
        if rest == ["modify-members"]:
            for id_ in call.body["gpu_node_id_list"]:
                thing = self._world.find("scp", _NODE, id_)
                if thing is not None and not call.ignored:
                    to = call.body["after_cluster_fabric_id"]
                    self._world.change(call.actor, thing, fabric=to)
            return _moved("")
        # A fabric goes with its last node.
        fabrics = [each for each in self._world.listed("scp", _FABRIC) if self._members(each)]
        if rest:
            found = [each for each in fabrics if each.id == rest[0]]
            if found:
                return Answer(200, self._fabric(found[0]))
            return _error(404, f"Cluster Fabric {rest[0]} is not found")
        shown = [self._fabric(each) for each in fabrics]
        wanted = {
            "cluster_name" if name == "cluster_fabric_name" else name: value
            for name, value in call.query.items()
        }
        same = ("cluster_name", "state", "node_pool_id")
        return self._paged(
            call, "cluster_fabrics", [each for each in shown if _matches(each, wanted, same)]
        )

    def _members(self, fabric: Thing) -> list[Thing]:
        nodes = self._world.listed("scp", _NODE)
        return [each for each in nodes if each.data["fabric"] == fabric.id]

    def _node(self, thing: Thing) -> Json:
        fabric = self._world.get("scp", _FABRIC, thing.data["fabric"])
        own = {"fabric", "made_in", "switched", "broken"}
        shown = {name: value for name, value in thing.data.items() if name not in own}
        return {
            **shown,
            "id": thing.id,
            "account_id": _ACCOUNT,
            "gpu_node_name": thing.name,
            "state": get_state(self._world, thing),
            "cluster_fabric_id": fabric.id if fabric else None,
            "cluster_fabric_name": fabric.name if fabric else "",
            "node_pool_id": fabric.data["node_pool_id"] if fabric else "",
            "image_version": _image_name(thing.data["image_id"]),
            "os_type": "LINUX",
            "server_type": "s2v16m128_metal",
            "pfs_ip": ["10.252.128.2", "10.252.128.3"],
            "time_zone": "Asia/Seoul",
            **self._stamps(thing),
        }

    def _stamps(self, thing: Thing) -> Json:
        who, moment = "90dddfc2b1e04edba54ba2b41539a9ac", self._world.created_at(thing)
        return {"created_at": moment, "created_by": who, "modified_at": moment, "modified_by": who}

    def _fabric(self, thing: Thing) -> Json:
        members = self._members(thing)
        details = [
            {
                "gpu_node_id": each.id,
                "gpu_node_name": each.name,
                "policy_ip": each.data["policy_ip"],
                "product_type_id": each.data["product_type_id"],
                "server_type": "s2v16m128_metal",
                "state": get_state(self._world, each),
            }
            for each in members
        ]
        return {
            "id": thing.id,
            "account_id": _ACCOUNT,
            "cluster_name": thing.name,
            "description": "",
            "state": "RUNNING",
            "node_pool_id": thing.data["node_pool_id"],
            "region_id": thing.data["region_id"],
            "server_type": "s2v16m128_metal",
            "product_id": "f90e8ef54cc2451b825608e9f95f7bcb",
            "pirp_id": "20",
            "used_server_count": len(members),
            "gpu_node_details": details,
            **self._stamps(thing),
        }


def get_state(world: World, thing: Thing) -> str:
    """Return the state of a node, in Samsung's words."""
    if world.now >= thing.leaves:
        return "TERMINATING"
    if thing.data.get("broken"):
        return "ERROR"
    switch, moment = thing.data.get("switched", ("", 0.0))
    if switch:
        is_over = world.now >= moment + _SWITCHES
        over, under_way = {
            "start": ("RUNNING", "STARTING"),
            "stop": ("STOPPED", "STOPPING"),
        }[switch]
        return over if is_over else under_way
    return world.stage(thing, _STAGES)


def _image_name(image_id: str) -> str:
    return next((each["name"] for each in _IMAGES if each["id"] == image_id), "unknown")


def _matches(shown: Json, query: Any, names: tuple[str, ...]) -> bool:
    return all(shown[name] == query[name] for name in names if query.get(name))
