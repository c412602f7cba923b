"""A plan of each path that takes nodes, while a job runs there: as people see it.

GPUFORM_UPDATE_GOLDEN=1 writes the plans anew.
"""

import os
import re
from pathlib import Path

import pytest
from conformance.emulated import Platform
from conformance.stacks import EmbeddedStack, thing
from conformance.takings import TAKINGS, Jobs, ids_of

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.operations.plans.record import RunRecord
from gpuform.stacks.review.text.plan_text import plan_text

FOLDER = Path(__file__).parent / "taking_plans"
_ID = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", TAKINGS)
def test_a_plan_shows_the_jobs(
    name: str, platform: Platform, crypter: PassphraseCrypter, tmp_path: Path
) -> None:
    taking = TAKINGS[name]
    placed = platform.prepare(taking.kind)
    before, after = taking.inputs(placed)
    stack = EmbeddedStack(tmp_path, crypter)
    assert stack.up(thing(placed, before)).ok
    (entry,) = stack.resources
    Jobs.start(platform, tmp_path, taking, ids_of(entry))

    operation = "destroy" if after is None else "update"
    stack.run(operation, *([] if after is None else [thing(placed, after)]), preview=True)
    assert stack.told("error") == []
    record = RunRecord()
    for event in stack.events:
        record(event)
    assert stack.outcome is not None
    text = _ID.sub("ID", plan_text(record.plan("conformance", "dev", stack.outcome)))
    path = FOLDER / f"{name}.txt"
    if os.environ.get("GPUFORM_UPDATE_GOLDEN") == "1":
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")
    assert re.search(r"runs (1|ml/)", text), "the job on the node is told"
