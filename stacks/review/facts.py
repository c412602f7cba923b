"""Compute the facts of plans under review: counts, dangers, GPUs, apply commands.

Every view prints these facts and counts nothing by itself. `Review` is built by `gpuform review`
and by the commands that plan.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Self

from gpuform.providers.permissions import Permission
from gpuform.schemas.plan import (
    GateResult,
    OutputChange,
    Plan,
    PlanAction,
    PropertyChange,
    ResourceChange,
)
from gpuform.schemas.rehearsal import Rehearsal
from gpuform.schemas.stacks_plan import StacksPlan
from gpuform.stacks.engine.urn import is_noise
from gpuform.stacks.review.dangers import (
    Danger,
    find_danger,
    is_visible,
    rank_change,
    sort_by_danger,
)
from gpuform.stacks.review.summary_text import format_gate_verdict, format_planned_operations

FAILED_NEXT_STEP: Final = "The preview failed: fix the cause, and preview again."
"""The next step after a preview that failed."""


@dataclass(frozen=True, slots=True)
class GpuCount:
    """Hold a number of GPUs; not `exact` if a part of it is unknown.

    With `is_maximum` automatic scaling may not have reached the number.
    """

    known: int
    exact: bool
    is_maximum: bool = False

    @classmethod
    def from_numbers(cls, numbers: Iterable[int | None]) -> "GpuCount":
        """Sum `numbers`. None is an unknown number: it adds nothing, and the sum is not `exact`."""
        counts = list(numbers)
        return cls(sum(number or 0 for number in counts), None not in counts)

    def __bool__(self) -> bool:
        return self.known > 0 or not self.exact

    def __str__(self) -> str:
        if self.exact:
            return f"{'up to ' if self.is_maximum else ''}{self.known:,}"
        return f"{self.known:,} or more" if self.known else "an unknown number"


@dataclass(frozen=True, slots=True)
class RiskyChange:
    """Pair the change of one resource with its danger, if any."""

    change: ResourceChange
    danger: Danger | None


@dataclass(frozen=True)
class StackFacts:
    """Compute the facts of one plan.

    `source` is the file that the plan was read from, `emulate` whether it was made with --emulate.
    With `is_part` the file has the plans of several stacks.
    """

    plan: Plan
    source: str = ""
    emulate: bool = False
    is_part: bool = False

    @property
    def name(self) -> str:
        """Return `<project>/<stack>`, with `(emulated)` for a plan made with the emulator."""
        name = f"{self.plan.project}/{self.plan.stack}"
        return f"{name} (emulated)" if self.plan.emulated else name

    @cached_property
    def subjects(self) -> Sequence[RiskyChange]:
        """Return the visible changes, the most dangerous first."""
        visible_changes = (
            change for change in sort_by_danger(self.plan.changes) if is_visible(change)
        )
        return [RiskyChange(change, find_danger(change)) for change in visible_changes]

    @cached_property
    def losing_data(self) -> Sequence[str]:
        """Return the names of the resources whose stored data is lost."""
        subjects = (
            subject for subject in self.subjects if subject.danger and subject.danger.loses_data
        )
        return [subject.change.name for subject in subjects]

    @property
    def dangers(self) -> int:
        """Return how many changes are dangerous, weakened gates included."""
        of_resources = sum(subject.danger is not None for subject in self.subjects)
        return of_resources + len(self.plan.weakened_gates)

    @cached_property
    def counts(self) -> Mapping[PlanAction, int]:
        """Count resources by action, without the stack's own entry and without providers.

        Unchanged resources, and those changed outside, may be known by number only.
        """
        changes = (change for change in self.plan.changes if not is_noise(change.type))
        counted = Counter(change.action for change in changes)
        # Of those that do not change at all, the plan has the number alone; of a refresh it may
        # have no more of what was changed outside.
        summarized_actions = (PlanAction.SAME, *((PlanAction.UPDATE,) if self.is_drift else ()))
        for action in summarized_actions:
            counted[action] = max(counted[action], self.plan.summary.get(action, 0))
        return {action: counted[action] for action in PlanAction if counted[action]}

    @cached_property
    def gpus_removed(self) -> GpuCount:
        """Sum the GPUs removed by all changes; not exact if the number of a change is unknown."""
        changes = self.plan.changes
        count = GpuCount.from_numbers(change.gpus_removed for change in changes)
        is_maximum = any(change.may_remove_fewer_gpus for change in changes)
        return replace(count, is_maximum=is_maximum)

    @cached_property
    def gpus_added(self) -> GpuCount:
        """Sum the GPUs added by all changes; not exact if the number of a change is unknown."""
        return GpuCount.from_numbers(change.gpus_added for change in self.plan.changes)

    @property
    def has_failed(self) -> bool:
        """Return True if the preview failed: the plan is incomplete."""
        return bool(self.plan.errors)

    @property
    def is_stopped(self) -> bool:
        """Return True if a gate blocks the stack's plan."""
        return any(gate.is_blocking for gate in self.plan.gates or ())

    @property
    def is_bound(self) -> bool:
        """Return True if the plan was saved to a known file: exactly this plan can be applied."""
        return self.plan.basis is not None and self.source not in ("", "-")

    @property
    def is_drift(self) -> bool:
        """Return True if the plan only reports drift, which nobody applies."""
        return self.plan.operation == "refresh" and self.plan.basis is None

    @property
    def command(self) -> str:
        """Return the command for applying the plan; empty without changes or after a failure.

        Changes of outputs alone are enough, and a plan that a gate blocks has a command, too.
        Without a saved file, the command makes a new plan.
        """
        if self.has_failed or not (self.plan.has_changes or self.plan.outputs):
            return ""
        operation = self.plan.operation
        words = ["gpuform", "up" if operation == "update" else operation]
        words += ["--all"] if self.is_part else []
        # A plan from the standard input has no file to apply.
        words += ["--plan", self.source] if self.is_bound else []
        # With the digest, a file that somebody has replaced since the review is refused.
        if self.is_bound and not self.is_part and self.plan.basis and self.plan.basis.seal:
            words += ["--digest", self.plan.basis.seal]
        words += _build_allow_flags(self.list_missing_permissions())
        words += ["--emulate"] if self.emulate else []
        return shlex.join([*words, *([] if self.is_part else ["--stack", self.plan.stack])])

    def list_missing_permissions(self) -> list[str]:
        """Return the permissions needed by the run: for blocking gates, and for others' objects."""
        missing = [gate.permission for gate in self.plan.gates or () if gate.is_blocking]
        if any(change.others and not change.retained for change in self.plan.changes):
            missing.append(Permission.DESTROY_OTHERS)
        return missing


