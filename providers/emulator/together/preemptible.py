"""Preemptible nodes: they join a cluster one by one when there is room, and may be taken back.

The platform fulfils the wanted number asynchronously, beside the standard nodes that `num_gpus`
counts (Together docs, 'Preemptible compute'); the times are ours.
"""

from collections.abc import Callable

from gpuform.providers.emulator.together.nodes import GPUS_PER_WORKER, Node

PACE = 300.0
"""Seconds from one preemptible node to the next."""
COMEBACK = 3600.0
"""Seconds after which nodes that were taken back are replaced."""

NewId = Callable[[], str]


def filled(nodes: list[Node], gpus: int, name: str, since: float, new_id: NewId) -> list[Node]:
    """Towards `gpus` GPUs from `since` on: nodes are planned to join, or the newest leave.

    What was planned for later is dropped.
    """
    left = [node for node in nodes if node.has_left(since)]
    running = [node for node in nodes if node.runs(since)]
    wanted = gpus // GPUS_PER_WORKER
    leaving = [node.model_copy(update={"removed_at": since}) for node in running[wanted:]]
    first = 1 + max((node.index for node in nodes), default=-1)
    joining = [
        Node.started(
            (new_id(), new_id()),
            f"{name}-preemptible-{first + at}",
            first + at,
            (since, since + PACE * (at + 1)),
        )
        for at in range(wanted - len(running))
    ]
    return [*left, *running[:wanted], *leaving, *joining]


def taken_back(nodes: list[Node], gpus: int, name: str, now: float, new_id: NewId) -> list[Node]:
    """All running nodes leave now; as many come back later."""
    left = [node for node in nodes if node.has_left(now)]
    gone = [
        node.model_copy(update={"removed_at": now, "is_preempted": True})
        for node in nodes
        if node.runs(now)
    ]
    return filled([*left, *gone], gpus, name, now + COMEBACK, new_id)
