"""Test keyed digests: equal for equal input, and revealing nothing about the values."""

import base64
import hashlib
import hmac
import json
import pickle
from contextlib import suppress

import pytest
from support.stacks.hand_made_rehearsals import build_rehearsal

from gpuform.providers.values import UNKNOWN, Secret
from gpuform.schemas.plan import Basis, Plan, ResourceChange
from gpuform.stacks.engine import digests
from gpuform.stacks.engine.deployment import is_sealed, seal_plan
from gpuform.stacks.engine.digests import normalize_pickle
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.secrets import WrongPassphrase
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import ResourceState, Snapshot

URN = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::a"
FROZEN_PLAN = json.loads(
    """
    {"format_version": "1", "project": "lab", "stack": "dev", "operation": "update",
     "emulated": false, "made_at": "", "made_by": "gpuform 0.1.0", "pull_request": "",
     "basis": {"state": {}, "config": {}, "program": {}, "options": {}, "effects": {}, "key": "k",
               "seal": ""},
     "errors": [], "stack_references": [], "planned_with": {}, "stacks_digest": "", "outputs": [],
     "changes": [
        {"urn": "urn:pulumi:dev::lab::t::a", "type": "t", "name": "a", "action": "delete",
         "reason": "destroyed", "replace_paths": [], "changes": [], "gpus_added": null,
         "gpus_removed": 8, "parent": "", "dependencies": [], "before": null, "after": null,
         "retained": false, "in_use": "", "leaving": null, "others": [], "repairs": []}],
     "drift": [], "summary": {"delete": 1}, "unchecked": [], "notices": [], "exposures": null,
     "proofs": null, "cost": null, "rehearsal": null, "gates": null, "weakened_gates": []}
    """
)
"""A plan of November 2026, which is never changed: its seals are those of that release."""


def compute_state_digests(crypter, **fields):
    entry = ResourceState(URN, custom=True, type="t", **fields)
    return digests.compute_state_digests(
        Snapshot("organization/lab/dev", [entry]), crypter.compute_digest
    )


def compute_declared_digests(crypter, **fields):
    all_fields = {"inputs": {}, **fields}
    registration = Registration(URN, "t", "a", custom=True, **all_fields)
    return digests.compute_registration_digests(registration, crypter.compute_digest)


@pytest.mark.slow
def test_a_digest_depends_on_the_passphrase(crypter):
    digest = crypter.compute_digest(b"hunter2")
    assert digest == crypter.compute_digest(b"hunter2")
    assert digest != PassphraseCrypter.create_new("test only").compute_digest(b"hunter2")
    for plain in (hashlib.sha256(b"hunter2"), hmac.new(b"", b"hunter2", "sha256")):
        assert digest not in plain.hexdigest()
    with pytest.raises(WrongPassphrase):
        PassphraseCrypter("wrong", crypter.salt_state).compute_digest(b"hunter2")


def test_equal_values_of_two_keys_have_different_digests(crypter):
    config_digests = digests.compute_config_digests(
        {"lab:a": "x", "lab:b": "x"}, [], crypter.compute_digest
    )
    assert config_digests["lab:a"] != config_digests["lab:b"]
    parts = compute_declared_digests(crypter, inputs={"a": "x", "b": "x"})
    assert parts["inputs.a"] != parts["inputs.b"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"created": "2026"}, {"created": "2027", "modified": "2027"}),
        ({"number": 1}, {"number": 2}),
        ({"source_position": "project:///a.py#1"}, {"stack_trace": ["b"]}),
        ({"inputs": {"a": 1.0, "b": 2.0}}, {"inputs": {"b": 2.0, "a": 1.0}}),
        ({"dependencies": ["a", "b"]}, {"dependencies": ["b", "a"]}),
        ({"property_dependencies": {"x": []}}, {}),
        ({"inputs": {"a": Secret("x", "v1:one")}}, {"inputs": {"a": Secret("x", "v1:two")}}),
        (
            {"inputs": {"a": Secret({"x": 1.0, "y": 2.0})}},
            {"inputs": {"a": Secret({"y": 2.0, "x": 1.0})}},
        ),
        ({"outputs": {"status": "new"}}, {"outputs": {"status": "bound", "seen": 1.0}}),
        (
            {"external": True, "inputs": {"load": 2.0}, "outputs": {"load": 1.0}},
            {"external": True, "inputs": {"load": 2.0}},
        ),
    ],
)
def test_equivalent_states_have_equal_digests(crypter, one, other):
    assert compute_state_digests(crypter, **one) == compute_state_digests(crypter, **other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"inputs": {"a": 1.0}}, {"inputs": {"a": True}}),
        ({"inputs": {"a": "1"}}, {"inputs": {"a": 1.0}}),
        ({"inputs": {"a": "x"}}, {"inputs": {"a": Secret("x")}}),
        ({"inputs": {"a": [1.0, 2.0]}}, {"inputs": {"a": [2.0, 1.0]}}),
        (
            {"inputs": {"a": "x"}, "outputs": {"a": "x"}},
            {"inputs": {"a": "x"}, "outputs": {"a": "y"}},
        ),
        ({"id": "m-1"}, {"id": "m-2"}),
        ({"protect": True}, {}),
        ({"delete": True}, {}),
        ({"init_errors": ["booting"]}, {}),
    ],
)
def test_different_states_have_different_digests(crypter, one, other):
    assert compute_state_digests(crypter, **one) != compute_state_digests(crypter, **other)


