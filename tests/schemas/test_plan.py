"""Test the JSON form of plans, which programs read: it is fixed here, character by character."""

import json
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field, ValidationError

from gpuform.schemas.changes import UNKNOWN, Action, FieldChange, compute_changes
from gpuform.schemas.models import InputModel
from gpuform.schemas.plan import (
    FORMAT_VERSION,
    OutputChange,
    Plan,
    PlanAction,
    PlanReason,
    PropertyChange,
    ResourceChange,
)
from gpuform.schemas.rules import Secret

GOLDEN = Path(__file__).parent / "golden" / "plan.json"
TYPE = "pulumi-python:dynamic/gpuform.together:Cluster"


def _build_change(
    action: PlanAction, reason: PlanReason, *field_changes: FieldChange
) -> ResourceChange:
    return ResourceChange(
        urn=f"urn:pulumi:dev::training::{TYPE}::{action}",
        type=TYPE,
        name=str(action),
        action=action,
        reason=reason,
        replace_paths=tuple(change.path for change in field_changes if change.replaces),
        changes=tuple(PropertyChange.from_field_change(change) for change in field_changes),
    )


def _build_plan() -> Plan:
    region = FieldChange(
        "region", Action.UPDATE, "a", "b", replaces=True, because="cannot be changed in place"
    )
    token = FieldChange("token", Action.UPDATE, "hunter1", "hunter2", secret=True)
    volume = FieldChange("volume_id", Action.ADD, None, UNKNOWN, because="known after apply")
    part = FieldChange("config", Action.ADD, None, {"names": ["a", UNKNOWN], "size": 2.5})
    return Plan.from_changes(
        "training",
        "dev",
        [
            _build_change(PlanAction.CREATE, PlanReason.NEW, volume, part),
            _build_change(PlanAction.REPLACE, PlanReason.FIELD_FORCES_REPLACEMENT, region, token),
            _build_change(PlanAction.SAME, PlanReason.UNCHANGED),
            _build_change(PlanAction.DELETE, PlanReason.NOT_IN_PROGRAM).model_copy(
                update={"gpus_removed": 16}
            ),
        ],
        unchecked=["GPU types: the API key is missing"],
    )


def test_a_plan_survives_json():
    assert _build_plan().model_dump_json(indent=2) + "\n" == GOLDEN.read_text()
    assert Plan.model_validate_json(GOLDEN.read_text()) == _build_plan()


def test_a_plan_counts_its_actions():
    plan = _build_plan()
    assert plan.format_version == FORMAT_VERSION
    assert plan.summary == {"create": 1, "replace": 1, "same": 1, "delete": 1}
    assert plan.has_changes
    assert not Plan.from_changes(
        "p", "s", [_build_change(PlanAction.SAME, PlanReason.UNCHANGED)]
    ).has_changes


def test_secrets_are_masked():
    assert "hunter" not in _build_plan().model_dump_json()
    change = FieldChange("name", Action.DELETE, "hunter2", None)
    field_change = PropertyChange.from_field_change(change, secret=True)
    assert (field_change.before, field_change.after, field_change.secret) == (
        "[secret]",
        None,
        True,
    )


def test_an_object_with_a_secret_inside_is_masked():
    class Login(InputModel):
        password: Annotated[str, Secret] = Field(description="Password.")

    class Server(InputModel):
        logins: list[Login] | None = Field(default=None, description="Logins.")

    (change,) = compute_changes(Server, {}, {"logins": [{"password": "hunter2"}]})
    assert PropertyChange.from_field_change(change).after == "[secret]"


def test_unknown_values_are_marked_as_unknown():
    field_change = PropertyChange.from_field_change(FieldChange("a", Action.UPDATE, 1, UNKNOWN))
    assert (field_change.after, field_change.unknown) == (None, True)
    assert not PropertyChange.from_field_change(FieldChange("a", Action.UPDATE, 1, 2)).unknown


@pytest.mark.parametrize(
    ("action", "only_recorded", "is_sent"),
    [(Action.UPDATE, False, True), (Action.UPDATE, True, False), (Action.KEEP, False, False)],
)
def test_is_sent_is_no_part_of_the_json_of_a_change(
    action: Action, only_recorded: bool, is_sent: bool
) -> None:
    field_change = PropertyChange.from_field_change(
        FieldChange("a", action, 1, 2, state_only=only_recorded)
    )
    assert field_change.is_sent is is_sent
    assert not any("sent" in name for name in field_change.model_dump())


def test_a_plan_of_another_format_version_is_refused():
    with pytest.raises(ValidationError):
        Plan.model_validate({**_build_plan().model_dump(), "newer": 1})


MARKED = {
    "4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270",
    "value": "hunter2",
}


@pytest.mark.parametrize("model", [PropertyChange, OutputChange])
def test_a_plan_built_in_any_way_contains_no_secret(
    model: type[PropertyChange | OutputChange],
) -> None:
    name = {"path": "token"} if model is PropertyChange else {"name": "token"}
    plain = {**name, "action": "update", "before": "hunter2", "after": {"a": ["hunter2"]}}
    made = model.model_validate({**plain, "secret": True})
    assert (made.before, made.after) == ("[secret]", "[secret]")
    parsed = model.model_validate_json(json.dumps({**plain, "secret": True}))
    assert "hunter2" not in parsed.model_dump_json()
    nested = model.model_validate({**plain, "before": {"a": [MARKED]}, "after": MARKED})
    assert (nested.before, nested.after) == ({"a": ["[secret]"]}, "[secret]")
    assert model.model_validate(plain).before == "hunter2"
    added = model.model_validate({**plain, "before": None, "secret": True})
    assert added.before is None


@pytest.mark.parametrize("value", [0, False, "", [], {}, 0.0])
def test_an_empty_value_is_kept(value: object) -> None:
    change = PropertyChange.from_field_change(FieldChange("size", Action.UPDATE, value, value))
    assert (change.before, change.after) == (value, value)
    assert type(change.after) is type(value)