@dataclass(frozen=True)
class CombinedPlan:
    """Hold the name of a multi-stack plan and the results of the gates over all its stacks.

    `weakened` says how the change weakens these gates. `digest` is the SHA-256 of the plan's file;
    empty while no file has the plan. `rehearsal` is the one of all stacks together, if any.
    """

    name: str = ""
    gates: Sequence[GateResult] = ()
    source: str = ""
    emulate: bool = False
    weakened: Sequence[str] = ()
    digest: str = ""
    rehearsal: Rehearsal | None = None

    def build_command(self, operation: str, permissions: Iterable[str] = ()) -> str:
        """Build the command to apply the plans of all stacks.

        `permissions` are those that the plans of single stacks need beside the common gates'.
        """
        words = ["gpuform", "up" if operation == "update" else operation, "--all"]
        is_bound = self.source not in ("", "-")
        words += ["--plan", self.source] if is_bound else []
        words += ["--digest", self.digest] if is_bound and self.digest else []
        of_gates = [gate.permission for gate in self.gates if gate.is_blocking]
        words += _build_allow_flags([*permissions, *of_gates])
        return shlex.join([*words, "--emulate"] if self.emulate else words)


@dataclass(frozen=True)
class Review:
    """Hold all plans that people decide on together, in the order given.

    `combined` is set where one run applies all of them.
    """

    stacks: Sequence[StackFacts]
    combined: CombinedPlan | None = None

    @classmethod
    def from_stacks_plan(
        cls, plan: StacksPlan, source: str = "", digest: str = "", *, emulate: bool = False
    ) -> Self:
        """Build the review of a multi-stack plan. `digest` is the SHA-256 of its file `source`."""
        stacks = [
            StackFacts(stack_plan, source, emulate, is_part=True) for stack_plan in plan.plans
        ]
        gates, weakened = plan.gates or (), plan.weakened_gates
        combined = CombinedPlan(plan.name, gates, source, emulate, weakened, digest, plan.rehearsal)
        return cls(stacks, combined)

    @cached_property
    def subjects(self) -> Sequence[tuple[StackFacts, RiskyChange]]:
        """Return the visible changes of all stacks, the most dangerous first."""
        every = [(stack, subject) for stack in self.stacks for subject in stack.subjects]
        return sorted(every, key=lambda pair: rank_change(pair[1].change))

    @cached_property
    def counts(self) -> Mapping[PlanAction, int]:
        """Count the changes of all reviewed stacks by action."""
        total: Counter[PlanAction] = Counter()
        for stack in self.stacks:
            total.update(stack.counts)
        return {action: total[action] for action in PlanAction if total[action]}

    @cached_property
    def gpus_removed(self) -> GpuCount:
        """Sum the GPUs removed by the plans of all stacks."""
        return _sum_gpu_counts(stack.gpus_removed for stack in self.stacks)

    @cached_property
    def gpus_added(self) -> GpuCount:
        """Sum the GPUs added by the plans of all stacks."""
        return _sum_gpu_counts(stack.gpus_added for stack in self.stacks)

    @property
    def has_failed(self) -> bool:
        """Return True if a preview failed: some changes are unknown."""
        return any(stack.has_failed for stack in self.stacks)

    @property
    def unchecked(self) -> int:
        """Count the checks which could not be made, over all reviewed plans."""
        return sum(len(stack.plan.unchecked) for stack in self.stacks)

    @property
    def weakened_gates(self) -> Sequence[tuple[StackFacts | None, str]]:
        """Return how gates are weakened, each with its stack; None for gates over all stacks."""
        of_all = self.combined.weakened if self.combined is not None else ()
        return [
            *((None, f"all stacks: {weakening}") for weakening in of_all),
            *(
                (stack, weakening)
                for stack in self.stacks
                for weakening in stack.plan.weakened_gates
            ),
        ]

    @property
    def is_dangerous(self) -> bool:
        """Return True if a change of any plan is dangerous, or if a gate is weakened."""
        return bool(self.weakened_gates) or any(stack.dangers for stack in self.stacks)

    @property
    def is_stopped(self) -> bool:
        """Return True if a gate blocks one or all of the plans in the review."""
        gates = self.combined.gates if self.combined else ()
        return any(gate.is_blocking for gate in gates) or any(s.is_stopped for s in self.stacks)

    @property
    def commands(self) -> Sequence[tuple[StackFacts, str]]:
        """Return the commands for applying the plans: a single one for a multi-stack plan.

        Each command comes with its stack, the single one with the first changed stack. If a preview
        failed, each other changed stack has its own command. Empty without changes.
        """
        commands = [(stack, stack.command) for stack in self.stacks if stack.command]
        # Several plan files are applied one by one; so are the plans beside a failed one.
        if self.combined is None or not commands or self.has_failed:
            return commands
        first, _ = commands[0]
        missing = [name for stack in self.stacks for name in stack.list_missing_permissions()]
        return [(first, self.combined.build_command(first.plan.operation, missing))]

    @cached_property
    def has_changes(self) -> bool:
        """Return True if the plan of any stack has something to apply, and has not failed."""
        return any(stack.command for stack in self.stacks)

    @property
    def is_drift(self) -> bool:
        """Return True if all reviewed plans report drift only."""
        return all(stack.is_drift for stack in self.stacks)

    @property
    def digest(self) -> str:
        """Return the digest of the plan's file for `--digest`; empty for several files or drift."""
        if self.combined is not None:
            return self.combined.digest
        basis = self.stacks[0].plan.basis if len(self.stacks) == 1 else None
        return basis.seal if basis is not None else ""

    @property
    def kind(self) -> str:
        """Return the word for this review in headings: `drift` or `plan`."""
        return "drift" if self.is_drift else "plan"

    @property
    def nothing(self) -> str:
        """Return the sentence in place of commands, for a review without anything to apply."""
        if self.has_failed:
            return FAILED_NEXT_STEP
        return "Nothing was changed outside of the stack." if self.is_drift else "Nothing to do."


