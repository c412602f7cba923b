"""Check what must hold after any failure: nothing lost, nothing doubled, and the next run recovers.

The objects of the platform and the known ones (in the state, or in the record of intents) are the
same set, and the next `up` ends with an empty plan.
"""

from typing import Any

from conformance.emulated import Platform
from conformance.plugin_stack import PluginStack
from conformance.stacks import DeclaredResource, EmbeddedStack

TestedStack = EmbeddedStack | PluginStack


def assert_no_object_is_lost(
    stack: TestedStack, platform: Platform, *declared: DeclaredResource
) -> None:
    """Assert that the stack knows every object, also after a killed run."""
    intents = stack.intents
    for description in {resource.description for resource in declared}:
        for platform_object in platform.list_objects(description):
            if platform_object["status"].lower() in description.deleting_statuses:
                continue
            is_known = platform_object["id"] in stack.ids or any(
                is_intent_of(intent, platform_object) for intent in intents
            )
            assert is_known, f"lost: {platform_object}; state {stack.ids}; intents {intents}"
            parts = {*stack.parts, *stack.recorded_parts}
            lost = set(platform_object["parts"]) - parts
            assert not lost or stack.is_searching, f"lost parts: {lost}; known {parts}"


def assert_state_objects_exist(
    stack: TestedStack, platform: Platform, *declared: DeclaredResource
) -> None:
    """Assert that every object in the state exists, after a completed run."""
    kinds = {resource.description for resource in declared}
    present = {
        platform_object["id"]
        for description in kinds
        for platform_object in platform.list_objects(description)
    }
    assert stack.ids <= present


def assert_next_run_recovers(
    stack: TestedStack, platform: Platform, *declared: DeclaredResource
) -> None:
    """Assert that the next `up` succeeds without a second object and leaves nothing to do."""
    result = stack.apply(*declared)
    assert result.ok, result.errors
    assert_nothing_to_do(stack, platform, *declared)


def assert_nothing_to_do(
    stack: TestedStack, platform: Platform, *declared: DeclaredResource
) -> None:
    """Assert that every declared object exists once, is known, and has no changes."""
    plan = stack.plan(*declared)
    assert (plan.operations, plan.errors) == ([], [])
    assert stack.unresolved_intents == []
    kinds = {resource.description for resource in declared}
    assert platform.list_ids(*kinds) == stack.ids
    assert len(stack.resources) == len(declared)
    assert not stack.pending_operations
    for resource in declared:
        assert stack.get_state(resource.name).outputs["ready"] is True


def assert_destroy_leaves_nothing(
    stack: TestedStack, platform: Platform, *declared: DeclaredResource
) -> None:
    """Assert that a `destroy` succeeds and leaves nothing, also after an interrupted one."""
    result = stack.destroy()
    assert result.ok, result.errors
    assert stack.resources == []
    assert platform.list_ids(*{resource.description for resource in declared}) == set()


def is_intent_of(intent: dict[str, Any], platform_object: dict[str, Any]) -> bool:
    """Return True if the next run will find this object by the intent."""
    if intent["id"] is not None:
        return bool(intent["id"] == platform_object["id"])
    return (
        intent["name"] == platform_object["name"]
        and platform_object["id"] not in intent["present_ids"]
    )
