"""Hold the entries of a state while a run changes them, in Pulumi's order.

The entries of this run come first, in the order of their completion; then the old entries that no
step has processed. The journal names entries by number: an old entry has its index in the loaded
list, a new one gets the next free number. `SnapshotManager` and `journal.recover` call this module.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from gpuform.schemas.values import sort_by_dependencies
from gpuform.stacks.engine.state import graph
from gpuform.stacks.engine.state.checkpoint import PendingOperation, ResourceState
from gpuform.stacks.engine.urn import STACK_TYPE, type_of, with_parent


@dataclass(frozen=True, slots=True)
class EntryOrder:
    """The numbers of a list of entries.

    The first `done` entries belong to the run that wrote the list.

    `pending` are the tokens of the run's pending operations.
    """

    numbers: Sequence[int]
    done: int = 0
    pending: Sequence[int] = ()


@dataclass(slots=True)
class Entries:
    """The entries and pending operations of one run. Callers serialize access: there is no lock."""

    # Pulumi's list: first the entries that this run produced, as their steps completed, then the
    # entries of the last run that no step has processed
    _done: dict[int, ResourceState] = field(default_factory=dict)
    _old: dict[int, ResourceState] = field(default_factory=dict)
    _next: int = 0
    # URN -> number of an entry whose object a replacement has deleted already
    _replacing: dict[str, int] = field(default_factory=dict)
    _gone: dict[str, ResourceState] = field(default_factory=dict)
    _renamed: dict[str, str] = field(default_factory=dict)
    _pending: dict[int, PendingOperation] = field(default_factory=dict)
    # URN -> tokens of the interrupted creates of earlier runs
    _carried: dict[str, list[int]] = field(default_factory=dict)
    _tokens: int = 0

    @classmethod
    def load(
        cls, resources: Sequence[ResourceState], pending: Sequence[PendingOperation]
    ) -> "Entries":
        """Build the entries at the beginning of a run.

        Of the pending operations only creates are kept: other operations end with the run that
        began them.
        """
        # Every save of Pulumi's engine carries the `creating` operations of its base forward, until
        # the user clears them: their objects may exist.
        carried = [operation for operation in pending if operation.type == "creating"]
        tokens = range(1, len(carried) + 1)
        return cls.restore(resources, carried, EntryOrder(range(len(resources)), 0, tokens))

    @classmethod
    def restore(
        cls,
        resources: Sequence[ResourceState],
        pending: Sequence[PendingOperation],
        order: EntryOrder,
    ) -> "Entries":
        """Build the entries from a checkpoint written in the middle of a run.

        The first `order.done` entries count as handled by this run, the others as old ones. Unlike
        in `load`, pending operations of every type are kept.
        """
        entries = cls()
        for index, (number, entry) in enumerate(zip(order.numbers, resources, strict=True)):
            (entries._done if index < order.done else entries._old)[number] = entry
            entry.number = number
            if entry.pending_replacement:
                entries._replacing[entry.urn] = number
        entries._next = max(order.numbers, default=-1) + 1
        entries._pending = dict(zip(order.pending, pending, strict=True))
        entries._tokens = max(order.pending, default=0)
        for token, operation in entries._pending.items():
            entries._carried.setdefault(operation.resource.urn, []).append(token)
        return entries

    def get_number(self, entry: ResourceState) -> int:
        """Return the number of an entry. Raises KeyError for an entry that was never added."""
        if entry.number is None:
            raise KeyError(entry.urn)
        return entry.number

    def get_entry(self, number: int) -> ResourceState:
        """Return the entry with this number. Raises KeyError for an unknown number."""
        return self._done[number] if number in self._done else self._old[number]

    def add(self, new: ResourceState, number: int | None = None) -> None:
        """Add the entry of a created resource, with the next free number if `number` is None."""
        number = self._next if number is None else number
        self._next = max(self._next, number + 1)
        self._done[number] = new
        new.number = number

    def replace(self, old: ResourceState, new: ResourceState, number: int | None = None) -> None:
        """Replace `old` by `new`, this run's entry for the object of `old`."""
        self._discard(old)
        self._record_rename(old, new)
        self.add(new, number)

    def add_replacement(
        self, old: ResourceState, new: ResourceState, number: int | None = None
    ) -> None:
        """Add the state entry `new`, whose object was created first, and mark `old` for deletion.

        The object of `old` exists until the delete phase.
        """
        # Every checkpoint has to name the old object until it is deleted: a crash would lose it.
        self.set_in_place(old, replace(old, delete=True))
        self._record_rename(old, new)
        self.add(new, number)

    def set_in_place(self, old: ResourceState, new: ResourceState) -> None:
        """Put `new` at the position of `old`, with the number of `old`."""
        number = self.get_number(old)
        (self._done if number in self._done else self._old)[number] = new
        new.number = number

    def mark_awaiting_replacement(self, old: ResourceState) -> None:
        """Mark `old`, whose object is deleted, as waiting for a replacement."""
        self._replacing[old.urn] = self.get_number(old)
        self.set_in_place(old, replace(old, pending_replacement=True))

    def is_awaiting_replacement(self, urn: str) -> bool:
        """Return True if the replacement of `urn` has deleted the old object already."""
        return urn in self._replacing

    def remove(self, old: ResourceState) -> None:
        """Remove the entry of a deleted object.

        References to the entry stay until `rebuild` or `build_current` leaves them out.
        """
        self._discard(old)
        self._gone[old.urn] = old

    def rebuild(self) -> list[ResourceState]:
        """Return the entries to continue with after a refresh or a destroy's program.

        They are sorted, dependencies first. A copy replaces each entry that refers to a deleted or
        renamed one. As under the Pulumi CLI, a property without dependencies loses its key in
        `property_dependencies` when its entry is refreshed.
        """
        names = self._map_renamed_urns()
        gone = self._find_deleted(names)
        for number, entry in list(chain(self._done.items(), self._old.items())):
            rebuilt = _update_references(entry, gone, names, keep_empty=number in self._done)
            if rebuilt is not entry:
                self.set_in_place(entry, rebuilt)
        self._gone.clear()
        entries_by_number = {**self._done, **self._old}
        return [entries_by_number[number] for number in _sort_numbers(entries_by_number)]

    def list_unprocessed(self) -> list[ResourceState]:
        """Return the old entries without a step in this run."""
        return list(self._old.values())

    def begin(self, operation: PendingOperation, token: int | None = None) -> int:
        """Record an operation sent to a provider, and return a token for `end`."""
        token = self._tokens + 1 if token is None else token
        self._tokens = max(self._tokens, token)
        self._pending[token] = operation
        return token

    def end(self, token: int) -> PendingOperation:
        """Remove and return the pending operation of a token, successful or not."""
        return self._pending.pop(token)

    def end_interrupted_creates(self, urn: str) -> Sequence[int]:
        """Remove the creates of `urn` interrupted in earlier runs, and return the tokens."""
        tokens = self._carried.pop(urn, [])
        for token in tokens:
            del self._pending[token]
        return tokens

    def build_current(self) -> tuple[list[ResourceState], list[PendingOperation], EntryOrder]:
        """Return the current entries, pending operations and order, without dangling references.

        Dependencies come before their dependents: an untouched entry may depend on one that this
        run is still changing.
        """
        names = self._map_renamed_urns()
        gone = self._find_deleted(names)
        entries_by_number = {**self._done, **self._old}
        if gone or names:
            entries_by_number = {
                number: _update_references(entry, gone, names)
                for number, entry in entries_by_number.items()
            }
        numbers = _sort_numbers(entries_by_number)
        done = max(
            (position for position, n in enumerate(numbers, 1) if n in self._done), default=0
        )
        order = EntryOrder(numbers, done, list(self._pending))
        return [entries_by_number[n] for n in numbers], list(self._pending.values()), order

    def iterate_all(self) -> Iterator[ResourceState]:
        """Iterate over the entries of this run, then over the unprocessed old entries."""
        return chain(self._done.values(), self._old.values())

    def _record_rename(self, old: ResourceState, new: ResourceState) -> None:
        """Record the new URN of an entry found by an alias, for all references to the entry."""
        if new.urn != old.urn:
            self._renamed[old.urn] = new.urn

    def _map_renamed_urns(self) -> Mapping[str, str]:
        """Map old URNs to new ones, also for the children of a renamed component.

        A child keeps its URN if another entry has the new one.
        """
        names = dict(self._renamed)
        live = {entry.urn for entry in self.iterate_all()} if names else set()
        for entry in self.iterate_all() if names else ():
            parent = names.get(entry.parent)
            # The type of a component is part of its children's URNs; the type of the stack is not.
            if parent is not None and entry.urn not in names and type_of(parent) != STACK_TYPE:
                urn = with_parent(entry.urn, parent)
                if urn not in live:
                    names[entry.urn] = urn
        return names

    def _discard(self, old: ResourceState) -> None:
        """Remove the entry, also from the entries waiting for a replacement."""
        number = self.get_number(old)
        if self._done.pop(number, None) is None:
            self._old.pop(number, None)
        if self._replacing.get(old.urn) == number:
            del self._replacing[old.urn]

    def _find_deleted(self, names: Mapping[str, str]) -> dict[str, ResourceState]:
        """Return the deleted entries whose current URN no other entry has, by current URN."""
        if not self._gone:
            return {}
        # Beside a deleted entry, a replacement or a rename may have left another one with its URN.
        existing_urns = {names.get(entry.urn, entry.urn) for entry in self.iterate_all()}
        gone = {names.get(urn, urn): entry for urn, entry in self._gone.items()}
        return {urn: entry for urn, entry in gone.items() if urn not in existing_urns}


