"""Move secret values of a conversion into the configuration of the stack.

`declaration_builder` and `terraform` call `SecretValues` for each secret value; the stack needs the
`missing_values` at the end.
"""

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from gpuform.providers.values import PropertyValue, Secret
from gpuform.schemas.values import iterate_leaves
from gpuform.stacks.declaration_writer.declarations import (
    ConfigEntry,
    ConfigReference,
    InterpolatedText,
)
from gpuform.stacks.review.value_text import to_display_value

VALUE_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object",
}  # fmt: skip
_MIN_SECRET_LENGTH: Final = 6
"""Shorter texts occur inside other texts by chance."""


class DisclosedSecret(Exception):
    """Raised for a value that a topology could express only by showing a secret."""


@dataclass(slots=True)
class SecretValues:
    """The secret values of a conversion, which become configuration.

    `keys_by_value` are secrets that the stack's configuration already has: value -> key.
    `secret_texts` must not occur in any written value, even where the value is not marked as
    secret. `missing_values` are values that the stack still needs, by key.
    """

    keys_by_value: Mapping[str, str] = field(default_factory=dict)
    secret_texts: Iterable[str] = ()
    missing_values: dict[str, str] = field(default_factory=dict)
    _variables: dict[str, ConfigEntry] = field(default_factory=dict)
    _new_keys_by_value: dict[tuple[str, str], str] = field(default_factory=dict)
    _searched_texts: list[str] = field(init=False)

    def __post_init__(self) -> None:
        values = map(_parse_config_value, self.keys_by_value)
        texts = {*self.secret_texts, *chain.from_iterable(map(_iterate_texts, values))}
        # Sorted by length, so that a search stops at texts longer than the searched one.
        self._searched_texts = sorted(
            (text for text in texts if len(text) >= _MIN_SECRET_LENGTH), key=len
        )

    def get_reference(self, name: Sequence[str], secret: Any) -> ConfigReference | None:
        """Return the reference to the configuration with a secret, or None for a null.

        `name` is the path of the value; a new key is made of it. Equal secrets share a key. The
        variable is declared, and a secret without a key so far becomes a missing value.
        """
        if secret is None:
            return None
        type_ = VALUE_TYPES[type(secret)]
        config_text = secret if isinstance(secret, str) else json.dumps(secret)
        key = self._find_key(secret)
        if key is None:
            # The number 1 and the text "1" have the same configuration text, but need two keys with
            # different types.
            key = self._new_keys_by_value.get((type_, config_text)) or self._create_key(name)
            self._new_keys_by_value[type_, config_text] = key
            self.missing_values[key] = config_text
        self.declare_variable(key, type_)
        return ConfigReference(key)

    def replace_literal_parts(
        self, name: Sequence[str], interpolated_text: InterpolatedText
    ) -> InterpolatedText:
        """Return a secret text with configuration in place of literal parts."""
        parts = [
            self.get_reference(name, part)
            # Separators such as "-" or ":" reveal nothing and stay readable.
            if isinstance(part, str) and any(map(str.isalnum, part))
            else part
            for part in interpolated_text.parts
        ]
        return InterpolatedText(tuple(part for part in parts if part is not None))

    def replace_secret_texts(self, name: Sequence[str], value: Any) -> Any:
        """Return a public value with configuration for texts in which a secret occurs.

        Lists and objects stay as they are.
        """
        if isinstance(value, str):
            return self.get_reference(name, value) if self.has_secret_in(value) else value
        if isinstance(value, InterpolatedText):
            parts = [self.replace_secret_texts(name, part) for part in value.parts]
            return InterpolatedText(tuple(parts))
        return value

    def has_secret_in(self, text: str) -> bool:
        """Return whether a secret occurs in the text; very short secrets are not searched."""
        short_enough_texts = self._searched_texts[
            : bisect_right(self._searched_texts, len(text), key=len)
        ]
        return any(secret in text for secret in short_enough_texts)

    def declare_variable(self, key: str, type_: str = "string") -> None:
        """Declare a secret variable; the first call for a key decides the type."""
        fields = {"secret": True} if type_ == "string" else {"type": type_, "secret": True}
        self._variables.setdefault(key, ConfigEntry(key, fields))

    def list_variables(self) -> list[ConfigEntry]:
        """Return the declared variables in the order of first use."""
        return list(self._variables.values())

    def _find_key(self, secret: Any) -> str | None:
        """Return the configuration key whose value equals the secret, or None.

        A secret that is not a text is compared with the parsed values of the same type.
        """
        if isinstance(secret, str):
            return self.keys_by_value.get(secret)
        matching_keys = (
            key
            for config_text, key in self.keys_by_value.items()
            # 1 and true and 1.0 are equal in Python, but not as values of configuration.
            if type(parsed := _parse_config_value(config_text)) is type(secret) and parsed == secret
        )
        return next(matching_keys, None)

    def _create_key(self, name: Sequence[str]) -> str:
        """Return a free key: the path without the first part if possible."""
        taken_keys = {*self.keys_by_value.values(), *self.missing_values}
        parts = [re.sub(r"[^A-Za-z0-9_]+", "_", part).strip("_") or "secret" for part in name]
        short, long = "_".join(parts[1:]), "_".join(parts)
        candidates = chain((short, long), (f"{long}_{number}" for number in count(2)))
        return next(candidate for candidate in candidates if candidate not in taken_keys)


def find_texts(value: PropertyValue, *, secret: bool) -> Iterator[str]:
    """Yield the texts inside of secrets (`secret`) or outside, at any depth.

    In a secret, numbers count as texts. Keys are left out.
    """
    for leaf in iterate_leaves(value):
        if isinstance(leaf, Secret):
            yield from _iterate_texts(to_display_value(leaf, show_secrets=True)) if secret else ()
        elif isinstance(leaf, str) and not secret:
            yield leaf


def _iterate_texts(value: Any) -> Iterator[str]:
    """Yield texts and numbers at any depth, as texts."""
    for leaf in iterate_leaves(value):
        # true and false occur everywhere: their text reveals nothing.
        if isinstance(leaf, str | int | float) and not isinstance(leaf, bool):
            yield str(leaf)


def _parse_config_value(config_text: str) -> Any:
    """Return the value of a configuration text: parsed if it is JSON, else the text."""
    try:
        # Settings hold each value as text, whatever its type.
        return json.loads(config_text)
    except ValueError:
        return config_text
