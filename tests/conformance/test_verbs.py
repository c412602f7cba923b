"""Test what each operation of each lifecycle guarantees, under each host (architecture, 2)."""

import copy
from typing import Any

import pytest
from conformance.emulated import Platform
from conformance.kind_descriptions import KindDescription, convert_integers_to_doubles
from conformance.kinds import KINDS, for_all, for_failing, for_replaced, for_waiting
from conformance.operations import Operations, Properties

from gpuform.providers.catalog import list_kinds
from gpuform.schemas.values import UNKNOWN

pytestmark = [pytest.mark.slow, pytest.mark.sampled(36)]

GONE = "00000000-0000-4000-8000-000000000000"


PROOFS = {("together", "Certification"), ("scp", "Certification")}
"""Kinds without objects of a platform, which are tested elsewhere.

See tests/providers/kubernetes/test_certifications.py and
tests/providers/scp/test_scp_certification.py.
"""


def test_every_kind_of_the_catalogue_is_described() -> None:
    catalogue = set(list_kinds()) - PROOFS
    assert {(kind.platform, kind.kind) for kind in KINDS} == catalogue


@for_all
def test_check_accepts_a_valid_declaration(description: KindDescription, verbs: Operations) -> None:
    checked = verbs.check(description.valid_inputs)
    assert checked.failures == {}
    assert checked.inputs == convert_integers_to_doubles(description.valid_inputs)
    assert verbs.check(checked.inputs, checked.inputs) == checked


@for_all
def test_check_names_the_invalid_property(description: KindDescription, verbs: Operations) -> None:
    for inputs, path in description.invalid_inputs:
        failures = verbs.check(inputs).failures
        assert list(failures) == [path], inputs
        assert len(failures[path]) > 10


@for_all
def test_check_skips_unknown_values(description: KindDescription, verbs: Operations) -> None:
    for name in description.valid_inputs:
        checked = verbs.check({**description.valid_inputs, name: UNKNOWN})
        assert checked.failures == {}
        assert checked.inputs[name] is UNKNOWN
        assert {key: checked.inputs[key] for key in description.valid_inputs if key != name} == {
            key: value
            for key, value in convert_integers_to_doubles(description.valid_inputs).items()
            if key != name
        }


