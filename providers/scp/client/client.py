"""Call SCP's Multi-node GPU Cluster API 1.2 or 1.3: one method for each endpoint.

Methods take and return models. Resources and look-ups call `get_client`; requests are sent by
`connection.Connection`. Endpoints are those of the SCP reference; its gaps are named where they
matter. What 1.3 adds is from Samsung's Terraform provider v6.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.providers.context import PollSchedule
from gpuform.providers.errors import Conflict, GpuformError, InvalidRequest, NotFound
from gpuform.providers.http import Clients, Listing, ProbeAnswer, Retry, build_path
from gpuform.providers.operations import Settings
from gpuform.providers.scp.client.connection import PAGE_SIZE, Connection, read_all_pages
from gpuform.providers.scp.client.credentials import (
    VERSION_CONFIG,
    Credentials,
    find_api_version,
    find_credentials,
)
from gpuform.schemas.models import WireModel
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.outputs import (
    CURRENT_VERSION,
    DELETING_NODE_STATES,
    ZONE_VERSION,
    NodeState,
)

_NODES = "/v1/gpu-nodes"
_FABRICS = "/v1/cluster-fabrics"
NodePredicate = Callable[[wire.GpuNode], bool]


class ScpClient:
    """Client of the API for the keys of one user; safe for many threads.

    Every method raises `GpuformError`s only.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._send_request = connection.send_request
        self._lock = threading.Lock()
        self._node_listings: dict[str | None, Listing[wire.GpuNode]] = {}
        self._poll_schedules: dict[float, PollSchedule] = {}

    @property
    def has_zones(self) -> bool:
        """Return whether requests and answers have availability zones: API 1.3."""
        return self._connection.version == ZONE_VERSION

    # GPU nodes.

    def create_nodes(self, request: wire.CreateGpuNodes) -> list[str]:
        """Ask SCP to create nodes, once, and return the ids of the answer, which are hints only.

        The reference shows one `resource_id` for a batch of up to five servers: there may be fewer
        ids than nodes, none, or ids of something else.

        Raises:
            UnknownOutcome: the answer was lost; the nodes may exist.
            OutOfCapacity: the vendor pool has no such servers.
        """
        # The request has no idempotency key (reference, 'Create GPU Nodes'): sent twice, it could
        # create two batches.
        answer = self._send_request(
            wire.AsyncAnswer, "POST", _NODES, body=request.body(), retry=Retry.CREATE
        )
        return answer.node_ids

    def list_nodes(  # noqa: PLR0913 - the document's filters
        self,
        *,
        gpu_node_name: str | None = None,
        state: str | None = None,
        ip: str | None = None,
        vpc_id: str | None = None,
        cluster_fabric_name: str | None = None,
        cluster_fabric_id: str | None = None,
        zone: str | None = None,
    ) -> list[wire.GpuNode]:
        """List the nodes matching every given value, sorted by name.

        A TERMINATED node is gone: only a filter by `state` returns it. Listed nodes that do not
        match are dropped, except for `ip`: the reference does not say which address of a node is
        meant.

        Raises:
            GpuformError: `zone` is given, and the version of the API has no zones.
        """
        self._require_zones(zone)
        exact_filters = {
            "gpu_node_name": gpu_node_name,
            "state": state,
            "vpc_id": vpc_id,
            "cluster_fabric_name": cluster_fabric_name,
            "cluster_fabric_id": cluster_fabric_id,
            "zone": zone,
        }
        # Only the platform filters by `ip`: the reference does not say which address of a node is
        # meant.
        filters = {**exact_filters, "ip": ip, "sort": "gpu_node_name:asc"}

        def read_page(number: int) -> tuple[int, Sequence[wire.GpuNode]]:
            answer = self._send_request(
                wire.GpuNodeList, "GET", _NODES, params=_build_page_params(filters, number)
            )
            return answer.count, answer.gpu_nodes

        matching_nodes = [
            node
            for node in map(
                self._drop_foreign_zone, read_all_pages(read_page, lambda node: node.id)
            )
            if _has_values(node, exact_filters)
            and (state is not None or node.state != NodeState.TERMINATED)
        ]
        return sorted(matching_nodes, key=lambda node: (node.gpu_node_name, node.id))

    def get_node(self, node_id: str) -> wire.GpuNode:
        """Get one node.

        Raises:
            NotFound: the node is gone, or the platform still shows it as TERMINATED.
        """
        path = _NODES + build_path(node_id)
        node = self._drop_foreign_zone(self._send_request(wire.GpuNode, "GET", path))
        if node.state == NodeState.TERMINATED:
            raise NotFound(
                f"scp: GET {path} answered that the node is TERMINATED",
                method="GET",
                path=path,
                status=404,
            )
        return node

    def get_node_listing(self, cluster_fabric_name: str | None = None) -> Listing[wire.GpuNode]:
        """Return the listing of the nodes of one fabric name, or of all nodes; sends nothing yet.

        A listing answers several readers at a time with one request.
        """
        with self._lock:
            if cluster_fabric_name not in self._node_listings:
                self._node_listings[cluster_fabric_name] = Listing(
                    partial(self.list_nodes, cluster_fabric_name=cluster_fabric_name),
                    self.get_node,
                    lambda node: node.id,
                )
            return self._node_listings[cluster_fabric_name]

    def delete_nodes(self, node_ids: Sequence[str]) -> None:
        """Delete nodes, without waiting; no error if all are under deletion or gone.

        Raises:
            NotFound: one of the nodes is gone, and another one is neither gone nor under deletion.
        """
        body, has_effect = wire.build_node_selection(node_ids), _has_state(*DELETING_NODE_STATES)
        self._send_repeatable_request(
            "DELETE", _NODES, body, node_ids, has_effect, accepts_gone=True
        )

    def start_nodes(self, node_ids: Sequence[str]) -> None:
        """Start stopped nodes, without waiting; no error if all run or start already."""
        body = wire.build_node_selection(node_ids)
        has_effect = _has_state(NodeState.STARTING, NodeState.RUNNING)
        self._send_repeatable_request("POST", f"{_NODES}/start", body, node_ids, has_effect)

    def stop_nodes(self, node_ids: Sequence[str]) -> None:
        """Stop running nodes, without waiting; no error if all are stopped or stopping already."""
        body = wire.build_node_selection(node_ids)
        has_effect = _has_state(NodeState.STOPPING, NodeState.STOPPED)
        self._send_repeatable_request("POST", f"{_NODES}/stop", body, node_ids, has_effect)

    def lock_node(self, node_id: str) -> None:
        """Lock one node against deletion and stopping, at once."""
        self._send_request(wire.NodeAnswer, "PUT", f"{_NODES}{build_path(node_id)}/lock")

    def unlock_node(self, node_id: str) -> None:
        """Unlock one GPU node at once, by a separate request."""
        self._send_request(wire.NodeAnswer, "PUT", f"{_NODES}{build_path(node_id)}/unlock")

    def assign_nat(self, node_id: str, public_ip_address_id: str) -> None:
        """Assign the address of a public IP to a node without one; do not wait.

        SCP's refusal is no error while the node is EDITING: the request is then taken for sent
        before.
        """
        # SCP never reports which public IP a node has: only a change in progress counts as ours.
        body, has_effect = (
            wire.build_public_nat_ip(public_ip_address_id),
            _has_state(NodeState.EDITING),
        )
        self._send_repeatable_request(
            "POST", f"{_NODES}{build_path(node_id)}/public-nat-ip", body, [node_id], has_effect
        )

    def release_nat(self, node_id: str) -> None:
        """Remove the public address of a node, without waiting; a node without one is no error."""

        def has_effect(node: wire.GpuNode) -> bool:
            return node.state == NodeState.EDITING or not node.policy_use_nat

        self._send_repeatable_request(
            "DELETE", f"{_NODES}{build_path(node_id)}/public-nat-ip", None, [node_id], has_effect
        )

    # Fabrics.

    def modify_members(
        self, before_fabric_id: str, after_fabric_id: str, node_ids: Sequence[str]
    ) -> None:
        """Move nodes from one fabric to another fabric of one vendor pool, without waiting.

        SCP's refusal is no error if each node is EDITING or in the other fabric already. Without
        `node_ids` nothing is sent.
        """

        def has_effect(node: wire.GpuNode) -> bool:
            # The move is asynchronous (202): a node is EDITING, or is in the new fabric already.
            return node.state == NodeState.EDITING or node.cluster_fabric_id == after_fabric_id

        body = wire.build_member_move(before_fabric_id, after_fabric_id, node_ids)
        self._send_repeatable_request(
            "POST", f"{_FABRICS}/modify-members", body, node_ids, has_effect
        )

    def get_fabric(self, fabric_id: str) -> wire.ClusterFabric:
        """Get one fabric and the members.

        Raises:
            NotFound: the fabric is gone.
        """
        return self._send_request(wire.ClusterFabric, "GET", _FABRICS + build_path(fabric_id))

    def list_fabrics(
        self,
        *,
        cluster_fabric_name: str | None = None,
        state: str | None = None,
        node_pool_id: str | None = None,
    ) -> list[wire.ClusterFabric]:
        """List the fabrics matching every given value, sorted by name.

        A filter of None matches every fabric.
        """
        common_filters = {"state": state, "node_pool_id": node_pool_id}
        filters = {
            **common_filters,
            "cluster_fabric_name": cluster_fabric_name,
            "sort": "created_at:asc",
        }

        def read_page(number: int) -> tuple[int, Sequence[wire.ClusterFabric]]:
            params = _build_page_params(filters, number)
            answer = self._send_request(wire.ClusterFabricList, "GET", _FABRICS, params=params)
            return answer.count, answer.cluster_fabrics

        # An answer calls the name `cluster_name`, the query `cluster_fabric_name` (reference, 'List
        # Cluster Fabrics').
        exact_filters = {**common_filters, "cluster_name": cluster_fabric_name}
        matching_fabrics = [
            fabric
            for fabric in read_all_pages(read_page, lambda fabric: fabric.id)
            if _has_values(fabric, exact_filters)
        ]
        return sorted(matching_fabrics, key=lambda fabric: (fabric.cluster_name, fabric.id))

    # What can be had.

    def list_images(self, region_id: str, retry: Retry = Retry.SAFE) -> Sequence[wire.Image]:
        """List the operating-system images of a region."""
        path, params = f"{_NODES}/images", {"region_id": region_id}
        return self._send_request(wire.ImageList, "GET", path, params=params, retry=retry).images

    def list_products(
        self,
        type: str | None = None,  # noqa: A002 - the platform's name
        image_id: str | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Sequence[wire.Product]:
        """List the server types, filtered by `type` (example: SCALE) and by a supported image.

        A filter of None is not sent.
        """
        path, params = f"{_NODES}/products", _drop_undefined(type=type, image_id=image_id)
        return self._send_request(
            wire.ProductList, "GET", path, params=params, retry=retry
        ).products

    def list_node_pools(
        self,
        subnet_id: str | None = None,
        cluster_fabric_id: str | None = None,
        node_pool_id: str | None = None,
        zone: str | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Sequence[wire.VendorPool]:
        """List the vendor's node pools, filtered by a served subnet, a fabric, an id or a zone.

        A filter of None is not sent. API 1.3 demands a fabric, or a subnet and a zone (official
        provider v6, `node_pool_datasources.go`).

        Raises:
            GpuformError: API 1.3 lacks a filter that it demands, or API 1.2 has a zone.
        """
        self._require_zones(zone)
        if self.has_zones and cluster_fabric_id is None and None in (subnet_id, zone):
            raise GpuformError(
                f"node_pools: version {ZONE_VERSION} of SCP's API lists only the pools of a "
                "fabric, or of a subnet in a zone",
                hint="pass cluster_fabric_id, or subnet_id and zone",
            )
        path = f"{_FABRICS}/node-pools"
        params = _drop_undefined(
            subnet_id=subnet_id,
            cluster_fabric_id=cluster_fabric_id,
            node_pool_id=node_pool_id,
            zone=zone,
        )
        return self._send_request(
            wire.VendorPoolList, "GET", path, params=params, retry=retry
        ).node_pools

    def _drop_foreign_zone(self, node: wire.GpuNode) -> wire.GpuNode:
        """Return the node, with an empty zone if the version of the API has no zones."""
        # What such a zone means is undocumented: stored, it could replace the node.
        return node if self.has_zones else node.model_copy(update={"zone": ""})

    def _require_zones(self, zone: str | None) -> None:
        """Raise `GpuformError` if `zone` is given and the version of the API has no zones."""
        if zone is not None and not self.has_zones:
            raise GpuformError(
                f"zone: version {CURRENT_VERSION} of SCP's API has no zones",
                hint=f"set {VERSION_CONFIG} to {ZONE_VERSION}, or remove the zone",
            )

    def get_poll_schedule(self, interval: float) -> PollSchedule:
        """Return the poll schedule shared by all waiters of this client, by interval in seconds."""
        # Shared: waiters that poll together share the requests for their lists.
        with self._lock:
            return self._poll_schedules.setdefault(interval, PollSchedule(interval))

    @property
    def clock_ahead(self) -> float | None:
        """Return how many seconds this machine's clock is ahead of SCP's; None if unknown."""
        return self._connection.clock_ahead

    def send_probe(self) -> ProbeAnswer:
        """Check keys and connection by the cheapest signed request.

        Raises:
            GpuformError: the keys are wrong or missing, or SCP does not answer.
        """
        return self._connection.send_probe(_NODES)

    def close(self) -> None:
        """Close the connections; later requests open new ones."""
        self._connection.close()

    def _send_repeatable_request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        node_ids: Sequence[str],
        has_effect: NodePredicate,
        *,
        accepts_gone: bool = False,
    ) -> None:
        """Send a repeatable request, unless `node_ids` is empty.

        A lost answer makes the transport repeat the request, and SCP refuses the repetition when
        the first one had its effect. Such a refusal is no error if `has_effect` is true of every
        node; with `accepts_gone` a missing node counts as one with the effect.
        """
        if not node_ids:
            return
        try:
            self._send_request(wire.AsyncAnswer, method, path, body=body)
        except (Conflict, InvalidRequest, NotFound):
            if not all(self._has_effect(node_id, has_effect, accepts_gone) for node_id in node_ids):
                raise

    def _has_effect(self, node_id: str, has_effect: NodePredicate, accepts_gone: bool) -> bool:
        """Return whether the node already shows the effect of a refused request.

        A missing node gives `accepts_gone`. The answer is False if SCP does not answer.
        """
        try:
            return has_effect(self.get_node_listing().read_one(node_id))
        except NotFound:
            return accepts_gone
        except GpuformError:
            # Nobody knows whether the request had its effect: the caller raises the refusal.
            return False


_clients: Clients[ScpClient] = Clients()


def get_client(settings: Settings, region: object = None) -> ScpClient:
    """Return the client for `settings`: one for each process, credentials and version of the API.

    The client speaks to the address of `region`; None and UNKNOWN are the default region. Wrong
    settings raise no error here: every method of the client raises it.
    """
    credentials: Credentials | GpuformError
    key: Credentials | str
    version = CURRENT_VERSION
    try:
        version = find_api_version(settings)
        credentials = key = find_credentials(settings, region if isinstance(region, str) else None)
    except GpuformError as error:
        credentials, key = error, str(error)
    url = credentials.base_url if isinstance(credentials, Credentials) else None
    return _clients.get(
        (key, version),
        url,
        lambda transport: ScpClient(Connection(credentials, transport, version=version)),
    )


def _has_state(*states: str) -> NodePredicate:
    """Return a predicate: whether a node is in one of `states`."""
    return lambda node: node.state in states


def _drop_undefined(**params: str | None) -> dict[str, str]:
    """Return the query parameters without None values."""
    return {name: value for name, value in params.items() if value is not None}


def _build_page_params(params: Mapping[str, str | None], number: int) -> dict[str, str]:
    """Build the query for one page of a list, without the parameters equal to None."""
    return {**_drop_undefined(**params), "page": str(number), "size": str(PAGE_SIZE)}


def _has_values(model: WireModel, values: Mapping[str, str | None]) -> bool:
    """Return True if `model` has every value of `values`, None excepted.

    The reference does not say how exactly the platform compares its filters.
    """
    return all(value is None or getattr(model, name) == value for name, value in values.items())
