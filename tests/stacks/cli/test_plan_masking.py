"""Test which values a plan masks although nobody marked them as secret."""

import pytest

from gpuform.schemas.changes import Action
from gpuform.schemas.plan import (
    OutputChange,
    Plan,
    PlanAction,
    PlanReason,
    PropertyChange,
    ResourceChange,
)
from gpuform.stacks.operations.runs.plan_file import mask_plan


def build_plan(value: object, because: str = "") -> Plan:
    change = PropertyChange(path="a", action=Action.UPDATE, after=value, because=because)
    resource = ResourceChange(
        urn="urn::hunter2",
        type="t",
        name="n",
        action=PlanAction.UPDATE,
        reason=PlanReason.CHANGED,
        changes=(change,),
    )
    made = Plan.from_changes("demo", "dev", [resource], unchecked=["hunter2 was not asked"])
    output = OutputChange(name="o", action=Action.ADD, before=value)
    return made.model_copy(update={"outputs": (output,)})


@pytest.mark.parametrize(
    "value",
    ["hunter2", "my hunter2!", ["x", {"deep": "hunter2"}], {"hunter2": 1}, 12345, [0.12345]],
)
def test_a_secret_is_masked_everywhere_in_a_plan(value):
    masked = mask_plan(build_plan(value, "hunter2 is short"), ["hunter2", "12345", "ab"])
    (change,) = masked.changes[0].changes
    assert (change.after, change.secret) == ("[secret]", True)
    assert change.before is None
    assert change.because == "[secret] is short"
    assert (masked.outputs[0].before, masked.outputs[0].secret) == ("[secret]", True)
    assert masked.unchecked == ("[secret] was not asked",)
    # Names are none: the plan could not be applied without them.
    assert masked.changes[0].urn == "urn::hunter2"


@pytest.mark.parametrize("value", ["ab", None, "hunter", 1234, {"x": [True]}])
def test_values_that_are_not_secret_stay(value):
    assert mask_plan(build_plan(value), ["ab", "xyz"]).changes == build_plan(value).changes


def test_changes_without_a_secret_are_not_copied() -> None:
    secret_plan = build_plan("hunter2", "because of hunter2")
    clean = build_plan("plain", "because")
    both = secret_plan.model_copy(update={"changes": (*secret_plan.changes, *clean.changes)})
    masked = mask_plan(both, ["hunter2"])
    assert masked.changes[0].changes[0].after == "[secret]"
    assert masked.changes[-1] is clean.changes[-1]
    assert mask_plan(both, []) is both
