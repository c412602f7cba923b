"""The pages on the platforms are what the code does."""

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from platforms.documented import NAMES, Answer, covers, documented, leaves
from platforms.pages import FOLDER, REAL, ROOT, pages
from platforms.sending import CALLS, methods_of, sent_by
from platforms.shown import SHOWN, shown
from pydantic import BaseModel

from gpuform.providers.catalog import load_lifecycle_class

ANSWERS = [
    pytest.param(each, id=f"{name}-{each.model}")
    for name in NAMES
    for each in documented(name).answers
]
for_platforms = pytest.mark.parametrize("name", NAMES)
OF_PLATFORMS = Path(__file__).parents[3] / "shared" / "platform-docs"
"""Where the platforms' own documents are, beside the checkout; most people do not have them."""


def test_the_pages_are_current() -> None:
    written = {path.name: path.read_text() for path in FOLDER.iterdir()}
    assert written == dict(pages()), "python tests/platforms/pages.py"


@for_platforms
def test_every_method_that_sends_is_tried(name: str) -> None:
    where, _, client = documented(name).given["client"].partition(":")
    found = getattr(importlib.import_module(where), client)
    assert sorted(CALLS[name]) == sorted(methods_of(found))


@for_platforms
def test_every_listed_call_is_sent_and_no_other(name: str) -> None:
    listed = {}
    for each in documented(name).given["calls"]:
        methods = each["method"] if isinstance(each["method"], list) else [each["method"]]
        listed.update(dict.fromkeys(methods, re.sub(r"{\w+}", "{}", each["call"])))
    for method in CALLS[name]:
        sent = sent_by(name, method)
        assert sent, method
        if method in listed:
            assert set(sent) == {listed[method]}, method
        else:  # a probe, and the like
            assert {each for each in sent if "probe" not in each} <= {
                *listed.values(),
                "GET /api/createCluster",  # whether the Parser is there
                "PUT /compute/clusters/00000000-0000-0000-0000-000000000000",  # the key's role
            }, method


@for_platforms
def test_a_proof_is_there(name: str) -> None:
    for each in documented(name).given["calls"]:
        if REAL in each:
            file, what = each[REAL]
            assert f"{what}(" in (ROOT / file).read_text(), each["call"]
        if "document" in each:
            text = (ROOT / "tests" / f"{name}_document.py").read_text()
            assert each["document"] == "example" or each["document"] in text, each["call"]


@for_platforms
def test_what_is_sent_for_an_input_is_one(name: str) -> None:
    given = documented(name).given
    listed = {each["call"] for each in given["calls"]}
    for call, sent in given["sent"].items():
        assert call in listed
        inputs = load_lifecycle_class(name, sent["kind"]).inputs.model_fields
        named = {each for each in sent["fields"] if isinstance(each, str)}
        assert named | set(sent.get("sdk", [])) <= inputs.keys(), call


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_field_that_is_read_is_listed_once(answer: Answer) -> None:
    kept = {**answer.declared, **answer.told, **answer.used}
    fields = list(leaves(answer.wire_model))
    for field in fields:
        is_kept = any(covers(each, field) for each in kept)
        assert is_kept != any(covers(each, field) for each in answer.dropped), field
    for pattern in (*kept, *answer.dropped):
        assert any(covers(pattern, field) for field in fields), pattern


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_input_and_output_exists(answer: Answer) -> None:
    if answer.declared:
        assert set(answer.declared.values()) <= answer.inputs.model_fields.keys()
    if answer.told:
        assert set(answer.told.values()) <= set(_paths(answer.outputs))


def _paths(model: type[BaseModel]) -> Iterator[str]:
    """Of all fields, also of those that hold others, with and without what is around them."""
    yield from model.model_fields
    for path in leaves(model):
        parts = path.split(".")
        yield from (".".join(parts[at:]) for at in range(len(parts)))
        yield path


@pytest.mark.parametrize(("platform", "model"), list(SHOWN))
def test_what_is_shown_changes_and_what_is_dropped_does_not(platform: str, model: str) -> None:
    (answer,) = (each for each in documented(platform).answers if each.model == model)
    before = shown(platform, answer.wire_model)
    for field in leaves(answer.wire_model):
        is_seen = shown(platform, answer.wire_model, field) != before
        if any(covers(each, field) for each in answer.dropped):
            assert not is_seen, field
        elif any(covers(each, field) for each in {**answer.declared, **answer.told}):
            assert is_seen, field


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
    found = re.findall(sign, file.read_text())
    pairs = [(b, a) if a.startswith("/") else (a, b) for a, b in found]
    of_document = {(a.upper(), re.sub(r"\${\w+}|:\w+|{\w+}", "{}", b)) for a, b in pairs}
    given = documented(name).given
    listed = {(c.split()[0], re.sub(r"{\w+}", "{}", c.split()[1])) for c in _calls(given)}
    assert of_document
    assert of_document <= listed


def _calls(given: dict) -> list[str]:
    return [each["call"] for each in given["calls"]]
