"""Create a pool's missing nodes in batches: the first batch forms a new fabric, the others join it.

`PoolReconciler` calls this module. No request is sent without a durable record, none twice, and the
refusal of one batch loses no other.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial

from gpuform.providers.context import PollResult, ProviderContext, wait_until_done
from gpuform.providers.creating import build_own_name_error, is_refusal
from gpuform.providers.errors import (
    ApiError,
    Cancelled,
    GpuformError,
    MissingCredentials,
    NameTaken,
    PermissionDenied,
    RateLimited,
    UnknownOutcome,
    Unreachable,
)
from gpuform.providers.records import Target, to_dynamic_urn
from gpuform.providers.scp import offers
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.nodes.ledger import NodeLedger
from gpuform.providers.scp.nodes.moving import find_fabric, find_fabric_by_id, refuse_other_pool
from gpuform.providers.scp.nodes.planning import (
    MIN_FABRIC_SIZE,
    DeclaredNode,
    DeclaredPool,
    is_terminating,
    split_into_batches,
)
from gpuform.providers.scp.nodes.steps import run_in_parallel
from gpuform.providers.scp.pool.nodes import PoolNodes
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.inputs import GpuNodeInputs, NodePoolInputs
from gpuform.schemas.scp.outputs import READY_FABRIC_STATES


class PoolPreconditions:
    """What must hold before a pool's first nodes are created: free names and a usable fabric.

    An object without a record that this project created it is never taken.
    """

    def __init__(
        self,
        client: ScpClient,
        context: ProviderContext,
        inputs: NodePoolInputs,
        ledger: NodeLedger,
    ) -> None:
        self._client = client
        self._context = context
        self._inputs = inputs
        self._ledger = ledger

    def check_names_and_fabric(
        self, declared_nodes: Sequence[DeclaredNode]
    ) -> PollResult[wire.ClusterFabric | None]:
        """Check names and fabric of the first nodes; the result's value is the fabric to join.

        The value is None for a new fabric. The result is not done while nodes of these names, or
        all nodes of the fabric, are being deleted.

        Raises:
            NameTaken: somebody else has a node or a fabric of the name.
            GpuformError: the declared fabric does not fit.
        """
        listed_nodes = self._client.get_node_listing().read_all()
        taken_names = self.find_taken_names(listed_nodes, declared_nodes)
        if taken_names:
            raise self.build_name_error(taken_names)
        new_names = {declared_node.name for declared_node in declared_nodes}
        terminating_nodes = [node for node in listed_nodes if is_terminating(node.state)]
        is_free = all(node.gpu_node_name not in new_names for node in terminating_nodes)
        fabric = self._find_fabric_to_join(terminating_nodes)
        # A fabric whose last nodes are being deleted ends with them: it cannot be joined.
        is_free = is_free and (fabric is None or _has_lasting_member(fabric, terminating_nodes))
        return PollResult(fabric, "waiting until the platform has deleted nodes", is_done=is_free)

    def _find_fabric_to_join(
        self, terminating_nodes: Sequence[wire.GpuNode]
    ) -> wire.ClusterFabric | None:
        """Return the fabric declared by id, else the fabric of the declared name, or None.

        A fabric of the name is joined if its last nodes are being deleted, or if it has nodes of
        this stack: the fabric of a replaced pool outlives the pool with them.

        Raises:
            NameTaken: a fabric of the name, not declared by its id, has only members of others.
            GpuformError: the fabric declared by id does not fit.
        """
        inputs = self._inputs
        if inputs.cluster_fabric_id is not None:
            return self._get_declared_fabric(inputs.cluster_fabric_id)
        fabric = find_fabric(self._client, inputs.node_pool_id, inputs.cluster_fabric_name)
        if (
            fabric is not None
            and _has_lasting_member(fabric, terminating_nodes)
            and not self._has_member_of_stack(fabric)
        ):
            raise NameTaken(
                f"scp already has a fabric named {fabric.cluster_name!r} in {fabric.node_pool_id} "
                f"({fabric.id}), and this project has no record of creating it",
                hint=f'to join it, declare cluster_fabric_id "{fabric.id}" (or the output of the '
                "resource that has it); otherwise give the fabric another name",
            )
        return fabric

    def _has_member_of_stack(self, fabric: wire.ClusterFabric) -> bool:
        """Return True if a node of the stack's state is a member of the fabric."""
        records = self._context.intents.records
        stored = (*(records.list_stored_objects() or ()), *records.list_stored_parts())
        stored_ids = {object_id for _, object_id in stored}
        return any(member.gpu_node_id in stored_ids for member in fabric.gpu_node_details)

    def _get_declared_fabric(self, fabric_id: str) -> wire.ClusterFabric:
        """Return the fabric declared by id.

        Raises:
            GpuformError: the fabric is missing, of another vendor pool, or has another name.
        """
        fabric = find_fabric_by_id(self._client, fabric_id)
        if fabric is None:
            raise GpuformError(
                f"cluster_fabric_id: fabric {fabric_id} not found",
                hint="a fabric exists only while it has nodes: leave cluster_fabric_id out, and "
                "the pool creates the fabric",
            )
        refuse_other_pool(fabric, self._inputs.node_pool_id)
        if fabric.cluster_name != self._inputs.cluster_fabric_name:
            raise GpuformError(
                f"cluster_fabric_name: fabric {fabric.id} is named {fabric.cluster_name}",
                hint=f"declare cluster_fabric_name {fabric.cluster_name}",
            )
        return fabric

    def find_taken_names(
        self, listed_nodes: Sequence[wire.GpuNode], declared_nodes: Sequence[DeclaredNode]
    ) -> dict[str, str]:
        """Return the ids, by name, of somebody else's nodes with declared names.

        Nodes under deletion do not count.
        """
        new_names = {declared_node.name for declared_node in declared_nodes}
        return {
            node.gpu_node_name: node.id
            for node in listed_nodes
            if node.gpu_node_name in new_names
            and node.id not in self._ledger.ids
            and not is_terminating(node.state)
        }

    def build_name_error(self, taken_names: Mapping[str, str]) -> NameTaken:
        """Build the error for names already taken by nodes that are not the pool's."""
        for name, id_ in sorted(taken_names.items()):
            node = Target("scp", "GpuNode", name, self._inputs.node_pool_id)
            own_error = build_own_name_error(self._context, node, [id_])
            if own_error is not None:
                return own_error
        listed_nodes = ", ".join(f"{name} {id_}" for name, id_ in sorted(taken_names.items()))
        return NameTaken(
            f"scp already has nodes of the pool {self._inputs.gpu_node_name_prefix!r} "
            f"({listed_nodes}), and this project has no record of creating it",
            hint=f"to manage the pool, import it: give this resource opts=pulumi.ResourceOptions("
            f'import_="{build_pool_id(self._inputs)}") and run `gpuform up`; otherwise use another '
            "gpu_node_name_prefix",
        )


