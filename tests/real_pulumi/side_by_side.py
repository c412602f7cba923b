"""Random programs played by two engines, each on a stack of its own that starts as the other's."""

import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from pprint import pformat
from tempfile import TemporaryDirectory
from textwrap import indent
from typing import Any

from hypothesis import strategies as st
from processes.commands import PASSPHRASE, SALT, Cli, Result
from pulumi.dynamic.dynamic import serialize_provider
from randomized import old_states
from randomized.old_states import Planned, planned_states
from randomized.operations import Run, runs
from randomized.playing import outside_objects
from randomized.programs import HEAD as PROGRAM_HEAD
from randomized.programs import PROJECT, Program
from randomized.strategies import chance, programs, successors
from randomized.world import World
from support.stacks.scenario_replay import Replay, create_project

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Selection, UrnPatterns
from gpuform.stacks.engine.urn import STACK_TYPE, type_of

MACHINES = Path(old_states.__file__).with_name("machines.py")
HEAD = """import pulumi
from machines import Machine
from pulumi import Alias, Output, ResourceOptions


"""
COMMANDS = {"update": "up", "refresh": "refresh", "destroy": "destroy"}


@dataclass
class Labelled(World):
    """A platform that is planted: its ids are those that `machines.py` would give."""

    counts: Counter[str] = field(default_factory=Counter)

    def made(self, properties: dict[str, Any]) -> str:
        label = properties["label"]
        self.counts[label] += 1
        id_ = f"{label}-{self.counts[label]}"
        self.objects[id_] = {**properties, "address": f"of {id_}"}
        return id_

    @property
    def text(self) -> str:
        return json.dumps({"objects": self.objects, "counts": self.counts, "moving": self.moving})


@dataclass(frozen=True)
class Start:
    """What a stack and its platform are before the first run."""

    planned: Sequence[Planned] = ()
    moving: bool = False

    def plant(self, folder: Path, cli: Cli) -> "Stand":
        """A stack that begins so, in a folder of its own."""
        world = Labelled(moving=self.moving)
        outside_objects(world)
        labelled = [
            replace(each, properties={"label": each.variable, **each.properties})
            if each.custom
            else each
            for each in self.planned
        ]
        crypter = PassphraseCrypter(PASSPHRASE, SALT)
        snapshot = old_states.plant(labelled, world, serialize_provider(machines().Machines()))
        snapshot.secrets_provider = crypter.provider
        project, stacks = folder / "project", folder / "state/.pulumi/stacks" / PROJECT
        stacks.mkdir(parents=True)
        create_project(project, PROJECT, MACHINES)
        (project / "platform.json").write_text(world.text)
        (stacks / "dev.json").write_bytes(snapshot.to_json(crypter))
        return Stand(folder, cli, f"file://{folder}/state", PROJECT, HEAD)


@dataclass
class Stand(Replay):
    """One stack that plays; `last` is what its last command said."""

    last: Result = field(default=Result(0, "", ""), init=False)

    def play(self, program: Program, run: Run, others: Mapping[str, Any]) -> dict[str, Any]:
        """What an operation does, by facet."""
        faults = [
            {"verb": f.verb, "label": f.name, "how": f.how, "once": f.once} for f in run.faults
        ]
        (self.folder / "project/faults.json").write_text(json.dumps(faults))
        found = self.play_step(
            "preview" if run.options.get("preview") else COMMANDS[run.operation],
            in_turn(program),
            others=others,
            flags=["--stack", "dev", *_flags(run)],
        )
        return {**found, "operations": _settled(run, found["operations"]), "platform": self.objects}

    def run(self, *arguments: str) -> Result:
        self.last = super().run(*arguments)
        return self.last

    @property
    def objects(self) -> dict[str, Any]:
        """The platform's, by id."""
        found: dict[str, Any] = json.loads((self.folder / "project/platform.json").read_text())
        return found["objects"]


@dataclass(frozen=True)
class Course:
    """Operations on equal starts, one after the other, each with its program."""

    start: Start
    runs: Sequence[tuple[Program, Run]]

    def __str__(self) -> str:
        said = [f"start: moving={self.start.moving}", *(f"  {each}" for each in self.start.planned)]
        for program, run in self.runs:
            said += [f"run: {run} others={[*run.changed]}", program.text.removeprefix(PROGRAM_HEAD)]
        return "\n".join(said)


