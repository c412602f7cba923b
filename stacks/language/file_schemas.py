"""The JSON Schemas of the files beside a topology: prices, gates, stacks and test cases."""

import json
from typing import Any

from gpuform.schemas.cases_file import CasesInputs
from gpuform.schemas.gates import GatesInputs
from gpuform.schemas.models import InputModel
from gpuform.schemas.stacks_file import StacksInputs
from gpuform.stacks.pricing.book import price_book_model

_NULL = {"type": "null"}


def prices_schema_text() -> str:
    """The schema of `prices.yaml` as the text of a file."""
    return _text(price_book_model(), "gpuform price book")


def gates_schema_text() -> str:
    """The schema of `gates.yaml` as the text of a file."""
    return _text(GatesInputs, "gpuform gates")


def stacks_schema_text() -> str:
    """The schema of `stacks.yaml` as the text of a file."""
    return _text(StacksInputs, "gpuform stacks")


def cases_schema_text() -> str:
    """The schema of `tests/*.yaml` as the text of a file."""
    return _text(CasesInputs, "gpuform test cases")


def _text(model: type[InputModel], title: str) -> str:
    schema = _plain(model.model_json_schema())
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title}
    return json.dumps({**schema, **head}, indent=2) + "\n"


def _plain(value: Any) -> Any:
    """Without what only says that a field may be left out."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _plain(item) for key, item in value.items() if key != "default"}
    choices = [each for each in found.get("anyOf", ()) if each != _NULL]
    if "anyOf" in found and len(choices) == 1:
        del found["anyOf"]
        found = {**choices[0], **found}
    return found