def refuse_replaced_nodes(context: ProviderContext, target: Target) -> None:
    """Raise NameTaken if the state has a pool of this URN with the same names of nodes.

    The caller has found nodes in the records of creates. Those of a pool that the run replaces are
    not nodes of an interrupted create: the run deletes them next.
    """
    own_urn = to_dynamic_urn(context.urn or "")
    start, end = f"{target.region}/", f"/{target.name}"
    pool_ids = [
        object_id
        for urn, object_id in context.intents.records.list_stored_objects() or ()
        if to_dynamic_urn(urn) == own_urn
        and object_id.startswith(start)
        and object_id.endswith(end)
    ]
    error = build_own_name_error(context, target, pool_ids)
    if error is not None:
        raise error


def _has_lasting_member(
    fabric: wire.ClusterFabric, terminating_nodes: Sequence[wire.GpuNode]
) -> bool:
    """Return True if the fabric has a member outside of the nodes under deletion."""
    terminating_ids = {node.id for node in terminating_nodes}
    return any(member.gpu_node_id not in terminating_ids for member in fabric.gpu_node_details)


def build_pool_id(inputs: NodePoolInputs) -> str:
    """Build the id of a pool as a resource: its parts are known before anything is created."""
    return f"{inputs.node_pool_id}/{inputs.cluster_fabric_name}/{inputs.gpu_node_name_prefix}"


POLL_INTERVAL_S = 30.0
"""The longest pause between two looks, in seconds: creating a node takes many minutes."""

