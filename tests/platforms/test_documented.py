"""Test that the pages on the platforms agree with the code."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from platforms.documented import NAMES, Answer, includes_path, list_leaf_paths, load_document
from platforms.pages import FOLDER, REAL, ROOT, render_pages
from platforms.sending import CALLS, list_methods, list_sent_calls
from platforms.shown import SHOWN, render_outputs
from pydantic import BaseModel

from gpuform.providers.catalog import load_lifecycle_class

ANSWERS = [
    pytest.param(documented_answer, id=f"{name}-{documented_answer.model}")
    for name in NAMES
    for documented_answer in load_document(name).answers
]
for_platforms = pytest.mark.parametrize("name", NAMES)
OF_PLATFORMS = Path(__file__).parents[3] / "shared" / "platform-docs"
"""Where the platforms' own documents are, beside the checkout; most people do not have them."""


def test_the_pages_are_current() -> None:
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == dict(render_pages()), "python tests/platforms/pages.py"


@for_platforms
def test_every_sending_method_is_tested(name: str) -> None:
    where, _, client = load_document(name).content["client"].partition(":")
    client_class = getattr(importlib.import_module(where), client)
    assert sorted(CALLS[name]) == sorted(list_methods(client_class))


@for_platforms
def test_every_listed_call_is_sent_and_no_other(name: str) -> None:
    listed = {}
    for request in load_document(name).content["calls"]:
        methods = request["method"] if isinstance(request["method"], list) else [request["method"]]
        listed.update(dict.fromkeys(methods, re.sub(r"{\w+}", "{}", request["call"])))
    for method in CALLS[name]:
        sent = list_sent_calls(name, method)
        assert sent, method
        if method in listed:
            assert set(sent) == {listed[method]}, method
        else:  # a probe, and the like
            assert {request for request in sent if "probe" not in request} <= {
                *listed.values(),
                "GET /api/createCluster",  # whether the Parser is there
                "PUT /compute/clusters/00000000-0000-0000-0000-000000000000",  # the key's role
            }, method


@for_platforms
def test_the_proof_of_every_call_exists(name: str) -> None:
    for call in load_document(name).content["calls"]:
        if REAL in call:
            file, test_name = call[REAL]
            assert f"{test_name}(" in (ROOT / file).read_text(), call["call"]
        if "document" in call:
            source = (ROOT / "tests" / "support" / "platforms" / f"{name}_document.py").read_text()
            assert call["document"] == "example" or call["document"] in source, call["call"]


@for_platforms
def test_every_sent_field_is_an_input(name: str) -> None:
    values = load_document(name).content
    listed = {field["call"] for field in values["calls"]}
    for call, sent in values["sent"].items():
        assert call in listed
        inputs = load_lifecycle_class(name, sent["kind"]).inputs.model_fields
        named = {field for field in sent["fields"] if isinstance(field, str)}
        assert named | set(sent.get("sdk", [])) <= inputs.keys(), call


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_parsed_field_is_listed_once(answer: Answer) -> None:
    listed_patterns = {**answer.declared, **answer.reported, **answer.used}
    fields = list(list_leaf_paths(answer.wire_model))
    for field in fields:
        is_kept = any(includes_path(listed, field) for listed in listed_patterns)
        assert is_kept != any(includes_path(listed, field) for listed in answer.dropped), field
    for pattern in (*listed_patterns, *answer.dropped):
        assert any(includes_path(pattern, field) for field in fields), pattern


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_input_and_output_exists(answer: Answer) -> None:
    if answer.declared:
        assert set(answer.declared.values()) <= answer.inputs.model_fields.keys()
    if answer.reported:
        assert set(answer.reported.values()) <= set(_list_paths(answer.outputs))


def _list_paths(model: type[BaseModel]) -> Iterator[str]:
    """Return the paths of all fields and nested fields, with and without parents."""
    yield from model.model_fields
    for path in list_leaf_paths(model):
        parts = path.split(".")
        yield from (".".join(parts[at:]) for at in range(len(parts)))
        yield path


@pytest.mark.parametrize(("platform", "model"), list(SHOWN))
def test_shown_fields_change_the_output_and_dropped_fields_do_not(
    platform: str, model: str
) -> None:
    (answer,) = (message for message in load_document(platform).answers if message.model == model)
    before = render_outputs(platform, answer.wire_model)
    for field in list_leaf_paths(answer.wire_model):
        is_visible = render_outputs(platform, answer.wire_model, field) != before
        if any(includes_path(message, field) for message in answer.dropped):
            assert not is_visible, field
        elif any(
            includes_path(message, field) for message in {**answer.declared, **answer.reported}
        ):
            assert is_visible, field


@pytest.mark.skipif(not OF_PLATFORMS.is_dir(), reason="the platforms' documents are not here")
@pytest.mark.parametrize(
    ("name", "sign"),
    [
        ("scp", r"(?m)^(get|post|put|delete) (/v1/\S+)"),
        ("lens", r"\*\*Endpoint:\*\* `(GET) /api(/\S+)`"),
        ("aios", r"Endpoint: (/clusters\S*)\nMethod: (\w+)"),
        ("together", r"-X (\w+)[^`]*?https://api\.together\.ai/v1(/\S+)"),
    ],
)
def test_every_call_of_the_platforms_document_is_listed(name: str, sign: str) -> None:
    files = {"together": "003", "scp": "004", "aios": "002", "lens": "001"}
    (file,) = OF_PLATFORMS.glob(f"{files[name]}_*")
    documented_calls = re.findall(sign, file.read_text())
    pairs = [(b, a) if a.startswith("/") else (a, b) for a, b in documented_calls]
    of_document = {(a.upper(), re.sub(r"\${\w+}|:\w+|{\w+}", "{}", b)) for a, b in pairs}
    inputs = load_document(name).content
    listed = {(c.split()[0], re.sub(r"{\w+}", "{}", c.split()[1])) for c in _list_calls(inputs)}
    assert of_document
    assert of_document <= listed


def _list_calls(inputs: dict) -> list[str]:
    return [call["call"] for call in inputs["calls"]]
