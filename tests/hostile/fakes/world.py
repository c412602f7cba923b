"""What exists on the platforms, their clock, and a ledger of who did what.

Shares nothing with gpuform or its emulator: two readings of the same documents.
"""

import itertools
import random
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from hostile.fakes import behavior
from hostile.fakes.behavior import LONGEST_DELAY, USUAL, Behavior

Json = dict[str, Any]

OURS = "ours"
COLLEAGUE = "colleague"
PLATFORM = "the platform"
"""It makes what nobody asks for by itself, and ends it."""
START = 1_767_225_600.0  # the first of January 2026
NEVER = float("inf")


@dataclass
class Thing:
    """One object of a platform. `busy_since` is when it last began to become ready."""

    platform: str
    kind: str
    id: str
    name: str
    maker: str
    made: float
    data: Json
    busy_since: float
    leaves: float = NEVER
    gone: float = NEVER
    sent: Json = field(default_factory=dict)
    """What the maker asked for."""
    raced: bool = False
    """It was made while a request of ours for the same was on its way."""
    listed_from: float = 0.0
    """When lists show it for the first time."""
    found_from: float = 0.0
    """When a lookup by its id finds it for the first time."""
    visible_from: float = 0.0
    """When everybody sees it at the latest."""

    def exists(self, moment: float) -> bool:
        return self.made <= moment < self.gone

    def lives(self, moment: float) -> bool:
        """It exists, and nobody has asked for its end."""
        return self.exists(moment) and moment < self.leaves

    def __str__(self) -> str:
        return f"{self.platform} {self.kind} {self.name} ({self.id}), made by {self.maker}"


@dataclass(frozen=True)
class Asked:
    """A create of ours: what it asked for, when, how old lists were, and whether it took effect."""

    moment: float
    body: Json
    list_lag: float
    had_effect: bool
    delay: float = 0.0
    """How many seconds later it takes effect."""


@dataclass(frozen=True)
class Entry:
    """A line of the ledger: `step` is the command or act during which it happened."""

    step: int
    moment: float
    actor: str
    action: str
    thing: Thing

    def __str__(self) -> str:
        when = self.moment - START
        return f"step {self.step}, +{when:.0f}s: {self.actor} {self.action} {self.thing}"


@dataclass
class World:
    """All objects of all platforms. Whoever reads or changes it holds `lock`."""

    seed: int = 0
    odd_ids: bool = False
    now: float = START
    step: int = 0
    list_lag: float = 0.0
    """How many seconds old what lists say is."""
    things: list[Thing] = field(default_factory=list)
    ledger: list[Entry] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    behavior: Behavior = USUAL
    lens_mood: str = "healthy"
    """What Lens says of the cluster in this step."""
    is_gated: bool = False
    """What the stack makes stands behind a gate that Lens opens."""
    was_healthy: bool = False
    """Lens has once said that the cluster is healthy."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._numbers = itertools.count(1)

    def move(self, seconds: float) -> None:
        with self.lock:
            self.now += seconds

    def new_id(self, prefix: str = "") -> str:
        """32 hexadecimal digits after the prefix, or what nobody expects of an id."""
        plain = f"{prefix}{self._random.getrandbits(128):032x}"
        return f"{plain[:12]} ü%2F&?{plain[12:18]}" if self.odd_ids else plain

    def number(self) -> int:
        return next(self._numbers)

    def add(
        self,
        actor: str,
        platform: str,
        kind: str,
        id_: str,
        name: str,
        data: Json,
        *,
        delay: float = 0.0,
    ) -> Thing:
        """Make an object `delay` seconds from now, visible when the platform's behavior says."""
        made = self.now + delay
        thing = Thing(platform, kind, id_, name, actor, made, data, made, sent=dict(data))
        chance = random.Random(f"{self.seed}-{len(self.things)}")
        latest = thing.visible_from = self.now + LONGEST_DELAY
        thing.listed_from = min(latest, made + chance.random() * self.behavior.list_delay)
        thing.found_from = min(latest, made + chance.random() * self.behavior.get_delay)
        self.things.append(thing)
        self.record(actor, "made", thing)
        return thing

    def record(self, actor: str, action: str, thing: Thing) -> None:
        self.ledger.append(Entry(self.step, self.now, actor, action, thing))

    def change(self, actor: str, thing: Thing, **data: Any) -> None:
        thing.data.update(data)
        self.record(actor, f"changed {', '.join(data)} of", thing)

    def remove(self, actor: str, thing: Thing, within: float) -> None:
        """The platform has accepted to delete it, and needs so long."""
        if thing.leaves == NEVER:
            thing.leaves, thing.gone = self.now, self.now + within
            self.record(actor, "deleted", thing)

    def find(self, platform: str, kind: str, id_: str) -> Thing | None:
        """Return what a request about this id meets, or None while the platform answers 404."""
        thing = self.get(platform, kind, id_)
        return thing if thing is not None and thing.found_from <= self.now else None

    def get(self, platform: str, kind: str, id_: str) -> Thing | None:
        """Return the object that exists, visible or not."""
        return next((each for each in self.all_of(platform, kind) if each.id == id_), None)

    def all_of(self, platform: str, kind: str) -> list[Thing]:
        return [
            each
            for each in self.things
            if each.platform == platform and each.kind == kind and each.exists(self.now)
        ]

    def listed(self, platform: str, kind: str) -> list[Thing]:
        """Return what a list shows, which may be old news."""
        return [
            each
            for each in self.things
            if each.platform == platform and each.kind == kind and self._is_listed(each)
        ]

    def _is_listed(self, thing: Thing) -> bool:
        if thing.visible_from <= self.now and thing.exists(self.now):
            return True
        moment = self.now - self.list_lag
        return thing.exists(moment) and thing.listed_from <= moment

    def clock(self) -> float:
        """Return what the platform's own clock shows."""
        return self.now + self.behavior.clock_skew

    def created_at(self, thing: Thing) -> str | None:
        """Return what the platform says about the creation of the object, or None for nothing."""
        match self.behavior.created_at:
            case behavior.YEAR_1:
                return "0001-01-01T00:00:00Z"
            case behavior.EPOCH:
                return "1970-01-01T00:00:00Z"
            case behavior.ABSENT:
                return None
        shift = {behavior.EARLY: -600, behavior.LATE: 600}.get(self.behavior.created_at, 0)
        return written(thing.made + self.behavior.clock_skew + shift)

    def stage(self, thing: Thing, stages: list[tuple[float, str]]) -> str:
        """The last stage that began so many seconds after the object became busy."""
        passed = max(0.0, self.now - thing.busy_since)
        return next(name for begins, name in reversed(stages) if passed >= begins)


def written(moment: float) -> str:
    """The moment as the platforms write it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
