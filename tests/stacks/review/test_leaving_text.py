"""The nodes that go, and what happens to the jobs on them, as people read it."""

from collections.abc import Callable

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.schemas.policies.drain import RemovedNode, RemovedNodes, RunningJob
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.pages.html_page import render_html
from gpuform.stacks.review.pages.markdown_page import render_markdown
from gpuform.stacks.review.summary_text import render_removed_nodes
from gpuform.stacks.review.text.plan_text import render_plan

Make = Callable[..., ResourceChange]

JOBS = tuple(RunningJob(id=str(at), name="train", user="ada" if at else "") for at in range(7))
IDLE = RemovedNode(name="w1", because="idle")
BUSY = RemovedNode(name="w2", because="newest", jobs=JOBS)


def leaving(*nodes: RemovedNode, on_busy: str = "wait", minutes: int = 60) -> RemovedNodes:
    return RemovedNodes(scheduler="Slurm", on_busy=on_busy, wait_minutes=minutes, nodes=nodes)


def test_idle_ones_are_one_line_each() -> None:
    assert list(render_removed_nodes(leaving(IDLE))) == ["removes node w1: idle"]
    assert list(render_removed_nodes(None)) == []


def test_jobs_are_named_and_counted() -> None:
    (line, _) = render_removed_nodes(leaving(BUSY))
    jobs = "0 train, 1 train (ada), 2 train (ada), 3 train (ada), 4 train (ada), 2 other jobs"
    assert line == f"removes node w2: the newest; runs {jobs}"


@pytest.mark.parametrize(
    ("on_busy", "minutes", "said"),
    [
        ("wait", 60, "gpuform waits for them, at most 60 minutes"),
        ("evict", 1, "gpuform evicts them, within 1 minute"),
        ("fail", 0, "the run fails while they run"),
    ],
)
def test_what_is_done_about_them(on_busy: str, minutes: int, said: str) -> None:
    *_, last = render_removed_nodes(leaving(BUSY, on_busy=on_busy, minutes=minutes))
    assert last == f"jobs run there now (Slurm): {said}"


def test_every_form_shows_them(resource: Make) -> None:
    change = resource("train", PlanAction.UPDATE, PlanReason.CHANGED, gpus_removed=16)
    hostile = RemovedNode(name="<b>\x1b[2Jw3", because="idle")
    change = change.model_copy(update={"leaving": leaving(BUSY, hostile)})
    plan = Plan.from_changes("demo", "dev", [change])
    review = Review([StackFacts(plan, "plan.json")])
    for rendered in (render_plan(plan), render_markdown(review, folded=True), render_html(review)):
        assert "removes node w2: the newest; runs 0 train, 1 train (ada)" in rendered
        assert "gpuform waits for them, at most 60 minutes" in rendered
        assert "\x1b" not in rendered
    assert "<b>\\" not in render_html(review)
