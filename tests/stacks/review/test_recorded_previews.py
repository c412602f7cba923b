"""Test that recorded previews of the real Pulumi CLI are read with the CLI's own counts."""

import json
from pathlib import Path

import pytest
from support.readers.review_documents import RENDERERS

from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_files import read_plan

PREVIEWS = json.loads((Path(__file__).parent / "recorded_previews.json").read_text())
"""Of the Pulumi CLI 3.260.0; times, versions, UUIDs, positions and pickled providers are masked."""


@pytest.mark.parametrize("name", PREVIEWS)
def test_a_recorded_preview_has_the_counts_of_the_pulumi_cli(name: str) -> None:
    document = PREVIEWS[name]
    stacks = [s["op"] for s in document["steps"] if "pulumi:pulumi:Stack" in s["urn"]]
    expected_counts = dict(document["changeSummary"])
    expected_counts[stacks[0]] -= 1
    plan = read_plan("preview.json", json.dumps(document).encode())
    assert (plan.project, plan.stack) == ("rec", "dev")
    counts = {str(action): number for action, number in plan.summary.items()}
    changed = {op: number for op, number in expected_counts.items() if number and op != "same"}
    assert {op: number for op, number in counts.items() if op != "same"} == changed
    for change in plan.changes:
        assert "__provider" not in {field.path for field in change.changes}
        if change.action == "replace":
            assert bool(change.replace_paths) is (change.reason != "dependency_replaced")
    review = Review([StackFacts(plan, "preview.json")])
    assert all(form(review) for form in RENDERERS.values())