@dataclass(frozen=True)
class Difference:
    """The first thing that the two engines do not do alike."""

    run: int
    facet: str
    expected: Any
    found: Any

    def __str__(self) -> str:
        said = (
            each if isinstance(each, str) else pformat(each, width=150)
            for each in (self.expected, self.found)
        )
        return "run {}, {}\n  expected: {}\n  found:    {}".format(self.run, self.facet, *said)


@dataclass
class Stage:
    """Two engines, and where their stacks are put."""

    folder: Path
    expected: Cli
    found: Cli

    def play(self, course: Course) -> list[Difference]:
        """All that differs in the first run in which something does."""
        with TemporaryDirectory(dir=self.folder) as place, ThreadPoolExecutor(2) as at_once:
            engines = {"expected": self.expected, "found": self.found}
            stands = [course.start.plant(Path(place) / name, cli) for name, cli in engines.items()]
            for number, (program, run) in enumerate(course.runs, 1):
                others = _others(stands[0].objects, run)
                playing = [at_once.submit(each.play, program, run, others) for each in stands]
                expected, found = (_comparable(each.result(), run) for each in playing)
                if differences := [*_differences(number, expected, found)]:
                    said = [f"{each.last.stdout}{each.last.stderr}" for each in stands]
                    return [*differences, Difference(number, "said", *said)]
        return []


def _comparable(seen: dict[str, Any], run: Run) -> dict[str, Any]:
    """What is seen of a run, without what the engines deliberately do in their own ways."""
    found = {facet: in_order(facet, value) for facet, value in seen.items()}
    if not found["succeeded"]:
        # The CLI kills a program when a step fails, gpuform lets it say its outputs.
        found["operations"] = {
            urn: steps for urn, steps in found["operations"].items() if type_of(urn) != STACK_TYPE
        }
    if run.selection.targets:
        # How often the CLI asks what would fall with a target depends on how many older objects
        # there are; it goes by the answer alone.
        found["calls"] = {
            call: count
            for call, count in found["calls"].items()
            if json.loads(call)["call"] != "diff"
        }
    return found


def in_order(facet: str, value: Any) -> Any:
    """An entry with what it depends on in order; the SDK sends it in any."""
    if not facet.startswith("entry"):
        return value
    found = dict(value)
    if "dependencies" in found:
        found["dependencies"] = sorted(found["dependencies"])
    if isinstance(of_properties := found.get("propertyDependencies"), dict):
        found["propertyDependencies"] = {
            key: sorted(urns) if isinstance(urns, list) else urns
            for key, urns in of_properties.items()
        }
    return found


def _deletes(step: list[str]) -> bool:
    return step[0].startswith(("delete", "discard", "remove"))


def _settled(run: Run, operations: Mapping[str, list[list[str]]]) -> dict[str, list[list[str]]]:
    """With deletions and finds sorted: several objects of a resource come in any order."""
    found: dict[str, list[list[str]]] = {}
    for urn, steps in operations.items():
        if run.operation == "refresh":
            found[urn] = sorted(steps)
            continue
        found[urn] = []
        for deletes, group in groupby(steps, _deletes):
            together = list(group)
            found[urn] += sorted(together) if deletes else together
    return found


