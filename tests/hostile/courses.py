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
NAMED = {"fleet": NAMINGS, "slurm": SLURM_NAMINGS}
"""By platform, the names that the scheduler of its nodes can have for them."""
SCHEDULED = {"fleet": fleet.MOODS, "slurm": fleet.SLURM_MOODS}
"""By platform, what the scheduler of its nodes can be like."""
POOL_COMMANDS = {"repair": 10, "repair node": 10}
_PASSES = (0, 0, 0, 30, 120, 86_400)
_DELAYS = (0, 0, 0, 8, 8, 30, 50)
_LATE_EFFECTS = (0, 0, 0, 20, 45)
_LAGS = (0, 0, 0, 0, 5, 30, 50)


@dataclass(frozen=True)
class Act:
    """What happens before a step.

    The colleague makes, changes or deletes something of its own, or lets a node `join` or `leave` a
    cluster of ours; the platform lets a node of ours `break`; a job begins to `run` on one, which
    lasts some minutes (`equal`) or days (`other`).
    """

    what: str
    kind: int = 0
    like: str = "equal"


@dataclass(frozen=True)
class Step:
    """One command, and the events before and during it."""

    command: str
    variant: str = BASE
    fresh: bool = False
    """On another machine: a new clone and a new home, with nothing but the backend."""
    passes: int = 0
    lag: int = 0
    acts: tuple[Act, ...] = ()
    faults: tuple[Fault, ...] = ()
    mood: str = HEALTHY
    """What Lens says meanwhile."""
    fleet: str = HONEST
    """What the scheduler is like meanwhile."""


@dataclass(frozen=True)
class Course:
    platform: str
    seed: int
    steps: tuple[Step, ...]
    end: str = "up"
    """The command that settles everything at last, on an honest platform."""
    form: str = "dynamic"
    backend: str = "folder"
    odd_ids: bool = False
    behavior: Behavior = USUAL
    naming: str = SAME
    """By which names the scheduler knows the nodes."""
    lifetime: str = ""
    """`ttl`, where the stack declares that instead of a day on which everything ends."""

    def __str__(self) -> str:
        steps = "".join(f"\n        {step!r}," for step in self.steps)
        return (
            f"Course(\n    {self.platform!r},\n    {self.seed},\n    steps=({steps}\n    ),\n"
            f"    end={self.end!r}, form={self.form!r}, backend={self.backend!r}, "
            f"odd_ids={self.odd_ids}, "
            f"naming={self.naming!r}, lifetime={self.lifetime!r},\n"
            f"    behavior={self.behavior!r},\n)"
        )


def draw(platform: str, seed: int) -> Course:
    """Return the hostile course of this seed."""
    chance = random.Random(f"{platform}-{seed}")
    count = chance.randint(2, 5)  # and the end makes 3 to 6
    return Course(
        platform,
        seed,
        tuple(_draw_step(platform, chance, number) for number in range(count)),
        end=chance.choice(["up", "up", "refresh", "destroy", "destroy"]),
        form=chance.choice(["dynamic", "dynamic", "plugin"]),
        backend="bucket" if chance.random() < 0.1 else "folder",
        odd_ids=chance.random() < 0.05,
        behavior=_draw_behavior(chance),
        lifetime=chance.choice(["", TTL]),
        naming=chance.choice([SAME, SAME, *NAMED[platform]]) if platform in NAMED else SAME,
    )


def draw_honest(platform: str, seed: int) -> Course:
    """Return commands in any order on a platform that is late, and right, and nobody else's."""
    chance = random.Random(f"honest-{platform}-{seed}")
    steps = tuple(
        Step(
            _draw_command(platform, chance, number),
            _draw_variant(platform, chance),
            chance.random() < 0.3,
        )
        for number in range(chance.randint(3, 6))
    )
    form = chance.choice(["dynamic", "plugin"])
    late = Behavior(
        list_delay=chance.choice(_DELAYS),
        get_delay=chance.choice(_DELAYS),
        batch_ids=chance.choice([behavior.FIRST, behavior.ALL]),
    )
    return Course(platform, seed, steps, end="destroy", form=form, behavior=late)


def _draw_behavior(chance: random.Random) -> Behavior:
    return Behavior(
        list_delay=chance.choice(_DELAYS),
        get_delay=chance.choice(_DELAYS),
        batch_ids=chance.choice([behavior.FIRST, behavior.FIRST, *behavior.BATCH_IDS]),
        page_cap=chance.choice([0, 0, 0, 2, 3]),
        clock_skew=chance.choice([0, 0, 0, -600, 600]),
        created_at=chance.choice([behavior.TRUE] * 8 + list(behavior.CREATED_AT)),
        crowd=chance.choice([0, 0, 0, 4]),
    )


