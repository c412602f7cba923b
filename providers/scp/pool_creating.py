"""Makes a pool's missing nodes: in batches, a new fabric by the first, the others by joining it.

Nothing is sent without a durable record, nothing twice, and the refusal of one batch loses no
other.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from gpuform.providers.call import Call
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    GpuformError,
    MissingCredentials,
    NameTaken,
    RateLimited,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.scp.batches import LEAST, batches
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.fabrics import fabric_of_id, find_fabric, refuse_other_pool
from gpuform.providers.scp.ledger import Ledger
from gpuform.providers.scp.parallel import in_parallel
from gpuform.providers.scp.pool_nodes import PoolNodes
from gpuform.providers.scp.pool_plan import DeclaredPool, Wanted
from gpuform.providers.scp.states import is_leaving
from gpuform.providers.waiting import Look, wait_until
from gpuform.schemas.scp import requests, wire
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.statuses import FABRIC_READY

INTERVAL = 30.0
"""Seconds between looks at the most: creating a node takes many minutes."""

PATIENCE = 60.0
"""Seconds after which a fabric is joined although it is not RUNNING: whether that is possible is
not documented."""


class PoolCreating:
    """Creates for one pool during one call. `refused` says by name why a node was not made."""

    def __init__(
        self,
        client: ScpClient,
        call: Call,
        want: NodePoolInputs,
        declared: DeclaredPool,
        ledger: Ledger,
        nodes: PoolNodes,
    ) -> None:
        self._client = client
        self._call = call
        self._want = want
        self._declared = declared
        self._ledger = ledger
        self._nodes = nodes
        self._tried_at: dict[str, float] = {}
        self.refused: dict[str, str] = {}

    def begin(self, wanted: Sequence[Wanted]) -> None:
        """Makes the first nodes of a new pool. Raises when none was made, or when that is unsure.

        Waits while nodes of these names, or all nodes of the fabric, are about to go.
        """
        what = f"pool {self._want.gpu_node_name_prefix}"
        interval = self._client.rhythm(INTERVAL)
        fabric = wait_until(self._call, lambda: self._place(wanted), what=what, interval=interval)
        if fabric is None and len(wanted) < LEAST:
            raise GpuformError(
                f"one server cannot make the fabric {self._want.cluster_fabric_name}: the platform "
                "makes 2 to 5 at a time",
                hint="declare 2 nodes or more, or the cluster_fabric_id of a fabric that exists",
            )
        self._call.raise_if_cancelled()
        try:
            self._send(None if fabric is None else fabric.id, batches(wanted)[0])
        except (ApiError, UnknownOutcome) as error:
            if isinstance(error, ApiError) and error.is_definite:
                raise
            self._find_again(error)

    def go_on(self, wanted: Sequence[Wanted]) -> None:
        """Makes what can be made now; what cannot be yet is for a later look."""
        held = {node.gpu_node_name for node in self._nodes.all}
        held |= {node.gpu_node_name for node in self._nodes.others if is_leaving(node.state)}
        done = held | self._ledger.unsure | self.refused.keys()
        self._note_taken(wanted)
        wanted = [each for each in wanted if each.name not in done | self.refused.keys()]
        if not wanted:
            return
        own = [node for node in self._nodes.all if not is_leaving(node.state)]
        mine = [node.cluster_fabric_id for node in own if self._declared.fabric.has(node)]
        fabric_id = self._declared.fabric.id or next(filter(None, mine), None)
        if fabric_id is None and not mine:
            fabric_id = self._found_by_name(wanted)
        if fabric_id is not None:
            self._join(fabric_id, wanted)

    def _found_by_name(self, wanted: Sequence[Wanted]) -> str | None:
        """The fabric of the declared name; without one it is made by the first batch."""
        name = self._want.cluster_fabric_name
        fabric = find_fabric(self._client, self._want.node_pool_id, name)
        if fabric is not None:
            return fabric.id
        if len(wanted) < LEAST:
            because = f"one server cannot make the fabric {name} anew: declare one more"
            self.refused.update({each.name: because for each in wanted})
            return None
        self._send_all(None, [batches(wanted)[0]], is_final=True)
        return None

    def _join(self, fabric_id: str, wanted: Sequence[Wanted]) -> None:
        fabric = fabric_of_id(self._client, fabric_id)
        is_ready = fabric is None or fabric.state in FABRIC_READY
        now = self._call.clock.now()
        if is_ready or now - self._tried_at.setdefault(fabric_id, now) >= PATIENCE:
            self._tried_at[fabric_id] = now
            self._send_all(fabric_id, batches(wanted), is_final=is_ready)

    def _send_all(
        self, fabric_id: str | None, calls: Sequence[Sequence[Wanted]], *, is_final: bool
    ) -> None:
        """`is_final`: a refusal is not because the fabric is not ready yet."""
        outcomes = in_parallel([partial(self._send, fabric_id, batch) for batch in calls])
        for batch, error in zip(calls, outcomes, strict=True):
            if isinstance(error, Cancelled | MissingCredentials):
                raise error
            is_passing = isinstance(error, RateLimited | Unreachable)
            if isinstance(error, ApiError) and error.is_definite and is_final and not is_passing:
                self.refused.update({each.name: error.message for each in batch})

    def _send(self, fabric_id: str | None, batch: Sequence[Wanted]) -> None:
        names = [each.name for each in batch]
        present = [node.id for node in self._nodes.others if node.gpu_node_name in names]
        intent = self._ledger.begin(names, present)
        try:
            ids = self._client.create_nodes(self._request(fabric_id, batch))
        except (MissingCredentials, Unreachable):
            self._ledger.forget(intent)
            raise
        except ApiError as error:
            if error.is_definite:
                self._ledger.forget(intent)
            raise
        self._ledger.made(intent, ids)

    def _request(self, fabric_id: str | None, batch: Sequence[Wanted]) -> requests.CreateGpuNodes:
        want = self._want
        return requests.CreateGpuNodes(
            cluster_fabric_details=requests.ClusterFabricDetails(
                cluster_fabric_name=want.cluster_fabric_name,
                node_pool_id=want.node_pool_id,
                cluster_fabric_id=fabric_id,
            ),
            image_id=want.image_id,
            os_user_id=want.os_user_id or "root",
            os_user_password=want.os_user_password,
            region_id=want.region_id,
            server_details=tuple(server_of(each, want.server_type_id) for each in batch),
            subnet_id=want.subnet_id,
            vpc_id=want.vpc_id,
            init_script=want.init_script,
            # A node that has to be stopped first is locked afterwards.
            lock_enabled=all(each.lock_enabled and each.state == "RUNNING" for each in batch),
            tags=tags_of(want.tags),
        )

    def _place(self, wanted: Sequence[Wanted]) -> Look[wire.ClusterFabric | None]:
        """Where the first nodes go: to a fabric, or None for a new one. Raises where that is not
        ours to take."""
        listed = self._client.shared_nodes().all()
        taken = self._taken(listed, wanted)
        if taken:
            raise self._name_taken(taken)
        names = {each.name for each in wanted}
        leaving = [node for node in listed if is_leaving(node.state)]
        is_free = all(node.gpu_node_name not in names for node in leaving)
        fabric = self._fabric_to_join(leaving)
        is_free = is_free and (fabric is None or _stays(fabric, leaving))
        return Look(fabric, "waiting for nodes that are being deleted", done=is_free)

    def _fabric_to_join(self, leaving: Sequence[wire.GpuNode]) -> wire.ClusterFabric | None:
        """The declared fabric of somebody else's nodes. Raises for one that is not declared."""
        want = self._want
        if want.cluster_fabric_id is not None:
            return self._declared_fabric(want.cluster_fabric_id)
        fabric = find_fabric(self._client, want.node_pool_id, want.cluster_fabric_name)
        if fabric is not None and _stays(fabric, leaving):
            raise NameTaken(
                f"scp already has a fabric named {fabric.cluster_name!r} in {fabric.node_pool_id} "
                f"({fabric.id}), and no record says that this project made it",
                hint=f'to join it, declare cluster_fabric_id "{fabric.id}" (or the output of the '
                "resource that has it); otherwise give the fabric another name",
            )
        return fabric

    def _declared_fabric(self, fabric_id: str) -> wire.ClusterFabric:
        fabric = fabric_of_id(self._client, fabric_id)
        if fabric is None:
            raise GpuformError(
                f"cluster_fabric_id: there is no fabric {fabric_id}",
                hint="a fabric exists from its first node to its last: without the id, the pool "
                "makes it",
            )
        refuse_other_pool(fabric, self._want.node_pool_id)
        if fabric.cluster_name != self._want.cluster_fabric_name:
            raise GpuformError(
                f"cluster_fabric_name: the fabric {fabric.id} is named {fabric.cluster_name}",
                hint=f"declare cluster_fabric_name {fabric.cluster_name}",
            )
        return fabric

    def _note_taken(self, wanted: Sequence[Wanted]) -> None:
        for name, id_ in self._taken(self._nodes.others, wanted).items():
            self.refused[name] = self._name_taken({name: id_}).message

    def _taken(self, listed: Sequence[wire.GpuNode], wanted: Sequence[Wanted]) -> dict[str, str]:
        """Ids by name of somebody else's nodes that have the names."""
        names = {each.name for each in wanted}
        return {
            node.gpu_node_name: node.id
            for node in listed
            if node.gpu_node_name in names
            and node.id not in self._ledger.ids
            and not is_leaving(node.state)
        }

    def _name_taken(self, taken: Mapping[str, str]) -> NameTaken:
        told = ", ".join(f"{name} {id_}" for name, id_ in sorted(taken.items()))
        want = self._want
        pool_id = pool_id_of(want)
        return NameTaken(
            f"scp already has nodes of the pool {self._want.gpu_node_name_prefix!r} ({told}), and "
            "no record says that this project made it",
            hint=f"to manage the pool, import it: give this resource opts=pulumi.ResourceOptions("
            f'import_="{pool_id}") and run `gpuform up`; otherwise use another '
            "gpu_node_name_prefix",
        )

    def _find_again(self, error: GpuformError) -> None:
        """After a lost answer: the nodes that appeared are ours. Raises when there are none."""
        reason = error.message
        try:
            self._nodes.look()
        except UnknownOutcome as another:
            reason += f"; {another.message}"
        except GpuformError as another:
            if not isinstance(another, ApiError | Unreachable):
                raise
            reason += f"; {another.message}"
        if not self._ledger.ids:
            raise UnknownOutcome(
                f"it is not known whether the nodes of the pool "
                f"{self._want.gpu_node_name_prefix!r} were created: {reason}",
                hint="run it again: nodes that appeared meanwhile are found by their names",
            )


def _stays(fabric: wire.ClusterFabric, leaving: Sequence[wire.GpuNode]) -> bool:
    """Whether it has a member that is not about to go."""
    gone = {node.id for node in leaving}
    return any(each.gpu_node_id not in gone for each in fabric.gpu_node_details)


def pool_id_of(want: NodePoolInputs) -> str:
    """The id of a pool as a resource: what is known before anything is made."""
    return f"{want.node_pool_id}/{want.cluster_fabric_name}/{want.gpu_node_name_prefix}"


def server_of(wanted: Wanted, server_type_id: str) -> requests.ServerDetails:
    """A node as a create asks for it."""
    return requests.ServerDetails(
        gpu_node_name=wanted.name,
        server_type_id=server_type_id,
        ip_address=wanted.ip_address,
        nat_enabled=bool(wanted.nat_enabled),
        public_ip_address_id=wanted.public_ip_address_id,
    )


def tags_of(tags: Mapping[str, str] | None) -> tuple[requests.Tag, ...]:
    """Tags as a create sends them."""
    return tuple(requests.Tag(key=key, value=value) for key, value in (tags or {}).items())
