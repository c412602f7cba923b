"""The nodes that an update takes away, and the jobs on them, in words: one line for each node."""

from collections.abc import Iterator
from typing import Final

from gpuform.schemas.scale_down import Leaving, LeavingNode
from gpuform.stacks.review.names import counted

_SHOWN: Final = 5

_BECAUSE: Final = {
    "named": "named by scale_down",
    "failed": "failed",
    "cordoned": "takes no new jobs",
    "idle": "idle",
    "newest": "the newest",
}


def leaving_lines(leaving: Leaving | None) -> Iterator[str]:
    """`node train-worker-1 goes: idle`; nothing where no node goes."""
    for node in leaving.nodes if leaving else ():
        yield f"node {node.name} goes: {_BECAUSE.get(node.because, node.because)}{_jobs(node)}"
    if leaving is not None and leaving.busy:
        yield _what_is_done(leaving)


def _jobs(node: LeavingNode) -> str:
    told = [str(job) for job in node.jobs[:_SHOWN]]
    if len(node.jobs) > _SHOWN:
        told.append(f"{counted(len(node.jobs) - _SHOWN, 'other job')}")
    return f"; runs {', '.join(told)}" if told else ""


def _what_is_done(leaving: Leaving) -> str:
    if leaving.on_busy == "fail":
        return f"jobs run there now ({leaving.scheduler}): the update fails as long as they do"
    limit = counted(leaving.wait_minutes, "minute")
    if leaving.on_busy == "evict":
        return f"jobs run there now ({leaving.scheduler}): they are evicted, within {limit}"
    return f"jobs run there now ({leaving.scheduler}): they are waited for, {limit} at most"
