"""Test the validation of inputs: all problems at once, each with its path and a plain message."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, Field, ValidationError

from gpuform.schemas.checking import format_path, validate_inputs
from gpuform.schemas.models import InputModel, Problem, WireModel
from gpuform.schemas.rules import Secret
from gpuform.schemas.values import UNKNOWN


def _reject_spaces(value: str) -> str:
    if " " in value:
        raise ValueError(f"{value} has a space: write it without")
    return value


class Port(InputModel):
    retired_names: ClassVar[Mapping[str, str]] = {"port": "number"}

    number: int = Field(ge=1, lt=65536, description="Number of the port.")
    label: str | None = Field(default=None, max_length=5, description="Label.")

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        if values.get("number") == 22 and values.get("label") is None:
            yield Problem("label", "is required for port 22: name it")


class Server(InputModel):
    retired_names: ClassVar[Mapping[str, str]] = {"title": "name", "passwd": "password"}
    retired_values: ClassVar[Mapping[str, Mapping[str, str]]] = {"size": {"tiny": "SMALL"}}

    name: Annotated[str, AfterValidator(_reject_spaces)] = Field(
        min_length=2, description="Name of the server."
    )
    cpus: int | None = Field(default=None, gt=0, le=64, multiple_of=4, description="CPUs.")
    weight: float | None = Field(default=None, description="Weight.")
    is_public: bool | None = Field(default=None, description="Whether it is public.")
    size: Literal["SMALL", "LARGE"] | None = Field(default=None, description="Size.")
    password: Annotated[str | None, AfterValidator(_reject_spaces), Secret] = Field(
        default=None, min_length=3, description="Password."
    )
    pin: Annotated[int | None, Secret] = Field(default=None, ge=1000, description="PIN.")
    level: Annotated[Literal["low", "high"] | None, Secret] = Field(
        default=None, description="Level."
    )
    ports: list[Port] | None = Field(default=None, description="Ports.")
    main: Port | None = Field(default=None, description="The main port.")
    labels: dict[str, str] | None = Field(default=None, description="Labels.")
    alias: str | None = Field(default=None, description="Another way to write the name.")

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        cpus, weight = values.get("cpus"), values.get("weight")
        if cpus is UNKNOWN or weight is UNKNOWN or cpus is None or weight is None:
            return
        if weight > cpus:
            yield Problem("weight", f"{weight} is more than cpus: declare at most {cpus}")

    @classmethod
    def normalize(cls, values: dict[str, Any]) -> dict[str, Any]:
        return {("name" if name == "alias" else name): value for name, value in values.items()}


def find_problems(**values: Any) -> dict[str, str]:
    return {problem.path: problem.reason for problem in validate_inputs(Server, values)[1]}


def test_valid_values_are_returned_with_declared_types():
    values, problems = validate_inputs(
        Server,
        {
            "name": "web",
            "cpus": 16.0,
            "weight": 2.0,
            "is_public": None,
            "ports": [{"number": 80.0, "label": None}],
            "labels": {"a": "b"},
        },
    )
    assert not problems
    assert values == {
        "name": "web",
        "cpus": 16,
        "weight": 2.0,
        "ports": [{"number": 80}],
        "labels": {"a": "b"},
    }
    assert isinstance(values["cpus"], int)
    assert isinstance(values["weight"], float)
    assert isinstance(values["ports"][0]["number"], int)


def test_values_are_normalized():
    assert validate_inputs(Server, {"name": "web", "alias": "other"}) == ({"name": "other"}, [])


@pytest.mark.parametrize(
    ("values", "path", "reason"),
    [
        ({"name": UNKNOWN, "cpus": 6}, "cpus", "6 is not a multiple of 4: use 4 or 8"),
        ({"cpus": 3}, "cpus", "3 is not a multiple of 4: use 4"),
        ({"cpus": 16.5}, "cpus", "must be a whole number, not 16.5"),
        ({"cpus": "16"}, "cpus", "must be a whole number, not the text 16"),
        ({"cpus": True}, "cpus", "must be a whole number, not true"),
        ({"cpus": [1]}, "cpus", "must be a whole number, not a list"),
        ({"cpus": 0}, "cpus", "0 is too small: it must be more than 0"),
        ({"cpus": 68}, "cpus", "68 is too large: the most is 64"),
        ({"main": {"number": 0}}, "main.number", "0 is too small: the least is 1"),
        (
            {"main": {"number": 65536}},
            "main.number",
            "65536 is too large: it must be less than 65536",
        ),
        ({"weight": "much"}, "weight", "must be a number, not much"),
        ({"name": 12.6}, "name", "must be text, not 12.6: write it in quotes"),
        ({"name": {}}, "name", "must be text, not an object"),
        ({"name": "a"}, "name", "is too short: give at least 2 character(s)"),
        ({"name": "a b"}, "name", "a b has a space: write it without"),
        ({"is_public": "yes"}, "is_public", "must be true or false, not yes"),
        ({"ports": 80}, "ports", "must be a list, not 80"),
        ({"ports": ["80"]}, "ports[0]", "must be an object, not 80"),
        ({"labels": "a"}, "labels", "must be an object, not a"),
        ({"labels": {"a": 1}}, "labels.a", "must be text, not 1: write it in quotes"),
        (
            {"ports": [{"number": 1, "label": "too long"}]},
            "ports[0].label",
            "is too long: give at most 5 characters",
        ),
        ({"size": "small"}, "size", "small is not one of SMALL, LARGE: did you mean SMALL?"),
        ({"size": "tiny"}, "size", "tiny is not one of SMALL, LARGE: did you mean SMALL?"),
        ({"size": "42"}, "size", "42 is not known: use one of SMALL, LARGE"),
        ({"size": 42}, "size", "must be one of SMALL, LARGE"),
    ],
)
def test_the_problem_of_a_single_field_is_described(values: dict[str, Any], path: str, reason: str):
    assert find_problems(**{"name": "web", **values}) == {path: reason}


def test_missing_fields_are_reported_with_their_description():
    assert find_problems(ports=[{}]) == {
        "name": "is required: Name of the server.",
        "ports[0].number": "is required: Number of the port.",
    }


def test_unknown_names_are_reported_with_the_nearest_field():
    assert find_problems(nmae="web", ports=[{"numbr": 1}]) == {
        "nmae": "is not known: did you mean name?",
        "ports[0].numbr": "is not known: did you mean number?",
    }


def test_former_names_are_reported_with_the_current_name():
    assert find_problems(title="web", ports=[{"port": 80}]) == {
        "title": "is called name here: write name: web",
        "ports[0].port": "is called number here: write number: 80",
    }


def test_names_without_a_near_field_are_reported_with_all_fields():
    reasons = find_problems(name="web", main={"number": 1, "qqq": 1})
    assert reasons == {"main.qqq": "is not known: remove it, or use one of number, label"}


def test_all_problems_are_reported_at_once():
    reasons = find_problems(nam="web", cpus=6, size="small", ports=[{"number": 0}], weight=UNKNOWN)
    assert list(reasons) == ["nam", "cpus", "size", "ports[0].number"]


def test_rules_over_several_fields_need_valid_and_known_values():
    assert find_problems(name="web", cpus=4, weight=5.0) == {
        "weight": "5.0 is more than cpus: declare at most 4"
    }
    assert find_problems(name="web", cpus=UNKNOWN, weight=5.0) == {}
    assert list(find_problems(name="web", cpus=6, weight=50.0)) == ["cpus"]


def test_rules_of_inner_objects_have_their_path():
    reasons = find_problems(name="web", main={"number": 22}, ports=[{"number": 1}, {"number": 22}])
    assert set(reasons) == {"main.label", "ports[1].label"}


@pytest.mark.parametrize(
    "values",
    [
        {"name": UNKNOWN},
        {"name": "web", "ports": UNKNOWN, "main": UNKNOWN, "labels": UNKNOWN},
        {"name": "web", "ports": [UNKNOWN, {"number": UNKNOWN}], "labels": {"a": UNKNOWN}},
        {"name": "web", "cpus": UNKNOWN, "size": UNKNOWN, "password": UNKNOWN},
    ],
)
def test_unknown_values_are_kept_and_not_checked(values: dict[str, Any]):
    assert validate_inputs(Server, values) == (values, [])


@pytest.mark.parametrize(
    "secret",
    [
        {"password": "my hunter2"},
        {"password": "hu"},
        {"password": 70231},
        {"pin": "hunter2"},
        {"pin": 702},
        {"level": "hunter2"},
        {"level": 702},
        {"passwd": "hunter2"},
    ],
)
def test_reasons_contain_no_secret(secret: dict[str, Any]):
    reasons = find_problems(name="web", **secret)
    assert reasons
    assert not any(str(value) in reason for value in secret.values() for reason in reasons.values())


def test_validation_errors_of_models_hide_values():
    for model in (Server, WireModel):
        assert model.model_config["hide_input_in_errors"]
    with pytest.raises(ValidationError) as refused:
        Server.model_validate({"name": "web", "pin": "hunter2"})
    assert "hunter2" not in str(refused.value)


def test_wire_models_treat_null_as_an_absent_field():
    class Answer(WireModel):
        names: list[str] = Field(default=["default"])

    assert Answer.model_validate({"names": None, "newer": 1}).names == ["default"]


def test_input_models_are_frozen():
    server = Server(name="web")
    with pytest.raises(ValidationError):
        server.name = "other"  # type: ignore[misc]  # what is refused


def test_dump_declared_returns_only_declared_fields():
    server = Server.model_validate(
        {"name": "web", "cpus": 4.0, "size": None, "main": {"number": 1}}
    )
    assert server.dump_declared() == {"name": "web", "cpus": 4, "main": {"number": 1}}


def test_paths_are_formatted_with_keys_and_indices():
    assert format_path(("add_ons", 0, "config", "name")) == "add_ons[0].config.name"


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
ANYTHING = st.recursive(
    SCALARS | st.just(UNKNOWN),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["number", "label", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(st.sampled_from([*Server.model_fields, "y"]), ANYTHING))
def test_validation_raises_for_no_value(values: dict[str, Any]):
    typed, problems = validate_inputs(Server, values)
    assert problems or set(typed) <= set(Server.model_fields)
    assert all(problem.path and problem.reason for problem in problems)
