"""`--save-plan` and `--plan`: what a plan is bound to, and when it is overtaken."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from gpuform.providers.context import get_clock
from gpuform.schemas.plan import Basis, Plan
from gpuform.stacks.engine.deployment import (
    Operation,
    Outcome,
    basis_after,
    basis_before,
    is_sealed,
    seal_plan,
)
from gpuform.stacks.engine.planning import MAKE_A_NEW_ONE, PlanConstraint
from gpuform.stacks.engine.stack import Origin, Stack
from gpuform.stacks.operations.plans.plan_file import PlanRefused, read_plan
from gpuform.stacks.operations.plans.plan_masking import mask_plan
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.repairing import other_repairs

_KEPT = (
    *("refresh", "emulate", "target", "target_dependents", "exclude", "exclude_dependents"),
    *("replace", "target_replace", "run_program", "repair_nodes"),
)
_DEFAULTS = {f.name: f.default for f in fields(RunOptions) if f.name in _KEPT}


def require_digest(saved: "SavedPlan | None", digest: str) -> None:
    """Raises PlanRefused unless the plan has the digest of the one that a person has reviewed."""
    if saved is None:
        raise PlanRefused(
            "a digest says which saved plan is meant, and there is none",
            hint="name its file, too: --plan FILE",
        )
    if saved.basis.seal != digest:
        raise PlanRefused(
            f"{saved.path} is another plan than the one that was reviewed: its digest is "
            f"{saved.basis.seal}, and {digest or 'an empty one'} was given",
            hint="review it: `gpuform review` shows its digest, and what it does",
        )


def sealed_plan(plan: Plan, options: RunOptions, stack: Stack, preview: Outcome) -> Plan:
    """What a preview has planned, with all that it was made from: what `--plan` takes."""
    digest, subject = stack.crypter.digest, stack.subject()
    made = {**made_now(), "basis": _basis(options, stack, preview)}
    told = mask_plan(plan.model_copy(update=made), subject.program.secrets())
    return seal_plan(told, digest)


def origin_of(
    stack: Stack, environ: Mapping[str, str], message: str, saved: "SavedPlan | None"
) -> Origin:
    """Where a run comes from, and by which plan, for the history."""
    plan = (saved.basis.seal, saved.plan.made_at) if saved else None
    return Origin.of(stack.project.directory, environ, message=message, plan=plan)


def made_now() -> dict[str, str]:
    """What a plan says of when and by whom it was made."""
    now = datetime.fromtimestamp(get_clock(os.environ).now(), UTC)
    return {
        "made_at": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "made_by": f"gpuform {version('gpuform')}",
    }


def bound_of(plan: Plan, options: RunOptions, stack: Stack, preview: Outcome) -> PlanConstraint:
    """What a plan allows that was just made: the run that follows may do no more."""
    basis = _basis(options, stack, preview)
    return PlanConstraint.of(plan.model_copy(update={"basis": basis}), stack.crypter.digest)


def _basis(options: RunOptions, stack: Stack, preview: Outcome) -> Basis:
    digest = stack.crypter.digest
    before = basis_before(stack.subject(), _options(options), digest)
    return basis_after(before, preview, digest)


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A plan that was saved, and the file that it is in."""

    path: Path
    plan: Plan

    @classmethod
    def read(cls, path: Path, project: str, stack: str, operation: Operation) -> Self:
        """The plan of this stack. Raises EngineError for another stack's, and another operation's.

        An update (`up`) applies plans of every operation.
        """
        plan = read_plan(path)
        if plan.planned_with:
            others = ", ".join(each.removeprefix("organization/") for each in plan.planned_with)
            raise PlanRefused(
                f"{path} is a part of a plan of several stacks: it was planned with {others}",
                hint="apply the plan of all with `gpuform up --all --plan FILE`",
            )
        return cls.of(path, plan, project, stack, operation)

    @classmethod
    def of(cls, path: Path, plan: Plan, project: str, stack: str, operation: Operation) -> Self:
        """The same of a plan that was read from the file."""
        if (plan.project, plan.stack) != (project, stack):
            raise PlanRefused(
                f"{path} is a plan for stack {plan.stack} of project {plan.project}, "
                f"and this is stack {stack} of project {project}",
                hint=f"apply it with --stack {plan.stack} in its project, or {MAKE_A_NEW_ONE}",
            )
        if operation not in ("update", plan.operation) or plan.operation == "expire":
            raise PlanRefused(
                f"{path} is a plan of another operation: {plan.operation}",
                hint="`gpuform expire` plans for itself"
                if plan.operation == "expire"
                else f"apply it with `gpuform up --plan {path}`",
            )
        return cls(path, plan)

    @property
    def basis(self) -> Basis:
        if self.plan.basis is None:
            raise AssertionError("a saved plan has a basis")
        return self.plan.basis

    def taken_over(self, options: RunOptions) -> RunOptions:
        """The options with the plan's operation and options.

        Raises EngineError for an option given otherwise.
        """
        planned = {**_DEFAULTS, **{k: _plain(v) for k, v in self.basis.options.items()}}
        for name, given in _options(options).items():
            flag = f"--{name.replace('_', '-')}"
            if given not in (_DEFAULTS[name], planned[name]):
                how = f"with {flag} {_shown(planned[name])}".rstrip()
                how = how if planned[name] else f"without {flag}"
                raise PlanRefused(
                    f"{self.path} was made {how}",
                    hint=f"leave {flag} out: what the plan was made with is taken from it",
                )
        if planned.keys() != set(_KEPT):
            raise PlanRefused(f"{self.path} was made with options that this gpuform does not know")
        return replace(options, operation=self.plan.operation, **planned)

    def bound(self, options: RunOptions, stack: Stack) -> PlanConstraint:
        """What the plan allows, if its state and its configuration are still the stack's."""
        digest = stack.crypter.digest
        bound = PlanConstraint.of(self.plan, digest)
        self._refuse(bound.changes_since(basis_before(stack.subject(), _options(options), digest)))
        if not is_sealed(self.plan, digest):
            raise PlanRefused(f"{self.path} was edited after it was made", hint=MAKE_A_NEW_ONE)
        return bound

    def refuse_more(self, bound: PlanConstraint, plan: Plan, preview: Outcome) -> None:
        """Raises EngineError when a preview finds another program, or more to do than planned.

        `bound` is what the method `bound` gave: state and configuration are still what they were.
        """
        now = basis_after(self.basis, preview, bound.digest)
        others = other_repairs(self.plan, plan.changes)
        self._refuse([*bound.exceeded(now, plan.changes), *others])

    def _refuse(self, moved: Iterable[str]) -> None:
        lines = "".join(f"\n  {text}" for text in moved)
        if lines:
            raise PlanRefused(
                f"the plan {self.path} is overtaken, and nothing was changed:{lines}",
                hint=MAKE_A_NEW_ONE,
            )


def _options(options: RunOptions) -> dict[str, Any]:
    """What decides what a run may do; the order of names does not matter."""
    given = {name: getattr(options, name) for name in _KEPT}
    return {k: tuple(sorted(v)) if isinstance(v, tuple) else v for k, v in given.items()}


def _shown(value: Any) -> str:
    return "" if value is True else ", ".join(value) if isinstance(value, tuple) else str(value)


def _plain(value: Any) -> Any:
    """An option as the run's options have it: JSON knows no tuples."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(value) if is_list else value
