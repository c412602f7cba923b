"""Play random operations on a stack, and check after each what must always hold."""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import note
from randomized import rules
from randomized.memory_platform import OUTSIDE, Fault, MemoryPlatform
from randomized.operations import Run
from randomized.programs import Program
from randomized.rules import ObservedRun, OwnedObjects
from randomized.strategies import SECRET, VARIABLES

from gpuform.stacks.engine.planning import Step, StepStarted
from gpuform.stacks.engine.state import Snapshot, edits, load_checkpoint
from gpuform.stacks.engine.urn import name_of


class Player:
    """One stack and its platform. `lab` is the fixture's, which each player takes over."""

    def __init__(self, lab: Any, platform: MemoryPlatform, snapshot: Snapshot) -> None:
        self.lab, self.platform = lab, platform
        self.owned_objects = OwnedObjects(
            platform, {entry.id for entry in rules.list_machines(snapshot)}
        )
        self._names = {name_of(entry.urn) for entry in snapshot.resources}
        self._unrecorded: list[str] = []
        lab.snapshot = snapshot
        lab.config, lab.secret_keys = {"lab:token": f"{SECRET}-0"}, ["lab:token"]
        lab.written.clear()
        platform.before_create = self._note_unrecorded
        note("state:" + "".join(f"\n  {_describe_entry(entry)}" for entry in snapshot.resources))

    def list_names(self, program: Program) -> set[str]:
        """Return the names of a program and of everything that existed before it.

        Not those of the state: what a failed run leaves in it depends on the order of its threads.
        """
        self._names |= {declaration.name for declaration in program.declared}
        return self._names - {"default", "lab-dev"}

    def play(self, program: Program, run: Run) -> ObservedRun:
        """Preview a run, play it, check that both agree, and return the run."""
        self._change_objects(run)
        plan = self.preview(program, run)
        observed = self.run(program, run, run.faults, plan.list_steps(StepStarted))
        if not plan.succeeded:
            # How far a failing preview comes depends on the order of its threads.
            return observed
        # To a preview, an id is unknown whether its object is still to be created or never.
        is_predictable = not (
            run.faults or program.end or self.owned_objects.lost_ids or observed.has_skipped_read
        )
        rules.check_plan(plan, observed, exact=is_predictable and self.platform.moving)
        if is_predictable:
            assert observed.succeeded, f"planned, and fails: {observed.errors}"
        return observed

    def preview(self, program: Program, run: Run) -> ObservedRun:
        objects = copy.deepcopy(self.platform.objects)
        state = self.lab.snapshot.to_json(self.lab.crypter, show_secrets=True)
        written = len(self.lab.written)
        observed = self._run_engine(program, run, preview=True)
        rules.check_preview(observed)
        assert self.platform.objects == objects
        assert self.lab.snapshot.to_json(self.lab.crypter, show_secrets=True) == state
        assert len(self.lab.written) == written
        return observed

    def run(
        self,
        program: Program,
        run: Run,
        faults: Iterable[Fault] = (),
        planned: Sequence[Step] = (),
    ) -> ObservedRun:
        self.lab.written.clear()
        observed = replace(self._run_engine(program, run, faults), planned=planned)
        self._check_checkpoints(observed)
        self.owned_objects.check(observed)
        rules.check_entries_leave_by_steps(observed)
        rules.check_protection(observed)
        rules.check_selection(observed)
        if program.end.startswith("raise") and run.operation == "update":
            assert not observed.succeeded
        return observed

    def converge(self, program: Program) -> None:
        """Refresh the stack and run without failures, and check that nothing remains to be done."""
        self.run(program, Run("refresh"))
        observed_run = self.play(program, Run())
        if not observed_run.succeeded:
            return
        for again in (self.preview(program, Run()), self.run(program, Run())):
            assert again.succeeded, again.errors
            idle = {op for op, _, _ in again.operations} - {"same", "read"}
            assert not idle, f"left to do: {again.operations}"
            rules.check_preview(again)
        after = rules.list_machines(again.after)
        assert len(after) == len({entry.urn for entry in after})
        owned = {
            urn
            for urn, declaration in program.declarations_by_urn.items()
            if declaration.kind == "machine"
        }
        assert {entry.urn for entry in after} == owned

    def destroy(self) -> None:
        """Remove all protection, as the owner would by hand, and destroy the stack."""
        for entry in self.lab.snapshot.resources:
            entry.protect = False
        self.run(Program(), Run("refresh"))
        destroyed = self.play(Program(), Run("destroy"))
        assert destroyed.succeeded, destroyed.errors
        assert destroyed.after.resources == []

    def _run_engine(
        self, program: Program, run: Run, faults: Iterable[Fault] = (), *, preview: bool = False
    ) -> ObservedRun:
        note(f"{'preview' if preview else 'run'}: {run}")
        note(program.text)
        self.platform.begin_run(*faults)
        before = copy.copy(self.lab.snapshot)
        outcome = self.lab.run(run.operation, program.text, preview=preview, **run.options)
        observed = ObservedRun(
            program,
            run,
            before,
            outcome.snapshot,
            list(self.platform.calls),
            list(self.lab.events),
            outcome.succeeded,
        )
        note(f"errors: {observed.errors}")
        note("done:" + "".join(f"\n  {' '.join(o)} {n}" for o, n in observed.operations.items()))
        assert SECRET not in "".join(map(repr, self.lab.events))
        return observed

    def _change_objects(self, run: Run) -> None:
        """Change or remove objects outside of the stack."""
        for index, size in run.changed:
            objects = sorted(self.platform.objects)
            if not objects:
                return
            id_ = objects[index % len(objects)]
            note(f"{id_} becomes {size or 'gone'}")
            if size:
                self.platform.objects[id_]["size"] = float(size)
            else:
                self.owned_objects.remove_outside(id_)

    def _note_unrecorded(self, urn: str) -> None:
        """Record the URN if no checkpoint has a pending create of the URN.

        The process may die in the create.
        """
        latest = load_checkpoint(self.lab.written[-1]).latest if self.lab.written else {}
        if urn not in [o["resource"]["urn"] for o in latest.get("pending_operations", ())]:
            self._unrecorded.append(urn)

    def _check_checkpoints(self, observed: ObservedRun) -> None:
        for data in self.lab.written:
            assert SECRET.encode() not in data
            written = Snapshot.from_json(data, self.lab.crypter)
            assert edits.verify(written) == []
        assert not self._unrecorded
        if self.lab.written:
            assert [*map(_describe_entry, written.resources)] == [
                *map(_describe_entry, observed.after.resources)
            ]
        carried = [o for o in observed.before.pending_operations if o.type == "creating"]
        assert observed.after.pending_operations == carried


def add_outside_objects(platform: MemoryPlatform) -> None:
    """Add objects from before the stack, for reads and imports."""
    for id_ in (*OUTSIDE, *(f"i-{variable}" for variable in VARIABLES)):
        platform.objects[id_] = {"size": 1.0, "address": f"10.1.0.{id_[2:]}"}


def _describe_entry(entry: Any) -> str:
    flags = ("delete", "external", "pending_replacement", "protect", "retain_on_delete", "taint")
    flags_and_errors = [flag for flag in flags if getattr(entry, flag)]
    return " ".join([entry.urn.split("::", 2)[2], entry.id, *flags_and_errors, *entry.init_errors])
