"""Courses: what happens to a stack, as data. Drawn by a seed, printed to be played again."""

import random
from dataclasses import dataclass

from hostile.fakes import faults
from hostile.fakes.faults import AFTER, BEFORE, Fault
from hostile.projects import BASE, GROWN, LESS, RENAMED

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
_PASSES = (0, 0, 0, 30, 120, 86_400)
_LAGS = (0, 0, 0, 0, 5, 30, 50)


@dataclass(frozen=True)
class Act:
    """What the colleague does before a step: make, change or delete something of its own."""

    what: str
    kind: int = 0
    like: str = "equal"


@dataclass(frozen=True)
class Step:
    """One command, and what happens before and during it."""

    command: str
    variant: str = BASE
    fresh: bool = False
    """On another machine: a new clone and a new home, with nothing but the backend."""
    passes: int = 0
    lag: int = 0
    acts: tuple[Act, ...] = ()
    faults: tuple[Fault, ...] = ()


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

    def __str__(self) -> str:
        steps = "".join(f"\n        {step!r}," for step in self.steps)
        return (
            f"Course(\n    {self.platform!r},\n    {self.seed},\n    steps=({steps}\n    ),\n"
            f"    end={self.end!r}, form={self.form!r}, backend={self.backend!r}, "
            f"odd_ids={self.odd_ids},\n)"
        )


def draw(platform: str, seed: int) -> Course:
    """The hostile course of this seed."""
    chance = random.Random(f"{platform}-{seed}")
    count = chance.randint(2, 5)  # and the end makes 3 to 6
    return Course(
        platform,
        seed,
        tuple(_step(chance, number) for number in range(count)),
        end=chance.choice(["up", "up", "refresh", "destroy", "destroy"]),
        form=chance.choice(["dynamic", "dynamic", "plugin"]),
        backend="bucket" if chance.random() < 0.1 else "folder",
        odd_ids=chance.random() < 0.05,
    )


def draw_honest(platform: str, seed: int) -> Course:
    """Commands in any order on a platform where nothing goes wrong and nobody else works."""
    chance = random.Random(f"honest-{platform}-{seed}")
    steps = tuple(
        Step(_command(chance, number), _variant(chance), chance.random() < 0.3)
        for number in range(chance.randint(3, 6))
    )
    form = chance.choice(["dynamic", "plugin"])
    return Course(platform, seed, steps, end="destroy", form=form)


def _step(chance: random.Random, number: int) -> Step:
    return Step(
        _command(chance, number),
        _variant(chance),
        fresh=chance.random() < 0.35,
        passes=chance.choice(_PASSES),
        lag=chance.choice(_LAGS),
        acts=tuple(_act(chance) for _ in range(chance.choice([0, 0, 0, 1, 2]))),
        faults=tuple(_fault(chance) for _ in range(chance.choice([0, 0, 1, 1, 1, 2, 2]))),
    )


def _command(chance: random.Random, number: int) -> str:
    if number == 0 and chance.random() < 0.8:
        return "up"
    return chance.choices(list(COMMANDS), list(COMMANDS.values()))[0]


def _variant(chance: random.Random) -> str:
    return chance.choice([BASE, BASE, BASE, BASE, GROWN, GROWN, RENAMED, LESS])


def _act(chance: random.Random) -> Act:
    what = chance.choice(["make", "make", "make", "change", "delete"])
    return Act(what, chance.randint(0, 1), chance.choice(["equal", "other"]))


def _fault(chance: random.Random) -> Fault:
    """Any, but with more of those that lose the outcome of a write."""
    roll = chance.random()
    race = chance.choice(["", "", "", "equal", "other"])
    if roll < 0.4:
        what = chance.choice(["closed", "truncated", "500", "502", "503", "html-200", "empty-200"])
        on = chance.choice([faults.CREATE, faults.CREATE, faults.WRITE, faults.DELETE])
        effect = chance.choice([BEFORE, AFTER, AFTER])
        return Fault(on, what, effect, chance.randint(1, 2), race=race)
    if roll < 0.65:
        on = chance.choice([faults.CREATE, faults.WRITE, faults.DELETE, faults.ANY])
        nth = chance.randint(1, 12) if on == faults.ANY else chance.randint(1, 3)
        return Fault(
            on, chance.choice(["kill", "kill", "term"]), chance.choice([BEFORE, AFTER]), nth
        )
    if roll < 0.72:
        return Fault(faults.CREATE, faults.NOTHING, race=race or "equal")
    if roll < 0.8:
        return Fault(faults.DELETE, chance.choice([faults.IGNORED, faults.LATE]))
    on = chance.choice([faults.ANY, faults.READ, faults.LIST, faults.GET])
    what = chance.choice(
        [each for each in faults.KINDS if each not in ("kill", "term", faults.IGNORED, faults.LATE)]
    )
    return Fault(on, what, nth=chance.randint(1, 6), times=chance.choice([1, 1, 2, 8]))
