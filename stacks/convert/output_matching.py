"""Find the outputs of other resources in declared values, by the value or by placeholders.

A value is compared over all runs of a program. The output of one resource in each run is a
reference; outputs in equal positions of texts make an interpolated text; a value that is equal in
all runs and contains no output is a literal; any other value was computed. `declaration_builder`
calls this module.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, get_args

from pydantic import BaseModel

from gpuform.providers.values import PropertyValue, Secret, contains_secret, unwrap
from gpuform.schemas.values import convert_leaves
from gpuform.stacks.declaration_writer.declarations import (
    ConfigReference,
    DeclaredReference,
    InterpolatedText,
    Value,
    to_reference_in_text,
)
from gpuform.stacks.review.value_text import to_display_value

AnyReference = DeclaredReference | ConfigReference


class ComputedValue(Exception):
    """Raised for a value that the program computed from outputs."""


@dataclass(slots=True)
class OutputIndex:
    """The outputs of one run by value.

    `placeholder_pattern` finds outputs inside texts; without one, known texts are searched. Numbers
    and texts shorter than `min_text_length` are left out. Of equal values the first added one
    counts. `secret_references` are outputs that are secret or have a secret part.
    """

    placeholder_pattern: re.Pattern[str] | None = None
    min_text_length: int = 0
    references: dict[str, AnyReference] = field(default_factory=dict)
    secret_references: dict[str, AnyReference] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)

    def add(
        self,
        reference: AnyReference,
        output: PropertyValue,
        steps: tuple[str | int, ...] = (),
        *,
        is_secret: bool = False,
    ) -> None:
        """Add an output with all parts; a value already in the index keeps the reference.

        Null, booleans, short texts and empty objects are left out, as are the parts of a secret
        object (except a program's). `steps` lead from the output of `reference` to this part of it.
        """
        is_secret = is_secret or isinstance(output, Secret)
        unwrapped = unwrap(output)
        value = to_display_value(unwrapped, show_secrets=True)
        if not self._is_distinctive(value):
            return
        part_reference = reference
        if isinstance(reference, DeclaredReference):
            part_reference = replace(reference, steps=(*reference.steps, *steps))
        # Empty objects and lists occur everywhere: equality proves nothing.
        if value not in ({}, []):
            has_secret = is_secret or contains_secret(unwrapped)
            references = self.secret_references if has_secret else self.references
            references.setdefault(_to_canonical_json(value), part_reference)
        if isinstance(value, str):
            self.texts.append(value)
        # The keys of a secret object are secret too, except in a program's placeholders, which have
        # the keys of a model.
        if isinstance(unwrapped, Mapping) and (self.placeholder_pattern or not is_secret):
            for name, item in unwrapped.items():
                self.add(reference, item, (*steps, name), is_secret=is_secret)
        elif isinstance(unwrapped, list):
            for index, item in enumerate(unwrapped):
                self.add(reference, item, (*steps, index), is_secret=is_secret)

    def _is_distinctive(self, value: Any) -> bool:
        """Return whether the value shows an origin: true, null and an empty text do not."""
        if value is None or value == "" or isinstance(value, bool):
            return False
        if isinstance(value, str):
            return len(value) >= self.min_text_length
        return not self.min_text_length or isinstance(value, Mapping | list)

    def combine_with_fallback(self, fallback: "OutputIndex") -> "OutputIndex":
        """Return an index of both; `fallback` counts for values without an entry here."""
        return replace(
            self,
            references={**fallback.references, **self.references},
            secret_references={**fallback.secret_references, **self.secret_references},
            texts=[*self.texts, *fallback.texts],
        )

    def find_reference(self, value: Any, *, secret: bool = False) -> AnyReference | None:
        """Return the reference with this value, or None; a secret value prefers a secret output.

        Null and booleans have no reference. A public value counts as a secret output only if it is
        long.
        """
        # true and false occur everywhere: equality proves nothing.
        if value is None or isinstance(value, bool):
            return None
        key = _to_canonical_json(value)
        if secret:
            return self.secret_references.get(key) or self.references.get(key)
        is_distinctive = len(key) >= _MIN_DISTINCTIVE_LENGTH
        return self.references.get(key) or (
            self.secret_references.get(key) if is_distinctive else None
        )

    def has_secret_reference(self, value: Value) -> bool:
        """Return whether a converted value is secret because a reference inside is secret.

        A reference to configuration is always secret.
        """
        parts = value.parts if isinstance(value, InterpolatedText) else (value,)
        return any(
            isinstance(part, ConfigReference) or part in self.secret_references.values()
            for part in parts
            if not isinstance(part, str)
        )

    def split_text(self, text: str, *, secret: bool = False) -> list[str | AnyReference]:
        """Return a text as a list of literal parts and references.

        A reference to a resource itself gets the step `id`. An empty text has no parts.
        """
        parts: list[str | AnyReference] = []
        position = 0
        for begin, end, reference in self._find_references_in(text, secret):
            parts += [text[position:begin]] if begin > position else []
            parts.append(to_reference_in_text(reference))
            position = end
        return [*parts, text[position:]] if position < len(text) else parts

    def _find_references_in(
        self, text: str, secret: bool
    ) -> Iterator[tuple[int, int, AnyReference]]:
        """Yield start, end and reference of each output in the text; unknown texts are left out.

        Without a placeholder pattern, very short texts are not searched. With `secret`, secret
        outputs go first.
        """
        pattern = self.placeholder_pattern or self._build_text_pattern()
        for match in pattern.finditer(text) if pattern else ():
            matched_text = match[0]
            # Only placeholders of numbers are found as numbers: a known text may end in .0 as well.
            is_number = self.placeholder_pattern is not None and matched_text.endswith(".0")
            value = float(matched_text) if is_number else matched_text
            reference = self.find_reference(value, secret=secret)
            if reference is not None:
                yield match.start(), match.end(), reference

    def _build_text_pattern(self) -> re.Pattern[str] | None:
        """Return a pattern of all known texts that are long enough, or None without any."""
        # The longest text first: a shorter one may be its beginning.
        longest_first = sorted(set(self.texts), key=lambda text: (-len(text), text))
        texts = [re.escape(text) for text in longest_first if len(text) >= _MIN_EMBEDDED_LENGTH]
        return re.compile("|".join(texts)) if texts else None


_MIN_EMBEDDED_LENGTH: Final = 3
"""Shorter texts occur inside other texts by chance."""
_MIN_DISTINCTIVE_LENGTH: Final = 8
"""The length of JSON from which a public value counts as a secret output."""


def match_values(
    values: Sequence[Any], indexes: Sequence[OutputIndex], *, secret: bool = False
) -> Value:
    """Return the common value of all runs, with references for outputs.

    `values` and `indexes` have one item for each run.

    Raises:
        ComputedValue: the runs differ in more than outputs.
    """
    reference = find_common_reference(values, indexes, secret=secret)
    if reference is not None:
        return reference
    first = values[0]
    # A value of two types in two runs cannot be one literal.
    if any(type(value) is not type(first) for value in values):
        raise ComputedValue
    if isinstance(first, Mapping):
        if any(set(value) != set(first) for value in values):
            raise ComputedValue
        return {
            key: match_values([value[key] for value in values], indexes, secret=secret)
            for key in first
        }
    if isinstance(first, list):
        if any(len(value) != len(first) for value in values):
            raise ComputedValue
        return [match_values(items, indexes, secret=secret) for items in zip(*values, strict=True)]
    if isinstance(first, str):
        return _match_texts(values, indexes, secret)
    if any(value != first for value in values):
        raise ComputedValue
    return first


def find_common_reference(
    values: Sequence[Any], indexes: Sequence[OutputIndex], *, secret: bool = False
) -> AnyReference | None:
    """Return the reference with the given value in every run, or None."""
    references = [
        index.find_reference(value, secret=secret)
        for index, value in zip(indexes, values, strict=True)
    ]
    return references[0] if all(reference == references[0] for reference in references) else None


def _match_texts(values: Sequence[str], indexes: Sequence[OutputIndex], secret: bool) -> Value:
    """Return the text of all runs, with references for outputs; a literal if there are none.

    Raises:
        ComputedValue: the runs differ in their parts.
    """
    parts_by_run = [
        index.split_text(value, secret=secret) for index, value in zip(indexes, values, strict=True)
    ]
    if any(parts != parts_by_run[0] for parts in parts_by_run):
        raise ComputedValue
    parts = parts_by_run[0]
    if all(isinstance(part, str) for part in parts):
        return values[0]
    return InterpolatedText(tuple(parts))


def _to_canonical_json(value: Any) -> str:
    """Return equal JSON for equal values: keys sorted, no spaces, 2.0 as 2."""
    if isinstance(value, float) and value.is_integer():
        # State files hold numbers as floats: 5 and 5.0 are the same value.
        value = int(value)
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


_MAX_DEPTH: Final = 8


@dataclass(slots=True)
class Placeholders:
    """Creates output values of one run that occur nowhere else.

    Neither the program nor another run has these values. Texts start with `prefix` and consist of
    `letters`; numbers are above `lowest_number`.
    """

    prefix: str
    letters: str
    length: int
    lowest_number: int
    _count: int = 0

    @property
    def pattern(self) -> re.Pattern[str]:
        """Return a pattern for placeholders in texts.

        Numbers match as Python and topologies write them.
        """
        placeholder = rf"{self.prefix}[{self.letters}]{{{self.length - len(self.prefix)}}}"
        return re.compile(rf"{placeholder}|(?<!\d){str(self.lowest_number)[0]}\d{{14}}\.0(?!\d)")

    def create_text(self) -> str:
        """Return a new placeholder text of `length` characters, different at each call."""
        self._count += 1
        remaining, suffix = self._count, ""
        for _ in range(self.length - len(self.prefix)):
            remaining, digit = divmod(remaining, len(self.letters))
            suffix += self.letters[digit]
        return self.prefix + suffix

    def create_number(self) -> float:
        """Return a new placeholder number above `lowest_number`, different at each call."""
        self._count += 1
        # With gaps between the numbers, `n + 1` of a program is not another placeholder.
        return float(self.lowest_number + 7 * self._count)

    def create_like(self, value: Any) -> Any:
        """Return secret placeholders in the shape of a known value; a boolean stays as it is."""

        def create_leaf(leaf: Any) -> Any:
            # A boolean has no placeholder: programs branch on it.
            if isinstance(leaf, bool):
                return leaf
            return self.create_number() if isinstance(leaf, int | float) else self.create_text()

        return convert_leaves(value, create_leaf)

    def create_for_type(self, annotation: Any, depth: int = 0) -> Any:
        """Return placeholders in the shape of a type; a text for types without one.

        A boolean is true, and an object with free keys is empty: both have no placeholder.
        """
        if isinstance(annotation, type):
            if issubclass(annotation, BaseModel):
                return {
                    name: self.create_for_type(model_field.annotation, depth + 1)
                    for name, model_field in annotation.model_fields.items()
                }
            if issubclass(annotation, bool):
                return True
            if issubclass(annotation, int | float):
                return self.create_number()
        origin = getattr(annotation, "__origin__", None)
        type_arguments = [
            argument for argument in get_args(annotation) if argument is not type(None)
        ]
        if origin is dict:
            # The keys of such an object are known only to the platform.
            return {}
        if origin in (list, tuple):
            # Programs read the first item of such lists, and would fail with an empty list.
            return [self.create_for_type(type_arguments[0], depth + 1)] if type_arguments else []
        nested = next(
            (argument for argument in type_arguments if not isinstance(argument, str)), None
        )
        if nested is None or depth >= _MAX_DEPTH:
            return self.create_text()
        return self.create_for_type(nested, depth + 1)


def create_placeholders_of_runs() -> tuple[Placeholders, Placeholders]:
    """Return the placeholders of two runs, without common letters and of different lengths.

    So values that a program computes from them differ as well.
    """
    # With no letter and no length in common, even parts and lengths of texts reveal a computation.
    return (
        Placeholders("agdf", "abcdefghijkm0134", 26, 400_000_000_000_000),
        Placeholders("zxwq", "nopqrstuvwxyz5689", 33, 700_000_000_000_000),
    )
