"""Test the rules for ids and names in answers of every platform."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gpuform.schemas.models import MAX_LENGTH, Id, Line

UNSEEN = st.characters(categories=("Cc", "Cf", "Zl", "Zp"))
SEEN = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Zl", "Zp", "Cs")))


class Sent(BaseModel):
    id: Id = "one"
    name: Line = ""


@given(SEEN.filter(lambda text: text not in ("", ".", "..") and len(text) <= MAX_LENGTH))
def test_visible_text_is_a_valid_id(text: str) -> None:
    assert Sent.model_validate({"id": text, "name": text}).id == text


@given(SEEN, UNSEEN, SEEN)
def test_invisible_characters_are_refused_in_ids_and_names(a: str, hidden: str, b: str) -> None:
    for field in ("id", "name"):
        with pytest.raises(ValidationError):
            Sent.model_validate({field: a + hidden + b})


@pytest.mark.parametrize("text", ["", ".", "..", "x" * (MAX_LENGTH + 1), "a\ud800"])
def test_empty_and_dot_ids_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Sent.model_validate({"id": text})