def test_all_entries_of_a_urn_count_in_its_digest(crypter):
    live, old = (ResourceState(URN, custom=True, type="t", delete=d) for d in (False, True))

    def compute_digest(*entries):
        snapshot = Snapshot("organization/lab/dev", list(entries))
        return digests.compute_state_digests(snapshot, crypter.compute_digest)

    assert compute_digest(live, old) == compute_digest(old, live)
    assert (
        len({json.dumps(compute_digest(*entries)) for entries in [(live,), (old,), (live, old)]})
        == 3
    )


def test_unknown_inputs_are_marked_in_the_digests(crypter):
    parts = compute_declared_digests(
        crypter, inputs={"a": UNKNOWN, "b": ["x", Secret(UNKNOWN)], "c": "x"}
    )
    assert [part.startswith("?") for part in parts.values()] == [True, True, False]


def test_unset_options_have_no_digest(crypter):
    assert compute_declared_digests(crypter) == {}
    assert compute_declared_digests(crypter, property_dependencies={"size": []}) == {}
    assert set(compute_declared_digests(crypter, protect=False, ignore_changes=["x"])) == {
        "protect",
        "ignore_changes",
    }
    placed = compute_declared_digests(
        crypter, source_position="project:///a.py#1", stack_trace=["x"]
    )
    assert placed == {}


def pickle_provider(value: object) -> str:
    return base64.b64encode(pickle.dumps(value)).decode()


def test_normalized_pickles_do_not_depend_on_the_order():
    state, reordered_state = (
        {"alpha": 1, "beta": 2, "x": "/a/b.py"},
        {"x": "/c/d.py", "beta": 2, "alpha": 1},
    )
    assert pickle_provider(state) != pickle_provider(reordered_state)
    assert normalize_pickle(pickle_provider(state)) == normalize_pickle(
        pickle_provider(reordered_state)
    )
    assert normalize_pickle(pickle_provider({**state, "beta": 3})) != normalize_pickle(
        pickle_provider(state)
    )


@pytest.mark.parametrize("text", ["", "no base64!", base64.b64encode(b"no pickle").decode()])
def test_text_that_is_not_a_pickle_is_not_normalized(text):
    assert normalize_pickle(text) == text


def test_an_edited_plan_fails_its_seal(crypter):
    basis = Basis(state={}, config={}, program={}, options={"target": ("a",)})
    plan = seal_plan(
        Plan.from_changes("lab", "dev", []).model_copy(update={"basis": basis}),
        crypter.compute_digest,
    )
    document = json.loads(plan.model_dump_json())
    assert is_sealed(json.dumps(document, indent=2), crypter.compute_digest)
    more = {**document["basis"], "effects": {URN: ["delete"]}}
    for edit in ({"stack": "prod"}, {"basis": more}, {"basis": None}, {"newer": None}):
        assert not is_sealed(json.dumps({**document, **edit}), crypter.compute_digest), edit


def test_no_changed_byte_of_a_plan_passes_its_seal(crypter):
    basis = Basis(state={URN: "1" * 32}, config={}, program={}, options={"refresh": True}, key="k")
    change = ResourceChange(
        urn=URN, type="t", name="a", action="delete", reason="destroyed", gpus_removed=8
    )
    plan = Plan.from_changes("lab", "dev", [change]).model_copy(update={"basis": basis})
    content = seal_plan(plan, crypter.compute_digest).model_dump_json().encode()
    document = json.loads(content)
    for at, byte in enumerate(content):
        for flipped in (byte ^ 1, byte ^ 32):
            edited = content[:at] + bytes([flipped]) + content[at + 1 :]
            with suppress(ValueError, AttributeError):
                is_unchanged = json.loads(edited) == document
                assert is_sealed(edited, crypter.compute_digest) is is_unchanged, edited[at - 9 :]


@pytest.mark.parametrize(
    ("missing", "seal"),
    [
        ((), "6786885f551dd9904b8e8afaf3801136"),
        # These two fields came first, and were no part of a seal while they had no value.
        (("rehearsal", "stacks_digest"), "6786885f551dd9904b8e8afaf3801136"),
        (("weakened_gates", "proofs", "pull_request"), "92dcca183b9cde488ba59db328510ff6"),
    ],
)
def test_the_frozen_seal_of_a_plan_file_holds_whatever_fields_a_plan_has_today(missing, seal):
    def digest(data: bytes) -> str:
        return hashlib.sha256(b"key" + data).hexdigest()[:32]

    document = {name: value for name, value in FROZEN_PLAN.items() if name not in missing}
    document["basis"] = {**document["basis"], "seal": seal}
    assert is_sealed(json.dumps(document), digest)
    plan = Plan.model_validate(document)
    assert plan.basis is not None
    assert plan.basis.seal == seal
    assert not is_sealed(json.dumps({**document, "emulated": True}), digest)


def test_the_seal_includes_the_rehearsal(crypter):
    basis = Basis(state={}, config={}, program={}, key="k")
    facts = {"basis": basis, "rehearsal": build_rehearsal()}
    plan = seal_plan(
        Plan.from_changes("lab", "dev", []).model_copy(update=facts), crypter.compute_digest
    )
    assert is_sealed(plan.model_dump_json(), crypter.compute_digest)
    for rehearsal in (None, build_rehearsal(seed=1)):
        edited = plan.model_copy(update={"rehearsal": rehearsal})
        assert not is_sealed(edited.model_dump_json(), crypter.compute_digest)