FABRIC_READY_TIMEOUT_S = 60.0
"""After how many seconds nodes join a fabric that is not RUNNING.

Whether a fabric accepts nodes before it is RUNNING is not documented.
"""


class PoolCreator:
    """Creator of one pool's nodes during one call; `refusals` has the reasons by name."""

    def __init__(
        self,
        client: ScpClient,
        context: ProviderContext,
        inputs: NodePoolInputs,
        declared: DeclaredPool,
        ledger: NodeLedger,
        nodes: PoolNodes,
    ) -> None:
        self._client = client
        self._context = context
        self._inputs = inputs
        self._declared = declared
        self._ledger = ledger
        self._nodes = nodes
        self._preconditions = PoolPreconditions(client, context, inputs, ledger)
        self._last_attempts: dict[str, float] = {}
        self.refusals: dict[str, str] = {}

    def create_first_nodes(self, declared_nodes: Sequence[DeclaredNode]) -> None:
        """Create the first batch of a new pool's nodes.

        Waits while nodes of these names, or all nodes of the fabric, are being deleted. After a
        lost answer, nodes that the request has made are found.

        Raises:
            NameTaken: somebody else has a node or a fabric of the name, or another pool of this
                program is creating the fabric.
            GpuformError: no node was created.
            UnknownOutcome: nobody knows whether nodes were created.
        """
        # The first check is outside of the waiting, which goes on after an unanswered request.
        result = self._preconditions.check_names_and_fabric(
            declared_nodes
        )  # who does not answer now is not waited for
        if not result.is_done:
            label, schedule = (
                f"pool {self._inputs.gpu_node_name_prefix}",
                self._client.get_poll_schedule(POLL_INTERVAL_S),
            )
            wait_until_done(
                self._context,
                lambda: self._preconditions.check_names_and_fabric(declared_nodes),
                label=label,
                interval=schedule,
            )
            result = self._preconditions.check_names_and_fabric(declared_nodes)
        fabric = result.value
        if fabric is None:
            self._claim_fabric(declared_nodes)
        self._context.raise_if_cancelled()
        try:
            self._send_batch(
                None if fabric is None else fabric.id, split_into_batches(declared_nodes)[0]
            )
        except (ApiError, UnknownOutcome) as error:
            # A definite refusal made nothing; after any other error nodes may exist.
            if isinstance(error, ApiError) and error.is_definite:
                raise
            self._find_lost_nodes(error)

    def create_missing_nodes(self, declared_nodes: Sequence[DeclaredNode]) -> None:
        """Send the creates of missing nodes which can be sent now; a later call sends the others.

        Nodes whose names are in use, refused or of an unknown outcome are skipped. Names of others'
        nodes are recorded in `refusals`. While a node of the pool is absent from the lists, nothing
        is created. A failed create raises no error, unless the run was interrupted or has no keys.
        """
        self._record_taken_names(declared_nodes)
        existing_names = {node.gpu_node_name for node in self._nodes.all}
        existing_names |= {
            node.gpu_node_name for node in self._nodes.other_nodes if is_terminating(node.state)
        }
        if self._ledger.absent_ids:  # they may have any of the names, and come back
            return
        skipped_names = existing_names | self._ledger.uncertain_names | self.refusals.keys()
        declared_nodes = [
            declared_node
            for declared_node in declared_nodes
            if declared_node.name not in skipped_names
        ]
        if not declared_nodes:
            return
        live_nodes = [node for node in self._nodes.all if not is_terminating(node.state)]
        fabric_ids = [
            node.cluster_fabric_id for node in live_nodes if self._declared.fabric.contains(node)
        ]
        # The pool's own nodes show the fabric's id as soon as the fabric exists.
        fabric_id = self._declared.fabric.id or next(filter(None, fabric_ids), None)
        if fabric_id is None and not fabric_ids:
            fabric_id = self._find_or_create_fabric(declared_nodes)
        if fabric_id is not None:
            self._join_fabric(fabric_id, declared_nodes)

    def _claim_fabric(self, declared_nodes: Sequence[DeclaredNode]) -> None:
        """Claim a new fabric's name until the call ends, and require two servers for the fabric.

        Raises:
            NameTaken: another pool of this program has claimed the name.
            GpuformError: one server alone is declared.
        """
        name = self._inputs.cluster_fabric_name
        if len(declared_nodes) < MIN_FABRIC_SIZE:
            raise GpuformError(
                f"one server cannot create the fabric {name}: the platform creates 2 to 5 at a "
                "time",
                hint="declare 2 nodes or more, or the cluster_fabric_id of an existing fabric",
            )
        fabric = Target("scp", "Fabric", name, self._inputs.node_pool_id)
        try:
            # Kept until the call ends, so that a second pool of this program is refused.
            self._context.progress.exit_stack.enter_context(self._context.intents.claim(fabric))
        except NameTaken:
            raise NameTaken(
                f"another pool of this program is creating the fabric {name!r}",
                hint="to use one fabric for both, declare the cluster_fabric_id output of one pool "
                "as the cluster_fabric_id of the other; otherwise give each pool its own fabric",
            ) from None

    def _find_or_create_fabric(self, declared_nodes: Sequence[DeclaredNode]) -> str | None:
        """Return the id of the fabric of the declared name, or send a first batch and return None.

        A single node cannot form a fabric: its refusal is recorded, and nothing is sent.
        """
        name = self._inputs.cluster_fabric_name
        fabric = find_fabric(self._client, self._inputs.node_pool_id, name)
        if fabric is not None:
            return fabric.id
        if len(declared_nodes) < MIN_FABRIC_SIZE:
            reason = (
                f"one server cannot create the fabric {name} again: declare at least one more node"
            )
            self.refusals.update({declared_node.name: reason for declared_node in declared_nodes})
            return None
        self._send_batches(None, [split_into_batches(declared_nodes)[0]], is_final=True)
        return None

    def _join_fabric(self, fabric_id: str, declared_nodes: Sequence[DeclaredNode]) -> None:
        """Send the batches for an existing fabric, all at once if the fabric is RUNNING or gone.

        Otherwise they are sent `FABRIC_READY_TIMEOUT_S` after the first call or the last attempt;
        an earlier call sends nothing. Refusals are then not final.
        """
        fabric = find_fabric_by_id(self._client, fabric_id)
        is_ready = fabric is None or fabric.state in READY_FABRIC_STATES
        now = self._context.clock.now()
        # A refusal of a fabric that is not ready is not final: the batches are sent again later.
        if (
            is_ready
            or now - self._last_attempts.setdefault(fabric_id, now) >= FABRIC_READY_TIMEOUT_S
        ):
            self._last_attempts[fabric_id] = now
            self._send_batches(fabric_id, split_into_batches(declared_nodes), is_final=is_ready)

    def _send_batches(
        self, fabric_id: str | None, batches: Sequence[Sequence[DeclaredNode]], *, is_final: bool
    ) -> None:
        """Send the create requests of all batches in parallel.

        If `is_final`, definite refusals other than rate limits are recorded in `refusals`.
        Otherwise they are dropped: a fabric that is not ready yet may be the cause, and the caller
        sends the batches again. Lost answers stay in the ledger. `fabric_id` None lets SCP create
        the declared fabric.

        Raises:
            Cancelled: the run was interrupted.
            MissingCredentials: there are no keys.
        """
        outcomes = run_in_parallel(
            [partial(self._send_batch, fabric_id, batch) for batch in batches]
        )
        for batch, outcome in zip(batches, outcomes, strict=True):
            # These would end every other batch, too.
            if isinstance(outcome, Cancelled | MissingCredentials):
                raise outcome
            is_passing = isinstance(outcome, RateLimited | Unreachable)
            if (
                isinstance(outcome, ApiError)
                and outcome.is_definite
                and is_final
                and not is_passing
            ):
                self.refusals.update(
                    {declared_node.name: outcome.message for declared_node in batch}
                )

    def _send_batch(self, fabric_id: str | None, batch: Sequence[DeclaredNode]) -> None:
        """Record the create of one batch, send the request once, and record the ids of the answer.

        A refusal deletes the record; after a lost answer the record stays, and after a 403 or a 429
        marked as refused. `fabric_id` None lets SCP create the declared fabric.

        Raises:
            GpuformError: SCP refused, or the answer was lost.
        """
        names = [declared_node.name for declared_node in batch]
        present_ids = [node.id for node in self._nodes.other_nodes if node.gpu_node_name in names]
        body = build_create_request(
            self._inputs,
            wire.ClusterFabricDetails(
                cluster_fabric_name=self._inputs.cluster_fabric_name,
                node_pool_id=self._inputs.node_pool_id,
                cluster_fabric_id=fabric_id,
            ),
            batch,
            offers.get_server_type_id(self._client, self._inputs),
        )
        # Recorded before it is sent: a run that is killed in between finds the intent and looks for
        # nodes.
        timed_intent = self._ledger.record_create(names, present_ids, body)
        try:
            with self._context.run_before_each_change(
                timed_intent.refresh_start,
                can_repeat=lambda: self._is_without_trace(names, present_ids),
            ):
                ids = self._client.create_nodes(body)
        except GpuformError as error:
            # As in `create_once`: after a 403 or 429 a list that lags behind may show nodes later.
            is_everyday = isinstance(error, PermissionDenied | RateLimited)
            if is_refusal(error):
                self._ledger.forget_create(timed_intent.intent)
            elif is_everyday and self._is_without_trace(names, present_ids):
                self._ledger.record_refusal(timed_intent.intent)
            else:
                self._ledger.remember_intent(timed_intent.intent)
            raise
        self._ledger.record_answer(timed_intent.intent, ids)

    def _is_without_trace(self, names: Sequence[str], present_ids: Collection[str]) -> bool:
        """Return True if SCP lists no node with one of the names, except those in `present_ids`.

        False if SCP does not answer.
        """
        try:
            listed_nodes = self._client.get_node_listing().read_all()
        except (ApiError, UnknownOutcome, Unreachable):
            return False
        return not any(
            node.gpu_node_name in names and node.id not in present_ids for node in listed_nodes
        )

    def _record_taken_names(self, declared_nodes: Sequence[DeclaredNode]) -> None:
        """Record a refusal for each declared name of somebody else's node."""
        for name, id_ in self._preconditions.find_taken_names(
            self._nodes.other_nodes, declared_nodes
        ).items():
            self.refusals[name] = self._preconditions.build_name_error({name: id_}).message

    def _find_lost_nodes(self, error: GpuformError) -> None:
        """List the nodes again, to adopt the nodes of a create whose answer was lost.

        Raises:
            UnknownOutcome: no node has appeared; `error` is the lost answer.
        """
        reason = error.message
        try:
            self._nodes.refresh()
        except UnknownOutcome as later_error:
            reason += f"; {later_error.message}"
        except GpuformError as later_error:
            if not isinstance(later_error, ApiError | Unreachable):
                raise
            reason += f"; {later_error.message}"
        if not self._ledger.ids:
            raise UnknownOutcome(
                f"pool {self._inputs.gpu_node_name_prefix!r}: the result of creating its nodes "
                f"is unknown: {reason}",
                hint="run the command again: it looks for the object before it creates anything",
            )


