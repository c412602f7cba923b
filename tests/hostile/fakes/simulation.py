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
"""The platform itself, which creates and ends the objects that nobody requests."""
START = 1_767_225_600.0  # the first of January 2026
NEVER = float("inf")


@dataclass
class PlatformObject:
    """One object of a platform; `busy_since` is when it last began to become ready."""

    platform: str
    kind: str
    id: str
    name: str
    creator: str
    created_at: float
    data: Json
    busy_since: float
    deletion_requested_at: float = NEVER
    gone_at: float = NEVER
    sent: Json = field(default_factory=dict)
    """The properties that the creator requested."""
    was_raced: bool = False
    """The object was created while a create of ours for the same object was in progress."""
    listed_from: float = 0.0
    """When lists show the object for the first time."""
    found_from: float = 0.0
    """When a lookup by id finds the object for the first time."""
    visible_from: float = 0.0
    """When every list and lookup shows the object at the latest."""

    def exists(self, moment: float) -> bool:
        return self.created_at <= moment < self.gone_at

    def is_alive(self, moment: float) -> bool:
        """Return True if the object exists and has no deletion request."""
        return self.exists(moment) and moment < self.deletion_requested_at

    def __str__(self) -> str:
        return f"{self.platform} {self.kind} {self.name} ({self.id}), created by {self.creator}"


@dataclass(frozen=True)
class CreateRequest:
    """A create of ours: its request, its time, the age of lists, and whether it took effect."""

    moment: float
    body: Json
    list_lag: float
    had_effect: bool
    delay: float = 0.0
    """Seconds after the request at which the create takes effect."""


@dataclass(frozen=True)
class LedgerEntry:
    """An entry of the ledger; `step` is the number of the course's step."""

    step: int
    moment: float
    actor: str
    action: str
    platform_object: PlatformObject

    def __str__(self) -> str:
        when = self.moment - START
        return f"step {self.step}, +{when:.0f}s: {self.actor} {self.action} {self.platform_object}"


@dataclass
class Simulation:
    """The objects of all fake platforms; readers and writers hold `lock`."""

    seed: int = 0
    odd_ids: bool = False
    now: float = START
    step: int = 0
    list_lag: float = 0.0
    """How old the contents of lists are, in seconds."""
    objects: list[PlatformObject] = field(default_factory=list)
    ledger: list[LedgerEntry] = field(default_factory=list)
    create_requests: list[CreateRequest] = field(default_factory=list)
    behavior: Behavior = USUAL
    lens_mood: str = "healthy"
    """How Lens describes the cluster in this step (`lens.MOODS`)."""
    is_gated: bool = False
    """Whether the stack creates objects only after a health gate has opened."""
    was_healthy: bool = False
    """Whether Lens has reported a healthy cluster at least once."""
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._numbers = itertools.count(1)

    def advance(self, seconds: float) -> None:
        with self.lock:
            self.now += seconds

    def create_id(self, prefix: str = "") -> str:
        """Return 32 hexadecimal digits after the prefix, or an unusual id."""
        plain = f"{prefix}{self._random.getrandbits(128):032x}"
        return f"{plain[:12]} ü%2F&?{plain[12:18]}" if self.odd_ids else plain

    def get_next_number(self) -> int:
        return next(self._numbers)

    def add_object(
        self,
        actor: str,
        platform: str,
        kind: str,
        id_: str,
        name: str,
        data: Json,
        *,
        delay: float = 0.0,
    ) -> PlatformObject:
        """Create an object `delay` seconds from now, with the visibility of `behavior`."""
        created_at = self.now + delay
        platform_object = PlatformObject(
            platform, kind, id_, name, actor, created_at, data, created_at, sent=dict(data)
        )
        rng = random.Random(f"{self.seed}-{len(self.objects)}")
        latest = platform_object.visible_from = self.now + LONGEST_DELAY
        platform_object.listed_from = min(
            latest, created_at + rng.random() * self.behavior.list_delay
        )
        platform_object.found_from = min(
            latest, created_at + rng.random() * self.behavior.get_delay
        )
        self.objects.append(platform_object)
        self.record_action(actor, "created", platform_object)
        return platform_object

    def record_action(self, actor: str, action: str, platform_object: PlatformObject) -> None:
        self.ledger.append(LedgerEntry(self.step, self.now, actor, action, platform_object))

    def change_object(self, actor: str, platform_object: PlatformObject, **data: Any) -> None:
        platform_object.data.update(data)
        self.record_action(actor, f"changed {', '.join(data)} of", platform_object)

    def delete_object(self, actor: str, platform_object: PlatformObject, within: float) -> None:
        """Accept the deletion of the object, which takes the given time."""
        if platform_object.deletion_requested_at == NEVER:
            platform_object.deletion_requested_at, platform_object.gone_at = (
                self.now,
                self.now + within,
            )
            self.record_action(actor, "deleted", platform_object)

    def find_visible_object(self, platform: str, kind: str, id_: str) -> PlatformObject | None:
        """Return the object for a lookup by id, or None while the platform answers 404."""
        platform_object = self.find_object(platform, kind, id_)
        return (
            platform_object
            if platform_object is not None and platform_object.found_from <= self.now
            else None
        )

    def find_object(self, platform: str, kind: str, id_: str) -> PlatformObject | None:
        """Return the existing object of this id, visible or not, or None."""
        return next((item for item in self.list_existing(platform, kind) if item.id == id_), None)

    def list_existing(self, platform: str, kind: str) -> list[PlatformObject]:
        return [
            item
            for item in self.objects
            if item.platform == platform and item.kind == kind and item.exists(self.now)
        ]

    def list_shown(self, platform: str, kind: str) -> list[PlatformObject]:
        """Return the objects of a list, which may be `list_lag` seconds old."""
        return [
            item
            for item in self.objects
            if item.platform == platform and item.kind == kind and self._is_listed(item)
        ]

    def _is_listed(self, platform_object: PlatformObject) -> bool:
        if platform_object.visible_from <= self.now and platform_object.exists(self.now):
            return True
        moment = self.now - self.list_lag
        return platform_object.exists(moment) and platform_object.listed_from <= moment

    def read_clock(self) -> float:
        """Return the time of the platform's own clock."""
        return self.now + self.behavior.clock_skew

    def format_creation_time(self, platform_object: PlatformObject) -> str | None:
        """Return the reported creation time, or None on platforms without one."""
        match self.behavior.created_at:
            case behavior.YEAR_1:
                return "0001-01-01T00:00:00Z"
            case behavior.EPOCH:
                return "1970-01-01T00:00:00Z"
            case behavior.ABSENT:
                return None
        shift = {behavior.EARLY: -600, behavior.LATE: 600}.get(self.behavior.created_at, 0)
        return format_time(platform_object.created_at + self.behavior.clock_skew + shift)

    def find_stage(self, platform_object: PlatformObject, stages: list[tuple[float, str]]) -> str:
        """Return the last stage that began the given seconds after the object became busy."""
        passed = max(0.0, self.now - platform_object.busy_since)
        return next(name for begins, name in reversed(stages) if passed >= begins)


def format_time(moment: float) -> str:
    """Return `moment` (seconds since 1970) in the platforms' format."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