def _draw_step(platform: str, chance: random.Random, number: int) -> Step:
    return Step(
        _draw_command(platform, chance, number),
        _draw_variant(platform, chance),
        fresh=chance.random() < 0.35,
        passes=chance.choice(_PASSES),
        lag=chance.choice(_LAGS),
        acts=tuple(_draw_act(platform, chance) for _ in range(chance.choice([0, 0, 0, 1, 2]))),
        faults=tuple(
            _draw_fault(platform, chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2, 2]))
        ),
        mood=_draw_mood(platform, chance),
        fleet=_draw_fleet(platform, chance),
    )


def _draw_fleet(platform: str, chance: random.Random) -> str:
    if platform not in SCHEDULED:
        return HONEST
    return chance.choice([HONEST] * 8 + list(SCHEDULED[platform]))


def _draw_mood(platform: str, chance: random.Random) -> str:
    moods = {"lens": MOODS, "fleet": lens.FLEET_MOODS}.get(platform, ())
    return chance.choice([HEALTHY, *moods])


def _draw_command(platform: str, chance: random.Random, number: int) -> str:
    if number == 0 and chance.random() < 0.8:
        return "up"
    if platform == "fleet" and chance.random() < 0.2:
        return WATCH
    commands = COMMANDS | (POOL_COMMANDS if platform in POOLS else {})
    return chance.choices(list(commands), list(commands.values()))[0]


def _draw_variant(platform: str, chance: random.Random) -> str:
    usual = [BASE, BASE, BASE, BASE, GROWN, GROWN, RENAMED, LESS]
    return chance.choice([BASE, BASE, GROWN, GROWN, ROLLED, LESS] if platform in POOLS else usual)


def _draw_act(platform: str, chance: random.Random) -> Act:
    acts = ["make", "make", "make", "change", "delete"]
    more = {"aios": ["join", "leave"], "lens": ["join"], "scp": ["break"], "pool": ["break"] * 3}
    more["fleet"] = more["slurm"] = ["break", "run", "run", "run", "run"]
    act_kind = chance.choice(acts + more.get(platform, []))
    return Act(act_kind, chance.randint(0, 1), chance.choice(["equal", "other"]))


def _draw_fault(platform: str, chance: random.Random) -> Fault:
    """Return any fault, but more often one that loses the outcome of a write."""
    roll = chance.random()
    race = chance.choice(["", "", "", "equal", "other"])
    if roll < 0.4:
        return _draw_lost_answer(chance, race)
    if roll < 0.6:
        on = chance.choice([faults.CREATE, faults.WRITE, faults.DELETE, faults.ANY])
        nth = chance.randint(1, 12) if on == faults.ANY else chance.randint(1, 3)
        fault_kind = chance.choice(["kill", "kill", "term"])
        delay = chance.choice(_LATE_EFFECTS) if on == faults.CREATE else 0
        return Fault(on, fault_kind, chance.choice([BEFORE, AFTER]), nth, delay=delay)
    if roll < 0.66:
        if platform in ("aios", "lens"):
            race = chance.choice(["join", "leave"])
            return Fault(faults.CHANGE, faults.NOTHING, nth=chance.randint(1, 2), race=race)
        return Fault(faults.CREATE, faults.NOTHING, race=race or "equal")
    if roll < 0.72:
        return Fault(faults.DELETE, chance.choice([faults.IGNORED, faults.LATE]))
    times = chance.choice([1, 1, 2, 8])
    if roll < 0.86:
        fault_kind = chance.choice(faults.ON_LISTS)
        return Fault(faults.LIST, fault_kind, nth=chance.randint(1, 4), times=times)
    if roll < 0.9:
        fault_kind = chance.choice(faults.ON_LOOKUPS)
        return Fault(faults.GET, fault_kind, nth=chance.randint(1, 6), times=times)
    on = chance.choice([faults.ANY, faults.READ, faults.LIST, faults.GET])
    return Fault(on, chance.choice(faults.KINDS), nth=chance.randint(1, 6), times=times)


def _draw_lost_answer(chance: random.Random, race: str) -> Fault:
    on = chance.choice([faults.CREATE, faults.CREATE, faults.WRITE, faults.DELETE])
    kinds = ["closed", "truncated", "500", "502", "503", "html-200", "empty-200", "stall"]
    if on == faults.CREATE:
        kinds += faults.ON_CREATES * 2
    fault_kind = chance.choice(kinds)
    effect = chance.choice([BEFORE, AFTER, AFTER])
    delay = chance.choice(_LATE_EFFECTS) if on == faults.CREATE and effect == AFTER else 0
    return Fault(on, fault_kind, effect, chance.randint(1, 2), race=race, delay=delay)
