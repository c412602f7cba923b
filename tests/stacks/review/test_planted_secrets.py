"""Test that a secret in any field is in no output, for every source of a plan."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.readers.review_documents import RENDERERS
from support.strategies.plan_strategies import json_values

from gpuform.providers.values import SECRET_SIGNATURE, SIGNATURE_KEY
from gpuform.schemas.changes import Action, FieldChange
from gpuform.schemas.plan import (
    OutputChange,
    Plan,
    PlanAction,
    PlanReason,
    PropertyChange,
    ResourceChange,
)
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_files import read_plan

PLANTED = "hunter2-planted"
MARKED = {SIGNATURE_KEY: SECRET_SIGNATURE, "value": PLANTED, "plaintext": json.dumps(PLANTED)}
SCP_POOL = "pulumi-python:dynamic/gpuform.scp:NodePool"
CLUSTER = "pulumi-python:dynamic/gpuform.tensorone:Cluster"
URN = f"urn:pulumi:dev::demo::{CLUSTER}::train"

nested_secrets = st.sampled_from(
    [
        PLANTED,
        [PLANTED],
        {"inner": [{"deep": PLANTED}]},
        {PLANTED: 1},
        [{"name": "a", "value": PLANTED}],
        f"before {PLANTED}\nafter",
    ]
)


def render_everywhere(plan: Plan) -> str:
    review = Review([StackFacts(plan, "plan.json")])
    return "".join(form(review) for form in RENDERERS.values())


@pytest.mark.slow
@settings(max_examples=25)
@given(nested_secrets, nested_secrets | json_values, st.sampled_from(Action), st.booleans())
def test_a_secret_field_of_the_schema_is_masked(
    before: Any, after: Any, action: Action, replaces: bool
) -> None:
    field = FieldChange("token", action, before, after, replaces=replaces, secret=True)
    change = ResourceChange(
        urn=URN,
        type=CLUSTER,
        name="train",
        action=PlanAction.REPLACE,
        reason=PlanReason.FIELD_FORCES_REPLACEMENT,
        changes=(PropertyChange.from_field_change(field),),
    )
    assert PLANTED not in render_everywhere(Plan.from_changes("demo", "dev", [change]))


@pytest.mark.parametrize("value", [MARKED, {"a": [MARKED]}, [MARKED, {"b": MARKED}]])
def test_a_marked_secret_in_a_foreign_plan_is_masked(value: Any) -> None:
    output = {"name": "url", "action": "update", "before": value, "after": "x"}
    secret = {"name": "key", "action": "add", "after": PLANTED, "secret": True}
    field = {"path": "p", "action": "update", "before": "x", "after": value}
    change = {"urn": URN, "type": CLUSTER, "name": "a", "action": "update", "reason": "changed"}
    document = {
        **Plan.from_changes("demo", "dev", []).model_dump(),
        "outputs": [output, secret],
        "changes": [{**change, "changes": [field]}],
        "summary": {"update": 1},
    }
    plan = read_plan("plan.json", json.dumps(document).encode())
    rendered = render_everywhere(plan)
    assert PLANTED not in rendered
    assert "[secret]" in rendered


def build_preview(
    old: dict[str, Any], new: dict[str, Any], type_: str = CLUSTER, **facts: Any
) -> bytes:
    urn = f"urn:pulumi:dev::demo::{type_}::train"
    state = {"urn": urn, "custom": True, "type": type_, **facts}
    step = {
        "op": "update",
        "urn": urn,
        "oldState": {**state, "id": "c-1", "inputs": old, "outputs": {**old, "made": old}},
        "newState": {**state, "inputs": new},
    }
    return json.dumps({"steps": [step]}).encode()


@pytest.mark.parametrize("type_", [CLUSTER, SCP_POOL, "my:mod:Thing"])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"a": MARKED}, {"a": "[secret]"}),
        ({"a": {"b": MARKED}}, {"a": {"b": "new"}}),
        ({"a": [{"b": PLANTED}]}, {"a": [{"b": MARKED}]}),
        ({"a": MARKED}, {}),
        ({}, {"a": MARKED}),
    ],
)
def test_a_secret_marked_by_pulumi_is_masked(type_: str, old: Any, new: Any) -> None:
    plan = read_plan("preview.json", build_preview({**old, "n": 1}, {**new, "n": 2}, type_))
    assert PLANTED not in render_everywhere(plan)
    paths = {field.path: field for change in plan.changes for field in change.changes}
    assert "n" in paths or type_ != "my:mod:Thing"
    assert all(field.secret for path, field in paths.items() if path == "a")


@pytest.mark.parametrize(
    ("type_", "name"), [(SCP_POOL, "os_user_password"), (CLUSTER, "ssh_command")]
)
def test_a_secret_field_in_plaintext_is_masked(type_: str, name: str) -> None:
    plan = read_plan("preview.json", build_preview({name: PLANTED}, {name: PLANTED + "2"}, type_))
    assert PLANTED not in render_everywhere(plan)


def test_an_additional_secret_output_is_masked() -> None:
    marked = {"additionalSecretOutputs": ["a"]}
    plan = read_plan(
        "p.json", build_preview({"a": PLANTED}, {"a": PLANTED + "2"}, "my:mod:T", **marked)
    )
    assert PLANTED not in render_everywhere(plan)


def test_a_secret_stack_output_is_masked() -> None:
    output = OutputChange(name="k", action=Action.UPDATE, before=PLANTED, after="x", secret=True)
    plan = Plan.from_changes("demo", "dev", []).model_copy(update={"outputs": (output,)})
    assert PLANTED not in render_everywhere(plan)
