"""Test that any preview document is either read or refused."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.readers.review_documents import RENDERERS
from support.strategies.plan_strategies import json_values

from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Plan
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.plan_files import read_plan

pytestmark = pytest.mark.slow

STATES = [
    resource
    for path in sorted((Path(__file__).parent / "scenarios").glob("*/state.json"))
    for resource in json.loads(path.read_text())["checkpoint"]["latest"]["resources"]
    if "dynamic" in resource["type"]
]


@st.composite
def altered_values(draw: st.DrawFn, value: Any) -> Any:
    """Draw the value with something odd at one path."""
    value = copy.deepcopy(value)
    container = value
    while True:
        keys = list(container) if isinstance(container, dict) else list(range(len(container)))
        key = draw(st.sampled_from(keys))
        inner = container[key]
        if not isinstance(inner, dict | list) or not inner or draw(st.integers(0, 3)) == 0:
            container[key] = draw(json_values)
            return value
        container = inner


@st.composite
def previews(draw: st.DrawFn) -> Any:
    old = draw(st.sampled_from(STATES))
    new = {key: copy.deepcopy(old[key]) for key in ("urn", "type", "custom", "inputs")}
    new["inputs"] = draw(altered_values(new["inputs"]))
    op = draw(st.sampled_from(["create", "update", "replace", "delete", "same", "read"]))
    step = {"op": op, "urn": old["urn"], "oldState": old, "newState": new, "replaceReasons": ["a"]}
    document = {"steps": [step], "diagnostics": [{"message": "m", "severity": "error"}]}
    return draw(st.just(document) | altered_values(document))


def read_or_refuse(document: Any) -> Plan | str:
    """Return the plan, or the message of the refusal."""
    try:
        return read_plan("preview.json", json.dumps(document).encode())
    except EngineError as refused:
        return str(refused)


@settings(max_examples=100)
@given(previews())
def test_any_preview_is_read_or_refused(document: Any) -> None:
    plan = read_or_refuse(document)
    if isinstance(plan, str):
        assert plan.startswith("preview.json")
        assert "lanted" not in plan
    else:
        review = Review([StackFacts(plan, "preview.json")])
        assert all("lanted" not in form(review) for form in RENDERERS.values())
