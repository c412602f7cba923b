"""The answers of platforms' lookups as expressions have values."""

from typing import Any

from pydantic import BaseModel


def plain_answer(answer: Any) -> Any:
    """The answer of plain values: models are objects."""
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json")
    if isinstance(answer, list | tuple):
        return [plain_answer(item) for item in answer]
    if isinstance(answer, dict):
        return {key: plain_answer(item) for key, item in answer.items()}
    return answer