def _build_allow_flags(permissions: Iterable[str]) -> list[str]:
    """Return an `--allow` for each permission, each once."""
    return [word for name in dict.fromkeys(permissions) for word in ("--allow", name)]


def _sum_gpu_counts(gpu_counts: Iterable[GpuCount]) -> GpuCount:
    """Sum counts of GPUs; the sum is exact if every count is, and a maximum if one of them is."""
    counts = list(gpu_counts)
    return GpuCount(
        sum(gpus.known for gpus in counts),
        all(gpus.exact for gpus in counts),
        any(gpus.is_maximum for gpus in counts),
    )


def format_gpu_changes(facts: StackFacts | Review) -> str:
    """Format GPU counts: `16 destroyed, none added`; for drift `16 removed, none added`."""
    removed, added = facts.gpus_removed, facts.gpus_added
    if facts.is_drift:
        return f"{removed or 'none'} removed, {added or 'none'} added"
    return f"{removed or 'none'} destroyed, {added or 'none'} added"


def format_planned_counts(facts: StackFacts | Review) -> str:
    """Format the counts by action; after a failed preview, the counts before the failure.

    Without a planned change before the failure: `failed`.
    """
    counts = format_planned_operations(facts.counts)
    if not facts.has_failed:
        return counts
    planned = any(action is not PlanAction.SAME for action in facts.counts)
    return f"failed; planned before the failure: {counts}" if planned else "failed"


