"""By what the items of a list are told apart, where the schema of a gpuform resource says so."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel

from gpuform.schemas.rules import FieldRules, rules_of
from gpuform.stacks.lifecycles import lifecycle_of

_NO_RULES = FieldRules()
_PART = re.compile(r'\["(?:\\"|[^"])*"\]|\[\d+\]|([^.\[]+)')


def inputs_of(type_: str) -> type[BaseModel] | None:
    """The model of what can be declared of a gpuform resource; None for any other type."""
    lifecycle = lifecycle_of(type_)
    return lifecycle.inputs if lifecycle else None


@cache
def rules_at(type_: str, path: str) -> FieldRules:
    """The rules of the property at a path; none where the schema does not know it."""
    model = inputs_of(type_)
    fields = rules_of(model) if model else {}
    found = _NO_RULES
    for part in _PART.finditer(path):
        if part[1] is None:
            continue  # a key or an index: the items have the rules of their list
        found = fields.get(part[1], _NO_RULES).under(found)
        fields = found.inner
    return found


def by_identity(value: Any, rules: FieldRules) -> Any:
    """The value with each list whose items have a key of their own as a mapping by that key."""
    if isinstance(value, Mapping):
        if rules.is_map:
            return {key: _inner(item, rules) for key, item in value.items()}
        return _inner(value, rules)
    if not isinstance(value, list | tuple):
        return value
    key = rules.keyed_by
    if key and all(isinstance(item, Mapping) for item in value):
        names = [item.get(key.name) for item in value]
        if all(isinstance(name, str) for name in names) and len(set(names)) == len(names):
            items = zip(names, value, strict=True)
            return {f'["{name}"]': _inner(item, rules) for name, item in items}
    return [_inner(item, rules) for item in value]


def _inner(value: Any, rules: FieldRules) -> Any:
    if not isinstance(value, Mapping):
        return value
    inner = rules.inner
    return {name: by_identity(item, inner.get(name, _NO_RULES)) for name, item in value.items()}
