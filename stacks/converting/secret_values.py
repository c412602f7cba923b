"""Secret values of a stack: a topology never has them, its configuration does."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, Final

from gpuform.stacks.authoring.declared import ConfigValue, Variable

_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean", int: "integer", float: "number", str: "string",
}  # fmt: skip


@dataclass(slots=True)
class SecretValues:
    """`known` are those that the stack's configuration has already: by value, its key."""

    known: Mapping[str, str] = field(default_factory=dict)
    wanted: dict[str, str] = field(default_factory=dict)
    """By key, what the stack still has to be told."""
    _used: dict[str, Variable] = field(default_factory=dict)
    _by_value: dict[tuple[str, str], str] = field(default_factory=dict)

    def value(self, name: Sequence[str], secret: Any) -> ConfigValue:
        """The configuration that stands for a secret; `name` is where it was found."""
        type_ = _TYPES[type(secret)]
        text = secret if isinstance(secret, str) else json.dumps(secret)
        key = self.known.get(text) if type_ == "string" else None
        if key is None:
            key = self._by_value.get((type_, text)) or self._new(name)
            self._by_value[type_, text] = key
            self.wanted[key] = text
        self.use(key, type_)
        return ConfigValue(key)

    def use(self, key: str, type_: str = "string") -> None:
        """Notes a variable that the topology declares."""
        said = {"secret": True} if type_ == "string" else {"type": type_, "secret": True}
        self._used.setdefault(key, Variable(key, said))

    def variables(self) -> list[Variable]:
        """Those that were used, in the order of their first use."""
        return list(self._used.values())

    def _new(self, name: Sequence[str]) -> str:
        taken = {*self.known.values(), *self.wanted}
        parts = [re.sub(r"[^A-Za-z0-9_]+", "_", part).strip("_") or "secret" for part in name]
        short, long = "_".join(parts[1:]), "_".join(parts)
        tries = chain((short, long), (f"{long}_{number}" for number in count(2)))
        return next(each for each in tries if each not in taken)
