"""Define the objects of all fake platforms, their clock, and a ledger of who did what.

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
    """One object of a platform; `busy_since` is when it last began to become ready."""

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
        """Return True if the object exists and nobody has requested its deletion."""
        return self.exists(moment) and moment < self.leaves

    def __str__(self) -> str:
        return f"{self.platform} {self.kind} {self.name} ({self.id}), made by {self.maker}"


@dataclass(frozen=True)
class Asked:
    """A create of ours: its request, its time, the age of lists, and whether it took effect."""

    moment: float
    body: Json
    list_lag: float
    had_effect: bool
    delay: float = 0.0
    """How many seconds later it takes effect."""


@dataclass(frozen=True)
class Entry:
    """An entry of the ledger; `step` is the command or act during which it happened."""

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
    """All objects of all platforms; readers and writers hold `lock`."""

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
        """Return 32 hexadecimal digits after the prefix, or an unusual id."""
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
        created_at = self.now + delay
        platform_object = Thing(
            platform, kind, id_, name, actor, created_at, data, created_at, sent=dict(data)
        )
        chance = random.Random(f"{self.seed}-{len(self.things)}")
        latest = platform_object.visible_from = self.now + LONGEST_DELAY
        platform_object.listed_from = min(
            latest, created_at + chance.random() * self.behavior.list_delay
        )
        platform_object.found_from = min(
            latest, created_at + chance.random() * self.behavior.get_delay
        )
        self.things.append(platform_object)
        self.record(actor, "made", platform_object)
        return platform_object

    def record(self, actor: str, action: str, platform_object: Thing) -> None:
        self.ledger.append(Entry(self.step, self.now, actor, action, platform_object))

    def change(self, actor: str, platform_object: Thing, **data: Any) -> None:
        platform_object.data.update(data)
        self.record(actor, f"changed {', '.join(data)} of", platform_object)

    def remove(self, actor: str, platform_object: Thing, within: float) -> None:
        """Accept the deletion of the object, which takes the given time."""
        if platform_object.leaves == NEVER:
            platform_object.leaves, platform_object.gone = self.now, self.now + within
            self.record(actor, "deleted", platform_object)

    def find(self, platform: str, kind: str, id_: str) -> Thing | None:
        """Return what a request about this id meets, or None while the platform answers 404."""
        platform_object = self.get(platform, kind, id_)
        return (
            platform_object
            if platform_object is not None and platform_object.found_from <= self.now
            else None
        )

    def get(self, platform: str, kind: str, id_: str) -> Thing | None:
        """Return the object that exists, visible or not."""
        return next((item for item in self.all_of(platform, kind) if item.id == id_), None)

    def all_of(self, platform: str, kind: str) -> list[Thing]:
        return [
            item
            for item in self.things
            if item.platform == platform and item.kind == kind and item.exists(self.now)
        ]

    def listed(self, platform: str, kind: str) -> list[Thing]:
        """Return what a list shows, which may be old news."""
        return [
            item
            for item in self.things
            if item.platform == platform and item.kind == kind and self._is_listed(item)
        ]

    def _is_listed(self, platform_object: Thing) -> bool:
        if platform_object.visible_from <= self.now and platform_object.exists(self.now):
            return True
        moment = self.now - self.list_lag
        return platform_object.exists(moment) and platform_object.listed_from <= moment

    def clock(self) -> float:
        """Return what the platform's own clock shows."""
        return self.now + self.behavior.clock_skew

    def created_at(self, platform_object: Thing) -> str | None:
        """Return what the platform says about the creation of the object, or None for nothing."""
        match self.behavior.created_at:
            case behavior.YEAR_1:
                return "0001-01-01T00:00:00Z"
            case behavior.EPOCH:
                return "1970-01-01T00:00:00Z"
            case behavior.ABSENT:
                return None
        shift = {behavior.EARLY: -600, behavior.LATE: 600}.get(self.behavior.created_at, 0)
        return written(platform_object.made + self.behavior.clock_skew + shift)

    def stage(self, platform_object: Thing, stages: list[tuple[float, str]]) -> str:
        """Return the last stage that began the given seconds after the object became busy."""
        passed = max(0.0, self.now - platform_object.busy_since)
        return next(name for begins, name in reversed(stages) if passed >= begins)


def written(moment: float) -> str:
    """Return the moment as the platforms write it."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
