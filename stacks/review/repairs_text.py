"""The repairs of a plan, as a group of their own: which node, how, why, and what runs there."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from gpuform.providers.context import format_duration
from gpuform.schemas.plan import Plan, ResourceChange
from gpuform.schemas.policies.drain import LeavingNode
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.review.names import counted
from gpuform.stacks.review.paint import PLAIN, Paint

_SHOWN = 3


def repair_texts(plan: Plan) -> Iterator[str]:
    """One text for each node that is repaired."""
    for change in plan.changes:
        for each in change.repairs:
            told = f"{each.evidence}{_age(each, plan.made_at)}"
            yield f"{change.name}/{each.node} by {each.mode}: {told}; {_jobs(change, each)}"


def repairs_lines(plans: Iterable[Plan], paint: Paint = PLAIN) -> Iterator[str]:
    """`Repairs:` and a line for each; nothing where there are none."""
    texts = [escape_invisible(text) for plan in plans for text in repair_texts(plan)]
    if texts:
        yield paint("bold", f"Repairs: {counted(len(texts), 'node')}")
        yield from (f"    {text}" for text in texts)


def _age(repair: NodeRepair, made_at: str) -> str:
    """`, for 3h` when the plan was made; empty where that or the beginning is not told."""
    try:
        since, made = (datetime.fromisoformat(each) for each in (repair.since, made_at))
        age = (made - since).total_seconds()
    except (TypeError, ValueError):
        return ""
    return f" ({format_duration(age)} before the plan)" if age >= 1 else ""


def _jobs(change: ResourceChange, repair: NodeRepair) -> str:
    nodes = change.leaving.nodes if change.leaving is not None else ()
    node = next((each for each in nodes if each.name == repair.node), None)
    return "nobody tells its jobs" if node is None else _running(node)


def _running(node: LeavingNode) -> str:
    if not node.jobs:
        return "no job runs there"
    more = len(node.jobs) - _SHOWN
    named = [str(job) for job in node.jobs[:_SHOWN]] + ([f"{more} more"] if more > 0 else [])
    return f"runs {', '.join(named)}"
