"""Rules that several operations share. A broken one is 400 before anything changes."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from gpuform.providers.emulator.routing import Trouble
from gpuform.providers.emulator.scp.errors import ApiError, Message, no_node, refused
from gpuform.providers.emulator.scp.estate import Estate
from gpuform.providers.emulator.scp.fabrics import Fabric
from gpuform.providers.emulator.scp.nodes import Change, GpuNode
from gpuform.providers.emulator.scp.settings import Settings


@dataclass(frozen=True)
class Situation:
    """In which a request finds the platform."""

    estate: Estate
    settings: Settings
    trouble: Trouble

    @property
    def now(self) -> float:
        return self.estate.now

    def change(self) -> Change:
        return Change(
            now=self.now,
            since=self.now + self.settings.reaction_seconds,
            is_stuck=self.trouble.is_stuck,
        )


def chosen(estate: Estate, ids: Sequence[str]) -> list[GpuNode]:
    """The live nodes of `ids`. Raises `ApiError` 404 when one is missing, 400 for one twice."""
    live = (node for node in estate.live_nodes() if node.has_appeared(estate.now))
    nodes = {node.node_id: node for node in live}
    missing = [each for each in ids if each not in nodes]
    if missing:
        told = [message for each in missing for message in no_node(each).messages]
        raise ApiError(404, "GpuNodeNotFound", *told)
    twice = repeated(ids)
    if twice:
        told = [Message(f"{each}: 중복되었습니다.", f"{each} is given twice") for each in twice]
        raise refused("Duplicate", *told)
    return [nodes[each] for each in ids]


def check_all(
    nodes: Sequence[GpuNode],
    is_fine: Callable[[GpuNode], bool],
    code: str,
    problem: Callable[[GpuNode], Message],
) -> None:
    problems = [problem(node) for node in nodes if not is_fine(node)]
    if problems:
        raise refused(code, *problems)


def check_states(nodes: Sequence[GpuNode], now: float, *allowed: str) -> None:
    wanted = ", ".join(allowed)
    check_all(
        nodes,
        lambda node: node.state(now) in allowed,
        "InvalidState",
        lambda node: Message(
            f"{node.name}: 현재 상태({node.state(now)})에서는 수행할 수 없습니다(가능: {wanted}).",
            f"{node.name} is {node.state(now)}; this is possible when {wanted}",
        ),
    )


def check_unlocked(nodes: Sequence[GpuNode]) -> None:
    """That a lock refuses stop and delete, and how, is ours: the document only names locks."""
    check_all(
        nodes,
        lambda node: not node.lock_enabled,
        "GpuNodeLocked",
        lambda node: Message(
            f"{node.name}: 잠금(Lock) 상태입니다. 잠금을 해제한 후 다시 시도하십시오.",
            f"{node.name} is locked: unlock it first",
        ),
    )


def check_joinable(fabric: Fabric, situation: Situation) -> None:
    state = fabric.state(situation.now)
    if state != "RUNNING" and not situation.settings.joining_while_creating:
        raise refused(
            "ClusterFabricNotReady",
            Message(
                f"Cluster Fabric({fabric.name})의 상태가 {state}이므로 추가할 수 없습니다.",
                f"cluster fabric {fabric.name!r} is {state}: it takes members when it is RUNNING",
            ),
        )


def check_public_ips(estate: Estate, ids: Sequence[str]) -> None:
    """A public IP serves one node, from the request on that assigns it."""
    live = estate.live_nodes()
    held = {each for each in ids if any(node.holds_address(each, estate.now) for node in live)}
    problems = [
        Message(f"이미 사용 중인 Public IP({each})입니다.", f"public IP {each!r} is in use")
        for each in repeated(ids, held)
    ]
    if problems:
        raise refused("PublicIpInUse", *problems)


def repeated(wanted: Sequence[str], taken: Collection[str] = ()) -> list[str]:
    """What is wanted twice, or is taken already; each once."""
    found = (each for each in wanted if each in taken or wanted.count(each) > 1)
    return list(dict.fromkeys(found))
