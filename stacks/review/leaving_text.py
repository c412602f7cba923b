"""The nodes whose GPUs are taken, and the jobs on them, in words.

A line for each node; one for all that no job runs on, where the same is done to all.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from gpuform.schemas.drain import Leaving, LeavingNode
from gpuform.stacks.review.names import counted

_SHOWN: Final = 5

_BECAUSE: Final = {
    "named": "named by drain",
    "failed": "failed",
    "cordoned": "takes no new jobs",
    "idle": "idle",
    "newest": "the newest",
    "deleted": "deleted",
    "replaced": "deleted and made anew",
    "stopped": "stopped",
    "moved": "moved to another fabric",
    "repaired": "repaired",
}

_OF_ALL: Final = ("deleted", "replaced", "stopped", "moved", "repaired")
"""The reasons that hold for many nodes at once."""


def leaving_lines(leaving: Leaving | None) -> Iterator[str]:
    """`node train-worker-1 goes: idle`; nothing where no node goes."""
    if leaving is None:
        return
    idle = {
        because: [node for node in leaving.nodes if node.because == because and not node.jobs]
        for because in _OF_ALL
    }
    for node in leaving.nodes:
        if not any(node in nodes for nodes in idle.values()):
            yield f"node {node.name} goes: {_BECAUSE.get(node.because, node.because)}{_jobs(node)}"
    for because, nodes in idle.items():
        if nodes:
            yield _idle(_BECAUSE[because], nodes, leaving.scheduler)
    if leaving.busy:
        yield _what_is_done(leaving)


def _idle(because: str, nodes: Sequence[LeavingNode], scheduler: str) -> str:
    """`nodes a, b and 3 more go: stopped; no job runs there (Slurm)`."""
    names = ", ".join(node.name for node in nodes[:_SHOWN])
    names += f" and {len(nodes) - _SHOWN} more" if len(nodes) > _SHOWN else ""
    subject = f"node {names} goes" if len(nodes) == 1 else f"nodes {names} go"
    return f"{subject}: {because}; no job runs there ({scheduler})"


def _jobs(node: LeavingNode) -> str:
    told = [str(job) for job in node.jobs[:_SHOWN]]
    if len(node.jobs) > _SHOWN:
        told.append(f"{counted(len(node.jobs) - _SHOWN, 'other job')}")
    return f"; runs {', '.join(told)}" if told else ""


def _what_is_done(leaving: Leaving) -> str:
    if leaving.on_busy == "fail":
        return f"jobs run there now ({leaving.scheduler}): this fails as long as they do"
    limit = counted(leaving.wait_minutes, "minute")
    if leaving.on_busy == "evict":
        return f"jobs run there now ({leaving.scheduler}): they are evicted, within {limit}"
    return f"jobs run there now ({leaving.scheduler}): they are waited for, {limit} at most"
