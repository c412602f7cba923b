"""Define courses, the events of a stack, as data: drawn by a seed, printed to be played again."""

import random
from dataclasses import dataclass

from hostile.fakes import behavior, faults, fleet, lens
from hostile.fakes.behavior import USUAL, Behavior
from hostile.fakes.faults import AFTER, BEFORE, Fault
from hostile.fakes.fleet import HONEST, NAMINGS, SAME, SLURM_NAMINGS
from hostile.fakes.lens import HEALTHY, MOODS
from hostile.projects import BASE, GROWN, LESS, RENAMED, ROLLED, TTL

COMMANDS = {
    "up": 40,
    "preview": 4,
    "refresh": 14,
    "destroy": 14,
    "import": 5,
    "expire": 5,
    "stack rm": 6,
    "status": 3,
    "orphans": 3,
}
WATCH = "watch"
"""`expire`, every ten minutes for more than half an hour."""
POOLS = ("pool", "fleet", "slurm")
NAMINGS_BY_PLATFORM = {"fleet": NAMINGS, "slurm": SLURM_NAMINGS}
"""By platform, the names that the scheduler of its nodes can have for them."""
SCHEDULER_MOODS = {"fleet": fleet.MOODS, "slurm": fleet.SLURM_MOODS}
"""By platform, how the scheduler of its nodes can answer."""
POOL_COMMANDS = {"repair": 10, "repair node": 10}
_SECONDS_BEFORE = (0, 0, 0, 30, 120, 86_400)
_DELAYS = (0, 0, 0, 8, 8, 30, 50)
_LATE_EFFECTS = (0, 0, 0, 20, 45)
_LIST_LAGS = (0, 0, 0, 0, 5, 30, 50)


@dataclass(frozen=True)
class Event:
    """An event before a step, caused by the colleague, the platform or a job.

    The colleague creates (`make`), changes or deletes one of its own objects, or its node joins
    (`join`) or leaves (`leave`) a cluster of ours. The platform breaks (`break`) a node of ours. A
    job starts on one of our nodes (`run`) and lasts minutes (`equal`) or days (`other`).
    """

    action: str
    kind: int = 0
    likeness: str = "equal"


@dataclass(frozen=True)
class Step:
    """One command, and the events before and during it."""

    command: str
    variant: str = BASE
    on_new_machine: bool = False
    """On a machine with a new clone and a new home, which has nothing but the backend."""
    seconds_before: int = 0
    list_lag: int = 0
    events: tuple[Event, ...] = ()
    faults: tuple[Fault, ...] = ()
    lens_mood: str = HEALTHY
    """How Lens answers during the step (`fakes.lens.MOODS`)."""
    scheduler_mood: str = HONEST
    """How the nodes' scheduler answers during the step (`fakes.fleet.MOODS`)."""


@dataclass(frozen=True)
class Course:
    platform: str
    seed: int
    steps: tuple[Step, ...]
    last_command: str = "up"
    """The command that recovers every interrupted operation, on an honest platform."""
    form: str = "dynamic"
    backend: str = "folder"
    odd_ids: bool = False
    behavior: Behavior = USUAL
    naming: str = SAME
    """Which names the scheduler has for the nodes (`fakes.fleet.NAMINGS`)."""
    lifetime: str = ""
    """`ttl` if the stack declares a time to live; otherwise it declares the day of its end."""

    def __str__(self) -> str:
        steps = "".join(f"\n        {step!r}," for step in self.steps)
        return (
            f"Course(\n    {self.platform!r},\n    {self.seed},\n    steps=({steps}\n    ),\n"
            f"    last_command={self.last_command!r}, form={self.form!r}, "
            f"backend={self.backend!r}, odd_ids={self.odd_ids}, "
            f"naming={self.naming!r}, lifetime={self.lifetime!r},\n"
            f"    behavior={self.behavior!r},\n)"
        )


def draw_course(platform: str, seed: int) -> Course:
    """Return the hostile course of this seed."""
    rng = random.Random(f"{platform}-{seed}")
    count = rng.randint(2, 5)  # and the end makes 3 to 6
    return Course(
        platform,
        seed,
        tuple(_draw_step(platform, rng, number) for number in range(count)),
        last_command=rng.choice(["up", "up", "refresh", "destroy", "destroy"]),
        form=rng.choice(["dynamic", "dynamic", "plugin"]),
        backend="bucket" if rng.random() < 0.1 else "folder",
        odd_ids=rng.random() < 0.05,
        behavior=_draw_behavior(rng),
        lifetime=rng.choice(["", TTL]),
        naming=rng.choice([SAME, SAME, *NAMINGS_BY_PLATFORM[platform]])
        if platform in NAMINGS_BY_PLATFORM
        else SAME,
    )


def draw_honest_course(platform: str, seed: int) -> Course:
    """Return commands in random order on a slow, correct platform without other users."""
    rng = random.Random(f"honest-{platform}-{seed}")
    steps = tuple(
        Step(
            _draw_command(platform, rng, number),
            _draw_variant(platform, rng),
            rng.random() < 0.3,
        )
        for number in range(rng.randint(3, 6))
    )
    form = rng.choice(["dynamic", "plugin"])
    late = Behavior(
        list_delay=rng.choice(_DELAYS),
        get_delay=rng.choice(_DELAYS),
        batch_ids=rng.choice([behavior.FIRST, behavior.ALL]),
    )
    return Course(platform, seed, steps, last_command="destroy", form=form, behavior=late)


