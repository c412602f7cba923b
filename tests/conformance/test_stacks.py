"""Test the life of one resource in a stack, from the first plan to the last, under each engine."""

import pytest
from conformance.described import Described, doubles
from conformance.emulated import Platform
from conformance.kinds import for_made_failing, for_made_waiting
from conformance.stacks import Declared, EmbeddedStack, Stack, thing

from gpuform.stacks.engine.values import Secret


def assert_plan(stack: Stack, declared: Declared) -> list[str]:
    result = stack.plan(declared)
    assert result.errors == []
    return list(result.operations)


def assert_done(stack: Stack, declared: Declared) -> list[str]:
    result = stack.up(declared)
    assert result.errors == []
    assert result.ok
    return list(result.operations)


@pytest.mark.slow
def test_create_update_and_destroy(described: Described, stack: Stack, platform: Platform) -> None:
    first = thing(described)
    assert assert_plan(stack, first) == ["create"]
    assert platform.objects(described) == []
    assert assert_done(stack, first) == ["create"]
    assert platform.ids(described) == {stack.id}
    assert assert_plan(stack, first) == []
    assert assert_done(stack, first) == []

    bigger = thing(described, described.in_place.inputs)
    retained = stack.id
    assert assert_plan(stack, bigger) == ["update"]
    assert assert_done(stack, bigger) == ["update"]
    assert stack.id == retained
    assert assert_plan(stack, bigger) == []
    assert stack.refresh().operations == []
    assert assert_plan(stack, bigger) == []

    assert stack.destroy().ok
    assert platform.objects(described) == []
    assert stack.id is None


@pytest.mark.slow
def test_a_replacement_deletes_first(
    described: Described, stack: Stack, platform: Platform
) -> None:
    assert_done(stack, thing(described))
    old = platform.parts(described)
    moved = thing(described, described.replacing.inputs)
    plan = stack.plan(moved)
    assert (plan.operations, plan.replaces) == (["replace"], [described.replacing.field])
    platform.forget_requests()
    assert assert_done(stack, moved) == ["replace"]
    assert described.create is not None
    sent = [described.delete_behind.method, described.create.method]
    assert [write.method for write in platform.writes()] == sent
    assert described.ids_come_again or not platform.parts(described) & old
    assert platform.ids(described) == {stack.id}
    assert assert_plan(stack, moved) == []


@pytest.mark.slow
def test_a_change_by_somebody_else_is_drift_of_that_field(
    described: Described, stack: Stack, platform: Platform
) -> None:
    declared = thing(described)
    assert_done(stack, declared)
    assert stack.id is not None
    (found_object,) = platform.objects(described)
    platform.send(described, described.behind.of(stack.id, found_object["parts"]))
    platform.advance(7200)
    assert assert_plan(stack, declared) == []
    assert stack.refresh().operations == ["update"]
    assert stack.inputs == {**doubles(described.good), **doubles(described.drift)}
    plan = stack.plan(declared)
    if described.drift_is_repaired:
        assert plan.operations == ["update"]
        assert assert_done(stack, declared) == ["update"]
        assert assert_plan(stack, declared) == []
    else:
        assert not plan.ok
        assert next(iter(described.drift)) in plan.errors[0]
        as_found = thing(described, {**described.good, **described.drift})
        assert assert_plan(stack, as_found) == []


@pytest.mark.slow
def test_an_object_deleted_by_somebody_else_is_recreated_after_a_refresh(
    described: Described, stack: Stack, platform: Platform
) -> None:
    declared = thing(described)
    assert_done(stack, declared)
    assert stack.id is not None
    (found_object,) = platform.objects(described)
    platform.send(described, described.delete_behind.of(stack.id, found_object["parts"]))
    platform.advance(7200)
    assert stack.refresh().operations == ["delete"]
    assert stack.id is None
    assert assert_done(stack, declared) == ["create"]
    assert platform.ids(described) == {stack.id}
    assert assert_plan(stack, declared) == []


@pytest.mark.slow
@pytest.mark.sampled(3)
def test_destroy_accepts_objects_that_are_gone(
    described: Described, stack: Stack, platform: Platform
) -> None:
    assert_done(stack, thing(described))
    assert stack.id is not None
    (found_object,) = platform.objects(described)
    platform.send(described, described.delete_behind.of(stack.id, found_object["parts"]))
    platform.advance(7200)
    assert stack.destroy().ok
    assert stack.id is None


@pytest.mark.slow
@for_made_waiting
def test_a_resource_that_is_not_ready_is_resumed_by_the_next_run(
    described: Described, stack: Stack, platform: Platform
) -> None:
    declared = thing(described)
    platform.fault("GET", described.own, status_override=described.pending, count=None)
    stack.up(declared)
    assert platform.ids(described) == {stack.id}
    assert stack.outputs["ready"] is False
    assert assert_plan(stack, declared) == ["update"]
    platform.heal()
    assert assert_done(stack, declared) == ["update"]
    assert stack.outputs["ready"] is True
    assert assert_plan(stack, declared) == []
    assert platform.created(described) == 1


def test_a_refused_declaration_changes_nothing(
    described: Described, stack: Stack, platform: Platform
) -> None:
    inputs, path = described.bad[0]
    for result in (stack.plan(thing(described, inputs)), stack.up(thing(described, inputs))):
        assert not result.ok
        assert f"property {path}" in result.errors[0]
    assert platform.writes() == []
    assert stack.id is None


@for_made_failing
def test_an_unready_resource_fails_the_engines_step_with_the_reason(
    described: Described, embedded: EmbeddedStack, platform: Platform
) -> None:
    """Pulumi's dynamic host cannot report this: its next plan does."""
    platform.fault("GET", described.own, status_override=described.failed, count=None)
    result = embedded.up(thing(described))
    assert not result.ok
    assert described.failed in result.errors[0]
    assert described.failed in embedded.state().init_errors[0]


def test_the_state_of_the_embedded_engine_marks_the_secrets(
    described: Described, embedded: EmbeddedStack
) -> None:
    embedded.up(thing(described))
    outputs = embedded.state().outputs
    marked = {name for name, value in outputs.items() if isinstance(value, Secret)}
    assert marked == described.secret | described.secret_inputs
    on_disk = next(embedded.directory.glob(".pulumi/stacks/*/dev.json")).read_text()
    for name in marked:
        assert str(embedded.outputs[name])[:40] not in on_disk
