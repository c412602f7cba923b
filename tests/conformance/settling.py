"""What must hold after anything went wrong: nothing lost, nothing doubled, and the next run mends.

The objects of the platform and the known ones (in the state, or in the record of intents) are the
same set, and the next `up` ends with an empty plan.
"""

from typing import Any

from conformance.emulated import Platform
from conformance.plugin_stack import PluginStack
from conformance.stacks import Declared, EmbeddedStack

AnyStack = EmbeddedStack | PluginStack


def assert_nothing_is_lost(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Every object is known, at any time: the run may have been killed."""
    intents = stack.intents
    for described in {each.described for each in declared}:
        for found in platform.objects(described):
            if found["status"].lower() in described.leaving:
                continue
            known = found["id"] in stack.ids or any(is_of(intent, found) for intent in intents)
            assert known, f"lost: {found}; state {stack.ids}; intents {intents}"
            parts = {*stack.parts, *stack.recorded_parts}
            lost = set(found["parts"]) - parts
            assert not lost or stack.is_searching, f"lost parts: {lost}; known {parts}"


def assert_nothing_is_imagined(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Every object in the state exists: so it is after each run that came to its end."""
    kinds = {each.described for each in declared}
    present = {found["id"] for described in kinds for found in platform.objects(described)}
    assert stack.ids <= present


def assert_settles(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """The next `up` succeeds, makes no second object, and leaves nothing to do."""
    result = stack.up(*declared)
    assert result.ok, result.errors
    assert_settled(stack, platform, *declared)


def assert_settled(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Everything declared exists once, is known, and needs nothing."""
    plan = stack.plan(*declared)
    assert (plan.operations, plan.errors) == ([], [])
    assert stack.unsettled == []
    kinds = {each.described for each in declared}
    assert platform.ids(*kinds) == stack.ids
    assert len(stack.resources) == len(declared)
    assert not stack.pending
    for each in declared:
        assert stack.state(each.name).outputs["ready"] is True


def assert_destroyed(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """A `destroy` succeeds and leaves nothing, wherever an earlier one was cut off."""
    result = stack.destroy()
    assert result.ok, result.errors
    assert stack.resources == []
    assert platform.ids(*{each.described for each in declared}) == set()


def is_of(intent: dict[str, Any], found: dict[str, Any]) -> bool:
    """Whether the next run will find this object by the intent."""
    if intent["id"] is not None:
        return bool(intent["id"] == found["id"])
    return intent["name"] == found["name"] and found["id"] not in intent["present_ids"]
