"""Serve the 16 endpoints of the platform document, and the list of versions, under `/scp`.

`app` mounts the routes through `create_parts`; `creating`, `operations` and `queries` do the work.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from flask import Blueprint, Request, Response, g, request
from pydantic import BaseModel
from werkzeug.http import http_date

from gpuform.providers.emulator.clock import Clock
from gpuform.providers.emulator.faults import Faults
from gpuform.providers.emulator.routing import (
    EmulatorParts,
    Fleet,
    FleetNode,
    PlatformApi,
    PlatformControls,
    RouteTable,
    answer_json,
    get_fault_effects,
)
from gpuform.providers.emulator.scp.access import (
    CURRENT,
    VERSION_HEADER,
    VERSIONS,
    ScpSettings,
    check_access,
    choose_version,
)
from gpuform.providers.emulator.scp.catalogue import ACCOUNT_ID, ScpApiError, ScpMessage
from gpuform.providers.emulator.scp.creating import create_nodes
from gpuform.providers.emulator.scp.nodes import GPUS_PER_NODE, ScpInventory
from gpuform.providers.emulator.scp.operations import (
    ScpRequestContext,
    assign_nat,
    delete_nodes,
    lock_node,
    modify_members,
    release_nat,
    start_nodes,
    stop_nodes,
)
from gpuform.providers.emulator.scp.queries import (
    JsonObject,
    ListQuery,
    list_images,
    list_node_pools,
    list_products,
)
from gpuform.providers.emulator.scp.requests import (
    AssignPublicNatIp,
    CreateGpuNodes,
    GpuNodeIds,
    ModifyMembers,
    parse_body,
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
_ZONE_FILTER = {"zone": "zone"}
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


class ScpApi(PlatformApi):
    """SCP's API, as `app` mounts it."""

    name = "scp"
    prefix = "/scp"

    def create_blueprint(self) -> Blueprint:
        """Return the routes of the API, and of the list of versions, with SCP's headers."""
        routes = super().create_blueprint()
        routes.after_request(self._add_headers)
        for path in ("", "/"):
            routes.add_url_rule(path, "versions", self._list_versions, methods=["GET"])
        return routes

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", f"{_NODE}/public-nat-ip", self._assign_nat),
            ("DELETE", f"{_NODE}/public-nat-ip", self._release_nat),
            ("PUT", f"{_NODE}/lock", partial(self._lock_node, enabled=True)),
            ("PUT", f"{_NODE}/unlock", partial(self._lock_node, enabled=False)),
            ("GET", _NODE, self._show_node),
            ("POST", _NODES, self._create_nodes),
            ("DELETE", _NODES, partial(self._apply_to_nodes, delete_nodes)),
            ("GET", _NODES, self._list_nodes),
            ("POST", f"{_NODES}/start", partial(self._apply_to_nodes, start_nodes)),
            ("POST", f"{_NODES}/stop", partial(self._apply_to_nodes, stop_nodes)),
            ("GET", f"{_NODES}/images", self._list_images),
            ("GET", f"{_NODES}/products", self._list_products),
            ("GET", _FABRICS, self._list_fabrics),
            ("GET", f"{_FABRICS}/node-pools", self._list_node_pools),
            ("POST", f"{_FABRICS}/modify-members", self._modify_members),
            ("GET", f"{_FABRICS}/<cluster_fabric_id>", self._show_fabric),
        )

    def refuse_unauthorized(self, client_request: Request) -> Response | None:
        """Return the 401, 403 or 400 for a wrong signature, permission or version, else None.

        The version is stored in `g`. The list of versions needs no signature.
        """
        # A client asks for the versions before it can know which one to sign for.
        if client_request.path.rstrip("/") == self.prefix:
            return None
        try:
            check_access(client_request, ScpSettings.load(self._store), time.time())
            g.version = choose_version(client_request.headers.get(VERSION_HEADER))
        except ScpApiError as error:
            return self._answer_refusal(error)
        return None

    def answer_error(self, status: int, message: str) -> Response:
        """Return an error in SCP's form, with `message` for both languages."""
        return self._answer_refusal(ScpApiError(status, "Error", ScpMessage(message, message)))

    def list_objects(self) -> dict[str, list[dict[str, Any]]]:
        """Return the visible nodes and fabrics, as `gpu_nodes` and `fabrics`."""
        with self._store.transaction():
            inventory = self._load_platform().inventory
            now = inventory.now
            return {
                "gpu_nodes": [
                    {"id": node.node_id, "name": node.name, "status": node.get_state(now)}
                    for node in inventory.list_nodes()
                ],
                "fabrics": [
                    {"id": fabric.fabric_id, "name": fabric.name, "status": fabric.get_state(now)}
                    for fabric in inventory.list_fabrics()
                ],
            }

    def describe_fleet(self) -> Fleet:
        """Return the live nodes, each with the 8 GPUs that all server types have.

        Stopped nodes do not work, and neither do nodes being created or terminated.
        """
        with self._store.transaction():
            inventory = self._load_platform().inventory
            now = inventory.now
            return Fleet(
                [
                    FleetNode(
                        node.get_membership(now).fabric_name,
                        node.name,
                        GPUS_PER_NODE,
                        works=node.get_state(now) in ("RUNNING", "EDITING"),
                        is_billed=node.get_state(now) != "TERMINATING",
                    )
                    for node in inventory.list_live_nodes()
                ]
            )

    def _load_platform(self) -> ScpRequestContext:
        """Return the request's context: the objects at the clock's time, the settings, the faults.

        The faults are the effects of the fault that a test has injected for this request; without
        one they are empty.
        """
        inventory = ScpInventory(self._store, self._clock.now())
        # Tests that look past the API have no version.
        has_zones = g.get("version", CURRENT).has_zones
        return ScpRequestContext(
            inventory, ScpSettings.load(self._store), get_fault_effects(), has_zones
        )

    def _answer_refusal(self, error: ScpApiError) -> Response:
        """Return the answer for `error`, in the language that the request prefers."""
        language = request.accept_languages.best_match(_LANGUAGES, default=_LANGUAGES[0])
        return answer_json(error.build_body(language, self._create_request_id()), error.status)

    def _add_headers(self, response: Response) -> Response:
        """Set the headers of the API's version and of the platform's time; return `response`.

        The time is the real one plus the setting `clock_ahead_seconds`: requests are signed with
        it. The version is left out if the request was refused before one was chosen.
        """
        if "version" in g:
            response.headers.update(g.version.build_headers())
        ahead = ScpSettings.load(self._store).clock_ahead_seconds
        response.headers["Date"] = http_date(time.time() + ahead)
        return response

    def _create_request_id(self) -> str:
        """Return a new request id, `req-` and a UUID, computed from the store's seed."""
        return f"req-{self._store.create_id()}"

    def _answer_accepted(self, resource_id: str) -> Response:
        """Answer 202 with an AsyncResponse for `resource_id`: one id, or several with commas."""
        content = {
            "account_id": ACCOUNT_ID,
            "request_id": self._create_request_id(),
            "resource_id": resource_id,
        }
        return answer_json(content, 202)

    # Nodes.

    def _create_nodes(self, context: ScpRequestContext) -> Response:
        """Create the body's nodes, and answer 202 with ids as the setting `create_answer` says."""
        nodes = create_nodes(context, parse_body(CreateGpuNodes, request.get_data()))
        ids = [node.node_id for node in nodes]
        answer_form, foreign_ids = context.settings.create_answer, [context.inventory.create_id()]
        # The document's example has the first id alone; clients have to find the other nodes.
        ids_by_form = {
            "first": ids[:1],
            "all": ids,
            "more": [*ids, *foreign_ids],
            "foreign": foreign_ids,
        }
        return self._answer_accepted(", ".join(ids_by_form.get(answer_form, ())))

    def _apply_to_nodes(
        self, action: Callable[[ScpRequestContext, Sequence[str]], None], context: ScpRequestContext
    ) -> Response:
        """Begin to delete, start or stop the nodes in the body, and answer 202 with the ids."""
        body = parse_body(GpuNodeIds, request.get_data())
        action(context, body.gpu_node_ids)
        return self._answer_accepted(", ".join(body.gpu_node_ids))

    def _list_nodes(self, context: ScpRequestContext) -> Response:
        """Answer with the page of visible nodes that the query asks for."""
        filters = _NODE_FILTERS | _ZONE_FILTER if context.has_zones else _NODE_FILTERS
        listing = ListQuery.parse(request.args, filters, _NODE_SORTS)
        views = [
            node.to_json(context.now, with_zone=context.has_zones)
            for node in context.inventory.list_nodes()
        ]
        return self._answer_page(listing, views, _NODES, "gpu_nodes")

    def _show_node(self, context: ScpRequestContext, gpu_node_id: str) -> Response:
        """Answer with a node, with an injected fault's state. Raises `Refusal` 404."""
        node = context.inventory.get_node(gpu_node_id)
        view = node.to_json(context.now, with_zone=context.has_zones)
        self._apply_status_overrides([view], _NODES, field="state")
        return answer_json(view)

    def _lock_node(
        self, context: ScpRequestContext, gpu_node_id: str, *, enabled: bool
    ) -> Response:
        """Lock or unlock a node, and answer with the node's id. Raises `Refusal` 404."""
        lock_node(context, gpu_node_id, enabled=enabled)
        return answer_json({"gpu_node_id": gpu_node_id})

    def _assign_nat(self, context: ScpRequestContext, gpu_node_id: str) -> Response:
        """Begin to assign the body's public IP to a node, and answer 202 with the node's id."""
        body = parse_body(AssignPublicNatIp, request.get_data())
        assign_nat(context, gpu_node_id, body.public_ip_address_id)
        return answer_json({"gpu_node_id": gpu_node_id}, 202)

    def _release_nat(self, context: ScpRequestContext, gpu_node_id: str) -> Response:
        """Begin to release a node's public IP, and answer 202 with the node's id."""
        release_nat(context, gpu_node_id)
        return answer_json({"gpu_node_id": gpu_node_id}, 202)

    # Fabrics.

    def _list_fabrics(self, context: ScpRequestContext) -> Response:
        """Answer with the page of visible fabrics, each with its nodes, that the query asks for."""
        listing = ListQuery.parse(request.args, _FABRIC_FILTERS, _FABRIC_SORTS)
        inventory = context.inventory
        views = [
            fabric.to_json(context.now, inventory.list_members(fabric))
            for fabric in inventory.list_fabrics()
        ]
        return self._answer_page(listing, views, _FABRICS, "cluster_fabrics")

    def _show_fabric(self, context: ScpRequestContext, cluster_fabric_id: str) -> Response:
        """Answer with a fabric with its nodes, and with an injected fault's state.

        Raises `Refusal` 404.
        """
        fabric = context.inventory.get_fabric(cluster_fabric_id)
        view = fabric.to_json(context.now, context.inventory.list_members(fabric))
        self._apply_status_overrides([view], _FABRICS, field="state")
        return answer_json(view)

    def _modify_members(self, context: ScpRequestContext) -> Response:
        """Begin the move of nodes in the body, and answer 202 with the new fabric's id."""
        body = parse_body(ModifyMembers, request.get_data())
        modify_members(context, body)
        return self._answer_accepted(body.after_cluster_fabric_id)

    # What is offered.

    def _list_images(self, _: ScpRequestContext) -> Response:
        """Answer with the images of the query's region. Raises `Refusal` 400 for a wrong query."""
        return answer_json(list_images(request.args))

    def _list_products(self, _: ScpRequestContext) -> Response:
        """Answer with the server types that the query selects.

        Raises `Refusal` 400 for a wrong query.
        """
        return answer_json(list_products(request.args))

    def _list_node_pools(self, context: ScpRequestContext) -> Response:
        """Answer with the query's node pools. Raises `Refusal` 400 for a wrong query."""
        pools = list_node_pools(request.args, context.inventory, has_zones=context.has_zones)
        return answer_json(pools)

    def _list_versions(self) -> Response:
        """Answer with the API's versions, each with the address of this API."""
        url = request.url_root.rstrip("/") + self.prefix
        return answer_json({"versions": [version.to_json(url) for version in VERSIONS]})

    def _answer_page(
        self, listing: ListQuery, views: list[JsonObject], folder: str, name: str
    ) -> Response:
        """Answer with the page of matching views as `name`, and how many views match as `count`.

        Injected faults change the shown states of objects in `folder`, not the order.
        """
        matches = listing.filter_and_sort(views)
        # The order goes by the true state; a fault changes only what the page shows.
        page = listing.select_page(matches)
        self._apply_status_overrides(page, folder, field="state")
        return answer_json({"count": len(matches), name: page})


