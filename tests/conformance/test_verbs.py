"""Test what each operation of each lifecycle guarantees, under each host (architecture, 2)."""

import copy
from typing import Any

import pytest
from conformance.described import Described, doubles
from conformance.emulated import Platform
from conformance.kinds import KINDS, for_all, for_failing, for_replaced, for_waiting
from conformance.verbs import Properties, Verbs

from gpuform.providers.catalog import list_kinds
from gpuform.schemas.values import UNKNOWN

pytestmark = [pytest.mark.slow, pytest.mark.sampled(36)]

GONE = "00000000-0000-4000-8000-000000000000"


PROOFS = {("together", "Certification"), ("scp", "Certification")}
"""No objects of a platform: nothing is made that could be lost or taken. Their tests are
tests/providers/kubernetes/test_certifications.py and tests/providers/scp/test_scp_certification.py.
"""


def test_every_kind_of_the_catalogue_is_described() -> None:
    catalogue = set(list_kinds()) - PROOFS
    assert {(kind.platform, kind.kind) for kind in KINDS} == catalogue


@for_all
def test_check_accepts_a_valid_declaration(described: Described, verbs: Verbs) -> None:
    checked = verbs.check(described.good)
    assert checked.failures == {}
    assert checked.inputs == doubles(described.good)
    assert verbs.check(checked.inputs, checked.inputs) == checked


@for_all
def test_check_names_the_invalid_property(described: Described, verbs: Verbs) -> None:
    for inputs, path in described.bad:
        failures = verbs.check(inputs).failures
        assert list(failures) == [path], inputs
        assert len(failures[path]) > 10


@for_all
def test_check_skips_unknown_values(described: Described, verbs: Verbs) -> None:
    for name in described.good:
        checked = verbs.check({**described.good, name: UNKNOWN})
        assert checked.failures == {}
        assert checked.inputs[name] is UNKNOWN
        assert {key: checked.inputs[key] for key in described.good if key != name} == {
            key: value for key, value in doubles(described.good).items() if key != name
        }