def _others(objects: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """What somebody else does to the platform before a run."""
    ids = sorted(objects)
    changed = {ids[place % len(ids)]: size for place, size in run.changed}
    return {id_: {"size": float(size)} if size else None for id_, size in changed.items()}


def _differences(
    number: int, expected: Mapping[str, Any], found: Mapping[str, Any]
) -> Iterator[Difference]:
    for facet in dict.fromkeys([*expected, *found]):
        theirs, ours = expected.get(facet), found.get(facet)
        if isinstance(theirs, dict) and isinstance(ours, dict):
            for key in sorted({*theirs, *ours}):
                if theirs.get(key) != ours.get(key):
                    yield Difference(number, f"{facet}: {key}", theirs.get(key), ours.get(key))
        elif theirs != ours:
            yield Difference(number, facet, theirs, ours)


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """One or two runs on any state."""
    planned, moving = draw(planned_states(most=4)), draw(st.booleans())
    program = comparable(draw(programs(may_fail=False, most=4)))
    names = {each.variable for each in planned}
    played = []
    for _ in range(draw(st.integers(1, 2))):
        run = comparable_run(draw(runs(names)), program, names)
        if run.operation == "update" and chance(draw, 15):
            run = _previewed(run)
        played.append((program, run))
        program = comparable(draw(successors(program)))
        # What fits nothing is refused by gpuform before anything is done.
        names = set()
    first, run = played[0]
    known = [_comparable_entry(each, first, run) for each in planned]
    return Course(Start(known, moving), played)


def _comparable_entry(planned: Planned, program: Program, run: Run) -> Planned:
    """The entry in a condition that both deal with alike.

    What is deleted already is deleted once more by the CLI when it falls with another; what was
    only read and is to be made is made by it also when it is no target; of several older objects
    that one which cannot be deleted may need, it keeps one. gpuform does none of these.
    """
    if any(fault.verb == "delete" for fault in run.faults):
        planned = replace(planned, old=planned.old[:1])
    falls = planned.uses or planned.deleted_with or planned.replace_with
    made = any(d.variable == planned.variable and d.kind == "machine" for d in program.declared)
    if (planned.condition == "half replaced" and falls) or (
        planned.condition == "external" and made and run.selection.is_limited
    ):
        return replace(planned, condition="plain")
    return planned


def comparable(program: Program) -> Program:
    """Without what only gpuform can do: dynamic providers that import."""
    return replace(
        program,
        declared=tuple(
            replace(each, options={k: v for k, v in each.options.items() if k != "import_"})
            for each in program.declared
        ),
    )


def comparable_run(run: Run, program: Program, names: Collection[str]) -> Run:
    """The run as the CLI can be asked for it, and as it ends in the same way each time.

    Where calls are made at a time, which of them a failure still lets through is nobody's to say:
    then the run goes on with all that does not need what failed.
    """
    label = machines().label
    faults = [
        replace(fault, name=label(fault.name), once=fault.once and fault.verb != "delete")
        for fault in run.faults
        if fault.how != "init"
    ]
    # What a read takes the place of, and cannot be deleted: the CLI forgets it, gpuform does not.
    reads = [label(each.name) for each in program.declared if each.kind == "read"]
    faults = [fault for fault in faults if fault.verb != "delete" or fault.name not in reads]
    options = dict(run.options)
    at_once = run.operation != "update" or options.get("refresh")
    if faults and (at_once or any(fault.verb == "delete" for fault in faults)):
        options["continue_on_error"] = True
    selection = run.selection if names else Selection()
    if run.operation != "update":
        selection = replace(selection, replace=UrnPatterns())
    if run.operation == "destroy":
        selection = replace(selection, exclude_dependents=False)
    options["selection"] = _patterns(selection)
    return replace(run, options=options, faults=faults)


def _previewed(run: Run) -> Run:
    """The preview, in which nothing fails: how far one comes that does is nobody's to say."""
    options = {key: value for key, value in run.options.items() if key != "continue_on_error"}
    return replace(run, options={**options, "preview": True}, faults=())


def _patterns(selection: Selection) -> Selection:
    """With names as patterns, as the CLI takes them.

    Not with `d*`: the default provider is among what it fits, and the CLI replaces that, too.
    """
    spelt = {
        name: UrnPatterns(
            f"**::{text}" if "*" not in text else text.replace("::d*", "::d")
            for text in getattr(selection, name).raw_patterns
        )
        for name in ("targets", "excludes", "replace")
    }
    return replace(selection, **spelt)


def in_turn(program: Program) -> str:
    """Its text, in which each resource registers when the one before it is done.

    What falls with a replaced resource depends on the order of registrations, and where a run stops
    on that of failures.
    """
    lines = [f"{each.line()}await {each.variable}.urn.future()\n" for each in program.declared]
    lines += [f"pulumi.export({key!r}, {value})\n" for key, value in program.exports.items()]
    body = "".join([*lines, program.end]) or "pass\n"
    return f"async def main():\n{indent(body, '    ')}\n\npulumi.run(main)\n"


def _flags(run: Run) -> Iterator[str]:
    yield from ("--parallel", str(run.options.get("parallel", 4)))
    for flag in ("continue_on_error", "refresh"):
        if run.options.get(flag):
            yield f"--{flag.replace('_', '-')}"
    selection = run.selection
    for flag, given in selection.iterate_flags():
        for text in given:
            yield from (flag, text)
    for name in ("target_dependents", "exclude_dependents"):
        if getattr(selection, name):
            yield f"--{name.replace('_', '-')}"


@cache
def machines() -> Any:
    """The module `machines`, as programs know it: providers are pickled by its name."""
    spec = importlib.util.spec_from_file_location("machines", MACHINES)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["machines"] = module
    spec.loader.exec_module(module)
    return module
