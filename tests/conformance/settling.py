"""Check what must hold after any failure: nothing lost, nothing doubled, and the next run recovers.

The objects of the platform and the known ones (in the state, or in the record of intents) are the
same set, and the next `up` ends with an empty plan.
"""

from typing import Any

from conformance.emulated import Platform
from conformance.plugin_stack import PluginStack
from conformance.stacks import Declared, EmbeddedStack

AnyStack = EmbeddedStack | PluginStack


def assert_nothing_is_lost(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Check that every object is known, also after a killed run."""
    intents = stack.intents
    for described in {resource.described for resource in declared}:
        for platform_object in platform.objects(described):
            if platform_object["status"].lower() in described.leaving:
                continue
            is_known = platform_object["id"] in stack.ids or any(
                is_of(intent, platform_object) for intent in intents
            )
            assert is_known, f"lost: {platform_object}; state {stack.ids}; intents {intents}"
            parts = {*stack.parts, *stack.recorded_parts}
            lost = set(platform_object["parts"]) - parts
            assert not lost or stack.is_searching, f"lost parts: {lost}; known {parts}"


def assert_nothing_is_imagined(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Check that every object in the state exists, after each run that ended."""
    kinds = {resource.described for resource in declared}
    present = {
        platform_object["id"]
        for described in kinds
        for platform_object in platform.objects(described)
    }
    assert stack.ids <= present


def assert_settles(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Check that the next `up` succeeds, creates no second object, and leaves nothing to do."""
    result = stack.up(*declared)
    assert result.ok, result.errors
    assert_settled(stack, platform, *declared)


def assert_settled(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Check that everything declared exists once, is known, and needs nothing."""
    plan = stack.plan(*declared)
    assert (plan.operations, plan.errors) == ([], [])
    assert stack.unsettled == []
    kinds = {resource.described for resource in declared}
    assert platform.ids(*kinds) == stack.ids
    assert len(stack.resources) == len(declared)
    assert not stack.pending
    for resource in declared:
        assert stack.state(resource.name).outputs["ready"] is True


def assert_destroyed(stack: AnyStack, platform: Platform, *declared: Declared) -> None:
    """Check that a `destroy` succeeds and leaves nothing, also after an interrupted one."""
    result = stack.destroy()
    assert result.ok, result.errors
    assert stack.resources == []
    assert platform.ids(*{resource.described for resource in declared}) == set()


def is_of(intent: dict[str, Any], platform_object: dict[str, Any]) -> bool:
    """Return True if the next run will find this object by the intent."""
    if intent["id"] is not None:
        return bool(intent["id"] == platform_object["id"])
    return (
        intent["name"] == platform_object["name"]
        and platform_object["id"] not in intent["present_ids"]
    )
