"""Test the meaning of scalars: few plain ones are anything but text."""

import pytest

from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.document.nodes import ScalarNode
from gpuform.stacks.document.reading import read_text


def read_scalar(text: str) -> ScalarNode:
    problems = Diagnostics()
    node = read_text(f"key: {text}", "f", problems).get("key")
    assert not problems
    assert isinstance(node, ScalarNode)
    return node


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_null(text: str) -> None:
    assert read_scalar(text).value is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("true", True), ("True", True), ("TRUE", True)],
        *[("false", False), ("False", False), ("FALSE", False)],
    ],
)
def test_true_and_false(text: str, value: bool) -> None:
    assert read_scalar(text).value is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("0", 0), ("8", 8), ("-17", -17), ("9007199254740992", 2**53)],
        *[("0.5", 0.5), ("-2.25", -2.25), ("3.10", 3.1), ("10.0", 10.0)],
    ],
)
def test_numbers(text: str, value: float) -> None:
    number = read_scalar(text).value
    assert (number, type(number)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [
        *["yes", "no", "on", "off", "y", "n", "Yes", "NO", "tRUE", "nULL"],
        *["1e3", "1E3", "1.5e3", "0o7", "0x1F", "0b1", "007", "0123", "-01", "00"],
        *["1_000", "+1", ".5", "5.", "1:30", "12:30:45", ".inf", "-.inf", ".nan", "1.2.3"],
        *["2024-01-01", "2024-01-01T00:00:00Z", "9007199254740993", "12345678901234567890"],
        *["0.1234567890123456", "=", "\u0661\u0662", "-1-", "1 2", "None", "undefined"],
    ],
)
def test_everything_else_is_the_text_that_it_is(text: str) -> None:
    assert read_scalar(text).value == text


@pytest.mark.parametrize("text", ["", "~", "null", "true", "1", "0.5", "<<", "2024-01-01"])
@pytest.mark.parametrize("quoted", ["'{}'", '"{}"', "!!str {}", "! {}"])
def test_quoted_is_always_text(text: str, quoted: str) -> None:
    assert read_scalar(quoted.format(text)).value == text


def test_a_scalar_keeps_how_it_is_written() -> None:
    assert read_scalar("3.10").text == "3.10"
    assert read_scalar("TRUE").text == "TRUE"
