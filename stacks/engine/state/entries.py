"""The entries of a state while they change, in Pulumi's order.

Those of this run come first, as they completed; then the old ones that no step has dealt with.
Every entry has a number, by which a journal names it: old ones that of their place in the list
that was loaded, new ones the next that is free.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from gpuform.stacks.engine.state import graph
from gpuform.stacks.engine.state.checkpoint import PendingOperation, ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, inside, type_of


@dataclass(frozen=True, slots=True)
class Order:
    """The numbers of a list of entries: the first `done` of them are of the run that wrote it.

    `pending` are the tokens of its pending operations.
    """

    numbers: Sequence[int]
    done: int = 0
    pending: Sequence[int] = ()


@dataclass(slots=True)
class Entries:
    """Entries and pending operations. Not for several threads at a time."""

    _done: dict[int, ResourceState] = field(default_factory=dict)
    _old: dict[int, ResourceState] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)  # id() of an entry -> its number
    _next: int = 0
    _replacing: dict[str, int] = field(default_factory=dict)  # URN -> number, already deleted
    _gone: dict[str, ResourceState] = field(default_factory=dict)
    _renamed: dict[str, str] = field(default_factory=dict)
    _pending: dict[int, PendingOperation] = field(default_factory=dict)
    _carried: dict[str, list[int]] = field(default_factory=dict)  # URN -> what earlier runs left
    _tokens: int = 0

    @classmethod
    def load(
        cls, resources: Sequence[ResourceState], pending: Sequence[PendingOperation]
    ) -> "Entries":
        """What a run begins with. Of pending operations, only creates outlive the run that
        began them."""
        carried = [operation for operation in pending if operation.type == "creating"]
        tokens = range(1, len(carried) + 1)
        return cls.order(resources, carried, Order(range(len(resources)), 0, tokens))

    @classmethod
    def order(
        cls, resources: Sequence[ResourceState], pending: Sequence[PendingOperation], order: Order
    ) -> "Entries":
        """The entries of a list that was written in the midst of a run."""
        entries = cls()
        for place, (number, entry) in enumerate(zip(order.numbers, resources, strict=True)):
            (entries._done if place < order.done else entries._old)[number] = entry
            entries._numbers[id(entry)] = number
            if entry.pending_replacement:
                entries._replacing[entry.urn] = number
        entries._next = max(order.numbers, default=-1) + 1
        entries._pending = dict(zip(order.pending, pending, strict=True))
        entries._tokens = max(order.pending, default=0)
        for token, operation in entries._pending.items():
            entries._carried.setdefault(operation.resource.urn, []).append(token)
        return entries

    def number(self, entry: ResourceState) -> int:
        """The number of an entry."""
        return self._numbers[id(entry)]

    def numbered(self, number: int) -> ResourceState:
        """The entry of a number. Raises KeyError."""
        return self._done[number] if number in self._done else self._old[number]

    def add(self, new: ResourceState, number: int | None = None) -> None:
        """A resource was created."""
        number = self._next if number is None else number
        self._next = max(self._next, number + 1)
        self._done[number] = new
        self._numbers[id(new)] = number

    def replace(self, old: ResourceState, new: ResourceState, number: int | None = None) -> None:
        """`new` stands for what `old` stood for."""
        self._take(old)
        self._note_name(old, new)
        self.add(new, number)

    def replace_keeping(
        self, old: ResourceState, new: ResourceState, number: int | None = None
    ) -> None:
        """`new` was created first; the old object is still there and must be deleted."""
        self.put(old, replace(old, delete=True))
        self._note_name(old, new)
        self.add(new, number)

    def put(self, old: ResourceState, new: ResourceState) -> None:
        """`new` is in the place of `old`, and has its number."""
        number = self._numbers[id(old)]
        (self._done if number in self._done else self._old)[number] = new
        self._numbers[id(new)] = number

    def await_replacement(self, old: ResourceState) -> None:
        """The object was deleted to be replaced; its entry stays until the new one exists."""
        self._replacing[old.urn] = self._numbers[id(old)]
        self.put(old, replace(old, pending_replacement=True))

    def awaits_replacement(self, urn: str) -> bool:
        """Whether the old object of a replacement is deleted already."""
        return urn in self._replacing

    def remove(self, old: ResourceState) -> None:
        """The object is gone."""
        self._take(old)
        self._gone[old.urn] = old

    def rebuild(self) -> list[ResourceState]:
        """The entries to go on with after a refresh, or after the program of a destroy.

        They name nothing that is gone or renamed. As under the Pulumi CLI, a property that depends
        on nothing loses its key in `property_dependencies` when it is refreshed.
        """
        names = self._names()
        gone = self._missing(names)
        for number, entry in list(chain(self._done.items(), self._old.items())):
            rebuilt = _rewired(entry, gone, names, keep_empty=number in self._done)
            if rebuilt is not entry:
                self.put(entry, rebuilt)
        self._gone.clear()
        found = {**self._done, **self._old}
        return [found[number] for number in _in_order(found)]

    def leftovers(self) -> list[ResourceState]:
        """The old entries that no step has dealt with."""
        return list(self._old.values())

    def begin(self, operation: PendingOperation, token: int | None = None) -> int:
        """An operation is on its way to a provider."""
        token = self._tokens + 1 if token is None else token
        self._tokens = max(self._tokens, token)
        self._pending[token] = operation
        return token

    def end(self, token: int) -> PendingOperation:
        """The operation has ended, well or not."""
        return self._pending.pop(token)

    def settle(self, urn: str) -> Sequence[int]:
        """What interrupted creates of this URN may have made is known now: their tokens."""
        tokens = self._carried.pop(urn, [])
        for token in tokens:
            del self._pending[token]
        return tokens

    def current(self) -> tuple[list[ResourceState], list[PendingOperation], Order]:
        """The list as it is now, with nothing in it that names what is gone or renamed.

        What an entry needs comes before it: one that is left as it is may need another that this
        run is still working on.
        """
        names = self._names()
        gone = self._missing(names)
        found = {**self._done, **self._old}
        if gone or names:
            found = {number: _rewired(entry, gone, names) for number, entry in found.items()}
        numbers = _in_order(found)
        done = max((place for place, n in enumerate(numbers, 1) if n in self._done), default=0)
        order = Order(numbers, done, list(self._pending))
        return [found[n] for n in numbers], list(self._pending.values()), order

    def all(self) -> Iterator[ResourceState]:
        """Those of this run, then the old ones that no step has dealt with."""
        return chain(self._done.values(), self._old.values())

    def _note_name(self, old: ResourceState, new: ResourceState) -> None:
        """What was found by an alias has its new name from now on, in every reference."""
        if new.urn != old.urn:
            self._renamed[old.urn] = new.urn

    def _names(self) -> Mapping[str, str]:
        """Old URN -> new URN, also of what is inside a component that has another one."""
        names = dict(self._renamed)
        live = {entry.urn for entry in self.all()} if names else set()
        for entry in self.all() if names else ():
            parent = names.get(entry.parent)
            if parent is not None and entry.urn not in names and type_of(parent) != STACK_TYPE:
                urn = inside(entry.urn, parent)
                if urn not in live:
                    names[entry.urn] = urn
        return names

    def _take(self, old: ResourceState) -> None:
        number = self._numbers[id(old)]
        if self._done.pop(number, None) is None:
            self._old.pop(number, None)
        if self._replacing.get(old.urn) == number:
            del self._replacing[old.urn]

    def _missing(self, names: Mapping[str, str]) -> dict[str, ResourceState]:
        """The entries that are gone and have no other of their URN, by the URN of today."""
        if not self._gone:
            return {}
        there = {names.get(entry.urn, entry.urn) for entry in self.all()}
        gone = {names.get(urn, urn): entry for urn, entry in self._gone.items()}
        return {urn: entry for urn, entry in gone.items() if urn not in there}


def _in_order(found: Mapping[int, ResourceState]) -> list[int]:
    """The numbers as they come, but for what has to be earlier because others need it."""
    places: dict[str, int] = {}
    for number, entry in found.items():
        places.setdefault(entry.urn, number)
    listed: dict[int, None] = {}
    urns: set[str] = set()
    begun: set[int] = set()  # a cycle cannot be in a valid state; were there one, it ends here
    for first in found:
        waiting = [first]
        while waiting:
            number = waiting[-1]
            if number in listed:
                waiting.pop()
                continue
            begun.add(number)
            needed = graph.needs(found[number]) - urns
            missing = {places[urn] for urn in needed if urn in places}
            if missing - begun:
                waiting += sorted(missing - begun, reverse=True)
                continue
            waiting.pop()
            listed[number] = None
            urns.add(found[number].urn)
    return list(listed)


def _rewired(
    resource: ResourceState,
    gone: Mapping[str, ResourceState],
    renamed: Mapping[str, str],
    *,
    keep_empty: bool = True,
) -> ResourceState:
    """The entry with references to missing resources dropped and renamed ones brought up to date.

    `keep_empty`: properties that depend on nothing keep their key.
    """

    def current(urns: Iterable[str]) -> list[str]:
        return [urn for old in urns if (urn := renamed.get(old, old)) not in gone]

    parent = renamed.get(resource.parent, resource.parent)
    while parent in gone:
        parent = renamed.get(gone[parent].parent, gone[parent].parent)
    properties = {key: current(urns) for key, urns in resource.property_dependencies.items()}
    rewired = replace(
        resource,
        urn=renamed.get(resource.urn, resource.urn),
        parent=parent,
        dependencies=current(resource.dependencies),
        property_dependencies={k: urns for k, urns in properties.items() if urns or keep_empty},
        deleted_with=next(iter(current([resource.deleted_with])), ""),
        replace_with=current(resource.replace_with),
    )
    return resource if rewired == resource else rewired
