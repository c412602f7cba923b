"""Test keyed digests: equal for equal input, and revealing nothing about the values."""

import base64
import hashlib
import hmac
import json
import pickle

import pytest
from support.stacks.hand_made_rehearsals import build_rehearsal

from gpuform.providers.values import UNKNOWN, Secret
from gpuform.schemas.plan import Basis, Plan
from gpuform.stacks.engine import digests
from gpuform.stacks.engine.deployment import is_sealed, seal_plan
from gpuform.stacks.engine.digests import normalize_pickle
from gpuform.stacks.engine.registration import Registration
from gpuform.stacks.engine.secrets import WrongPassphrase
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import ResourceState, Snapshot

URN = "urn:pulumi:dev::lab::pulumi-python:dynamic/lab:Machine::a"


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
    again = Plan.model_validate_json(plan.model_dump_json())
    assert is_sealed(again, crypter.compute_digest)
    assert not is_sealed(again.model_copy(update={"stack": "prod"}), crypter.compute_digest)
    more = basis.model_copy(update={"effects": {URN: ("delete",)}, "seal": again.basis.seal})
    assert not is_sealed(again.model_copy(update={"basis": more}), crypter.compute_digest)
    assert not is_sealed(Plan.from_changes("lab", "dev", []), crypter.compute_digest)


def test_the_seal_of_a_plan_without_values_of_later_fields_is_that_of_older_releases(crypter):
    basis = Basis(state={}, config={}, program={}, key="k")
    plan = Plan.from_changes("lab", "dev", []).model_copy(update={"basis": basis})
    document = json.loads(plan.model_dump_json())
    del document["rehearsal"], document["stacks_digest"]
    older_seal = digests.compute_digest(crypter.compute_digest, "plan", document)
    document["basis"]["seal"] = older_seal
    assert is_sealed(Plan.model_validate(document), crypter.compute_digest)


def test_the_seal_includes_the_rehearsal(crypter):
    basis = Basis(state={}, config={}, program={}, key="k")
    facts = {"basis": basis, "rehearsal": build_rehearsal()}
    plan = seal_plan(
        Plan.from_changes("lab", "dev", []).model_copy(update=facts), crypter.compute_digest
    )
    again = Plan.model_validate_json(plan.model_dump_json())
    assert is_sealed(again, crypter.compute_digest)
    for rehearsal in (None, build_rehearsal(seed=1)):
        edited = again.model_copy(update={"rehearsal": rehearsal})
        assert not is_sealed(edited, crypter.compute_digest)