def build_create_request(
    inputs: GpuNodeInputs | NodePoolInputs,
    fabric: wire.ClusterFabricDetails,
    declared_nodes: Sequence[DeclaredNode],
    server_type_id: str,
) -> wire.CreateGpuNodes:
    """Build the request to create nodes in a fabric; without the fabric's id SCP creates one.

    The nodes are created locked only if all are declared locked and RUNNING.
    """
    return wire.CreateGpuNodes(
        cluster_fabric_details=fabric,
        image_id=inputs.image_id,
        os_user_id=inputs.os_user_id or "root",
        os_user_password=inputs.os_user_password,
        region_id=inputs.region_id,
        server_details=tuple(
            wire.ServerDetails(
                gpu_node_name=declared_node.name,
                server_type_id=server_type_id,
                ip_address=declared_node.ip_address,
                zone=declared_node.zone,
                nat_enabled=bool(declared_node.nat_enabled),
                public_ip_address_id=declared_node.public_ip_address_id,
            )
            for declared_node in declared_nodes
        ),
        subnet_id=inputs.subnet_id,
        vpc_id=inputs.vpc_id,
        init_script=inputs.init_script,
        # A node that has to be stopped first is locked afterwards: a locked node cannot be stopped.
        lock_enabled=all(
            declared_node.lock_enabled and declared_node.state == "RUNNING"
            for declared_node in declared_nodes
        ),
        tags=tuple(wire.Tag(key=key, value=value) for key, value in (inputs.tags or {}).items()),
    )
