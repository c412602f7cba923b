"""The 16 endpoints of the platform document, and the list of versions, under `/scp`."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from flask import Blueprint, Request, Response, g, request
from pydantic import BaseModel, ConfigDict
from werkzeug.http import http_date

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.gate import EmulatorParts
from gpuform.providers.emulator.routing import (
    PlatformApi,
    PlatformControls,
    RouteTable,
    answer_json,
    get_fault_effects,
)
from gpuform.providers.emulator.scp.access import HEADER, VERSIONS, Settings, check_access, chosen
from gpuform.providers.emulator.scp.catalogue import ACCOUNT_ID
from gpuform.providers.emulator.scp.creating import create_nodes
from gpuform.providers.emulator.scp.errors import ApiError, Message
from gpuform.providers.emulator.scp.nodes import Estate
from gpuform.providers.emulator.scp.operations import (
    Situation,
    assign_nat,
    delete_nodes,
    lock_node,
    modify_members,
    release_nat,
    start_nodes,
    stop_nodes,
)
from gpuform.providers.emulator.scp.queries import Listing, View, images, node_pools, products
from gpuform.providers.emulator.scp.requests import (
    AssignPublicNatIp,
    CreateGpuNodes,
    GpuNodeIds,
    ModifyMembers,
    parse,
)
from gpuform.providers.emulator.store import Store

_NODES = "/v1/gpu-nodes"
_NODE = f"{_NODES}/<gpu_node_id>"
_FABRICS = "/v1/cluster-fabrics"
_LANGUAGES = ("ko-KR", "en-US")
# Parameters that filter, and the field of the view that each one is about.
_NODE_FILTERS = {
    "gpu_node_name": "gpu_node_name",
    "state": "state",
    "ip": "policy_ip",
    "vpc_id": "vpc_id",
    "cluster_fabric_name": "cluster_fabric_name",
    "cluster_fabric_id": "cluster_fabric_id",
}
_FABRIC_FILTERS = {
    "cluster_fabric_name": "cluster_name",
    "state": "state",
    "node_pool_id": "node_pool_id",
}
_NODE_SORTS = (
    "created_at", "modified_at", "gpu_node_name", "state", "policy_ip", "cluster_fabric_name", "id",
)  # fmt: skip
_FABRIC_SORTS = (
    "created_at", "modified_at", "cluster_name", "state", "node_pool_id", "used_server_count", "id",
)  # fmt: skip


class Scp(PlatformApi):
    """The platform as the app mounts it."""

    name = "scp"
    prefix = "/scp"

    def create_blueprint(self) -> Blueprint:
        routes = super().create_blueprint()
        routes.after_request(self._marked)
        for path in ("", "/"):
            routes.add_url_rule(path, "versions", self._list_versions, methods=["GET"])
        return routes

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", f"{_NODE}/public-nat-ip", self._assign_nat),
            ("DELETE", f"{_NODE}/public-nat-ip", self._release_nat),
            ("PUT", f"{_NODE}/lock", self._lock),
            ("PUT", f"{_NODE}/unlock", self._unlock),
            ("GET", _NODE, self._show_node),
            ("POST", _NODES, self._create_nodes),
            ("DELETE", _NODES, self._delete_nodes),
            ("GET", _NODES, self._list_nodes),
            ("POST", f"{_NODES}/start", self._start_nodes),
            ("POST", f"{_NODES}/stop", self._stop_nodes),
            ("GET", f"{_NODES}/images", self._list_images),
            ("GET", f"{_NODES}/products", self._list_products),
            ("GET", _FABRICS, self._list_fabrics),
            ("GET", f"{_FABRICS}/node-pools", self._list_node_pools),
            ("POST", f"{_FABRICS}/modify-members", self._modify_members),
            ("GET", f"{_FABRICS}/<cluster_fabric_id>", self._show_fabric),
        )

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """401, 403, and 400 for a version that is not served. The list of versions is open."""
        if client_request.path.rstrip("/") == self.prefix:
            return None
        try:
            check_access(client_request, Settings.load(self._store), time.time())
            g.version = chosen(client_request.headers.get(HEADER))
        except ApiError as error:
            return self._answer_refusal(error)
        return None

    def answer_error(self, status: int, message: str) -> Response:
        return self._answer_refusal(ApiError(status, "Error", Message(message, message)))

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        with self._store.transaction():
            estate = self._load_platform().estate
            now = estate.now
            return {
                "gpu_nodes": [
                    {"id": each.node_id, "name": each.name, "status": each.state(now)}
                    for each in estate.nodes()
                ],
                "fabrics": [
                    {"id": each.fabric_id, "name": each.name, "status": each.state(now)}
                    for each in estate.fabrics()
                ],
            }

    def _load_platform(self) -> Situation:
        estate = Estate(self._store, self._clock.now())
        return Situation(estate, Settings.load(self._store), get_fault_effects())

    def _answer_refusal(self, error: ApiError) -> Response:
        language = request.accept_languages.best_match(_LANGUAGES, default=_LANGUAGES[0])
        return answer_json(error.body(language, self._request_id()), error.status)

    def _marked(self, response: Response) -> Response:
        """With the version that answers, and the time of the clock that checks signatures."""
        if "version" in g:
            response.headers.update(g.version.headers())
        ahead = Settings.load(self._store).clock_ahead_seconds
        response.headers["Date"] = http_date(time.time() + ahead)
        return response

    def _request_id(self) -> str:
        return f"req-{self._store.create_id()}"

    def _accepted(self, resource_id: str) -> Response:
        """The document's AsyncResponse."""
        content = {
            "account_id": ACCOUNT_ID,
            "request_id": self._request_id(),
            "resource_id": resource_id,
        }
        return answer_json(content, 202)

    # Nodes.

    def _create_nodes(self, situation: Situation) -> Response:
        made = create_nodes(situation, parse(CreateGpuNodes, request.get_data()))
        ids = [node.node_id for node in made]
        shown, foreign = situation.settings.create_answer, [situation.estate.new_id()]
        by_answer = {"first": ids[:1], "all": ids, "more": [*ids, *foreign], "foreign": foreign}
        return self._accepted(", ".join(by_answer.get(shown, ())))

    def _delete_nodes(self, situation: Situation) -> Response:
        return self._done_to_all(situation, delete_nodes)

    def _start_nodes(self, situation: Situation) -> Response:
        return self._done_to_all(situation, start_nodes)

    def _stop_nodes(self, situation: Situation) -> Response:
        return self._done_to_all(situation, stop_nodes)

    def _done_to_all(
        self, situation: Situation, action: Callable[[Situation, Sequence[str]], None]
    ) -> Response:
        body = parse(GpuNodeIds, request.get_data())
        action(situation, body.gpu_node_ids)
        return self._accepted(", ".join(body.gpu_node_ids))

    def _list_nodes(self, situation: Situation) -> Response:
        listing = Listing.read(request.args, _NODE_FILTERS, _NODE_SORTS)
        views = [node.view(situation.now) for node in situation.estate.nodes()]
        return self._page(listing, views, _NODES, "gpu_nodes")

    def _show_node(self, situation: Situation, gpu_node_id: str) -> Response:
        view = situation.estate.node(gpu_node_id).view(situation.now)
        self._apply_status_overrides([view], _NODES, field="state")
        return answer_json(view)

    def _lock(self, situation: Situation, gpu_node_id: str) -> Response:
        lock_node(situation, gpu_node_id, enabled=True)
        return answer_json({"gpu_node_id": gpu_node_id})

    def _unlock(self, situation: Situation, gpu_node_id: str) -> Response:
        lock_node(situation, gpu_node_id, enabled=False)
        return answer_json({"gpu_node_id": gpu_node_id})

    def _assign_nat(self, situation: Situation, gpu_node_id: str) -> Response:
        body = parse(AssignPublicNatIp, request.get_data())
        assign_nat(situation, gpu_node_id, body.public_ip_address_id)
        return answer_json({"gpu_node_id": gpu_node_id}, 202)

    def _release_nat(self, situation: Situation, gpu_node_id: str) -> Response:
        release_nat(situation, gpu_node_id)
        return answer_json({"gpu_node_id": gpu_node_id}, 202)

    # Fabrics.

    def _list_fabrics(self, situation: Situation) -> Response:
        listing = Listing.read(request.args, _FABRIC_FILTERS, _FABRIC_SORTS)
        estate = situation.estate
        views = [each.view(situation.now, estate.members(each)) for each in estate.fabrics()]
        return self._page(listing, views, _FABRICS, "cluster_fabrics")

    def _show_fabric(self, situation: Situation, cluster_fabric_id: str) -> Response:
        fabric = situation.estate.fabric(cluster_fabric_id)
        view = fabric.view(situation.now, situation.estate.members(fabric))
        self._apply_status_overrides([view], _FABRICS, field="state")
        return answer_json(view)

    def _modify_members(self, situation: Situation) -> Response:
        body = parse(ModifyMembers, request.get_data())
        modify_members(situation, body)
        return self._accepted(body.after_cluster_fabric_id)

    # What is offered.

    def _list_images(self, _: Situation) -> Response:
        return answer_json(images(request.args))

    def _list_products(self, _: Situation) -> Response:
        return answer_json(products(request.args))

    def _list_node_pools(self, situation: Situation) -> Response:
        return answer_json(node_pools(request.args, situation.estate))

    def _list_versions(self) -> Response:
        url = request.url_root.rstrip("/") + self.prefix
        return answer_json({"versions": [version.view(url) for version in VERSIONS]})

    def _page(self, listing: Listing, views: list[View], folder: str, name: str) -> Response:
        found = listing.sorted(views)
        page = listing.paged(found)
        self._apply_status_overrides(page, folder, field="state")
        return answer_json({"count": len(found), name: page})


class _State(BaseModel):
    model_config = ConfigDict(extra="forbid")
    state: str


class ScpControls(PlatformControls):
    settings = Settings

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/gpu-nodes/<node_id>", self._set_state),
            ("DELETE", "/gpu-nodes/<node_id>", self._remove),
        )

    def _set_state(self, node_id: str) -> Response:
        """From now on, whatever was planned."""
        body = _State.model_validate_json(request.get_data())
        estate = Estate(self._store, self._clock.now())
        estate.keep_node(estate.node(node_id).in_state(estate.now, body.state))
        return answer_json({"id": node_id, "status": body.state})

    def _remove(self, node_id: str) -> Response:
        """At once, without TERMINATING."""
        Estate(self._store, self._clock.now()).remove_node(node_id)
        return answer_json({"id": node_id})


def parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """SCP's part of the emulator."""
    return EmulatorParts(
        (Scp(store, clock, faults),), {"scp": ScpControls(store, clock).create_blueprint()}
    )