class _StateBody(BaseModel, extra="forbid"):
    """The state that a test sets."""

    state: str


class ScpControls(PlatformControls):
    """What tests do to SCP past its API: settings, states, nodes that vanish."""

    settings = ScpSettings

    def _list_routes(self) -> RouteTable:
        return (
            ("POST", "/gpu-nodes/<node_id>", self._set_state),
            ("DELETE", "/gpu-nodes/<node_id>", self._remove_node),
        )

    def _set_state(self, node_id: str) -> Response:
        """Set a node's state from now on, whatever was planned, and answer with id and state.

        Raises `Refusal` 404.
        """
        body = _StateBody.model_validate_json(request.get_data())
        inventory = ScpInventory(self._store, self._clock.now())
        inventory.save_node(inventory.get_node(node_id).set_state(inventory.now, body.state))
        return answer_json({"id": node_id, "status": body.state})

    def _remove_node(self, node_id: str) -> Response:
        """Remove a node at once, without TERMINATING; answer with its id. Raises `Refusal` 404."""
        ScpInventory(self._store, self._clock.now()).remove_node(node_id)
        return answer_json({"id": node_id})


def create_parts(store: Store, clock: Clock, faults: Faults) -> EmulatorParts:
    """Return SCP's part of the emulator: the API, and the test controls under `scp`."""
    return EmulatorParts(
        (ScpApi(store, clock, faults),), {"scp": ScpControls(store, clock).create_blueprint()}
    )
