"""Compare property values, represent unknown ones, count removals, and follow dependencies.

Used by every package: diff, plan, engine and providers share this one type of unknown value.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from math import isfinite
from types import NoneType
from typing import Any, Final, TypeVar, final

SIGNATURE_KEY: Final = "4dabf18193072939515e22adb298388d"
"""The key by which Pulumi marks an object that stands for a special value, such as a secret."""
SECRET_SIGNATURE: Final = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a public mark of the protocol
"""The value of `SIGNATURE_KEY` in an object that stands for a secret."""


@final
class Unknown:
    """The type of ``UNKNOWN``: a value that only a real update determines. One instance exists."""

    __slots__ = ()
    _only: "Unknown | None" = None

    def __new__(cls) -> "Unknown":
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "[unknown]"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        # a copy or an unpickled value stays the same object: callers compare by identity
        return "UNKNOWN"


UNKNOWN: Final = Unknown()


def parse_count(value: Any) -> int | None:
    """Return a reported number as int; 0 if the value is no number, None if UNKNOWN."""
    if value is UNKNOWN:
        return None
    return int(value) if isinstance(value, int | float) and isfinite(value) else 0


def to_unix_time(value: Any, zone: tzinfo | None = None) -> float | None:
    """Return a time of ISO 8601 in Unix seconds, or None for any other value.

    A time without a zone counts in `zone`. Without `zone` the result is None: such a time could be
    hours off.
    """
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    return None if moment.tzinfo is None else moment.timestamp()


# Most values are scalars, and asking for the abstract class takes ten times as long.
_SCALARS = (str, int, float, NoneType)
_OBJECTS = (dict, Mapping)
_LISTS = (list, tuple)


IsLeaf = Callable[[Mapping[str, Any]], bool]
"""Returns True for an object that stands for one value, such as a secret."""


def is_secret_object(value: Mapping[str, Any]) -> bool:
    """Return True for an object by which Pulumi writes a secret, encrypted or not."""
    return value.get(SIGNATURE_KEY) == SECRET_SIGNATURE


def convert_leaves(value: Any, convert: Callable[[Any], Any], is_leaf: IsLeaf | None = None) -> Any:
    """Return a copy of ``value`` with the result of ``convert`` for every leaf.

    A leaf is a value at any depth that is neither an object nor a list, or an object for which
    ``is_leaf`` returns True. Tuples become lists.
    """
    if isinstance(value, _OBJECTS):
        if is_leaf is not None and is_leaf(value):
            return convert(value)
        return {
            key: convert(item)
            if isinstance(item, _SCALARS)
            else convert_leaves(item, convert, is_leaf)
            for key, item in value.items()
        }
    if isinstance(value, _LISTS):
        return [convert_leaves(item, convert, is_leaf) for item in value]
    return convert(value)


def iterate_leaves(value: Any, is_leaf: IsLeaf | None = None) -> Iterator[Any]:
    """Yield every leaf of ``value`` in order; see `convert_leaves`."""
    if isinstance(value, _OBJECTS):
        if is_leaf is not None and is_leaf(value):
            yield value
            return
        items: Iterable[Any] = value.values()
    elif isinstance(value, _LISTS):
        items = value
    else:
        yield value
        return
    for item in items:
        if isinstance(item, _SCALARS):
            yield item
        else:
            yield from iterate_leaves(item, is_leaf)


def contains_unknown(value: Any) -> bool:
    """Return True if ``value`` is UNKNOWN or contains UNKNOWN at any depth."""
    return any(leaf is UNKNOWN for leaf in iterate_leaves(value))


def is_equal(left: Any, right: Any, *, unordered: bool = False) -> bool:
    """Return True if two property values are equal.

    16 equals 16.0, but True does not equal 1; None in an object equals an absent key. With
    ``unordered`` the order of a list does not matter, the number of equal items does.
    """
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return all(is_equal(left.get(name), right.get(name)) for name in {*left, *right})
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        if len(left) != len(right):
            return False
        if unordered:
            return _has_equal_items(left, right)
        return all(
            is_equal(left_item, right_item)
            for left_item, right_item in zip(left, right, strict=True)
        )
    # Python says True == 1; a changed type is a change in Pulumi's protocol
    return isinstance(left, bool) is isinstance(right, bool) and bool(left == right)


def _has_equal_items(left: Sequence[Any], right: Sequence[Any]) -> bool:
    """Return True if two lists of equal length have equal items, in any order."""
    # Items may be objects, which neither a set nor a sort can compare.
    unmatched = list(right)
    for left_item in left:
        index = next(
            (
                position
                for position, right_item in enumerate(unmatched)
                if is_equal(left_item, right_item)
            ),
            None,
        )
        if index is None:
            return False
        del unmatched[index]
    return True


@dataclass(frozen=True, slots=True)
class RemovalCount:
    """How many nodes and GPUs a change removes; None for an unknown number."""

    nodes: int | None = None
    gpus: int | None = None

    def exceeds(self, planned: "RemovalCount") -> bool:
        """Return True if this removes more than `planned`. Unknown numbers are not compared."""
        pairs = ((self.nodes, planned.nodes), (self.gpus, planned.gpus))
        return any(now is not None and limit is not None and now > limit for now, limit in pairs)

    def __add__(self, other: "RemovalCount") -> "RemovalCount":
        """Return the sum; the sum with an unknown number is unknown."""
        nodes, gpus = (
            None if one is None or two is None else one + two
            for one, two in ((self.nodes, other.nodes), (self.gpus, other.gpus))
        )
        return RemovalCount(nodes, gpus)

    def __str__(self) -> str:
        """Return `2 nodes with 16 GPUs`, or without what is unknown or 0; `none` without both."""
        texts = [
            f"{number} {noun}{'' if number == 1 else 's'}"
            for number, noun in ((self.nodes, "node"), (self.gpus, "GPU"))
            if number
        ]
        return " with ".join(texts) or "none"


_Item = TypeVar("_Item", bound=Hashable)


def sort_by_dependencies(
    items: Iterable[_Item],
    list_dependencies: Callable[[_Item], Iterable[_Item]],
    report_cycle: Callable[[list[_Item]], None] | None = None,
) -> list[_Item]:
    """Return the items, each after its dependencies, otherwise in their order.

    Dependencies that are not among the items are ignored. `report_cycle` gets the items of each
    cycle, the first one again at the end; without it, or if it returns, the cycle is cut there.
    """
    # graphlib sorts by layers and cuts no cycle. No recursion: a chain may be as long as a stack.
    known_items = dict.fromkeys(items)
    ordered: dict[_Item, None] = {}
    for root in known_items:
        path = {root: iter(list_dependencies(root))} if root not in ordered else {}
        while path:
            item, dependencies = next(reversed(path.items()))
            for dependency in dependencies:
                if dependency in ordered or dependency not in known_items:
                    continue
                if dependency not in path:
                    path[dependency] = iter(list_dependencies(dependency))
                    break
                if report_cycle is not None:
                    members = list(path)
                    report_cycle([*members[members.index(dependency) :], dependency])
            else:
                del path[item]
                ordered[item] = None
    return list(ordered)


def find_reachable(
    items: Iterable[_Item], list_next: Callable[[_Item], Iterable[_Item]]
) -> set[_Item]:
    """Return the items and all others that can be reached from an item by `list_next`."""
    reached, waiting = set[_Item](), [*items]
    while waiting:
        item = waiting.pop()
        if item not in reached:
            reached.add(item)
            waiting += list_next(item)
    return reached