def _sort_numbers(entries_by_number: Mapping[int, ResourceState]) -> list[int]:
    """Sort entry numbers topologically, dependencies first; otherwise keep the order.

    A cycle is no error: a valid state has none, and in an invalid one it is cut.
    """
    number_by_urn: dict[str, int] = {}
    for number, entry in entries_by_number.items():
        number_by_urn.setdefault(entry.urn, number)

    def list_dependencies(number: int) -> list[int]:
        urns = graph.find_dependency_urns(entries_by_number[number])
        return sorted(number_by_urn[urn] for urn in urns if urn in number_by_urn)

    return sort_by_dependencies(entries_by_number, list_dependencies)


def _update_references(
    resource: ResourceState,
    gone: Mapping[str, ResourceState],
    renamed: Mapping[str, str],
    *,
    keep_empty: bool = True,
) -> ResourceState:
    """Return the entry without references to deleted resources and with renamed URNs replaced.

    A deleted parent is replaced by its nearest existing ancestor.

    Args:
        resource: the entry.
        gone: the deleted entries by URN.
        renamed: old URN to new URN.
        keep_empty: properties without dependencies keep their key.
    """

    def update_urns(urns: Iterable[str]) -> list[str]:
        return [urn for old in urns if (urn := renamed.get(old, old)) not in gone]

    parent = renamed.get(resource.parent, resource.parent)
    # Children of a deleted component move up to the nearest ancestor that exists, as in Pulumi.
    while parent in gone:
        parent = renamed.get(gone[parent].parent, gone[parent].parent)
    properties = {key: update_urns(urns) for key, urns in resource.property_dependencies.items()}
    rewired = replace(
        resource,
        urn=renamed.get(resource.urn, resource.urn),
        parent=parent,
        dependencies=update_urns(resource.dependencies),
        property_dependencies={k: urns for k, urns in properties.items() if urns or keep_empty},
        deleted_with=next(iter(update_urns([resource.deleted_with])), ""),
        replace_with=update_urns(resource.replace_with),
    )
    return resource if rewired == resource else rewired
