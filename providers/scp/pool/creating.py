"""Create a pool's missing nodes: in batches, a new fabric by the first, the others by joining it.

Nothing is sent without a durable record, nothing twice.

Nothing is sent without a durable record, nothing twice, and the refusal of one batch loses no
other.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done
from gpuform.providers.creating import is_refusal
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
from gpuform.providers.records import Target
from gpuform.providers.scp import offers
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes import (
    LEAST,
    DeclaredNode,
    DeclaredPool,
    Ledger,
    batches,
    fabric_of_id,
    find_fabric,
    in_parallel,
    is_leaving,
    refuse_other_pool,
)
from gpuform.providers.scp.pool.nodes import PoolNodes
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import NodePoolInputs
from gpuform.schemas.scp.statuses import FABRIC_READY


class PoolPlace:
    """What is in the way of a pool's nodes. Without a record that it is ours, it is not taken."""

    def __init__(self, client: ScpClient, want: NodePoolInputs, ledger: Ledger) -> None:
        self._client = client
        self._want = want
        self._ledger = ledger

    def look(self, wanted: Sequence[DeclaredNode]) -> PollResult[wire.ClusterFabric | None]:
        """The fabric for the first nodes, or None for a new one; not done while it has to wait.

        Raises NameTaken for what is somebody else's, GpuformError for a fabric that does not fit.
        """
        listed = self._client.get_node_listing().all()
        taken = self.taken(listed, wanted)
        if taken:
            raise self.name_taken(taken)
        names = {each.name for each in wanted}
        leaving = [node for node in listed if is_leaving(node.state)]
        is_free = all(node.gpu_node_name not in names for node in leaving)
        fabric = self._fabric_to_join(leaving)
        is_free = is_free and (fabric is None or _stays(fabric, leaving))
        return PollResult(fabric, "waiting for nodes that are being deleted", is_done=is_free)

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

    def taken(
        self, listed: Sequence[wire.GpuNode], wanted: Sequence[DeclaredNode]
    ) -> dict[str, str]:
        """Ids by name of somebody else's nodes that have the names."""
        names = {each.name for each in wanted}
        return {
            node.gpu_node_name: node.id
            for node in listed
            if node.gpu_node_name in names
            and node.id not in self._ledger.ids
            and not is_leaving(node.state)
        }

    def name_taken(self, taken: Mapping[str, str]) -> NameTaken:
        """The refusal of names that others have."""
        told = ", ".join(f"{name} {id_}" for name, id_ in sorted(taken.items()))
        return NameTaken(
            f"scp already has nodes of the pool {self._want.gpu_node_name_prefix!r} ({told}), and "
            "no record says that this project made it",
            hint=f"to manage the pool, import it: give this resource opts=pulumi.ResourceOptions("
            f'import_="{pool_id_of(self._want)}") and run `gpuform up`; otherwise use another '
            "gpu_node_name_prefix",
        )


def _stays(fabric: wire.ClusterFabric, leaving: Sequence[wire.GpuNode]) -> bool:
    """Whether it has a member that is not about to go."""
    gone = {node.id for node in leaving}
    return any(each.gpu_node_id not in gone for each in fabric.gpu_node_details)


