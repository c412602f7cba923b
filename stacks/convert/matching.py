"""Find the outputs of other resources in what was declared, by their values or by marks.

A value is looked at in all runs of a program at once: what is the same output in each is a
reference, what has outputs in it in the same places is a text of several parts, what is the same in
each and has none is meant as it is, and anything else was computed.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from pydantic import BaseModel

from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    InterpolatedText,
    ResourceReference,
    Value,
)
from gpuform.stacks.engine.values import PropertyValue, Secret, contains_secret, unwrap
from gpuform.stacks.review.value_text import to_display_value

Path = ResourceReference | ConfigReference


class Computed(Exception):
    """The value was made of outputs in a way that only its program knows."""


@dataclass(slots=True)
class Index:
    """What outputs are where, in one run.

    `marks` finds outputs inside texts; numbers and texts that are shorter than `shortest` are left
    out. What was added first is found first. `hidden` are those that are secret or have a secret
    part.
    """

    marks: re.Pattern[str] | None = None
    shortest: int = 0
    paths: dict[str, Path] = field(default_factory=dict)
    hidden: dict[str, Path] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def add(
        self,
        path: Path,
        given: PropertyValue,
        steps: tuple[str | int, ...] = (),
        *,
        is_secret: bool = False,
    ) -> None:
        """Adds a value with all its parts; the first one with a value keeps it."""
        is_secret = is_secret or isinstance(given, Secret)
        inner = unwrap(given)
        value = to_display_value(inner, show_secrets=True)
        if not self._tells(value):
            return
        whole = path
        if isinstance(path, ResourceReference):
            whole = ResourceReference(path.section, path.name, (*path.steps, *steps), path.key)
        if value not in ({}, []):
            paths = self.hidden if is_secret or contains_secret(inner) else self.paths
            paths.setdefault(_canonical(value), whole)
        if isinstance(value, str):
            self.texts.append(value)
        if isinstance(inner, Mapping) and (self.marks or not is_secret):
            # The keys of a secret object are secret too, but for those that a model has.
            for name, item in inner.items():
                self.add(path, item, (*steps, name), is_secret=is_secret)
        elif isinstance(inner, list):
            for at, item in enumerate(inner):
                self.add(path, item, (*steps, at), is_secret=is_secret)

    def _tells(self, value: Any) -> bool:
        """Whether the value says where it is from: true, null and an empty text do not."""
        if value is None or value == "" or isinstance(value, bool):
            return False
        if isinstance(value, str):
            return len(value) >= self.shortest
        return not self.shortest or isinstance(value, Mapping | list)

    def before(self, other: "Index") -> "Index":
        """Both, the other one's outputs where this one has none of a value."""
        paths, hidden = {**other.paths, **self.paths}, {**other.hidden, **self.hidden}
        return Index(self.marks, self.shortest, paths, hidden, [*self.texts, *other.texts])

    def find(self, value: Any, *, secret: bool = False) -> Path | None:
        """The output that has a value: one that is as secret as the value, if there is one."""
        if value is None or isinstance(value, bool):
            return None
        key = _canonical(value)
        if secret:
            return self.hidden.get(key) or self.paths.get(key)
        return self.paths.get(key) or (self.hidden.get(key) if len(key) >= _TELLING else None)

    def hides(self, value: Value) -> bool:
        """Whether a value is secret because something secret is in it."""
        parts = value.parts if isinstance(value, InterpolatedText) else (value,)
        return any(
            isinstance(part, ConfigReference) or part in self.hidden.values()
            for part in parts
            if not isinstance(part, str)
        )

    def parts(self, text: str, *, secret: bool = False) -> list[str | Path]:
        """A text as what is between outputs, and the outputs."""
        found: list[str | Path] = []
        at = 0
        for begin, end, path in self._inside(text, secret):
            found += [text[at:begin]] if begin > at else []
            found.append(_inside_text(path))
            at = end
        return [*found, text[at:]] if at < len(text) else found

    def _inside(self, text: str, secret: bool) -> Iterator[tuple[int, int, Path]]:
        pattern = self.marks or self._any_text()
        for match in pattern.finditer(text) if pattern else ():
            found = match[0]
            path = self.find(float(found) if found.endswith(".0") else found, secret=secret)
            if path is not None:
                yield match.start(), match.end(), path

    def _any_text(self) -> re.Pattern[str] | None:
        longest_first = sorted(set(self.texts), key=lambda each: (-len(each), each))
        texts = [re.escape(each) for each in longest_first if len(each) >= _SHORTEST]
        return re.compile("|".join(texts)) if texts else None


_SHORTEST: Final = 3
"""Shorter texts are in others by chance."""
_TELLING: Final = 8
"""What is not secret is a secret's when its JSON is as long as this; shorter values repeat."""


def match(values: Sequence[Any], indexes: Sequence[Index], *, secret: bool = False) -> Value:
    """What a value is, that every run has; `indexes` are those of the runs. Raises Computed."""
    path = same_path(values, indexes, secret=secret)
    if path is not None:
        return path
    first = values[0]
    if any(type(value) is not type(first) for value in values):
        raise Computed
    if isinstance(first, Mapping):
        if any(set(value) != set(first) for value in values):
            raise Computed
        return {
            key: match([value[key] for value in values], indexes, secret=secret) for key in first
        }
    if isinstance(first, list):
        if any(len(value) != len(first) for value in values):
            raise Computed
        return [match(items, indexes, secret=secret) for items in zip(*values, strict=True)]
    if isinstance(first, str):
        return _text(values, indexes, secret)
    if any(value != first for value in values):
        raise Computed
    return first


def same_path(
    values: Sequence[Any], indexes: Sequence[Index], *, secret: bool = False
) -> Path | None:
    """The output that has the value in every run."""
    paths = [index.find(value, secret=secret) for index, value in zip(indexes, values, strict=True)]
    return paths[0] if all(path == paths[0] for path in paths) else None


def _text(values: Sequence[str], indexes: Sequence[Index], secret: bool) -> Value:
    every = [
        index.parts(value, secret=secret) for index, value in zip(indexes, values, strict=True)
    ]
    if any(parts != every[0] for parts in every):
        raise Computed
    parts = every[0]
    if all(isinstance(part, str) for part in parts):
        return values[0]
    return InterpolatedText(tuple(parts))


def _inside_text(path: Path) -> Path:
    """A resource itself, which means its id as a value, has to say so in a text."""
    if isinstance(path, ResourceReference) and not path.steps:
        return replace(path, steps=("id",))
    return path


def _canonical(value: Any) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


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
