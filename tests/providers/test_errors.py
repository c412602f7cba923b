"""Test the error classes: their tree, texts and facts."""

import inspect

import pytest

from gpuform.providers import errors
from gpuform.providers.errors import ApiError, GpuformError, NotReady, OutOfCapacity


def _list_error_classes() -> list[type[GpuformError]]:
    members = [error_class for _, error_class in inspect.getmembers(errors, inspect.isclass)]
    return [error_class for error_class in members if issubclass(error_class, GpuformError)]


def test_the_tree_at_the_top_names_every_class() -> None:
    drawn = errors.__doc__ or ""
    assert [
        error_class.__name__
        for error_class in _list_error_classes()
        if error_class.__name__ not in drawn
    ] == []


@pytest.mark.parametrize("error", _list_error_classes())
def test_every_class_has_a_docstring(error: type[GpuformError]) -> None:
    assert error.__doc__
    assert error.__doc__ != GpuformError.__doc__ or error is GpuformError


def test_the_text_is_the_message_and_the_hint() -> None:
    error = GpuformError("it is wrong", hint="do this")
    assert str(error) == "it is wrong\n  do this"
    assert (error.message, error.hint) == ("it is wrong", "do this")
    assert str(GpuformError("it is wrong")) == "it is wrong"


def test_no_part_of_an_error_is_hidden() -> None:
    error = GpuformError("node \x1b[2J\u202ex", hint="see \x9b")
    assert str(error) == "node \\u001b[2J\\u202ex\n  see \\u009b"
    assert NotReady("Ready\nerror: no").reason == "Ready\\nerror: no"


@pytest.mark.parametrize(
    ("status", "is_definite"),
    [(400, True), (404, True), (408, False), (409, True), (429, True), (500, False), (200, False)],
)
def test_a_refusal_is_definite(status: int, is_definite: bool) -> None:
    error = ApiError("refused", method="POST", path="/", status=status)
    assert error.is_definite is is_definite


def test_an_api_error_keeps_the_facts_of_its_answer() -> None:
    error = OutOfCapacity(
        "none", method="POST", path="/x", status=409, code="conflict", request_id="r-1"
    )
    facts = (error.method, error.path, error.status, error.code, error.request_id)
    assert facts == ("POST", "/x", 409, "conflict", "r-1")


def test_not_ready_keeps_the_last_look() -> None:
    error = NotReady("it is Degraded", last=7)
    assert (error.reason, error.last, str(error)) == ("it is Degraded", 7, "it is Degraded")
