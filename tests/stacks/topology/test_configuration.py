"""Configuration: a stack's texts as the values that the file declares, within its limits."""

from typing import Any

import pytest
from support.topologies.topology_planner import Topologies

SECRET = "planted-in-a-test"


def declare_variable(settings: str) -> str:
    return f"config: {{x: {{{settings}}}}}"


@pytest.mark.parametrize(
    ("settings", "text", "value"),
    [
        ("", "16", "16"),
        ("type: string, pattern: '[a-z]+'", "abc", "abc"),
        ("type: integer", "-16", -16),
        ("type: integer, minimum: 8, maximum: 64, multiple_of: 8", "64", 64),
        ("type: number", "2.5e1", 25.0),
        ("type: number, multiple_of: 0.1", "0.3", 0.3),
        ("type: boolean", "false", False),
        ("type: array, min_length: 1, max_length: 2", '["a", 1]', ["a", 1]),
        ("type: object", '{"a": {"b": null}}', {"a": {"b": None}}),
        ("type: integer, enum: [1, 2]", "2", 2),
    ],
)
def test_values_have_the_declared_type(
    topologies: Topologies, settings: str, text: str, value: Any
) -> None:
    config_value = (
        topologies.plan_valid(declare_variable(settings), x=text).planned.config["x"].value
    )
    assert config_value == value
    assert type(config_value) is type(value)


@pytest.mark.parametrize(
    ("settings", "text", "why"),
    [
        ("type: integer", "1.0", "is not a whole number"),
        ("type: integer", "1e3", "is not a whole number"),
        ("type: integer", str(2**53 + 1), "is not a whole number"),
        ("type: integer", "9" * 5000, "is not a whole number"),
        ("type: integer, minimum: 8", "7", "is less than 8"),
        ("type: integer, maximum: 8", "9", "is more than 8"),
        ("type: integer, multiple_of: 8", "12", "is not a multiple of 8"),
        ("type: integer, enum: [true]", "1", "is not one of true"),
        ("type: number", "nan", "is not a number"),
        ("type: number", "1e999", "is not a number"),
        ("type: number", "1_0", "is not a number"),
        ("type: boolean", "yes", "is not true or false"),
        ("type: array", "[1,", "is not a list, as JSON"),
        ("type: array", "[" * 100_000, "is not a list, as JSON"),
        ("type: array", "[NaN]", "is not a list, as JSON"),
        ("type: array, max_length: 1", "[1, 2]", "is longer than 1"),
        ("type: object", "[]", "is not an object, as JSON"),
        ("min_length: 3", "ab", "is shorter than 3"),
        ("enum: [small, large]", "medium", 'is not one of "small", "large"'),
        ("pattern: '[a-z]+'", "ab1", "does not match [a-z]+"),
        # Python's own engine needs years for this pair.
        ("pattern: '(a+)+$'", "a" * 50_000 + "!", "does not match (a+)+$"),
        ("pattern: 'a|b'", "ab", "does not match a|b"),
    ],
)
def test_other_texts_are_refused(
    topologies: Topologies, settings: str, text: str, why: str
) -> None:
    (problem,) = topologies(declare_variable(settings), x=text).problems
    assert problem.message.startswith("config.x: ")
    assert problem.message.endswith(why)
    assert len(problem.message) < 200
    assert problem.hint == "set another one: gpuform config set x VALUE"


@pytest.mark.parametrize(
    "settings", ["type: integer, default: '16'", "default: 5", "type: integer, default: true"]
)
def test_a_default_is_of_the_declared_type(topologies: Topologies, settings: str) -> None:
    (problem,) = topologies(declare_variable(settings)).problems
    assert problem.hint == "correct its default"


@pytest.mark.parametrize(
    "settings", ["type: integer", "type: array", "enum: [a]", "pattern: '[0-9]'", "max_length: 2"]
)
@pytest.mark.parametrize("by", ["the file", "the stack"])
def test_a_secret_is_not_shown_when_it_is_wrong(
    topologies: Topologies, settings: str, by: str
) -> None:
    if by == "the file":
        settings += ", secret: true"
    else:
        topologies.stack.secrets = {"x"}
    (problem,) = topologies(declare_variable(settings), x=SECRET).problems
    assert problem.message.startswith("config.x: its value ")
    assert problem.hint == "set another one: gpuform config set --secret x"
    assert SECRET not in str(problem)


def test_a_variable_that_cannot_be_understood_is_not_shown(topologies: Topologies) -> None:
    topology_yaml = (
        declare_variable("type: int, secret: true") + "\noutputs: {o: '{{ config.x | int }}'}"
    )
    messages = topologies(topology_yaml, x=SECRET).positioned_messages
    assert len(messages) == 1
    assert SECRET not in messages[0]


def test_a_value_is_needed_to_run_and_not_to_check(topologies: Topologies) -> None:
    (problem,) = topologies(declare_variable("secret: true")).problems
    assert problem.message == "config.x has no value"
    assert problem.hint == "set it: gpuform config set --secret x"
    assert topologies(declare_variable("secret: true"), planning=False).positioned_messages == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("defualt: 5", "config.x.defualt: is not known: did you mean default?"),
        ("type: int", "config.x.type: int is not known: use one of string, integer"),
        ("multiple_of: 0", "config.x.multiple_of: 0 is too small"),
        ("minimum: a", "config.x.minimum: must be a number"),
    ],
)
def test_declarations_that_are_refused(topologies: Topologies, settings: str, message: str) -> None:
    (problem_message,) = topologies(declare_variable(settings), x="1").messages
    assert problem_message.startswith(message)
