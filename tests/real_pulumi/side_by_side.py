"""Play random programs with two engines, each on a stack of its own with the same start."""

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
from randomized.memory_platform import MemoryPlatform
from randomized.old_states import PlannedEntry, planned_states
from randomized.operations import Run, runs
from randomized.playing import add_outside_objects
from randomized.programs import HEAD as PROGRAM_HEAD
from randomized.programs import PROJECT, Program
from randomized.strategies import draw_chance, programs, successors
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
class LabelledPlatform(MemoryPlatform):
    """A platform in memory whose ids are those that `machines.py` would give."""

    counts: Counter[str] = field(default_factory=Counter)

    def create(self, properties: dict[str, Any]) -> str:
        label = properties["label"]
        self.counts[label] += 1
        id_ = f"{label}-{self.counts[label]}"
        self.objects[id_] = {**properties, "address": f"of {id_}"}
        return id_

    @property
    def json_text(self) -> str:
        return json.dumps({"objects": self.objects, "counts": self.counts, "moving": self.moving})


@dataclass(frozen=True)
class InitialState:
    """The planned entries and the platform of a stack before the first run."""

    planned: Sequence[PlannedEntry] = ()
    moving: bool = False

    def create_stack(self, folder: Path, cli: Cli) -> "EngineStack":
        """Create a stack with this state in a new folder."""
        platform = LabelledPlatform(moving=self.moving)
        add_outside_objects(platform)
        labelled = [
            replace(entry, properties={"label": entry.variable, **entry.properties})
            if entry.custom
            else entry
            for entry in self.planned
        ]
        crypter = PassphraseCrypter(PASSPHRASE, SALT)
        snapshot = old_states.create_state(
            labelled, platform, serialize_provider(load_machines_module().Machines())
        )
        snapshot.secrets_provider = crypter.provider
        project, stacks = folder / "project", folder / "state/.pulumi/stacks" / PROJECT
        stacks.mkdir(parents=True)
        create_project(project, PROJECT, MACHINES)
        (project / "platform.json").write_text(platform.json_text)
        (stacks / "dev.json").write_bytes(snapshot.to_json(crypter))
        return EngineStack(folder, cli, f"file://{folder}/state", PROJECT, HEAD)


@dataclass
class EngineStack(Replay):
    """The stack of one engine; `last` is the result of its last command."""

    last: Result = field(default=Result(0, "", ""), init=False)

    def play(self, program: Program, run: Run, others: Mapping[str, Any]) -> dict[str, Any]:
        """Run an operation and return its effects by facet."""
        faults = [
            {"verb": f.verb, "label": f.name, "how": f.how, "once": f.once} for f in run.faults
        ]
        (self.folder / "project/faults.json").write_text(json.dumps(faults))
        effects = self.play_step(
            "preview" if run.options.get("preview") else COMMANDS[run.operation],
            format_sequential_program(program),
            others=others,
            flags=["--stack", "dev", *_list_flags(run)],
        )
        return {
            **effects,
            "operations": _sort_concurrent(run, effects["operations"]),
            "platform": self.objects,
        }

    def run(self, *arguments: str) -> Result:
        self.last = super().run(*arguments)
        return self.last

    @property
    def objects(self) -> dict[str, Any]:
        """Return the objects of the platform by id."""
        platform: dict[str, Any] = json.loads((self.folder / "project/platform.json").read_text())
        return platform["objects"]


