"""Ids and names: what every platform's answers are held to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from gpuform.schemas.ids import MAX_LENGTH, Id, Line

UNSEEN = st.characters(categories=("Cc", "Cf", "Zl", "Zp"))
SEEN = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cf", "Zl", "Zp", "Cs")))


class Sent(BaseModel):
    id: Id = "one"
    name: Line = ""


@given(SEEN.filter(lambda text: text not in ("", ".", "..") and len(text) <= MAX_LENGTH))
def test_what_people_see_as_it_is_can_be_an_id(text: str) -> None:
    assert Sent.model_validate({"id": text, "name": text}).id == text


@given(SEEN, UNSEEN, SEEN)
def test_what_they_do_not_see_can_be_neither_id_nor_name(a: str, hidden: str, b: str) -> None:
    for field in ("id", "name"):
        with pytest.raises(ValidationError):
            Sent.model_validate({field: a + hidden + b})


@pytest.mark.parametrize("text", ["", ".", "..", "x" * (MAX_LENGTH + 1), "a\ud800"])
def test_what_can_name_no_object_is_no_id(text: str) -> None:
    with pytest.raises(ValidationError):
        Sent.model_validate({"id": text})
