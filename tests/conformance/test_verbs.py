"""What each verb of each lifecycle promises, under each host (architecture, section 2)."""

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
    assert {(each.platform, each.kind) for each in KINDS} == catalogue


@for_all
def test_check_passes_a_good_declaration(described: Described, verbs: Verbs) -> None:
    checked = verbs.check(described.good)
    assert checked.failures == {}
    assert checked.inputs == doubles(described.good)
    assert verbs.check(checked.inputs, checked.inputs) == checked


@for_all
def test_check_names_the_property_that_is_wrong(described: Described, verbs: Verbs) -> None:
    for inputs, path in described.bad:
        failures = verbs.check(inputs).failures
        assert list(failures) == [path], inputs
        assert len(failures[path]) > 10


@for_all
def test_check_skips_what_is_not_known_yet(described: Described, verbs: Verbs) -> None:
    for name in described.good:
        checked = verbs.check({**described.good, name: UNKNOWN})
        assert checked.failures == {}
        assert checked.inputs[name] is UNKNOWN
        assert {key: checked.inputs[key] for key in described.good if key != name} == {
            key: value for key, value in doubles(described.good).items() if key != name
        }


@for_all
def test_create_sends_the_declaration_once_and_echoes_it(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    made = verbs.create(verbs.check(described.good).inputs)
    assert platform.writes() == ([described.create] if described.create else [])
    assert platform.ids(described) == {made.id}
    assert made.outputs["ready"] is True
    assert "not_ready_reason" not in made.outputs
    assert {name: made.outputs[name] for name in described.good} == dict(described.good)


@pytest.mark.sampled(1)
@for_all
def test_read_gives_what_create_gave(described: Described, verbs: Verbs) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    seen = verbs.read(made.id, made.outputs)
    assert seen.id == made.id
    assert without_schedulers(seen.outputs) == made.outputs
    assert seen.inputs == checked


def without_schedulers(outputs: Properties) -> Properties:
    """Leave out what a cluster's schedulers say of its nodes: only reads ask them."""
    nodes = outputs.get("gpu_worker_nodes")
    if nodes is None:
        return outputs
    left = [{k: v for k, v in node.items() if k not in ("kubernetes", "slurm")} for node in nodes]
    return {**outputs, "gpu_worker_nodes": left}


@for_all
def test_nothing_differs_after_create_nor_after_read(described: Described, verbs: Verbs) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    seen = verbs.read(made.id, made.outputs)
    for olds in (made.outputs, seen.outputs):
        for news in (checked, seen.inputs or {}):
            diff = verbs.diff(made.id, olds, news)
            assert (diff.changes, diff.replaces) == (False, [])


def test_a_change_in_place_sends_the_changed_field_alone(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    changed = verbs.check(described.in_place.inputs, checked).inputs
    diff = verbs.diff(made.id, made.outputs, changed)
    assert (diff.changes, diff.replaces) == (True, [])
    platform.forget_requests()
    outputs = verbs.update(made.id, made.outputs, changed)
    assert described.in_place.sends is not None
    (found,) = platform.objects(described)
    assert platform.writes() == [described.in_place.sends.of(made.id, found["parts"])]
    assert {name: outputs[name] for name in changed} == changed
    assert outputs["ready"] is True
    assert verbs.diff(made.id, outputs, changed).changes is False


@for_replaced
def test_a_field_that_cannot_change_replaces_and_deletes_first(
    described: Described, verbs: Verbs
) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    changed = verbs.check(described.replacing.inputs, checked).inputs
    diff = verbs.diff(made.id, made.outputs, changed)
    assert (diff.changes, diff.delete_first) == (True, True)
    assert diff.replaces == [described.replacing.field]


@for_replaced
def test_an_unknown_value_in_such_a_field_is_planned_as_a_replacement(
    described: Described, verbs: Verbs
) -> None:
    made = verbs.create(verbs.check(described.good).inputs)
    news = {**described.good, described.replacing.field: UNKNOWN}
    assert verbs.diff(made.id, made.outputs, news).replaces == [described.replacing.field]


def test_read_of_what_is_gone_gives_no_id(described: Described, verbs: Verbs) -> None:
    made = verbs.create(verbs.check(described.good).inputs)
    verbs.delete(made.id, made.outputs)
    assert verbs.read(made.id, made.outputs).id == ""
    assert verbs.read(GONE, {}).id == ""


def test_delete_waits_until_it_is_gone_and_takes_what_is_gone_for_deleted(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    made = verbs.create(verbs.check(described.good).inputs)
    verbs.delete(made.id, made.outputs)
    assert platform.objects(described) == []
    verbs.delete(made.id, made.outputs)


def test_delete_goes_on_with_a_deletion_that_somebody_began(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    made = verbs.create(verbs.check(described.good).inputs)
    (found,) = platform.objects(described)
    platform.send(described, described.delete_behind.of(made.id, found["parts"]))
    verbs.delete(made.id, made.outputs)
    assert platform.objects(described) == []


@for_all
def test_an_update_with_nothing_to_change_sends_nothing(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    platform.forget_requests()
    assert verbs.update(made.id, made.outputs, checked) == made.outputs
    assert platform.writes() == []


def test_an_update_may_be_repeated(described: Described, verbs: Verbs) -> None:
    made = verbs.create(verbs.check(described.good).inputs)
    changed = verbs.check(described.in_place.inputs).inputs
    first = verbs.update(made.id, made.outputs, changed)
    assert verbs.update(made.id, made.outputs, changed) == first


@for_waiting
def test_what_does_not_get_ready_in_time_is_kept_and_waited_for_again(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    platform.fault("GET", described.own, status_override=described.pending, count=None)
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    assert platform.ids(described) == {made.id}
    assert made.outputs["ready"] is False
    assert described.pending in made.outputs["not_ready_reason"]
    assert {name: made.outputs[name] for name in described.good} == dict(described.good)
    diff = verbs.diff(made.id, made.outputs, checked)
    assert (diff.changes, diff.replaces) == (True, [])
    platform.heal()
    platform.forget_requests()
    outputs = verbs.update(made.id, made.outputs, checked)
    assert outputs["ready"] is True
    assert "not_ready_reason" not in outputs
    assert platform.writes() == []
    assert verbs.diff(made.id, outputs, checked).changes is False


@for_failing
def test_what_breaks_while_it_is_made_is_kept_with_the_reason(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    platform.fault("GET", described.own, status_override=described.failed, count=None)
    made = verbs.create(verbs.check(described.good).inputs)
    assert platform.ids(described) == {made.id}
    assert made.outputs["ready"] is False
    assert described.failed in made.outputs["not_ready_reason"]


@for_failing
def test_what_is_no_longer_ready_is_read_as_such(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    platform.fault("GET", described.own, status_override=described.failed)
    seen = verbs.read(made.id, made.outputs)
    assert seen.outputs["ready"] is False
    assert described.failed in seen.outputs["not_ready_reason"]
    assert verbs.diff(made.id, seen.outputs, checked).replaces == []


@for_all
def test_an_import_needs_the_id_alone(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    seen = verbs.read(made.id, {})
    assert seen.id == made.id
    assert seen.inputs is not None
    assert all(value == checked.get(name, value) for name, value in seen.inputs.items())
    diff = verbs.diff(made.id, seen.outputs, checked)
    assert diff.replaces == []
    platform.forget_requests()
    outputs = verbs.update(made.id, seen.outputs, checked)
    assert platform.writes() == []
    assert verbs.diff(made.id, outputs, checked).changes is False


def test_a_change_behind_our_back_is_read_and_differs_in_that_field_alone(
    described: Described, verbs: Verbs, platform: Platform
) -> None:
    checked = verbs.check(described.good).inputs
    made = verbs.create(checked)
    (found,) = platform.objects(described)
    platform.send(described, described.behind.of(made.id, found["parts"]))
    platform.advance(7200)
    seen = verbs.read(made.id, made.outputs)
    assert seen.inputs == {**checked, **doubles(described.drift)}
    own = {name: seen.outputs[name] for name in checked}
    assert own == seen.inputs


def test_secrets_are_in_the_named_outputs_and_nowhere_else(
    described: Described, verbs: Verbs
) -> None:
    secret = described.secret | described.secret_inputs
    assert set(described.lifecycle.list_secret_names()) == secret
    made = verbs.create(verbs.check(described.good).inputs)
    shown = str({key: value for key, value in made.outputs.items() if key not in secret})
    for name in secret:
        parts = [word for word in str(made.outputs[name]).split() if len(word) > 12]
        assert parts
        assert not [word for word in parts if word in shown]


def test_a_lifecycle_changes_nothing_that_it_is_given(
    described: Described, platform: Platform
) -> None:
    lifecycle = described.lifecycle()
    given = {**doubles(described.good), "__provider": "pickled"}
    changed = {**doubles(described.in_place.inputs), "__provider": "pickled"}
    before = copy.deepcopy((given, changed))
    lifecycle.check({}, given)
    made = lifecycle.create(given)
    outs = made.outs
    kept = copy.deepcopy(outs)
    lifecycle.read(made.id, outs)
    lifecycle.diff(made.id, outs, changed)
    lifecycle.check(given, changed)
    lifecycle.update(made.id, outs, changed)
    lifecycle.delete(made.id, outs)
    assert (given, changed) == before
    assert outs == kept


def test_doubles_become_what_the_models_declare(described: Described, platform: Platform) -> None:
    lifecycle = described.lifecycle()
    made = lifecycle.create(doubles(described.good))
    read = lifecycle.read(made.id, made.outs)
    updated = lifecycle.update(made.id, made.outs, doubles(described.in_place.inputs))
    for outs in (made.outs, read.outs, updated.outs):
        own: dict[str, Any] = {k: v for k, v in outs.items() if k in described.good}
        computed = {k: v for k, v in outs.items() if k in lifecycle.outputs.model_fields}
        assert lifecycle.inputs.model_validate(own, strict=True).dump_declared() == own
        again = lifecycle.outputs.model_validate(computed, strict=True)
        assert again.model_dump(mode="json", exclude_none=True) == computed


@pytest.mark.sampled(1)
def test_diff_asks_nobody(described: Described, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: object) -> None:
        raise AssertionError("diff made a client")

    monkeypatch.setattr(described.lifecycle, "operations", nobody)
    lifecycle = described.lifecycle()
    olds = {**doubles(described.good), "ready": True, "status": "fine"}
    assert lifecycle.diff("id", olds, doubles(described.good)).changes is False
    assert lifecycle.diff("id", olds, doubles(described.in_place.inputs)).changes is True
    assert lifecycle.diff("id", olds, doubles(described.replacing.inputs)).replaces