def format_gate_counts(facts: StackFacts | Review) -> str:
    """Count the gates by verdict: `2 passed, 1 stops the plan`; empty without gates."""
    stacks = facts.stacks if isinstance(facts, Review) else [facts]
    gates = [gate for stack in stacks for gate in stack.plan.gates or ()]
    # Gates over all stacks are in no single plan.
    if isinstance(facts, Review) and facts.combined is not None:
        gates += facts.combined.gates
    words = Counter(map(format_gate_verdict, gates))
    return ", ".join(f"{count} {word}" for word, count in words.items())


def format_weakened_gates(review: Review) -> str:
    """Format a warning about a change under review which weakens its own gates."""
    count = len(review.weakened_gates)
    return (
        f"This change removes or weakens gates, in {count} {'way' if count == 1 else 'ways'}: see "
        "the dangerous changes."
    )


def describe_validity(review: Review) -> str:
    """Return a sentence on applying the plans: exactly if all are saved, else planned again.

    For drift, the sentence says how to accept or to revert it.
    """
    is_bound = all(stack.is_bound for stack in review.stacks)
    if review.is_drift:
        return (
            "`gpuform refresh` updates the state with the changes made outside; `gpuform up "
            "--refresh` reverts them to the program."
        )
    if is_bound and review.combined is not None:
        return (
            "gpuform refuses the saved plan of a stack, before the first change of this stack, if "
            "its state, its configuration or its program has changed since."
        )
    if is_bound:
        return (
            "gpuform refuses a saved plan, before the first change, if the state, the "
            "configuration or the program has changed since."
        )
    subject = (
        "Not every plan here was saved" if len(review.stacks) > 1 else "The plan was not saved"
    )
    is_destroy = all(stack.plan.operation == "destroy" for stack in review.stacks)
    command = "destroy" if is_destroy else "preview"
    command += " --all" if review.combined is not None else ""
    return (
        f"{subject}: the next run makes its own plan, which may differ. "
        f"`gpuform {command} --save-plan FILE` saves a plan to apply exactly."
    )


def to_property_change(output: OutputChange) -> PropertyChange:
    """Return the change of a stack output in the form of a property change."""
    facts = output.model_dump()
    return PropertyChange(path=facts.pop("name"), **facts)
