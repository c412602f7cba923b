"""Test Lens's documented answers: every field, its type, and the unit that the document garbles."""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.platforms.lens_document import CONSUMERS, GARBLED, HEATMAP, OVERVIEW, pair_with_types

from gpuform.schemas.lens.wire import ConsumerPage, Envelope, GpuHeatmap, Overview, repair_encoding


def dump_parsed_answer(model: Any, answer: Any) -> Any:
    envelope = Envelope.model_validate(answer)
    assert (envelope.code, envelope.trace_id) == (0, "trace-abc123")
    return model.model_validate(envelope.data).model_dump(mode="json", by_alias=True)


def test_the_documented_overview_is_parsed_field_by_field() -> None:
    assert pair_with_types(dump_parsed_answer(Overview, OVERVIEW)) == pair_with_types(
        OVERVIEW["data"]
    )


def test_the_documented_consumers_are_parsed_field_by_field() -> None:
    assert pair_with_types(dump_parsed_answer(ConsumerPage, CONSUMERS)) == pair_with_types(
        CONSUMERS["data"]
    )


def test_the_documented_heatmap_is_parsed_with_its_unit_repaired() -> None:
    expected = copy.deepcopy(HEATMAP["data"])
    assert expected["temperature"]["unit"] == GARBLED
    expected["temperature"]["unit"] = "℃"
    assert pair_with_types(dump_parsed_answer(GpuHeatmap, HEATMAP)) == pair_with_types(expected)


@pytest.mark.parametrize("text", ["℃", "°C", "W", "%", "", "µW", "é"])
def test_a_correct_unit_is_unchanged(text: str) -> None:
    assert repair_encoding(text) == text


@settings(deadline=None)
@given(st.sampled_from(["℃", "µW", "Ω", "°C"]))
def test_a_wrongly_decoded_unit_is_repaired(text: str) -> None:
    try:
        garbled = text.encode().decode("cp1252")
    except UnicodeDecodeError:
        return
    assert repair_encoding(garbled) == text


def test_a_missing_number_is_none_and_not_zero() -> None:
    assert Overview.model_validate({}).faulty_nodes is None
    assert Overview.model_validate({"faultyNodes": None}).faulty_nodes is None