@dataclass(frozen=True)
class Course:
    """Operations on equal starts, one after the other, each with its program."""

    start: InitialState
    runs: Sequence[tuple[Program, Run]]

    def __str__(self) -> str:
        lines = [
            f"start: moving={self.start.moving}",
            *(f"  {entry}" for entry in self.start.planned),
        ]
        for program, run in self.runs:
            lines += [
                f"run: {run} others={[*run.changed]}",
                program.text.removeprefix(PROGRAM_HEAD),
            ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Difference:
    """The first difference between the two engines."""

    run: int
    facet: str
    expected: Any
    actual: Any

    def __str__(self) -> str:
        values = (
            value if isinstance(value, str) else pformat(value, width=150)
            for value in (self.expected, self.actual)
        )
        return "run {}, {}\n  expected: {}\n  found:    {}".format(self.run, self.facet, *values)


@dataclass
class EnginePair:
    """Two engines, and the folder of their stacks."""

    folder: Path
    expected: Cli
    actual: Cli

    def play(self, course: Course) -> list[Difference]:
        """Play the course with both engines, and return the first differing run's differences."""
        with TemporaryDirectory(dir=self.folder) as directory, ThreadPoolExecutor(2) as at_once:
            engines = {"expected": self.expected, "found": self.actual}
            stacks = [
                course.start.create_stack(Path(directory) / name, cli)
                for name, cli in engines.items()
            ]
            for number, (program, run) in enumerate(course.runs, 1):
                others = _build_outside_changes(stacks[0].objects, run)
                playing = [at_once.submit(stack.play, program, run, others) for stack in stacks]
                expected, actual = (_select_comparable(stack.result(), run) for stack in playing)
                if differences := [*_find_differences(number, expected, actual)]:
                    outputs = [f"{stack.last.stdout}{stack.last.stderr}" for stack in stacks]
                    return [*differences, Difference(number, "said", *outputs)]
        return []


def _select_comparable(effects: dict[str, Any], run: Run) -> dict[str, Any]:
    """Return the effects without those in which the engines differ on purpose."""
    comparable_effects = {
        facet: sort_dependencies(facet, value) for facet, value in effects.items()
    }
    if not comparable_effects["succeeded"]:
        # The CLI kills a program when a step fails, gpuform lets it say its outputs.
        comparable_effects["operations"] = {
            urn: steps
            for urn, steps in comparable_effects["operations"].items()
            if type_of(urn) != STACK_TYPE
        }
    if run.selection.targets:
        # How often the CLI asks what would fall with a target depends on how many older objects
        # there are; it goes by the answer alone.
        comparable_effects["calls"] = {
            call: count
            for call, count in comparable_effects["calls"].items()
            if json.loads(call)["call"] != "diff"
        }
    return comparable_effects


def sort_dependencies(facet: str, value: Any) -> Any:
    """Return an entry with sorted dependencies, which the SDK sends in any order.

    Other facets are returned unchanged.
    """
    if not facet.startswith("entry"):
        return value
    entry = dict(value)
    if "dependencies" in entry:
        entry["dependencies"] = sorted(entry["dependencies"])
    if isinstance(of_properties := entry.get("propertyDependencies"), dict):
        entry["propertyDependencies"] = {
            key: sorted(urns) if isinstance(urns, list) else urns
            for key, urns in of_properties.items()
        }
    return entry


def _is_deletion(step: list[str]) -> bool:
    return step[0].startswith(("delete", "discard", "remove"))


def _sort_concurrent(
    run: Run, operations: Mapping[str, list[list[str]]]
) -> dict[str, list[list[str]]]:
    """Return the operations with sorted deletions and refreshes, which have no order."""
    sorted_operations: dict[str, list[list[str]]] = {}
    for urn, steps in operations.items():
        if run.operation == "refresh":
            sorted_operations[urn] = sorted(steps)
            continue
        sorted_operations[urn] = []
        for deletes, group in groupby(steps, _is_deletion):
            together = list(group)
            sorted_operations[urn] += sorted(together) if deletes else together
    return sorted_operations


def _build_outside_changes(objects: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return other users' changes on the platform before a run."""
    ids = sorted(objects)
    changed = {ids[index % len(ids)]: size for index, size in run.changed}
    return {id_: {"size": float(size)} if size else None for id_, size in changed.items()}


def _find_differences(
    number: int, expected: Mapping[str, Any], actual: Mapping[str, Any]
) -> Iterator[Difference]:
    for facet in dict.fromkeys([*expected, *actual]):
        theirs, ours = expected.get(facet), actual.get(facet)
        if isinstance(theirs, dict) and isinstance(ours, dict):
            for key in sorted({*theirs, *ours}):
                if theirs.get(key) != ours.get(key):
                    yield Difference(number, f"{facet}: {key}", theirs.get(key), ours.get(key))
        elif theirs != ours:
            yield Difference(number, facet, theirs, ours)


@st.composite
def courses(draw: st.DrawFn) -> Course:
    """Draw one or two runs on any state."""
    planned, moving = draw(planned_states(most=4)), draw(st.booleans())
    program = remove_imports(draw(programs(may_fail=False, most=4)))
    names = {entry.variable for entry in planned}
    played = []
    for _ in range(draw(st.integers(1, 2))):
        run = make_run_comparable(draw(runs(names)), program, names)
        if run.operation == "update" and draw_chance(draw, 15):
            run = _as_preview(run)
        played.append((program, run))
        program = remove_imports(draw(successors(program)))
        # What fits nothing is refused by gpuform before anything is done.
        names = set()
    first, run = played[0]
    entries = [_make_entry_comparable(entry, first, run) for entry in planned]
    return Course(InitialState(entries, moving), played)


def _make_entry_comparable(planned: PlannedEntry, program: Program, run: Run) -> PlannedEntry:
    """Return the entry in a condition that both engines treat alike.

    A deleted object is deleted again by the CLI when it is replaced with another; a resource that
    was only read and is now declared is created by the CLI even if it is no target; of several
    older objects, the CLI keeps one that an undeletable object may need. gpuform does none of
    these.
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


def remove_imports(program: Program) -> Program:
    """Return the program without imports, which the CLI's dynamic providers do not support."""
    return replace(
        program,
        declared=tuple(
            replace(
                declaration,
                options={k: v for k, v in declaration.options.items() if k != "import_"},
            )
            for declaration in program.declared
        ),
    )


def make_run_comparable(run: Run, program: Program, names: Collection[str]) -> Run:
    """Return the run in a form that the CLI supports and whose end does not vary.

    With concurrent calls, the calls that a failure still lets through vary: then the run continues
    with everything that does not depend on the failed resource.
    """
    label = load_machines_module().get_label
    faults = [
        replace(fault, name=label(fault.name), once=fault.once and fault.verb != "delete")
        for fault in run.faults
        if fault.how != "init"
    ]
    # What a read takes the place of, and cannot be deleted: the CLI forgets it, gpuform does not.
    reads = [
        label(declaration.name) for declaration in program.declared if declaration.kind == "read"
    ]
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
    options["selection"] = _convert_to_patterns(selection)
    return replace(run, options=options, faults=faults)


def _as_preview(run: Run) -> Run:
    """Return the run as a preview without faults: how far a failing one comes varies."""
    options = {key: value for key, value in run.options.items() if key != "continue_on_error"}
    return replace(run, options={**options, "preview": True}, faults=())


def _convert_to_patterns(selection: Selection) -> Selection:
    """Return the selection with names as patterns, in the CLI's form.

    Not with `d*`: the default provider matches it, and the CLI would replace that provider, too.
    """
    spelt = {
        name: UrnPatterns(
            f"**::{pattern}" if "*" not in pattern else pattern.replace("::d*", "::d")
            for pattern in getattr(selection, name).raw_patterns
        )
        for name in ("targets", "excludes", "replace")
    }
    return replace(selection, **spelt)


def format_sequential_program(program: Program) -> str:
    """Return the program's text, in which each resource registers after the one before is done.

    What is replaced with a replaced resource depends on the order of registrations, and where a run
    stops on the order of failures.
    """
    lines = [
        f"{declaration.format_lines()}await {declaration.variable}.urn.future()\n"
        for declaration in program.declared
    ]
    lines += [f"pulumi.export({key!r}, {value})\n" for key, value in program.exports.items()]
    body = "".join([*lines, program.end]) or "pass\n"
    return f"async def main():\n{indent(body, '    ')}\n\npulumi.run(main)\n"


def _list_flags(run: Run) -> Iterator[str]:
    yield from ("--parallel", str(run.options.get("parallel", 4)))
    for flag in ("continue_on_error", "refresh"):
        if run.options.get(flag):
            yield f"--{flag.replace('_', '-')}"
    selection = run.selection
    for flag, patterns in selection.iterate_flags():
        for pattern in patterns:
            yield from (flag, pattern)
    for name in ("target_dependents", "exclude_dependents"):
        if getattr(selection, name):
            yield f"--{name.replace('_', '-')}"


@cache
def load_machines_module() -> Any:
    """Import `machines` under the name of programs, because providers are pickled by name."""
    spec = importlib.util.spec_from_file_location("machines", MACHINES)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules["machines"] = module
    spec.loader.exec_module(module)
    return module
