"""Rules over several resources, as the engine applies them; `stacks/resource_rules.py` has them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuform.schemas.models import Problem
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.registration.registration import Registration
from gpuform.stacks.engine.state import ResourceState

_Values = tuple[str, ...]


class Registered:
    """The registrations so far, with inputs as checked, to look up."""

    def __init__(self) -> None:
        self._by_urn: dict[str, Registration] = {}
        self._by_type: dict[str, list[Registration]] = defaultdict(list)
        self._alike: dict[tuple[str, _Values], dict[_Values, list[Registration]]] = {}

    def add(self, registration: Registration) -> None:
        """Adds the latest."""
        self._by_urn[registration.urn] = registration
        self._by_type[registration.type].append(registration)
        for (type_, names), index in self._alike.items():
            if type_ == registration.type:
                _file(index, registration, names)

    def get(self, urn: str) -> Registration | None:
        """The one with a URN."""
        return self._by_urn.get(urn)

    def of_type(self, type_: str) -> Sequence[Registration]:
        """Those of a type."""
        return self._by_type.get(type_, ())

    def with_texts(self, type_: str, texts: Mapping[str, object]) -> Sequence[Registration]:
        """Those of a type that have these inputs; none where one of them is no known text."""
        key = (type_, tuple(texts))
        if key not in self._alike:
            self._alike[key] = {}
            for each in self.of_type(type_):
                _file(self._alike[key], each, key[1])
        values = _texts(texts, key[1])
        return self._alike[key].get(values, ()) if values else ()


Rule = Callable[[Registration, Registered], Iterable[Problem]]
"""Given a registration and those so far, itself included: what is wrong with it.

A value may be unknown while planning.
"""


DeletionRule = Callable[[ResourceState, Sequence[ResourceState]], Iterable[EngineError]]
"""Given an entry whose object is to be deleted, and those that stay as they are: what forbids it.
"""


def _file(
    index: dict[_Values, list[Registration]], registration: Registration, names: _Values
) -> None:
    values = _texts(registration.inputs, names)
    if values:
        index.setdefault(values, []).append(registration)


def _texts(inputs: Mapping[str, object], names: _Values) -> _Values:
    """The values of these names; none unless all of them are known texts."""
    values = [inputs.get(name) for name in names]
    texts = tuple(value for value in values if isinstance(value, str))
    return texts if len(texts) == len(names) else ()
