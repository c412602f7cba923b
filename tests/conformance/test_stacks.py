"""Test the life of one resource in a stack, from the first plan to the last, under each engine."""

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription, convert_integers_to_doubles
from conformance.kinds import for_made_failing, for_made_waiting
from conformance.stacks import DeclaredResource, EmbeddedStack, Stack, declare_one

from gpuform.providers.values import Secret


def assert_plan(stack: Stack, declared: DeclaredResource) -> list[str]:
    result = stack.plan(declared)
    assert result.errors == []
    return list(result.operations)


def assert_done(stack: Stack, declared: DeclaredResource) -> list[str]:
    result = stack.apply(declared)
    assert result.errors == []
    assert result.ok
    return list(result.operations)


@pytest.mark.slow
def test_create_update_and_destroy(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    first = declare_one(description)
    assert assert_plan(stack, first) == ["create"]
    assert platform.list_objects(description) == []
    assert assert_done(stack, first) == ["create"]
    assert platform.list_ids(description) == {stack.id}
    assert assert_plan(stack, first) == []
    assert assert_done(stack, first) == []

    bigger = declare_one(description, description.in_place.inputs)
    retained = stack.id
    assert assert_plan(stack, bigger) == ["update"]
    assert assert_done(stack, bigger) == ["update"]
    assert stack.id == retained
    assert assert_plan(stack, bigger) == []
    assert stack.refresh().operations == []
    assert assert_plan(stack, bigger) == []

    assert stack.destroy().ok
    assert platform.list_objects(description) == []
    assert stack.id is None


@pytest.mark.slow
def test_a_replacement_deletes_first(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    assert_done(stack, declare_one(description))
    old = platform.list_parts(description)
    moved = declare_one(description, description.replacing.inputs)
    plan = stack.plan(moved)
    assert (plan.operations, plan.replaces) == (["replace"], [description.replacing.field])
    platform.forget_requests()
    assert assert_done(stack, moved) == ["replace"]
    assert description.create is not None
    sent = [description.outside_delete.method, description.create.method]
    assert [write.method for write in platform.list_writes()] == sent
    assert description.reuses_ids or not platform.list_parts(description) & old
    assert platform.list_ids(description) == {stack.id}
    assert assert_plan(stack, moved) == []


@pytest.mark.slow
def test_a_change_by_somebody_else_is_drift_of_that_field(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    declared = declare_one(description)
    assert_done(stack, declared)
    assert stack.id is not None
    (found_object,) = platform.list_objects(description)
    platform.send(description, description.outside_update.fill_ids(stack.id, found_object["parts"]))
    platform.advance(7200)
    assert assert_plan(stack, declared) == []
    assert stack.refresh().operations == ["update"]
    assert stack.inputs == {
        **convert_integers_to_doubles(description.valid_inputs),
        **convert_integers_to_doubles(description.outside_drift),
    }
    plan = stack.plan(declared)
    if description.drift_is_repaired:
        assert plan.operations == ["update"]
        assert assert_done(stack, declared) == ["update"]
        assert assert_plan(stack, declared) == []
    else:
        assert not plan.ok
        assert next(iter(description.outside_drift)) in plan.errors[0]
        as_found = declare_one(
            description, {**description.valid_inputs, **description.outside_drift}
        )
        assert assert_plan(stack, as_found) == []


@pytest.mark.slow
def test_an_object_deleted_by_somebody_else_is_recreated_after_a_refresh(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    declared = declare_one(description)
    assert_done(stack, declared)
    assert stack.id is not None
    (found_object,) = platform.list_objects(description)
    platform.send(description, description.outside_delete.fill_ids(stack.id, found_object["parts"]))
    platform.advance(7200)
    assert stack.refresh().operations == ["delete"]
    assert stack.id is None
    assert assert_done(stack, declared) == ["create"]
    assert platform.list_ids(description) == {stack.id}
    assert assert_plan(stack, declared) == []


@pytest.mark.slow
@pytest.mark.sampled(3)
def test_destroy_accepts_objects_that_are_gone(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    assert_done(stack, declare_one(description))
    assert stack.id is not None
    (found_object,) = platform.list_objects(description)
    platform.send(description, description.outside_delete.fill_ids(stack.id, found_object["parts"]))
    platform.advance(7200)
    assert stack.destroy().ok
    assert stack.id is None


@pytest.mark.slow
@for_made_waiting
def test_a_resource_that_is_not_ready_is_resumed_by_the_next_run(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    declared = declare_one(description)
    platform.add_fault(
        "GET", description.object_path, status_override=description.pending_status, count=None
    )
    stack.apply(declared)
    assert platform.list_ids(description) == {stack.id}
    assert stack.outputs["ready"] is False
    assert assert_plan(stack, declared) == ["update"]
    platform.remove_faults()
    assert assert_done(stack, declared) == ["update"]
    assert stack.outputs["ready"] is True
    assert assert_plan(stack, declared) == []
    assert platform.count_creates(description) == 1


def test_a_refused_declaration_changes_nothing(
    description: KindDescription, stack: Stack, platform: Platform
) -> None:
    inputs, path = description.invalid_inputs[0]
    for result in (
        stack.plan(declare_one(description, inputs)),
        stack.apply(declare_one(description, inputs)),
    ):
        assert not result.ok
        assert f"property {path}" in result.errors[0]
    assert platform.list_writes() == []
    assert stack.id is None


@for_made_failing
def test_an_unready_resource_fails_the_engines_step_with_the_reason(
    description: KindDescription, embedded: EmbeddedStack, platform: Platform
) -> None:
    """Pulumi's dynamic host cannot report an unready resource: the next plan reports it."""
    platform.add_fault(
        "GET", description.object_path, status_override=description.failed_status, count=None
    )
    result = embedded.apply(declare_one(description))
    assert not result.ok
    assert description.failed_status in result.errors[0]
    assert description.failed_status in embedded.get_state().init_errors[0]


def test_the_state_of_the_embedded_engine_marks_the_secrets(
    description: KindDescription, embedded: EmbeddedStack
) -> None:
    embedded.apply(declare_one(description))
    outputs = embedded.get_state().outputs
    marked = {name for name, value in outputs.items() if isinstance(value, Secret)}
    assert marked == description.secret_outputs | description.secret_inputs
    on_disk = next(embedded.directory.glob(".pulumi/stacks/*/dev.json")).read_text()
    for name in marked:
        assert str(embedded.outputs[name])[:40] not in on_disk