@for_all
def test_create_sends_the_declaration_once_and_returns_it(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    assert platform.list_writes() == ([description.create] if description.create else [])
    assert platform.list_ids(description) == {created.id}
    assert created.outputs["ready"] is True
    assert "not_ready_reason" not in created.outputs
    assert {name: created.outputs[name] for name in description.valid_inputs} == dict(
        description.valid_inputs
    )


@pytest.mark.sampled(1)
@for_all
def test_read_returns_the_outputs_of_create(
    description: KindDescription, verbs: Operations
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    read_result = verbs.read(created.id, created.outputs)
    assert read_result.id == created.id
    assert drop_scheduler_data(read_result.outputs) == created.outputs
    assert read_result.inputs == checked


def drop_scheduler_data(outputs: Properties) -> Properties:
    """Return the outputs without data of a cluster's schedulers, which only reads request."""
    nodes = outputs.get("gpu_worker_nodes")
    if nodes is None:
        return outputs
    remaining = [
        {k: v for k, v in node.items() if k not in ("kubernetes", "slurm")} for node in nodes
    ]
    return {**outputs, "gpu_worker_nodes": remaining}


@for_all
def test_diff_is_empty_after_create_and_after_read(
    description: KindDescription, verbs: Operations
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    read_result = verbs.read(created.id, created.outputs)
    for olds in (created.outputs, read_result.outputs):
        for news in (checked, read_result.inputs or {}):
            diff = verbs.diff(created.id, olds, news)
            assert (diff.changes, diff.replaces) == (False, [])


def test_an_in_place_change_sends_only_the_changed_field(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    changed = verbs.check(description.in_place.inputs, checked).inputs
    diff = verbs.diff(created.id, created.outputs, changed)
    assert (diff.changes, diff.replaces) == (True, [])
    platform.forget_requests()
    outputs = verbs.update(created.id, created.outputs, changed)
    assert description.in_place.sends is not None
    (found_object,) = platform.list_objects(description)
    assert platform.list_writes() == [
        description.in_place.sends.fill_ids(created.id, found_object["parts"])
    ]
    assert {name: outputs[name] for name in changed} == changed
    assert outputs["ready"] is True
    assert verbs.diff(created.id, outputs, changed).changes is False


@for_replaced
def test_a_changed_immutable_field_replaces_and_deletes_first(
    description: KindDescription, verbs: Operations
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    changed = verbs.check(description.replacing.inputs, checked).inputs
    diff = verbs.diff(created.id, created.outputs, changed)
    assert (diff.changes, diff.delete_first) == (True, True)
    assert diff.replaces == [description.replacing.field]


@for_replaced
def test_an_unknown_value_of_an_immutable_field_is_planned_as_a_replacement(
    description: KindDescription, verbs: Operations
) -> None:
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    news = {**description.valid_inputs, description.replacing.field: UNKNOWN}
    assert verbs.diff(created.id, created.outputs, news).replaces == [description.replacing.field]


def test_read_of_a_deleted_object_returns_no_id(
    description: KindDescription, verbs: Operations
) -> None:
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    verbs.delete(created.id, created.outputs)
    assert verbs.read(created.id, created.outputs).id == ""
    assert verbs.read(GONE, {}).id == ""


def test_delete_waits_until_the_object_is_gone_and_accepts_gone_objects(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    verbs.delete(created.id, created.outputs)
    assert platform.list_objects(description) == []
    verbs.delete(created.id, created.outputs)


def test_delete_continues_a_deletion_begun_by_somebody_else(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    (found_object,) = platform.list_objects(description)
    platform.send(
        description, description.outside_delete.fill_ids(created.id, found_object["parts"])
    )
    verbs.delete(created.id, created.outputs)
    assert platform.list_objects(description) == []


@for_all
def test_an_update_without_changes_sends_no_request(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    platform.forget_requests()
    assert verbs.update(created.id, created.outputs, checked) == created.outputs
    assert platform.list_writes() == []


def test_an_update_may_be_repeated(description: KindDescription, verbs: Operations) -> None:
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    changed = verbs.check(description.in_place.inputs).inputs
    first = verbs.update(created.id, created.outputs, changed)
    assert verbs.update(created.id, created.outputs, changed) == first


@for_waiting
def test_an_object_not_ready_in_time_is_kept_and_waited_for_again(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    platform.add_fault(
        "GET", description.object_path, status_override=description.pending_status, count=None
    )
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    assert platform.list_ids(description) == {created.id}
    assert created.outputs["ready"] is False
    assert description.pending_status in created.outputs["not_ready_reason"]
    assert {name: created.outputs[name] for name in description.valid_inputs} == dict(
        description.valid_inputs
    )
    diff = verbs.diff(created.id, created.outputs, checked)
    assert (diff.changes, diff.replaces) == (True, [])
    platform.remove_faults()
    platform.forget_requests()
    outputs = verbs.update(created.id, created.outputs, checked)
    assert outputs["ready"] is True
    assert "not_ready_reason" not in outputs
    assert platform.list_writes() == []
    assert verbs.diff(created.id, outputs, checked).changes is False


@for_failing
def test_an_object_that_fails_during_its_create_is_kept_with_the_reason(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    platform.add_fault(
        "GET", description.object_path, status_override=description.failed_status, count=None
    )
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    assert platform.list_ids(description) == {created.id}
    assert created.outputs["ready"] is False
    assert description.failed_status in created.outputs["not_ready_reason"]


@for_failing
def test_an_object_that_is_no_longer_ready_is_read_as_not_ready(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    platform.add_fault("GET", description.object_path, status_override=description.failed_status)
    read_result = verbs.read(created.id, created.outputs)
    assert read_result.outputs["ready"] is False
    assert description.failed_status in read_result.outputs["not_ready_reason"]
    assert verbs.diff(created.id, read_result.outputs, checked).replaces == []


@for_all
def test_an_import_requires_only_the_id(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    read_result = verbs.read(created.id, {})
    assert read_result.id == created.id
    assert read_result.inputs is not None
    assert all(value == checked.get(name, value) for name, value in read_result.inputs.items())
    diff = verbs.diff(created.id, read_result.outputs, checked)
    assert diff.replaces == []
    platform.forget_requests()
    outputs = verbs.update(created.id, read_result.outputs, checked)
    assert platform.list_writes() == []
    assert verbs.diff(created.id, outputs, checked).changes is False


def test_a_change_by_others_is_read_and_differs_only_in_that_field(
    description: KindDescription, verbs: Operations, platform: Platform
) -> None:
    checked = verbs.check(description.valid_inputs).inputs
    created = verbs.create(checked)
    (found_object,) = platform.list_objects(description)
    platform.send(
        description, description.outside_update.fill_ids(created.id, found_object["parts"])
    )
    platform.advance(7200)
    read_result = verbs.read(created.id, created.outputs)
    assert read_result.inputs == {
        **checked,
        **convert_integers_to_doubles(description.outside_drift),
    }
    own = {name: read_result.outputs[name] for name in checked}
    assert own == read_result.inputs


def test_secrets_are_only_in_the_secret_outputs(
    description: KindDescription, verbs: Operations
) -> None:
    secret = description.secret_outputs | description.secret_inputs
    assert set(description.lifecycle.list_secret_names()) == secret
    created = verbs.create(verbs.check(description.valid_inputs).inputs)
    reported = str({key: value for key, value in created.outputs.items() if key not in secret})
    for name in secret:
        parts = [word for word in str(created.outputs[name]).split() if len(word) > 12]
        assert parts
        assert not [word for word in parts if word in reported]


def test_a_lifecycle_does_not_modify_its_arguments(
    description: KindDescription, platform: Platform
) -> None:
    lifecycle = description.lifecycle()
    inputs = {**convert_integers_to_doubles(description.valid_inputs), "__provider": "pickled"}
    changed = {**convert_integers_to_doubles(description.in_place.inputs), "__provider": "pickled"}
    before = copy.deepcopy((inputs, changed))
    lifecycle.check({}, inputs)
    created = lifecycle.create(inputs)
    outs = created.outs
    original = copy.deepcopy(outs)
    lifecycle.read(created.id, outs)
    lifecycle.diff(created.id, outs, changed)
    lifecycle.check(inputs, changed)
    lifecycle.update(created.id, outs, changed)
    lifecycle.delete(created.id, outs)
    assert (inputs, changed) == before
    assert outs == original


def test_doubles_are_converted_to_the_declared_types(
    description: KindDescription, platform: Platform
) -> None:
    lifecycle = description.lifecycle()
    created = lifecycle.create(convert_integers_to_doubles(description.valid_inputs))
    read = lifecycle.read(created.id, created.outs)
    updated = lifecycle.update(
        created.id, created.outs, convert_integers_to_doubles(description.in_place.inputs)
    )
    for outs in (created.outs, read.outs, updated.outs):
        own: dict[str, Any] = {k: v for k, v in outs.items() if k in description.valid_inputs}
        computed = {k: v for k, v in outs.items() if k in lifecycle.outputs.model_fields}
        assert lifecycle.inputs.model_validate(own, strict=True).dump_declared() == own
        again = lifecycle.outputs.model_validate(computed, strict=True)
        assert again.model_dump(mode="json", exclude_none=True) == computed


@pytest.mark.sampled(1)
def test_diff_sends_no_request(
    description: KindDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nobody(*_: object) -> None:
        raise AssertionError("diff made a client")

    monkeypatch.setattr(description.lifecycle, "operations", nobody)
    lifecycle = description.lifecycle()
    olds = {
        **convert_integers_to_doubles(description.valid_inputs),
        "ready": True,
        "status": "fine",
    }
    assert (
        lifecycle.diff("id", olds, convert_integers_to_doubles(description.valid_inputs)).changes
        is False
    )
    assert (
        lifecycle.diff("id", olds, convert_integers_to_doubles(description.in_place.inputs)).changes
        is True
    )
    assert lifecycle.diff(
        "id", olds, convert_integers_to_doubles(description.replacing.inputs)
    ).replaces
