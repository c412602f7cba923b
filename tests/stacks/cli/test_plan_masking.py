"""What a plan masks that nobody marked as a secret."""

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
from gpuform.stacks.operations.plans.plan_masking import mask_plan


def plan(value: object, because: str = "") -> Plan:
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
def test_every_place_of_a_secret(value):
    found = mask_plan(plan(value, "hunter2 is short"), ["hunter2", "12345", "ab"])
    (change,) = found.changes[0].changes
    assert (change.after, change.secret) == ("[secret]", True)
    assert change.before is None
    assert change.because == "[secret] is short"
    assert (found.outputs[0].before, found.outputs[0].secret) == ("[secret]", True)
    assert found.unchecked == ("[secret] was not asked",)
    # Names are none: the plan could not be applied without them.
    assert found.changes[0].urn == "urn::hunter2"


@pytest.mark.parametrize("value", ["ab", None, "hunter", 1234, {"x": [True]}])
def test_what_is_none_stays(value):
    assert mask_plan(plan(value), ["ab", "xyz"]).changes == plan(value).changes


def test_what_holds_no_secret_is_not_copied() -> None:
    told = plan("hunter2", "because of hunter2")
    clean = plan("plain", "because")
    both = told.model_copy(update={"changes": (*told.changes, *clean.changes)})
    masked = mask_plan(both, ["hunter2"])
    assert masked.changes[0].changes[0].after == "[secret]"
    assert masked.changes[-1] is clean.changes[-1]
    assert mask_plan(both, []) is both
