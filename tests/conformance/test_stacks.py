"""The life of one resource in a stack, from the first plan to the last, under each engine."""

import pytest
from conformance.described import Described, doubles
from conformance.emulated import Platform
from conformance.kinds import for_made_failing, for_made_waiting
from conformance.stacks import Declared, EmbeddedStack, Stack, thing

from gpuform.stacks.engine.values import Secret


def planned(stack: Stack, declared: Declared) -> list[str]:
    result = stack.plan(declared)
    assert result.errors == []
    return list(result.operations)


def done(stack: Stack, declared: Declared) -> list[str]:
    result = stack.up(declared)
    assert result.errors == []
    assert result.ok
    return list(result.operations)


@pytest.mark.slow
def test_a_life(described: Described, stack: Stack, platform: Platform) -> None:
    first = thing(described)
    assert planned(stack, first) == ["create"]
    assert platform.objects(described) == []
    assert done(stack, first) == ["create"]
    assert platform.ids(described) == {stack.id}
    assert planned(stack, first) == []
    assert done(stack, first) == []

    bigger = thing(described, described.in_place.inputs)
    kept = stack.id
    assert planned(stack, bigger) == ["update"]
    assert done(stack, bigger) == ["update"]
    assert stack.id == kept
    assert planned(stack, bigger) == []
    assert stack.refresh().operations == []
    assert planned(stack, bigger) == []

    assert stack.destroy().ok
    assert platform.objects(described) == []
    assert stack.id is None


@pytest.mark.slow
def test_a_replacement_deletes_first(
    described: Described, stack: Stack, platform: Platform
) -> None:
    done(stack, thing(described))
    old = platform.parts(described)
    moved = thing(described, described.replacing.inputs)
    plan = stack.plan(moved)
    assert (plan.operations, plan.replaces) == (["replace"], [described.replacing.field])
    platform.forget_requests()
    assert done(stack, moved) == ["replace"]
    assert described.create is not None
    sent = [described.delete_behind.method, described.create.method]
    assert [each.method for each in platform.writes()] == sent
    assert described.ids_come_again or not platform.parts(described) & old
    assert platform.ids(described) == {stack.id}
    assert planned(stack, moved) == []


@pytest.mark.slow
def test_what_somebody_else_changed_is_drift_of_that_field(
    described: Described, stack: Stack, platform: Platform
) -> None:
    declared = thing(described)
    done(stack, declared)
    assert stack.id is not None
    (found,) = platform.objects(described)
    platform.send(described, described.behind.of(stack.id, found["parts"]))
    platform.advance(7200)
    assert planned(stack, declared) == []
    assert stack.refresh().operations == ["update"]
    assert stack.inputs == {**doubles(described.good), **doubles(described.drift)}
    plan = stack.plan(declared)
    if described.drift_is_repaired:
        assert plan.operations == ["update"]
        assert done(stack, declared) == ["update"]
        assert planned(stack, declared) == []
    else:
        assert not plan.ok
        assert next(iter(described.drift)) in plan.errors[0]
        as_found = thing(described, {**described.good, **described.drift})
        assert planned(stack, as_found) == []


@pytest.mark.slow
def test_what_somebody_else_deleted_is_made_again_after_a_refresh(
    described: Described, stack: Stack, platform: Platform
) -> None:
    declared = thing(described)
    done(stack, declared)
    assert stack.id is not None
    (found,) = platform.objects(described)
    platform.send(described, described.delete_behind.of(stack.id, found["parts"]))
    platform.advance(7200)
    assert stack.refresh().operations == ["delete"]
    assert stack.id is None
    assert done(stack, declared) == ["create"]
    assert platform.ids(described) == {stack.id}
    assert planned(stack, declared) == []


@pytest.mark.slow
@pytest.mark.sampled(3)
def test_destroy_takes_what_is_gone_for_deleted(
    described: Described, stack: Stack, platform: Platform
) -> None:
    done(stack, thing(described))
    assert stack.id is not None
    (found,) = platform.objects(described)
    platform.send(described, described.delete_behind.of(stack.id, found["parts"]))
    platform.advance(7200)
    assert stack.destroy().ok
    assert stack.id is None


@pytest.mark.slow
@for_made_waiting
def test_what_is_not_ready_is_resumed_by_the_next_run(
    described: Described, stack: Stack, platform: Platform
) -> None:
    declared = thing(described)
    platform.fault("GET", described.own, status_override=described.pending, count=None)
    stack.up(declared)
    assert platform.ids(described) == {stack.id}
    assert stack.outputs["ready"] is False
    assert planned(stack, declared) == ["update"]
    platform.heal()
    assert done(stack, declared) == ["update"]
    assert stack.outputs["ready"] is True
    assert planned(stack, declared) == []
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
def test_a_step_of_the_embedded_engine_fails_with_the_reason_while_it_is_not_ready(
    described: Described, embedded: EmbeddedStack, platform: Platform
) -> None:
    """The stock host cannot say this: there, the next plan does."""
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