def _draw_behavior(rng: random.Random) -> Behavior:
    return Behavior(
        list_delay=rng.choice(_DELAYS),
        get_delay=rng.choice(_DELAYS),
        batch_ids=rng.choice([behavior.FIRST, behavior.FIRST, *behavior.BATCH_IDS]),
        page_cap=rng.choice([0, 0, 0, 2, 3]),
        clock_skew=rng.choice([0, 0, 0, -600, 600]),
        created_at=rng.choice([behavior.TRUE] * 8 + list(behavior.CREATED_AT)),
        crowd=rng.choice([0, 0, 0, 4]),
    )


def _draw_step(platform: str, rng: random.Random, number: int) -> Step:
    return Step(
        _draw_command(platform, rng, number),
        _draw_variant(platform, rng),
        on_new_machine=rng.random() < 0.35,
        seconds_before=rng.choice(_SECONDS_BEFORE),
        list_lag=rng.choice(_LIST_LAGS),
        events=tuple(_draw_event(platform, rng) for _ in range(rng.choice([0, 0, 0, 1, 2]))),
        faults=tuple(_draw_fault(platform, rng) for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 2]))),
        lens_mood=_draw_lens_mood(platform, rng),
        scheduler_mood=_draw_scheduler_mood(platform, rng),
    )


def _draw_scheduler_mood(platform: str, rng: random.Random) -> str:
    if platform not in SCHEDULER_MOODS:
        return HONEST
    return rng.choice([HONEST] * 8 + list(SCHEDULER_MOODS[platform]))


def _draw_lens_mood(platform: str, rng: random.Random) -> str:
    moods = {"lens": MOODS, "fleet": lens.FLEET_MOODS}.get(platform, ())
    return rng.choice([HEALTHY, *moods])


def _draw_command(platform: str, rng: random.Random, number: int) -> str:
    if number == 0 and rng.random() < 0.8:
        return "up"
    if platform == "fleet" and rng.random() < 0.2:
        return WATCH
    commands = COMMANDS | (POOL_COMMANDS if platform in POOLS else {})
    return rng.choices(list(commands), list(commands.values()))[0]


def _draw_variant(platform: str, rng: random.Random) -> str:
    usual = [BASE, BASE, BASE, BASE, GROWN, GROWN, RENAMED, LESS]
    return rng.choice([BASE, BASE, GROWN, GROWN, ROLLED, LESS] if platform in POOLS else usual)


def _draw_event(platform: str, rng: random.Random) -> Event:
    events = ["make", "make", "make", "change", "delete"]
    more = {"aios": ["join", "leave"], "lens": ["join"], "scp": ["break"], "pool": ["break"] * 3}
    more["fleet"] = more["slurm"] = ["break", "run", "run", "run", "run"]
    action = rng.choice(events + more.get(platform, []))
    return Event(action, rng.randint(0, 1), rng.choice(["equal", "other"]))


def _draw_fault(platform: str, rng: random.Random) -> Fault:
    """Return any fault; more often one that loses the outcome of a write."""
    roll = rng.random()
    race = rng.choice(["", "", "", "equal", "other"])
    if roll < 0.4:
        return _draw_lost_answer(rng, race)
    if roll < 0.6:
        on = rng.choice([faults.CREATE, faults.WRITE, faults.DELETE, faults.ANY])
        nth = rng.randint(1, 12) if on == faults.ANY else rng.randint(1, 3)
        failure = rng.choice(["kill", "kill", "term"])
        delay = rng.choice(_LATE_EFFECTS) if on == faults.CREATE else 0
        return Fault(on, failure, rng.choice([BEFORE, AFTER]), nth, delay=delay)
    if roll < 0.66:
        if platform in ("aios", "lens"):
            race = rng.choice(["join", "leave"])
            return Fault(faults.CHANGE, faults.NOTHING, nth=rng.randint(1, 2), race=race)
        return Fault(faults.CREATE, faults.NOTHING, race=race or "equal")
    if roll < 0.72:
        return Fault(faults.DELETE, rng.choice([faults.IGNORED, faults.LATE]))
    times = rng.choice([1, 1, 2, 8])
    if roll < 0.86:
        failure = rng.choice(faults.ON_LISTS)
        return Fault(faults.LIST, failure, nth=rng.randint(1, 4), times=times)
    if roll < 0.9:
        failure = rng.choice(faults.ON_LOOKUPS)
        return Fault(faults.GET, failure, nth=rng.randint(1, 6), times=times)
    on = rng.choice([faults.ANY, faults.READ, faults.LIST, faults.GET])
    return Fault(on, rng.choice(faults.KINDS), nth=rng.randint(1, 6), times=times)


def _draw_lost_answer(rng: random.Random, race: str) -> Fault:
    on = rng.choice([faults.CREATE, faults.CREATE, faults.WRITE, faults.DELETE])
    kinds = ["closed", "truncated", "500", "502", "503", "html-200", "empty-200", "stall"]
    if on == faults.CREATE:
        kinds += faults.ON_CREATES * 2
    failure = rng.choice(kinds)
    effect = rng.choice([BEFORE, AFTER, AFTER])
    delay = rng.choice(_LATE_EFFECTS) if on == faults.CREATE and effect == AFTER else 0
    return Fault(on, failure, effect, rng.randint(1, 2), race=race, delay=delay)
