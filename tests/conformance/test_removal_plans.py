"""Test the plan of each way of removing nodes while a job runs there, as people see the text.

GPUFORM_UPDATE_GOLDEN=1 writes the plans anew.
"""

import os
import re
from pathlib import Path

import pytest
from conformance.emulated import Platform
from conformance.node_removals import (
    NODE_REMOVALS,
    NodeRemoval,
    RunningJob,
    build_local_runner,
    map_ids_by_name,
)
from conformance.stacks import EmbeddedStack, declare_one

from gpuform.providers.slurm.processes import LocalCommandRunner
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.operations.runs.evaluator import RunRecord
from gpuform.stacks.review.plan_text import render_plan

FOLDER = Path(__file__).parent / "removal_plans"
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\dT[0-9:]+Z")
"""Parts of a plan that differ in each run: ids and times."""


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("path", NODE_REMOVALS["slurm"])
def test_the_plan_of_a_removal_shows_the_jobs(
    path: str,
    platform: Platform,
    crypter: PassphraseCrypter,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("GPUFORM_ALLOW", "real-schedulers")  # the emulated one is taken for it
    monkeypatch.setattr(
        LocalCommandRunner, "run", build_local_runner(platform.http, lambda _: None)
    )
    messages = []
    for scheduler, removals in NODE_REMOVALS.items():
        platform.reset()
        folder = tmp_path / scheduler
        folder.mkdir()
        monkeypatch.chdir(folder)
        plan_text = render_plan_text(removals[path], platform, EmbeddedStack(folder, crypter))
        assert re.search(r"runs (1|ml/)", plan_text), "the job on the node is told"
        messages.append(f"== {scheduler}\n\n{plan_text}\n")
    golden, plan_text = FOLDER / f"{path}.txt", "\n".join(messages)
    if os.environ.get("GPUFORM_UPDATE_GOLDEN") == "1":
        golden.write_text(plan_text, encoding="utf-8")
    assert plan_text == golden.read_text(encoding="utf-8")


def render_plan_text(removal: NodeRemoval, platform: Platform, stack: EmbeddedStack) -> str:
    placed = platform.prepare(removal.kind)
    before, after = removal.build_inputs(placed)
    assert stack.apply(declare_one(placed, before)).ok
    (entry,) = stack.resources
    RunningJob.start(platform, stack.directory, removal, map_ids_by_name(entry))
    if removal.fault:
        assert stack.refresh().ok
    operation = "destroy" if after is None else "update"
    stack.run(operation, *([] if after is None else [declare_one(placed, after)]), preview=True)
    assert stack.list_messages("error") == []
    record = RunRecord()
    for event in stack.events:
        record(event)
    assert stack.outcome is not None
    return _ID.sub("ID", render_plan(record.build_plan("conformance", "dev", stack.outcome)))
