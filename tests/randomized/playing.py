"""Plays random operations on a stack, and checks after each what must always hold."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import note
from randomized import rules
from randomized.operations import Run
from randomized.programs import Program
from randomized.rules import Books, Seen
from randomized.strategies import SECRET, VARIABLES
from randomized.world import OUTSIDE, Fault, World

from gpuform.stacks.engine.planning import Step, StepStarted
from gpuform.stacks.engine.state import Snapshot, edits, load_checkpoint
from gpuform.stacks.engine.urn import name_of


class Player:
    """One stack and its world. `lab` is the fixture's, which each player takes over."""

    def __init__(self, lab: Any, world: World, snapshot: Snapshot) -> None:
        self.lab, self.world = lab, world
        self.books = Books(world, {entry.id for entry in rules.machines(snapshot)})
        self._names = {name_of(entry.urn) for entry in snapshot.resources}
        self._unrecorded: list[str] = []
        lab.snapshot = snapshot
        lab.config, lab.secret_keys = {"lab:token": f"{SECRET}-0"}, ["lab:token"]
        lab.written.clear()
        world.before_create = self._note_unrecorded
        note("state:" + "".join(f"\n  {_shown(entry)}" for entry in snapshot.resources))

    def names(self, program: Program) -> set[str]:
        """Those of a program and of all that was there before it.

        Not of the state: what a failed run leaves in it depends on the order of its threads.
        """
        self._names |= {each.name for each in program.declared}
        return self._names - {"default", "lab-dev"}

    def play(self, program: Program, run: Run) -> Seen:
        """Previews, then runs; the run."""
        self._change(run)
        plan = self.preview(program, run)
        seen = self.run(program, run, run.faults, plan.steps(StepStarted))
        if not plan.succeeded:
            # How far a failing preview comes depends on the order of its threads.
            return seen
        # To a preview, an id is unknown whether its object is still to be created or never.
        foreseen = not (run.faults or program.end or self.books.lost or seen.left_unread)
        rules.check_plan(plan, seen, exact=foreseen and self.world.moving)
        if foreseen:
            assert seen.succeeded, f"planned, and fails: {seen.errors}"
        return seen

    def preview(self, program: Program, run: Run) -> Seen:
        objects = copy.deepcopy(self.world.objects)
        state = self.lab.snapshot.to_json(self.lab.crypter, show_secrets=True)
        written = len(self.lab.written)
        seen = self._run(program, run, preview=True)
        rules.check_preview(seen)
        assert self.world.objects == objects
        assert self.lab.snapshot.to_json(self.lab.crypter, show_secrets=True) == state
        assert len(self.lab.written) == written
        return seen

    def run(
        self,
        program: Program,
        run: Run,
        faults: Iterable[Fault] = (),
        planned: Sequence[Step] = (),
    ) -> Seen:
        self.lab.written.clear()
        seen = replace(self._run(program, run, faults), planned=planned)
        self._check_written(seen)
        self.books.check(seen)
        rules.check_accounted(seen)
        rules.check_guarded(seen)
        rules.check_selection(seen)
        if program.end.startswith("raise") and run.operation == "update":
            assert not seen.succeeded
        return seen

    def settle(self, program: Program) -> None:
        """Brings the state up to date and then runs without failures: nothing is left to do."""
        self.run(program, Run("refresh"))
        seen = self.play(program, Run())
        if not seen.succeeded:
            return
        for again in (self.preview(program, Run()), self.run(program, Run())):
            assert again.succeeded, again.errors
            idle = {op for op, _, _ in again.operations} - {"same", "read"}
            assert not idle, f"left to do: {again.operations}"
            rules.check_preview(again)
        after = rules.machines(again.after)
        assert len(after) == len({entry.urn for entry in after})
        owned = {urn for urn, each in program.urns.items() if each.kind == "machine"}
        assert {entry.urn for entry in after} == owned

    def destroy(self) -> None:
        """Lets go what is protected, as its owner would by hand, and destroys all."""
        for entry in self.lab.snapshot.resources:
            entry.protect = False
        self.run(Program(), Run("refresh"))
        seen = self.play(Program(), Run("destroy"))
        assert seen.succeeded, seen.errors
        assert seen.after.resources == []

    def _run(
        self, program: Program, run: Run, faults: Iterable[Fault] = (), *, preview: bool = False
    ) -> Seen:
        note(f"{'preview' if preview else 'run'}: {run}")
        note(program.text)
        self.world.begin(*faults)
        before = copy.copy(self.lab.snapshot)
        outcome = self.lab.run(run.operation, program.text, preview=preview, **run.options)
        seen = Seen(
            program,
            run,
            before,
            outcome.snapshot,
            list(self.world.calls),
            list(self.lab.events),
            outcome.succeeded,
        )
        note(f"errors: {seen.errors}")
        note("done:" + "".join(f"\n  {' '.join(o)} {n}" for o, n in seen.operations.items()))
        assert SECRET not in "".join(map(repr, self.lab.events))
        return seen

    def _change(self, run: Run) -> None:
        """Somebody else changes or removes objects."""
        for place, size in run.changed:
            objects = sorted(self.world.objects)
            if not objects:
                return
            id_ = objects[place % len(objects)]
            note(f"{id_} becomes {size or 'gone'}")
            if size:
                self.world.objects[id_]["size"] = float(size)
            else:
                self.books.lose(id_)

    def _note_unrecorded(self, urn: str) -> None:
        """A create is sent only when a checkpoint says so: the process may die in it."""
        latest = load_checkpoint(self.lab.written[-1]).latest if self.lab.written else {}
        if urn not in [o["resource"]["urn"] for o in latest.get("pending_operations", ())]:
            self._unrecorded.append(urn)

    def _check_written(self, seen: Seen) -> None:
        for data in self.lab.written:
            assert SECRET.encode() not in data
            written = Snapshot.from_json(data, self.lab.crypter)
            assert edits.verify(written) == []
        assert not self._unrecorded
        if self.lab.written:
            assert [*map(_shown, written.resources)] == [*map(_shown, seen.after.resources)]
        carried = [o for o in seen.before.pending_operations if o.type == "creating"]
        assert seen.after.pending_operations == carried


def outside_objects(world: World) -> None:
    """What is on the platform before the stack is: to be read, and to be imported."""
    for id_ in (*OUTSIDE, *(f"i-{variable}" for variable in VARIABLES)):
        world.objects[id_] = {"size": 1.0, "address": f"10.1.0.{id_[2:]}"}


def _shown(entry: Any) -> str:
    flags = ("delete", "external", "pending_replacement", "protect", "retain_on_delete", "taint")
    marks = [flag for flag in flags if getattr(entry, flag)]
    return " ".join([entry.urn.split("::", 2)[2], entry.id, *marks, *entry.init_errors])