def pool_id_of(want: NodePoolInputs) -> str:
    """The id of a pool as a resource: what is known before anything is made."""
    return f"{want.node_pool_id}/{want.cluster_fabric_name}/{want.gpu_node_name_prefix}"


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
        call: ProviderContext,
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
        self._place = PoolPlace(client, want, ledger)
        self._tried_at: dict[str, float] = {}
        self.refused: dict[str, str] = {}

    def begin(self, wanted: Sequence[DeclaredNode]) -> None:
        """Makes the first nodes of a new pool. Raises when none was made, or when that is unsure.

        Waits while nodes of these names, or all nodes of the fabric, are about to go.
        """
        place = self._place.look(wanted)  # who does not answer now is not waited for
        if not place.is_done:
            what, rhythm = f"pool {self._want.gpu_node_name_prefix}", self._client.rhythm(INTERVAL)
            wait_until_done(
                self._call, lambda: self._place.look(wanted), label=what, interval=rhythm
            )
            place = self._place.look(wanted)
        fabric = place.value
        if fabric is None:
            self._claim_fabric(wanted)
        self._call.raise_if_cancelled()
        try:
            self._send(None if fabric is None else fabric.id, batches(wanted)[0])
        except (ApiError, UnknownOutcome) as error:
            if isinstance(error, ApiError) and error.is_definite:
                raise
            self._find_again(error)

    def go_on(self, wanted: Sequence[DeclaredNode]) -> None:
        """Makes what can be made now; what cannot be yet is for a later look."""
        self._note_taken(wanted)
        held = {node.gpu_node_name for node in self._nodes.all}
        held |= {node.gpu_node_name for node in self._nodes.others if is_leaving(node.state)}
        if self._ledger.absent:  # they may have any of the names, and come back
            return
        done = held | self._ledger.unsure | self.refused.keys()
        wanted = [each for each in wanted if each.name not in done]
        if not wanted:
            return
        own = [node for node in self._nodes.all if not is_leaving(node.state)]
        mine = [node.cluster_fabric_id for node in own if self._declared.fabric.has(node)]
        fabric_id = self._declared.fabric.id or next(filter(None, mine), None)
        if fabric_id is None and not mine:
            fabric_id = self._found_by_name(wanted)
        if fabric_id is not None:
            self._join(fabric_id, wanted)

    def _claim_fabric(self, wanted: Sequence[DeclaredNode]) -> None:
        """The fabric is new: two servers are needed, and no other pool may make it meanwhile."""
        name = self._want.cluster_fabric_name
        if len(wanted) < LEAST:
            raise GpuformError(
                f"one server cannot make the fabric {name}: the platform makes 2 to 5 at a time",
                hint="declare 2 nodes or more, or the cluster_fabric_id of a fabric that exists",
            )
        fabric = Target("scp", "Fabric", name, self._want.node_pool_id)
        try:
            self._call.held.enter_context(self._call.intents.claim(fabric))
        except NameTaken:
            raise NameTaken(
                f"another pool of this program is making the fabric {name!r}",
                hint="to put both into it, declare as one's cluster_fabric_id the output of the "
                "other; otherwise give each of them a fabric of its own",
            ) from None

    def _found_by_name(self, wanted: Sequence[DeclaredNode]) -> str | None:
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

    def _join(self, fabric_id: str, wanted: Sequence[DeclaredNode]) -> None:
        fabric = fabric_of_id(self._client, fabric_id)
        is_ready = fabric is None or fabric.state in FABRIC_READY
        now = self._call.clock.now()
        if is_ready or now - self._tried_at.setdefault(fabric_id, now) >= PATIENCE:
            self._tried_at[fabric_id] = now
            self._send_all(fabric_id, batches(wanted), is_final=is_ready)

    def _send_all(
        self, fabric_id: str | None, calls: Sequence[Sequence[DeclaredNode]], *, is_final: bool
    ) -> None:
        """`is_final`: a refusal is not because the fabric is not ready yet."""
        outcomes = in_parallel([partial(self._send, fabric_id, batch) for batch in calls])
        for batch, error in zip(calls, outcomes, strict=True):
            if isinstance(error, Cancelled | MissingCredentials):
                raise error
            is_passing = isinstance(error, RateLimited | Unreachable)
            if isinstance(error, ApiError) and error.is_definite and is_final and not is_passing:
                self.refused.update({each.name: error.message for each in batch})

    def _send(self, fabric_id: str | None, batch: Sequence[DeclaredNode]) -> None:
        names = [each.name for each in batch]
        present = [node.id for node in self._nodes.others if node.gpu_node_name in names]
        body = self._request(fabric_id, batch)
        kept = self._ledger.begin(names, present, body)
        try:
            with self._call.before_each_change(kept.again):
                ids = self._client.create_nodes(body)
        except GpuformError as error:
            if is_refusal(error):
                self._ledger.forget(kept.intent)
            else:
                self._ledger.unknown(kept.intent)
            raise
        self._ledger.answered(kept.intent, ids)

    def _request(self, fabric_id: str | None, batch: Sequence[DeclaredNode]) -> wire.CreateGpuNodes:
        want = self._want
        server_type_id = offers.id_of(self._client, want)
        return wire.CreateGpuNodes(
            cluster_fabric_details=wire.ClusterFabricDetails(
                cluster_fabric_name=want.cluster_fabric_name,
                node_pool_id=want.node_pool_id,
                cluster_fabric_id=fabric_id,
            ),
            image_id=want.image_id,
            os_user_id=want.os_user_id or "root",
            os_user_password=want.os_user_password,
            region_id=want.region_id,
            server_details=tuple(server_of(each, server_type_id) for each in batch),
            subnet_id=want.subnet_id,
            vpc_id=want.vpc_id,
            init_script=want.init_script,
            # A node that has to be stopped first is locked afterwards.
            lock_enabled=all(each.lock_enabled and each.state == "RUNNING" for each in batch),
            tags=tags_of(want.tags),
        )

    def _note_taken(self, wanted: Sequence[DeclaredNode]) -> None:
        for name, id_ in self._place.taken(self._nodes.others, wanted).items():
            self.refused[name] = self._place.name_taken({name: id_}).message

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
                hint="run it again: it looks once more before anything is made",
            )


def server_of(wanted: DeclaredNode, server_type_id: str) -> wire.ServerDetails:
    """A node as a create asks for it."""
    return wire.ServerDetails(
        gpu_node_name=wanted.name,
        server_type_id=server_type_id,
        ip_address=wanted.ip_address,
        nat_enabled=bool(wanted.nat_enabled),
        public_ip_address_id=wanted.public_ip_address_id,
    )


def tags_of(tags: Mapping[str, str] | None) -> tuple[wire.Tag, ...]:
    """Tags as a create sends them."""
    return tuple(wire.Tag(key=key, value=value) for key, value in (tags or {}).items())
