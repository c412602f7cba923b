"""What is drawn: things in boxes, and like ones as one with a count where there are too many."""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.stacks.graph.things import Thing

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

    A `box` is a platform, or with `is_stack` a whole stack: it holds things and is none. `note` is
    what there is to say of it.
    """

    key: str
    things: Sequence[Thing] = ()
    box: str = ""
    is_stack: bool = False
    note: str = ""
    children: list["Item"] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Arrow:
    """That `source` needs `target`; `count` is between how many things."""

    source: Item
    target: Item
    count: int


@dataclass(frozen=True, slots=True)
class Drawing:
    """The outermost boxes with all that is in them, and the arrows between shapes.

    These boxes are platforms, or stacks with platforms inside.
    """

    title: str
    boxes: Sequence[Item]
    arrows: Sequence[Arrow]
    things: Sequence[Thing]

    def every_box(self) -> list[Item]:
        """Every box, each before those in it."""
        return [item for item in self._every() if item.box]

    def items(self) -> list[Item]:
        """Every shape but the boxes, each before what is in it."""
        return [item for item in self._every() if not item.box]

    def stacks(self) -> list[Item]:
        """The boxes of whole stacks; none in a drawing of one."""
        return [box for box in self.boxes if box.is_stack]

    def _every(self) -> list[Item]:
        found: list[Item] = []
        waiting = [*reversed(self.boxes)]
        while waiting:
            found.append(waiting.pop())
            waiting += reversed(found[-1].children)
        return found


@dataclass(frozen=True, slots=True)
class StackPart:
    """One of several stacks to draw: its things, and the names of the stacks that it needs.

    `note` is what there is to say where there are no things to draw.
    """

    name: str
    things: Sequence[Thing] = ()
    needs: Sequence[str] = ()
    note: str = ""


def arrange(title: str, things: Iterable[Thing], most: int = MOST) -> Drawing:
    """The drawing of the things: as they are, if there are not more shapes than `most`.

    Else like parts of one cluster are one shape with a count; if that is not enough, everything of
    one type, in one place, to which the same happens: where there are many, then wherever.
    """
    ordered = sorted(things, key=_place)
    (groups,) = _grouped([ordered], most)
    boxes, arrows = _Numbers().drawn(ordered, groups)
    return Drawing(title, boxes, arrows, ordered)


def arrange_stacks(title: str, parts: Sequence[StackPart], most: int = MOST) -> Drawing:
    """The drawing of several stacks: each a box with its things, which `most` counts together."""
    ordered = [sorted(part.things, key=_place) for part in parts]
    numbers = _Numbers()
    boxes: dict[str, Item] = {}
    arrows: list[Arrow] = []
    for part, things, groups in zip(parts, ordered, _grouped(ordered, most), strict=True):
        inner, own = numbers.drawn(things, groups)
        key = f"s{len(boxes) + 1}"
        boxes[part.name] = Item(key, box=part.name, is_stack=True, note=part.note, children=inner)
        arrows += own
    arrows += [
        Arrow(boxes[part.name], boxes[needed], 1)
        for part in parts
        for needed in part.needs
        if needed in boxes and needed != part.name
    ]
    return Drawing(title, list(boxes.values()), arrows, [each for of in ordered for each in of])


def _grouped(stacks: Sequence[Sequence[Thing]], most: int) -> list[dict[str, int]]:
    """For each stack the number of the shape of each thing; all stacks by the same rule."""
    found: list[dict[str, int]] = []
    for rule in (_as_they_are, _parts_as_one, _many_alike, _all_as_one):
        found = [_groups(things, rule(things)) for things in stacks]
        if sum(len(set(groups.values())) for groups in found) <= most:
            break
    return found


Alike = Callable[[Thing, bool], Hashable]
"""What things of one shape have in common; the second argument says whether others are inside."""


def _as_they_are(_things: Sequence[Thing]) -> Alike:
    return lambda thing, _holds: thing.key


def _parts_as_one(_things: Sequence[Thing]) -> Alike:
    return _parts_alike


def _all_as_one(_things: Sequence[Thing]) -> Alike:
    return _all_alike


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


@dataclass(slots=True)
class _Numbers:
    """Numbers the shapes of one drawing, whatever number of stacks it has."""

    items: int = 0
    boxes: int = 0

    def drawn(
        self, things: Sequence[Thing], groups: Mapping[str, int]
    ) -> tuple[list[Item], list[Arrow]]:
        """The boxes of the platforms with all that is in them, and the arrows between."""
        members: dict[int, list[Thing]] = {}
        for thing in things:
            members.setdefault(groups[thing.key], []).append(thing)
        boxes: dict[str, Item] = {}
        items = {group: self._item(those) for group, those in members.items()}
        outer_of = {
            group: groups[item.things[0].inside]
            for group, item in items.items()
            if item.things[0].inside in groups
        }
        for group, item in items.items():
            platform = item.things[0].platform
            if _is_shallow(group, outer_of):
                outer = items[outer_of[group]]
            else:
                outer = boxes.get(platform) or boxes.setdefault(platform, self._box(platform))
            outer.children.append(item)
        arrows = Counter(
            (groups[thing.key], groups[needed])
            for thing in things
            for needed in sorted(thing.needs)
            if needed in groups and groups[needed] != groups[thing.key]
        )
        found = [Arrow(items[one], items[other], count) for (one, other), count in arrows.items()]
        return list(boxes.values()), found

    def _item(self, things: Sequence[Thing]) -> Item:
        self.items += 1
        return Item(f"n{self.items}", things)

    def _box(self, platform: str) -> Item:
        self.boxes += 1
        return Item(f"p{self.boxes}", box=platform)


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
