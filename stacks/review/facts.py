"""The facts of plans under review: every view prints these, and none counts by itself."""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Self

from gpuform.schemas.plan import (
    GateResult,
    OutputChange,
    Plan,
    PlanAction,
    PropertyChange,
    ResourceChange,
)
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.urn import is_noise
from gpuform.stacks.review.dangers import Danger, danger_of, is_shown, rank, ranked
from gpuform.stacks.review.summary_text import counts_text, gate_word

FAILED: Final = "What failed tells nothing to decide on: mend it, and preview again."
"""What comes next after a preview that has failed."""


@dataclass(frozen=True, slots=True)
class Gpus:
    """A number of GPUs; not `exact` when some of it is not known."""

    known: int
    exact: bool

    @classmethod
    def of(cls, numbers: Iterable[int | None]) -> "Gpus":
        found = list(numbers)
        return cls(sum(number or 0 for number in found), None not in found)

    def __bool__(self) -> bool:
        return self.known > 0 or not self.exact

    def __str__(self) -> str:
        if self.exact:
            return f"{self.known:,}"
        return f"{self.known:,} or more" if self.known else "an unknown number"


@dataclass(frozen=True, slots=True)
class RiskyChange:
    """One resource's change and what is dangerous about it."""

    change: ResourceChange
    danger: Danger | None


@dataclass(frozen=True)
class StackFacts:
    """One plan. `source` is the file that it was read from, `emulate` the flag of its making.

    With `is_part` the file has the plans of several stacks.
    """

    plan: Plan
    source: str = ""
    emulate: bool = False
    is_part: bool = False

    @property
    def name(self) -> str:
        name = f"{self.plan.project}/{self.plan.stack}"
        return f"{name} (emulated)" if self.plan.emulated else name

    @cached_property
    def subjects(self) -> Sequence[RiskyChange]:
        """What there is to tell, the most dangerous first."""
        shown = (change for change in ranked(self.plan.changes) if is_shown(change))
        return [RiskyChange(change, danger_of(change)) for change in shown]

    @cached_property
    def losing_data(self) -> Sequence[str]:
        """The names of what people have stored something on that is lost."""
        subjects = (each for each in self.subjects if each.danger and each.danger.loses_data)
        return [each.change.name for each in subjects]

    @property
    def dangers(self) -> int:
        """How many changes are dangerous."""
        return sum(subject.danger is not None for subject in self.subjects)

    @cached_property
    def counts(self) -> Mapping[PlanAction, int]:
        """How many resources by action, without the stack's own entry and providers."""
        changes = (change for change in self.plan.changes if not is_noise(change.type))
        counted = Counter(change.action for change in changes)
        # Of those that do not change at all, the plan has the number alone; of a refresh it may
        # have no more of what was changed outside.
        alone = (PlanAction.SAME, *((PlanAction.UPDATE,) if self.is_drift else ()))
        for action in alone:
            counted[action] = max(counted[action], self.plan.summary.get(action, 0))
        return {action: counted[action] for action in PlanAction if counted[action]}

    @cached_property
    def gpus_removed(self) -> Gpus:
        return Gpus.of(change.gpus_removed for change in self.plan.changes)

    @cached_property
    def gpus_added(self) -> Gpus:
        return Gpus.of(change.gpus_added for change in self.plan.changes)

    @property
    def has_failed(self) -> bool:
        """Whether its preview has failed: it is not whole."""
        return bool(self.plan.errors)

    @property
    def is_stopped(self) -> bool:
        """Whether a gate stops the plan."""
        return any(gate.is_blocking for gate in self.plan.gates or ())

    @property
    def is_bound(self) -> bool:
        """Whether exactly this can be applied: the plan was saved, and its file is known."""
        return self.plan.basis is not None and self.source not in ("", "-")

    @property
    def is_drift(self) -> bool:
        """Whether it tells what was changed outside, and nobody is to apply it."""
        return self.plan.operation == "refresh" and self.plan.basis is None

    @property
    def command(self) -> str:
        """What applies it; empty when there is nothing to apply, or it is not whole."""
        if self.has_failed or not (self.plan.has_changes or self.plan.outputs):
            return ""
        operation = self.plan.operation
        words = ["gpuform", "up" if operation == "update" else operation]
        words += ["--all"] if self.is_part else []
        words += ["--plan", self.source] if self.is_bound else []
        words += ["--emulate"] if self.emulate else []
        return shlex.join([*words, *([] if self.is_part else ["--stack", self.plan.stack])])


@dataclass(frozen=True)
class Whole:
    """What is said of several stacks together: their name, and what the gates over all say."""

    name: str = ""
    gates: Sequence[GateResult] = ()
    source: str = ""
    emulate: bool = False

    def command(self, operation: str) -> str:
        """What applies all of it."""
        words = ["gpuform", "up" if operation == "update" else operation, "--all"]
        words += ["--plan", self.source] if self.source not in ("", "-") else []
        return shlex.join([*words, "--emulate"] if self.emulate else words)


