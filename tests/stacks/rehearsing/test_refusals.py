"""Plans that cannot be rehearsed are refused before anything is played."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpuform.schemas.plan import Plan, PlanAction, PlanReason, ResourceChange
from gpuform.stacks.rehearsing import rehearse
from gpuform.stacks.rehearsing.operation import RehearsalError

STRANGER = ResourceChange(
    urn="nonsense", type="t", name="n", action=PlanAction.CREATE, reason=PlanReason.NEW
)


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"stack": "dev"}, "the plan is one of stack demo/dev"),
        ({"project": "lab"}, "the plan is one of stack lab/prod"),
        ({"changes": (STRANGER,)}, "has a change of another stack, or of none: nonsense"),
        ({"operation": "refresh"}, "a plan of `refresh` cannot be rehearsed"),
        ({"errors": ("no quota",)}, "is incomplete: its preview failed"),
    ],
)
def test_a_plan_of_other_state_or_without_steps_is_refused(facts: Any, message: str) -> None:
    plan = Plan(
        **{
            "project": "demo",
            "stack": "prod",
            "operation": "update",
            "changes": (),
            "summary": {},
            **facts,
        }
    )
    stack: Any = SimpleNamespace(
        name="prod", workspace=SimpleNamespace(project=SimpleNamespace(name="demo"))
    )
    with pytest.raises(RehearsalError, match=message):
        rehearse(stack, plan)