@for_all
def test_create_sends_the_declaration_once_and_returns_it(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    created = verbs.create(verbs.check(described.good).inputs)
    assert platform.writes() == ([described.create] if described.create else [])
    assert platform.ids(described) == {created.id}
    assert created.outputs["ready"] is True
    assert "not_ready_reason" not in created.outputs
    assert {name: created.outputs[name] for name in described.good} == dict(described.good)


@pytest.mark.sampled(1)
@for_all
def test_read_returns_the_outputs_of_create(described: Described, verbs: Verbs) -> None:
    checked = verbs.check(described.good).inputs
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
def test_diff_is_empty_after_create_and_after_read(described: Described, verbs: Verbs) -> None:
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    read_result = verbs.read(created.id, created.outputs)
    for olds in (created.outputs, read_result.outputs):
        for news in (checked, read_result.inputs or {}):
            diff = verbs.diff(created.id, olds, news)
            assert (diff.changes, diff.replaces) == (False, [])


def test_an_in_place_change_sends_only_the_changed_field(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    changed = verbs.check(described.in_place.inputs, checked).inputs
    diff = verbs.diff(created.id, created.outputs, changed)
    assert (diff.changes, diff.replaces) == (True, [])
    platform.forget_requests()
    outputs = verbs.update(created.id, created.outputs, changed)
    assert described.in_place.sends is not None
    (found_object,) = platform.objects(described)
    assert platform.writes() == [described.in_place.sends.of(created.id, found_object["parts"])]
    assert {name: outputs[name] for name in changed} == changed
    assert outputs["ready"] is True
    assert verbs.diff(created.id, outputs, changed).changes is False


@for_replaced
def test_a_changed_immutable_field_replaces_and_deletes_first(
    described: Described, verbs: Verbs
) -> None:
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    changed = verbs.check(described.replacing.inputs, checked).inputs
    diff = verbs.diff(created.id, created.outputs, changed)
    assert (diff.changes, diff.delete_first) == (True, True)
    assert diff.replaces == [described.replacing.field]


@for_replaced
def test_an_unknown_value_of_an_immutable_field_is_planned_as_a_replacement(
    described: Described, verbs: Verbs
) -> None:
    created = verbs.create(verbs.check(described.good).inputs)
    news = {**described.good, described.replacing.field: UNKNOWN}
    assert verbs.diff(created.id, created.outputs, news).replaces == [described.replacing.field]


def test_read_of_a_deleted_object_returns_no_id(described: Described, verbs: Verbs) -> None:
    created = verbs.create(verbs.check(described.good).inputs)
    verbs.delete(created.id, created.outputs)
    assert verbs.read(created.id, created.outputs).id == ""
    assert verbs.read(GONE, {}).id == ""


def test_delete_waits_until_the_object_is_gone_and_accepts_gone_objects(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    created = verbs.create(verbs.check(described.good).inputs)
    verbs.delete(created.id, created.outputs)
    assert platform.objects(described) == []
    verbs.delete(created.id, created.outputs)


def test_delete_continues_a_deletion_begun_by_somebody_else(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    created = verbs.create(verbs.check(described.good).inputs)
    (found_object,) = platform.objects(described)
    platform.send(described, described.delete_behind.of(created.id, found_object["parts"]))
    verbs.delete(created.id, created.outputs)
    assert platform.objects(described) == []


@for_all
def test_an_update_without_changes_sends_no_request(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    platform.forget_requests()
    assert verbs.update(created.id, created.outputs, checked) == created.outputs
    assert platform.writes() == []


def test_an_update_may_be_repeated(described: Described, verbs: Verbs) -> None:
    created = verbs.create(verbs.check(described.good).inputs)
    changed = verbs.check(described.in_place.inputs).inputs
    first = verbs.update(created.id, created.outputs, changed)
    assert verbs.update(created.id, created.outputs, changed) == first


@for_waiting
def test_an_object_not_ready_in_time_is_kept_and_waited_for_again(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    platform.fault("GET", described.own, status_override=described.pending, count=None)
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    assert platform.ids(described) == {created.id}
    assert created.outputs["ready"] is False
    assert described.pending in created.outputs["not_ready_reason"]
    assert {name: created.outputs[name] for name in described.good} == dict(described.good)
    diff = verbs.diff(created.id, created.outputs, checked)
    assert (diff.changes, diff.replaces) == (True, [])
    platform.heal()
    platform.forget_requests()
    outputs = verbs.update(created.id, created.outputs, checked)
    assert outputs["ready"] is True
    assert "not_ready_reason" not in outputs
    assert platform.writes() == []
    assert verbs.diff(created.id, outputs, checked).changes is False


@for_failing
def test_an_object_that_fails_during_its_create_is_kept_with_the_reason(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    platform.fault("GET", described.own, status_override=described.failed, count=None)
    created = verbs.create(verbs.check(described.good).inputs)
    assert platform.ids(described) == {created.id}
    assert created.outputs["ready"] is False
    assert described.failed in created.outputs["not_ready_reason"]


@for_failing
def test_an_object_that_is_no_longer_ready_is_read_as_not_ready(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    platform.fault("GET", described.own, status_override=described.failed)
    read_result = verbs.read(created.id, created.outputs)
    assert read_result.outputs["ready"] is False
    assert described.failed in read_result.outputs["not_ready_reason"]
    assert verbs.diff(created.id, read_result.outputs, checked).replaces == []


@for_all
def test_an_import_requires_only_the_id(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    read_result = verbs.read(created.id, {})
    assert read_result.id == created.id
    assert read_result.inputs is not None
    assert all(value == checked.get(name, value) for name, value in read_result.inputs.items())
    diff = verbs.diff(created.id, read_result.outputs, checked)
    assert diff.replaces == []
    platform.forget_requests()
    outputs = verbs.update(created.id, read_result.outputs, checked)
    assert platform.writes() == []
    assert verbs.diff(created.id, outputs, checked).changes is False


def test_a_change_by_others_is_read_and_differs_only_in_that_field(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    created = verbs.create(checked)
    (found_object,) = platform.objects(described)
    platform.send(described, described.behind.of(created.id, found_object["parts"]))
    platform.advance(7200)
    read_result = verbs.read(created.id, created.outputs)
    assert read_result.inputs == {**checked, **doubles(described.drift)}
    own = {name: read_result.outputs[name] for name in checked}
    assert own == read_result.inputs


def test_secrets_are_only_in_the_secret_outputs(described: Described, verbs: Verbs) -> None:
    secret = described.secret | described.secret_inputs
    assert set(described.lifecycle.list_secret_names()) == secret
    created = verbs.create(verbs.check(described.good).inputs)
    reported = str({key: value for key, value in created.outputs.items() if key not in secret})
    for name in secret:
        parts = [word for word in str(created.outputs[name]).split() if len(word) > 12]
        assert parts
        assert not [word for word in parts if word in reported]


def test_a_lifecycle_does_not_modify_its_arguments(
    described: Described, platform: Platform
) -> None:
    lifecycle = described.lifecycle()
    inputs = {**doubles(described.good), "__provider": "pickled"}
    changed = {**doubles(described.in_place.inputs), "__provider": "pickled"}
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
    described: Described, platform: Platform
) -> None:
    lifecycle = described.lifecycle()
    created = lifecycle.create(doubles(described.good))
    read = lifecycle.read(created.id, created.outs)
    updated = lifecycle.update(created.id, created.outs, doubles(described.in_place.inputs))
    for outs in (created.outs, read.outs, updated.outs):
        own: dict[str, Any] = {k: v for k, v in outs.items() if k in described.good}
        computed = {k: v for k, v in outs.items() if k in lifecycle.outputs.model_fields}
        assert lifecycle.inputs.model_validate(own, strict=True).dump_declared() == own
        again = lifecycle.outputs.model_validate(computed, strict=True)
        assert again.model_dump(mode="json", exclude_none=True) == computed


@pytest.mark.sampled(1)
def test_diff_sends_no_request(described: Described, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> None:
        raise AssertionError("diff made a client")

    monkeypatch.setattr(described.lifecycle, "operations", nobody)
    lifecycle = described.lifecycle()
    olds = {**doubles(described.good), "ready": True, "status": "fine"}
    assert lifecycle.diff("id", olds, doubles(described.good)).changes is False
    assert lifecycle.diff("id", olds, doubles(described.in_place.inputs)).changes is True
    assert lifecycle.diff("id", olds, doubles(described.replacing.inputs)).replaces
