"""What is drawn: things in boxes, and like ones as one with a count where there are too many."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.drawing.things import Thing

MOST: Final = 60
"""More than that nobody takes in at once."""

_FEW: Final = 8
_DEEPEST: Final = 8
"""Boxes inside each other; what is deeper is drawn beside its own."""

_KINDS: Final = (
    "Cluster",
    "NodePool",
    "GpuNode",
    "Fabric",
    "SharedVolume",
    "VolumeClaim",
    "Certification",
    "HealthGate",
)


@dataclass(slots=True, eq=False)
class Item:
    """One shape: a thing, or like things as one. `key` is short, and unique in the drawing.

    A `box` is a platform: it holds things and is none.
    """

    key: str
    things: Sequence[Thing] = ()
    box: str = ""
    children: list["Item"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Arrow:
    """That `source` needs `target`; `count` is between how many things."""

    source: Item
    target: Item
    count: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """The boxes of the platforms with all that is in them, and the arrows between shapes."""

    title: str
    boxes: Sequence[Item]
    arrows: Sequence[Arrow]
    things: Sequence[Thing]

    def items(self) -> list[Item]:
        """Every shape but the platforms' boxes, each before what is in it."""
        found: list[Item] = []
        waiting = [item for box in reversed(self.boxes) for item in reversed(box.children)]
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(found[-1].children)
        return found


def arrange(title: str, things: Iterable[Thing], most: int = MOST) -> Drawing:
    """The drawing of the things: as they are, if there are not more shapes than `most`.

    Else like parts of one cluster are one shape with a count; if that is not enough, everything of
    one type, in one place, to which the same happens: where there are many, then wherever.
    """
    ordered = sorted(things, key=_place)
    for alike in (_nothing, _parts_alike, _many_alike(ordered), _all_alike):
        groups = _groups(ordered, alike)
        if len(set(groups.values())) <= most:
            break
    return _drawn(title, ordered, groups)


Alike = Callable[[Thing, bool], Hashable]
"""What things of one shape have in common; the second argument says whether others are inside."""


def _nothing(thing: Thing, _holds: bool) -> Hashable:
    return thing.key


def _parts_alike(thing: Thing, holds: bool) -> Hashable:
    return thing.key if holds else (thing.type, thing.action, thing.needs)


def _many_alike(things: Sequence[Thing]) -> Alike:
    """Of one type in one place, where these are many; a few are told apart."""
    count = Counter((thing.inside, _all_alike(thing, False)) for thing in things)

    def alike(thing: Thing, _holds: bool) -> Hashable:
        common = _all_alike(thing, False)
        return common if count[thing.inside, common] > _FEW else thing.key

    return alike


def _all_alike(thing: Thing, _holds: bool) -> Hashable:
    return thing.type, thing.action


def _groups(things: Sequence[Thing], alike: Alike) -> dict[str, int]:
    """The number of the shape that each thing is in: of what is alike, in one place."""
    by_key = {thing.key: thing for thing in things}
    holders = {thing.inside for thing in things}
    numbers: dict[Hashable, int] = {}
    found: dict[str, int] = {}
    for thing in things:
        for each in _outside_in(thing, by_key, found):
            place = (each.platform, found.get(each.inside), alike(each, each.key in holders))
            found[each.key] = numbers.setdefault(place, len(numbers))
    return found


def _outside_in(
    thing: Thing, by_key: Mapping[str, Thing], found: Mapping[str, int]
) -> Iterator[Thing]:
    """What a thing is inside of and has no shape yet, the outermost first; then the thing."""
    way: dict[str, Thing] = {}
    above: Thing | None = thing
    # A damaged state may have circles, which end here.
    while above and above.key not in found and above.key not in way:
        way[above.key] = above
        above = by_key.get(above.inside)
    yield from reversed(way.values())


def _drawn(title: str, things: Sequence[Thing], groups: Mapping[str, int]) -> Drawing:
    members: dict[int, list[Thing]] = {}
    for thing in things:
        members.setdefault(groups[thing.key], []).append(thing)
    boxes: dict[str, Item] = {}
    items = {group: Item(f"n{at}", those) for at, (group, those) in enumerate(members.items(), 1)}
    outer_of = {
        group: groups[item.things[0].inside]
        for group, item in items.items()
        if item.things[0].inside in groups
    }
    for group, item in items.items():
        if _is_shallow(group, outer_of):
            outer = items[outer_of[group]]
        else:
            platform = item.things[0].platform
            outer = boxes.setdefault(platform, Item(f"p{len(boxes) + 1}", box=platform))
        outer.children.append(item)
    arrows = Counter(
        (groups[thing.key], groups[needed])
        for thing in things
        for needed in sorted(thing.needs)
        if needed in groups and groups[needed] != groups[thing.key]
    )
    found = [Arrow(items[one], items[other], count) for (one, other), count in arrows.items()]
    return Drawing(title, list(boxes.values()), found, things)


def _is_shallow(group: int, outer_of: Mapping[int, int]) -> bool:
    """Whether it is drawn inside what it is in: that is there, not too deep, and no circle."""
    if group not in outer_of:
        return False
    for _ in range(_DEEPEST):
        if group not in outer_of:
            return True
        group = outer_of[group]
    return False


def _place(thing: Thing) -> tuple[str, int, list[tuple[int, str]], str]:
    """By platform and kind, then by name as people count: 2 comes before 10."""
    kind = _KINDS.index(thing.kind) if thing.kind in _KINDS else len(_KINDS)
    parts = re.split(r"([0-9]+)", thing.name)
    name = [(int(part), "") if part.isascii() and part.isdigit() else (-1, part) for part in parts]
    return thing.platform, kind, name, thing.key