@dataclass(frozen=True)
class Review:
    """All plans that are decided on together, in the order given.

    `whole` is what they are parts of, where one run applies them all.
    """

    stacks: Sequence[StackFacts]
    whole: Whole | None = None

    @classmethod
    def of(cls, plan: StacksPlan, source: str = "", *, emulate: bool = False) -> Self:
        """The plan of several stacks; `source` is the file that it was read from."""
        stacks = [StackFacts(each, source, emulate, is_part=True) for each in plan.plans]
        return cls(stacks, Whole(plan.name, plan.gates or (), source, emulate))

    @cached_property
    def subjects(self) -> Sequence[tuple[StackFacts, RiskyChange]]:
        """What all stacks change, the most dangerous first, whichever stack it is in."""
        every = [(stack, subject) for stack in self.stacks for subject in stack.subjects]
        return sorted(every, key=lambda pair: rank(pair[1].change))

    @cached_property
    def counts(self) -> Mapping[PlanAction, int]:
        total: Counter[PlanAction] = Counter()
        for stack in self.stacks:
            total.update(stack.counts)
        return {action: total[action] for action in PlanAction if total[action]}

    @cached_property
    def gpus_removed(self) -> Gpus:
        return _sum(stack.gpus_removed for stack in self.stacks)

    @cached_property
    def gpus_added(self) -> Gpus:
        return _sum(stack.gpus_added for stack in self.stacks)

    @property
    def has_failed(self) -> bool:
        """Whether a preview has failed: then not all is known that would be done."""
        return any(stack.has_failed for stack in self.stacks)

    @property
    def unchecked(self) -> int:
        """How many checks could not be made while planning."""
        return sum(len(stack.plan.unchecked) for stack in self.stacks)

    @property
    def is_stopped(self) -> bool:
        """Whether a gate stops one of the plans, or all of them."""
        gates = self.whole.gates if self.whole else ()
        return any(gate.is_blocking for gate in gates) or any(s.is_stopped for s in self.stacks)

    @property
    def commands(self) -> Sequence[tuple[StackFacts, str]]:
        """What applies the plans: one command for all where they are applied as one."""
        found = [(stack, stack.command) for stack in self.stacks if stack.command]
        if self.whole is None or not found or self.has_failed:
            return found
        first, _ = found[0]
        return [(first, self.whole.command(first.plan.operation))]

    @cached_property
    def has_changes(self) -> bool:
        return any(stack.command for stack in self.stacks)

    @property
    def is_drift(self) -> bool:
        """Whether all of it is drift."""
        return all(stack.is_drift for stack in self.stacks)

    @property
    def kind(self) -> str:
        """What it calls itself."""
        return "drift" if self.is_drift else "plan"

    @property
    def nothing(self) -> str:
        """What it says when there is nothing to apply."""
        if self.has_failed:
            return FAILED
        return "Nothing was changed outside." if self.is_drift else "Nothing is to be done."


def _sum(found: Iterable[Gpus]) -> Gpus:
    each = list(found)
    return Gpus(sum(gpus.known for gpus in each), all(gpus.exact for gpus in each))


def gpus_text(facts: StackFacts | Review) -> str:
    """How many GPUs go and come: `16 destroyed, none added`; of drift `16 gone, none new`."""
    removed, added = facts.gpus_removed, facts.gpus_added
    if facts.is_drift:
        return f"{removed or 'none'} gone, {added or 'none'} new"
    return f"{removed or 'none'} destroyed, {added or 'none'} added"


def planned_text(facts: StackFacts | Review) -> str:
    """`2 to create, 1 to replace`; of what has failed, what was planned before it did."""
    text = counts_text(facts.counts)
    if not facts.has_failed:
        return text
    planned = any(action is not PlanAction.SAME for action in facts.counts)
    return f"failed; planned before: {text}" if planned else "failed"


def gates_counted(facts: StackFacts | Review) -> str:
    """`2 passed, 1 stops the plan`."""
    stacks = facts.stacks if isinstance(facts, Review) else [facts]
    gates = [gate for stack in stacks for gate in stack.plan.gates or ()]
    if isinstance(facts, Review) and facts.whole is not None:
        gates += facts.whole.gates
    words = Counter(map(gate_word, gates))
    return ", ".join(f"{count} {word}" for word, count in words.items())


def validity(review: Review) -> str:
    """What becomes of the plans when something has changed since they were made."""
    is_bound = all(stack.is_bound for stack in review.stacks)
    if review.is_drift:
        return (
            "`gpuform refresh` takes over what was changed outside; `gpuform up --refresh` undoes "
            "what differs from the program."
        )
    if is_bound:
        return (
            "A saved plan is refused before the first change when the state, the configuration or "
            "the program is another one by then."
        )
    what = "Not every plan here was saved" if len(review.stacks) > 1 else "The plan was not saved"
    is_destroy = all(stack.plan.operation == "destroy" for stack in review.stacks)
    command = "destroy" if is_destroy else "preview"
    command += " --all" if review.whole is not None else ""
    return (
        f"{what}: what is applied is planned anew, from what is there then. "
        f"`gpuform {command} --save-plan FILE` makes a plan that binds."
    )


def as_property(output: OutputChange) -> PropertyChange:
    """An output's change in the form of a property's, to be shown like one."""
    facts = output.model_dump()
    return PropertyChange(path=facts.pop("name"), **facts)
