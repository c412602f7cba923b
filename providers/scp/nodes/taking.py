"""Nodes that are deleted, made anew, stopped or moved: not before their jobs have ended.

SCP's API knows no scheduler: the stack says who gives the nodes their jobs, if anybody does. The
platform takes the very nodes that it is told.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext
from gpuform.providers.draining import (
    DrainedObject,
    Draining,
    NodeEviction,
    Scheduler,
    Worker,
    problems,
    undo,
)
from gpuform.providers.errors import GpuformError
from gpuform.providers.permissions import Permission
from gpuform.providers.records import Drain, Drains
from gpuform.providers.scp.nodes.planning import DeclaredNode, Fabric, Plan, differences, is_leaving
from gpuform.providers.slurm import declared_scheduler
from gpuform.schemas.policies.drain import Leaving, PoolDrainInputs
from gpuform.schemas.scp.outputs import NodeOutputs
from gpuform.schemas.scp.statuses import NODE_FAILED

Pair = tuple[NodeOutputs, DeclaredNode]


def interruptions(kept: Sequence[Pair], fabric: Fabric) -> Iterator[tuple[str, str]]:
    """The names of nodes that stay and whose jobs would end all the same, and what is done."""
    for node, wanted in kept:
        fields = {each.field: each.after for each in differences(node, wanted, fabric)}
        if fields.get("state") == "STOPPED":
            yield node.gpu_node_name, "stopped"
        elif {"cluster_fabric_id", "cluster_fabric_name"} & fields.keys():
            yield node.gpu_node_name, "moved"


class NodeTaking:
    """What takes the nodes of one resource, a pool or a node of this id.

    `what` is for people, as `pool train`; `declared` are its canonical inputs.
    """

    def __init__(
        self, call: ProviderContext, id_: str, what: str, declared: Mapping[str, Any]
    ) -> None:
        self._call = call
        self._id = id_
        self._what = what
        self._is_counted = declared.get("count") is not None
        self._wanted = PoolDrainInputs.model_validate(declared.get("drain") or {})

    @classmethod
    def of_pool(cls, call: ProviderContext, id_: str, declared: Mapping[str, Any]) -> "NodeTaking":
        """Of a pool with these canonical inputs."""
        return cls(call, id_, f"pool {declared.get('gpu_node_name_prefix') or id_}", declared)

    @property
    def earlier(self) -> Drain | None:
        """A taking that was begun, by this run or an earlier one."""
        return Drains.beside(self._call.intents).find(self._id)

    @property
    def chosen(self) -> Sequence[str]:
        """The names of the nodes that go first, because no job runs on them."""
        return self.earlier.chosen if self.earlier else ()

    def by(self, found: Plan, fabric: Fabric) -> NodeEviction:
        """What a plan for the nodes takes."""
        these = {each.name: "replaced" for each in found.replace}
        these |= interruptions(found.keep, fabric)
        if self._is_counted:
            return NodeEviction(these, len(found.delete), self._wanted.nodes or ())
        return NodeEviction({**these, **{node.gpu_node_name: "deleted" for node in found.delete}})

    def clear(self, taking: NodeEviction, nodes: Sequence[NodeOutputs]) -> Sequence[str] | None:
        """Before nodes are taken: chooses them, and waits until no job runs on them.

        Returns the names of those that may go now, None where nobody tells their jobs. Raises
        GpuformError when they must not go; then all is as it was.
        """
        if not taking:
            return ()
        self._refuse_names(taking, nodes)
        if not self._wanted.has_scheduler:
            return None
        draining = self._draining(taking, nodes)
        drain = draining.clear(taking)
        return None if drain is None else draining.asking(drain).chosen

    def seen(self, nodes: Sequence[NodeOutputs]) -> Sequence[Worker] | None:
        """The nodes with what their scheduler says of them; None where nobody tells."""
        if not self._wanted.has_scheduler:
            return None
        return self._draining(NodeEviction(), nodes).seen()

    def leaving(self, taking: NodeEviction, nodes: Sequence[NodeOutputs]) -> Leaving | None:
        """The nodes that would be taken now, for a plan; None where nobody tells which."""
        if not taking:
            return None
        self._refuse_names(taking, nodes)
        if not self._wanted.has_scheduler:
            self._call.on_unchecked(
                f"whether jobs run on nodes of {self._what} whose GPUs are taken: nobody is "
                "declared who could tell (drain.kubernetes or drain.slurm)"
            )
            return None
        return self._draining(taking, nodes).leaving(taking)

    def conclude(self, nodes: Sequence[NodeOutputs]) -> None:
        """Uncordons what was taken; `nodes` are those that there are.

        Also what is gone: who comes back under its name takes jobs. Raises GpuformError when nodes
        stay cordoned.
        """
        drain = self.earlier
        if drain is None or any(is_leaving(node.state) for node in nodes):
            return
        if not undo(self._call, drain, self._find_scheduler):
            raise GpuformError(
                f"{', '.join(drain.cordoned)} may still be cordoned",
                hint="run it again to uncordon",
            )

    def _refuse_names(self, taking: NodeEviction, nodes: Sequence[NodeOutputs]) -> None:
        told = [str(each) for each in problems(_workers(nodes), taking.count, taking.named)]
        if told:
            raise GpuformError(f"{self._what}: {'; '.join(told)}")

    def _draining(self, taking: NodeEviction, nodes: Sequence[NodeOutputs]) -> Draining:
        meant = {*taking.named, *taking.these}
        able = [node for node in nodes if not node.lock_enabled or node.gpu_node_name in meant]
        is_short = len(able) < taking.count + len(taking.these)
        if Permission.UNLOCK in permissions.given() or is_short:
            able = list(nodes)  # the permission is asked for before a locked one is deleted
        subject = DrainedObject(self._id, self._what, _workers(able))
        return Draining(self._call, subject, self._find_scheduler, self._wanted)

    def _find_scheduler(self) -> Scheduler:
        """Raises GpuformError when nobody can be asked."""
        return declared_scheduler(self._wanted, self._what)


def _workers(nodes: Sequence[NodeOutputs]) -> list[Worker]:
    """Those that could go, the oldest first."""
    live = [node for node in nodes if not is_leaving(node.state)]
    live.sort(key=lambda node: (node.created_at or "", node.gpu_node_name))
    return [
        Worker(
            node.gpu_node_name,
            aliases=(node.id,),
            addresses=tuple(filter(None, (node.policy_ip, node.policy_nat))),
            is_failed=node.state in NODE_FAILED,
        )
        for node in live
    ]
