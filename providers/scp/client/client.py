"""SCP's Multi-node GPU Cluster API 1.2: one method per endpoint, models in and out.

Endpoints are those of the SCP reference; what it leaves open is said where it matters.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gpuform.providers.actions import Settings
from gpuform.providers.calls import Rhythm
from gpuform.providers.errors import Conflict, GpuformError, InvalidRequest, NotFound
from gpuform.providers.http import Answered, Clients, Listing, Retry, at
from gpuform.providers.scp.client.connection import PAGE_SIZE, Connection, read_all
from gpuform.providers.scp.client.credentials import Credentials, find_credentials
from gpuform.providers.scp.client.credentials import address as address_of_environment
from gpuform.schemas.models import WireModel
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.statuses import NODE_LEAVING, NodeState

_NODES = "/v1/gpu-nodes"
_FABRICS = "/v1/cluster-fabrics"
Shows = Callable[[wire.GpuNode], bool]


class ScpClient:
    """The API by one user's keys; safe for many threads.

    Every method raises `GpuformError`s only.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._call = connection.call
        self._lock = threading.Lock()
        self._listings: dict[str | None, Listing[wire.GpuNode]] = {}
        self._rhythms: dict[float, Rhythm] = {}

    # GPU nodes.

    def create_nodes(self, request: wire.CreateGpuNodes) -> list[str]:
        """Ask for nodes and return the ids of the answer, which are hints only.

        The reference shows one `resource_id` for a batch of up to five servers: there may be fewer
        ids than nodes, none, or ids of something else.

        Raises:
            UnknownOutcome: the answer was lost; the request is sent once.
            OutOfCapacity: the vendor pool has no such servers.
        """
        answer = self._call(
            wire.AsyncAnswer, "POST", _NODES, body=request.body(), retry=Retry.CREATE
        )
        return answer.node_ids

    def nodes(
        self,
        *,
        gpu_node_name: str | None = None,
        state: str | None = None,
        ip: str | None = None,
        vpc_id: str | None = None,
        cluster_fabric_name: str | None = None,
        cluster_fabric_id: str | None = None,
    ) -> list[wire.GpuNode]:
        """All nodes, or those that have every value given; sorted by name.

        A node that is TERMINATED is gone, and listed only when that state is asked for.
        """
        exact = {
            "gpu_node_name": gpu_node_name,
            "state": state,
            "vpc_id": vpc_id,
            "cluster_fabric_name": cluster_fabric_name,
            "cluster_fabric_id": cluster_fabric_id,
        }
        asked = {**exact, "ip": ip, "sort": "gpu_node_name:asc"}

        def page(number: int) -> tuple[int, Sequence[wire.GpuNode]]:
            answer = self._call(wire.GpuNodeList, "GET", _NODES, params=_page(asked, number))
            return answer.count, answer.gpu_nodes

        found = [
            node
            for node in read_all(page, lambda node: node.id)
            if _has(node, exact) and (state is not None or node.state != NodeState.TERMINATED)
        ]
        return sorted(found, key=lambda node: (node.gpu_node_name, node.id))

    def node(self, node_id: str) -> wire.GpuNode:
        """One node; NotFound when it is gone, also when the platform still shows it TERMINATED."""
        path = _NODES + at(node_id)
        node = self._call(wire.GpuNode, "GET", path)
        if node.state == NodeState.TERMINATED:
            raise NotFound(
                f"scp: GET {path} answered that the node is TERMINATED",
                method="GET",
                path=path,
                status=404,
            )
        return node

    def shared_nodes(self, cluster_fabric_name: str | None = None) -> Listing[wire.GpuNode]:
        """The nodes of the fabrics of a name, or all, for readers that may share their requests."""
        with self._lock:
            if cluster_fabric_name not in self._listings:
                self._listings[cluster_fabric_name] = Listing(
                    partial(self.nodes, cluster_fabric_name=cluster_fabric_name),
                    self.node,
                    lambda node: node.id,
                )
            return self._listings[cluster_fabric_name]

    def delete_nodes(self, ids: Sequence[str]) -> None:
        """Begins the deletion. NotFound when one of them is gone and others are not."""
        body, shows = wire.chosen_nodes(ids), _is(*NODE_LEAVING)
        self._act("DELETE", _NODES, body, ids, shows, when_gone=True)

    def start_nodes(self, ids: Sequence[str]) -> None:
        """Begins to start stopped nodes; those that all run already are no error."""
        body, shows = wire.chosen_nodes(ids), _is(NodeState.STARTING, NodeState.RUNNING)
        self._act("POST", f"{_NODES}/start", body, ids, shows)

    def stop_nodes(self, ids: Sequence[str]) -> None:
        """Begins to stop running nodes; those that are all stopped already are no error."""
        body, shows = wire.chosen_nodes(ids), _is(NodeState.STOPPING, NodeState.STOPPED)
        self._act("POST", f"{_NODES}/stop", body, ids, shows)

    def lock_node(self, node_id: str) -> None:
        """Locks it at once."""
        self._call(wire.NodeAnswer, "PUT", f"{_NODES}{at(node_id)}/lock")

    def unlock_node(self, node_id: str) -> None:
        """Unlocks it at once."""
        self._call(wire.NodeAnswer, "PUT", f"{_NODES}{at(node_id)}/unlock")

    def assign_nat(self, node_id: str, public_ip_address_id: str) -> None:
        """Begins to give a node that has no public address the one of a public IP."""
        # Which public IP a node has is never told: only a change under way is taken for this one.
        body, shows = wire.public_nat_ip(public_ip_address_id), _is(NodeState.EDITING)
        self._act("POST", f"{_NODES}{at(node_id)}/public-nat-ip", body, [node_id], shows)

    def release_nat(self, node_id: str) -> None:
        """Begins to take a node's public address away; a node without one is no error."""

        def shows(node: wire.GpuNode) -> bool:
            return node.state == NodeState.EDITING or not node.policy_use_nat

        self._act("DELETE", f"{_NODES}{at(node_id)}/public-nat-ip", None, [node_id], shows)

    # Fabrics.

    def modify_members(
        self, before_fabric_id: str, after_fabric_id: str, node_ids: Sequence[str]
    ) -> None:
        """Begins to move nodes from one fabric to another one of the same vendor pool."""

        def shows(node: wire.GpuNode) -> bool:
            return node.state == NodeState.EDITING or node.cluster_fabric_id == after_fabric_id

        body = wire.moved_members(before_fabric_id, after_fabric_id, node_ids)
        self._act("POST", f"{_FABRICS}/modify-members", body, node_ids, shows)

    def fabric(self, fabric_id: str) -> wire.ClusterFabric:
        """One fabric with its members; NotFound when it is gone."""
        return self._call(wire.ClusterFabric, "GET", _FABRICS + at(fabric_id))

    def fabrics(
        self,
        *,
        cluster_fabric_name: str | None = None,
        state: str | None = None,
        node_pool_id: str | None = None,
    ) -> list[wire.ClusterFabric]:
        """All fabrics, or those that have every value given; sorted by name."""
        given = {"state": state, "node_pool_id": node_pool_id}
        asked = {**given, "cluster_fabric_name": cluster_fabric_name, "sort": "created_at:asc"}

        def page(number: int) -> tuple[int, Sequence[wire.ClusterFabric]]:
            params = _page(asked, number)
            answer = self._call(wire.ClusterFabricList, "GET", _FABRICS, params=params)
            return answer.count, answer.cluster_fabrics

        exact = {**given, "cluster_name": cluster_fabric_name}
        found = [each for each in read_all(page, lambda each: each.id) if _has(each, exact)]
        return sorted(found, key=lambda fabric: (fabric.cluster_name, fabric.id))

    # What can be had.

    def images(self, region_id: str, retry: Retry = Retry.SAFE) -> Sequence[wire.Image]:
        """The images of a region."""
        path, params = f"{_NODES}/images", {"region_id": region_id}
        return self._call(wire.ImageList, "GET", path, params=params, retry=retry).images

    def products(
        self,
        type: str | None = None,  # noqa: A002 - the platform's name
        image_id: str | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Sequence[wire.Product]:
        """The types of servers; `type` such as SCALE, `image_id` of an image that they run."""
        path, params = f"{_NODES}/products", _given(type=type, image_id=image_id)
        return self._call(wire.ProductList, "GET", path, params=params, retry=retry).products

    def node_pools(
        self,
        subnet_id: str | None = None,
        cluster_fabric_id: str | None = None,
        node_pool_id: str | None = None,
        retry: Retry = Retry.SAFE,
    ) -> Sequence[wire.VendorPool]:
        """The vendor's pools: those that serve a subnet, have a fabric, or have an id."""
        path = f"{_FABRICS}/node-pools"
        params = _given(
            subnet_id=subnet_id, cluster_fabric_id=cluster_fabric_id, node_pool_id=node_pool_id
        )
        return self._call(wire.VendorPoolList, "GET", path, params=params, retry=retry).node_pools

    def rhythm(self, interval: float) -> Rhythm:
        """The beat of all that wait for this client's objects at an interval, in seconds."""
        with self._lock:
            return self._rhythms.setdefault(interval, Rhythm(interval))

    @property
    def clock_ahead(self) -> float | None:
        """How far this machine's clock is ahead of the platform's, in seconds; None: not told."""
        return self._connection.clock_ahead

    def probe(self) -> Answered:
        """The cheapest look that needs the keys. Raises what is wrong with them, or the way."""
        return self._connection.probe(_NODES)

    def close(self) -> None:
        """Closes its connections; it may be used again."""
        self._connection.close()

    def _act(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None,
        ids: Sequence[str],
        shows: Shows,
        *,
        when_gone: bool = False,
    ) -> None:
        """Sends what may be sent twice, unless there are no nodes.

        A repetition is refused when the first request, whose answer was lost, had its effect: no
        error where every node `shows` that effect, or is gone.
        """
        if not ids:
            return
        try:
            self._call(wire.AsyncAnswer, method, path, body=body)
        except (Conflict, InvalidRequest, NotFound):
            if not all(self._is_done(id_, shows, when_gone) for id_ in ids):
                raise

    def _is_done(self, node_id: str, shows: Shows, when_gone: bool) -> bool:
        try:
            return shows(self.shared_nodes().one(node_id))
        except NotFound:
            return when_gone
        except GpuformError:
            return False


_clients: Clients[ScpClient] = Clients()


def address(settings: Settings) -> str:
    """Where these settings lead, in any region. Raises GpuformError when it is not known."""
    return address_of_environment(settings)


def client_for(settings: Settings, region: str | None = None) -> ScpClient:
    """The client of these settings: one per process and credentials.

    It speaks to a region's address, or without one to the default region's. What is wrong with the
    settings is raised by its methods.
    """
    found: Credentials | GpuformError
    key: Credentials | str
    try:
        found = key = find_credentials(settings, region)
    except GpuformError as error:
        found, key = error, str(error)
    url = found.base_url if isinstance(found, Credentials) else None
    return _clients.get(key, url, lambda transport: ScpClient(Connection(found, transport)))


def _is(*states: str) -> Shows:
    return lambda node: node.state in states


def _given(**params: str | None) -> dict[str, str]:
    return {name: value for name, value in params.items() if value is not None}


def _page(params: Mapping[str, str | None], number: int) -> dict[str, str]:
    return {**_given(**params), "page": str(number), "size": str(PAGE_SIZE)}


def _has(item: WireModel, values: Mapping[str, str | None]) -> bool:
    """Whether it has the values: how exactly the platform's filters compare is not documented."""
    return all(value is None or getattr(item, name) == value for name, value in values.items())
