"""The nodes that go, and what happens to the jobs on them, as people read it."""

from collections.abc import Callable

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes, RunningJob
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.pages import render_html, render_markdown
from gpuform.stacks.review.plan_text import render_plan
from gpuform.stacks.review.summary_text import render_removed_nodes

Make = Callable[..., ResourceChange]

JOBS = tuple(RunningJob(id=str(at), name="train", user="ada" if at else "") for at in range(7))
IDLE = RemovedNode(name="w1", because="idle")
BUSY = RemovedNode(name="w2", because="newest", jobs=JOBS)


def build_removed_nodes(
    *nodes: RemovedNode, on_busy: str = "wait", minutes: int = 60
) -> RemovedNodes:
    return RemovedNodes(scheduler="Slurm", on_busy=on_busy, wait_minutes=minutes, nodes=nodes)


def test_an_idle_removed_node_is_one_line() -> None:
    assert list(render_removed_nodes(build_removed_nodes(IDLE))) == ["removes node w1: idle"]
    assert list(render_removed_nodes(None)) == []


def test_jobs_of_a_removed_node_are_named_up_to_five() -> None:
    (line, _) = render_removed_nodes(build_removed_nodes(BUSY))
    jobs = "0 train, 1 train (ada), 2 train (ada), 3 train (ada), 4 train (ada), 2 other jobs"
    assert line == f"removes node w2: the newest; runs {jobs}"


@pytest.mark.parametrize(
    ("on_busy", "minutes", "message"),
    [
        ("wait", 60, "gpuform waits for them, at most 60 minutes"),
        ("evict", 1, "gpuform evicts them, within 1 minute"),
        ("fail", 0, "the run fails unless they end first"),
    ],
)
def test_the_treatment_of_running_jobs_is_described(
    on_busy: str, minutes: int, message: str
) -> None:
    *_, last = render_removed_nodes(build_removed_nodes(BUSY, on_busy=on_busy, minutes=minutes))
    assert last == f"jobs run there now (Slurm): {message}"


def test_every_format_shows_removed_nodes_and_jobs(resource: Make) -> None:
    change = resource("train", PlanAction.UPDATE, PlanReason.CHANGED, gpus_removed=16)
    hostile = RemovedNode(name="<b>\x1b[2Jw3", because="idle")
    change = change.model_copy(update={"leaving": build_removed_nodes(BUSY, hostile)})
    plan = Plan.from_changes("demo", "dev", [change])
    review = Review([StackFacts(plan, "plan.json")])
    for rendered in (render_plan(plan), render_markdown(review, folded=True), render_html(review)):
        assert "removes node w2: the newest; runs 0 train, 1 train (ada)" in rendered
        assert "gpuform waits for them, at most 60 minutes" in rendered
        assert "\x1b" not in rendered
    assert "<b>\\" not in render_html(review)
