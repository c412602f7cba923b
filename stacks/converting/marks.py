"""Values by which a program's outputs can be told from all else that it declares."""

import re
from dataclasses import dataclass
from typing import Any, Final, get_args

from pydantic import BaseModel

_DEEPEST: Final = 8


@dataclass(slots=True)
class Marks:
    """Values of one run that appear nowhere else: neither in the program nor in another run."""

    first: str
    """How each of its texts begins."""
    letters: str
    length: int
    lowest: int
    _given: int = 0

    @property
    def pattern(self) -> re.Pattern[str]:
        """Finds them in other texts, numbers as Python and topologies write them."""
        text = rf"{self.first}[{self.letters}]{{{self.length - len(self.first)}}}"
        return re.compile(rf"{text}|(?<!\d){str(self.lowest)[0]}\d{{14}}\.0(?!\d)")

    def text(self) -> str:
        self._given += 1
        rest, digits = self._given, ""
        for _ in range(self.length - len(self.first)):
            rest, digit = divmod(rest, len(self.letters))
            digits += self.letters[digit]
        return self.first + digits

    def number(self) -> float:
        self._given += 1
        return float(self.lowest + 7 * self._given)

    def like(self, value: Any) -> Any:
        """Marks in the shape of a value."""
        if isinstance(value, dict):
            return {key: self.like(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.like(item) for item in value]
        if isinstance(value, bool):
            return value
        return self.number() if isinstance(value, int | float) else self.text()

    def typed(self, annotation: Any, depth: int = 0) -> Any:
        """Marks in the shape of a type, as far as it tells one."""
        if isinstance(annotation, type):
            if issubclass(annotation, BaseModel):
                fields = annotation.model_fields.items()
                return {name: self.typed(each.annotation, depth + 1) for name, each in fields}
            if issubclass(annotation, bool):
                return True
            if issubclass(annotation, int | float):
                return self.number()
        origin = getattr(annotation, "__origin__", None)
        inner = [each for each in get_args(annotation) if each is not type(None)]
        if origin is dict:
            return {}
        if origin in (list, tuple):
            return [self.typed(inner[0], depth + 1)] if inner else []
        nested = next((each for each in inner if not isinstance(each, str)), None)
        return self.typed(nested, depth + 1) if nested is not None and depth < 8 else self.text()


def marks_of_runs() -> tuple[Marks, Marks]:
    """Two that have no letter in common and differ in length: so does what is made of them."""
    return (
        Marks("agdf", "abcdefghijkm0134", 26, 400_000_000_000_000),
        Marks("zxwq", "nopqrstuvwxyz5689", 33, 700_000_000_000_000),
    )
