"""The pages of the plan's JSON, of prices and gates, and of stacks."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gpuform.schemas.gates import GateInputs
from gpuform.schemas.plan import Plan, PlanAction, PlanReason
from gpuform.schemas.stacks_plan import StacksInputs
from gpuform.stacks.gates.file import read_gates
from gpuform.stacks.json_schema import build_plan_schema
from gpuform.stacks.pricing import get_price_book_model
from gpuform.stacks.review.facts import Review, StackFacts
from gpuform.stacks.review.pages import build_review_document
from tools.reference import file_pages
from tools.reference.file_pages import STACKS
from tools.reference.file_pages import render_prices_page as page_of_prices
from tools.reference.plan_page import ACTIONS, PLAN, REASONS, REVIEW, REVIEWED, render_plan_page

PAGE = render_plan_page()


def test_the_page_has_every_field_of_the_schema_with_its_meaning() -> None:
    schema = build_plan_schema()
    for part in (schema, *schema["$defs"].values()):
        for name, field in part.get("properties", {}).items():
            assert f"| `{name}` | " in PAGE
            assert field.get("description", "") in PAGE
    assert ACTIONS.keys() == set(PlanAction)
    assert REASONS.keys() == set(PlanReason)


def test_a_row_has_the_type_meaning_and_default_of_a_field() -> None:
    assert "| `changes` | list of [Resource change](#resource-change) |" in PAGE
    assert "| `before` | [Resource usage](#resource-usage) or null |" in PAGE
    assert "| `format_version` | `1` | Version of this format. | always |" in PAGE
    assert "| `drift` | Somebody changed the resource outside of the stack. |" in PAGE


def test_the_example_is_a_plan_of_this_release() -> None:
    plan = Plan.model_validate_json(PLAN)
    assert json.loads(plan.model_dump_json()) == json.loads(PLAN)


def test_the_document_of_a_review_has_the_fields_of_the_page() -> None:
    document = build_review_document(Review([StackFacts(Plan.model_validate_json(PLAN))]))
    assert list(document) == [name for name, _ in REVIEW]
    assert list(document["stacks"][0]) == [name for name, _ in REVIEWED]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "gates.yaml").write_text(file_pages.GATES)
    return tmp_path


def test_the_examples_of_prices_and_gates_are_valid(project: Path) -> None:
    import yaml

    prices: Any = yaml.safe_load(file_pages.PRICES)
    assert get_price_book_model().model_validate(prices)
    assert len(read_gates(project / "gates.yaml", "gates.yaml")) == 9
    for name in GateInputs.rules:
        assert f"| `{name}` |" in page_of_prices()


def test_the_example_of_stacks_is_valid() -> None:
    import yaml

    document: Any = yaml.safe_load(STACKS)
    assert StacksInputs.model_validate(document)
    assert list(StacksInputs.find_problems(document)) == []


def test_the_python_gate_of_the_page_objects_to_a_replacement_on_a_friday() -> None:
    scope: dict[str, Any] = {}
    exec(compile(file_pages.POLICY, "policies.py", "exec"), scope)
    plan = Plan.model_validate_json(PLAN)
    replaced = plan.changes[0].model_copy(update={"action": PlanAction.REPLACE})
    scope["datetime"] = Fridays
    assert list(scope["not_on_fridays"](plan)) == []
    objections = list(scope["not_on_fridays"](plan.model_copy(update={"changes": (replaced,)})))
    assert objections == ["nobody replaces data on a Friday"]


class Fridays:
    @staticmethod
    def now(_zone: object) -> datetime:
        return datetime(2026, 3, 6, tzinfo=UTC)
