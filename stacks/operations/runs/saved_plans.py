"""Save plans and apply them: `--save-plan` and `--plan`.

A saved plan records the state, configuration and options that it was made from. A later run with
the plan compares them with its own, and may change no more than the plan shows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from gpuform.providers.context import get_run_context
from gpuform.schemas.plan import Basis, Plan, ResourceChange
from gpuform.schemas.values import RemovalCount
from gpuform.stacks.engine.ci_job import find_ci_job
from gpuform.stacks.engine.deployment import (
    Operation,
    Outcome,
    build_initial_basis,
    complete_basis,
    is_sealed,
    seal_plan,
)
from gpuform.stacks.engine.machine import describe_release
from gpuform.stacks.engine.planning import NEW_PLAN_HINT, NEW_PREVIEW_HINT, PlanConstraint
from gpuform.stacks.engine.stack import (
    PLAN_MADE_AT,
    PLAN_PULL_REQUEST,
    PLAN_SEAL,
    Origin,
    Stack,
)
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.operations.runs.due_runs import describe_unplanned_repairs
from gpuform.stacks.operations.runs.options import RunOptions
from gpuform.stacks.operations.runs.plan_file import (
    PlanRefused,
    PlanRun,
    find_plan_run,
    mask_plan,
    read_content,
)
from gpuform.stacks.review.plan_files import UNKNOWN_FIELD, build_release_error, read_saved_plan

_RECORDED_OPTIONS = (
    *("refresh", "emulate", "target", "target_dependents", "exclude", "exclude_dependents"),
    *("replace", "target_replace", "run_program", "repair_nodes"),
)
_DEFAULTS = {f.name: f.default for f in fields(RunOptions) if f.name in _RECORDED_OPTIONS}


def require_digest(saved_plan: "SavedPlan | None", digest: str) -> None:
    """Raise PlanRefused unless the plan has the digest of the reviewed plan.

    Without a plan, PlanRefused is raised too.
    """
    if saved_plan is None:
        raise PlanRefused(
            "a digest was given, but no saved plan",
            hint="also pass the plan's file: --plan FILE",
        )
    if saved_plan.basis.seal != digest:
        raise PlanRefused(
            f"{saved_plan.path} is not the reviewed plan: its digest is "
            f"{saved_plan.basis.seal}, but {digest or 'an empty one'} was given",
            hint="review it with `gpuform review`, which shows its digest and its changes",
        )


def build_sealed_plan(plan: Plan, options: RunOptions, stack: Stack, preview: Outcome) -> Plan:
    """Return the plan of a preview, with basis, creation time and seal for the check by `--plan`.

    The secrets of the configuration are masked.
    """
    digest, subject = stack.crypter.compute_digest, stack.build_target()
    job = find_ci_job(stack.run_context.environ)
    updates = {
        **describe_creation(),
        # The job that applies the plan runs after the merge, and knows the commit alone.
        "pull_request": job.pull_request if job else "",
        "basis": _build_basis(options, stack, preview),
    }
    masked_plan = mask_plan(plan.model_copy(update=updates), subject.program.collect_secrets())
    # Masked first: the seal is computed over what the file holds.
    return seal_plan(masked_plan, digest)


def build_origin(stack: Stack, message: str, saved_plan: "SavedPlan | None") -> Origin:
    """Return the origin of a run for the history: source, message and saved plan."""
    plan = saved_plan.plan if saved_plan else None
    facts = (
        {
            PLAN_SEAL: plan.basis.seal,
            PLAN_MADE_AT: plan.made_at,
            PLAN_PULL_REQUEST: plan.pull_request,
        }
        if plan and plan.basis
        else None
    )
    environ = stack.run_context.environ
    return Origin.from_command(stack.project.directory, environ, message=message, plan=facts)


def describe_creation() -> dict[str, str]:
    """Return a plan's fields for the current time and this release of gpuform."""
    now = datetime.fromtimestamp(get_run_context().clock.now(), UTC)
    return {
        "made_at": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "made_by": describe_release(),
    }


def build_constraint(
    plan: Plan, options: RunOptions, stack: Stack, preview: Outcome
) -> PlanConstraint:
    """Return the constraint with which the following run does no more than `plan`."""
    basis = _build_basis(options, stack, preview)
    return _build_preview_constraint(plan, basis, stack)


def build_import_constraint(plan: Plan, stack: Stack, preview: Outcome) -> PlanConstraint:
    """Return the constraint with which the following run imports no more than `plan` shows.

    An import takes an object that somebody else has created: never another one than the preview has
    shown, and without changes that the preview has not shown.
    """
    imports = {urn: effects for urn, effects in preview.effects.items() if "import" in effects}
    declared = [item for item in preview.declared if item.urn in imports]
    empty_basis = Basis(state={}, config={}, program={})
    imports_preview = replace(preview, effects=imports, declared=declared)
    basis = complete_basis(empty_basis, imports_preview, stack.crypter.compute_digest)
    constraint = _build_preview_constraint(plan, basis, stack)
    return replace(constraint, limits_imports_only=True)


def _build_preview_constraint(plan: Plan, basis: Basis, stack: Stack) -> PlanConstraint:
    """Return the constraint of a plan that was shown by the run itself, and not saved."""
    constraint = PlanConstraint.from_plan(
        plan.model_copy(update={"basis": basis}), stack.crypter.compute_digest
    )
    return replace(constraint, hint=NEW_PREVIEW_HINT)


def _build_basis(options: RunOptions, stack: Stack, preview: Outcome) -> Basis:
    """Return the digests of options, state, configuration and preview for a saved plan."""
    digest = stack.crypter.compute_digest
    before = build_initial_basis(stack.build_target(), _collect_options(options), digest)
    return complete_basis(before, preview, digest)


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """A saved plan, and its file.

    `content` is the JSON of the plan as it stands in the file. With `can_continue` a run of the
    plan that has failed, or was lost with its machine, is continued.
    """

    path: Path
    plan: Plan
    content: bytes = field(repr=False)
    can_continue: bool = False

    @classmethod
    def read(cls, path: Path, project: str, stack: str, operation: Operation) -> Self:
        """Read the plan of a file. An update (`up`) applies plans of every operation.

        Raises:
            EngineError: the file cannot be read, or its plan belongs to another stack or operation,
                is one of `expire`, or was planned with the planned outputs of other stacks.
        """
        content = read_content(path)
        plan = read_saved_plan(str(path), content)
        # The plan has values that only the apply of the other plans produces.
        if plan.planned_with:
            others = ", ".join(
                stack_name.removeprefix("organization/") for stack_name in plan.planned_with
            )
            raise PlanRefused(
                f"{path} is a part of a plan of several stacks, planned with {others}",
                hint="apply the complete plan with `gpuform up --all --plan FILE`",
            )
        saved_plan = cls(path, plan, content)
        saved_plan.require_fit(project, stack, operation)
        return saved_plan

    @classmethod
    def from_content(
        cls, path: Path, content: bytes, project: str, stack: str, operation: Operation
    ) -> Self:
        """Return the saved plan in the JSON of `path`, after checking stack and operation.

        The operation `update` applies plans of every operation but `expire`, others only their own.

        Raises:
            EngineError: the content is no saved plan, the plan belongs to another stack, or
                `operation` does not apply it.
        """
        saved_plan = cls(path, read_saved_plan(str(path), content), content)
        saved_plan.require_fit(project, stack, operation)
        return saved_plan

    def require_fit(self, project: str, stack: str, operation: Operation) -> None:
        """Raise PlanRefused if the plan is of another stack, or `operation` does not apply it."""
        path, plan = self.path, self.plan
        if (plan.project, plan.stack) != (project, stack):
            raise PlanRefused(
                f"{path} is a plan for stack {plan.stack} of project {plan.project}, but "
                f"this is stack {stack} of project {project}",
                hint=f"apply it with --stack {plan.stack} in its project, or {NEW_PLAN_HINT}",
            )
        # What is due depends on the time of the run: a plan of `expire` is outdated at once.
        if operation not in ("update", plan.operation) or plan.operation == "expire":
            raise PlanRefused(
                f"{path} is a plan of another operation: {plan.operation}",
                hint="`gpuform expire` makes its own plan"
                if plan.operation == "expire"
                else f"apply it with `gpuform up --plan {path}`",
            )

    @property
    def basis(self) -> Basis:
        """Return the basis: the digests of all sources of the plan, and the plan's options.

        Every saved plan has a basis.
        """
        if self.plan.basis is None:
            raise AssertionError("a saved plan has a basis")
        return self.plan.basis

    def merge_options(self, options: RunOptions) -> RunOptions:
        """Return the options with the plan's operation and recorded options.

        Raises:
            PlanRefused: the user set an option to another value, or the plan has an option that
                this release does not know.
        """
        planned = {**_DEFAULTS, **{k: _list_to_tuple(v) for k, v in self.basis.options.items()}}
        for name, value in _collect_options(options).items():
            flag = f"--{name.replace('_', '-')}"
            if value not in (_DEFAULTS[name], planned[name]):
                condition = f"with {flag} {_format_value(planned[name])}".rstrip()
                condition = condition if planned[name] else f"without {flag}"
                raise PlanRefused(
                    f"{self.path} was made {condition}",
                    hint=f"leave {flag} out: the plan contains its value",
                )
        # A plan of a newer gpuform may be limited by an option that this release would ignore.
        if planned.keys() != set(_RECORDED_OPTIONS):
            unknown_name = min(planned.keys() - set(_RECORDED_OPTIONS))
            problem = f"basis.options.{unknown_name}: {UNKNOWN_FIELD}"
            raise build_release_error(str(self.path), self.plan.made_by, problem)
        return replace(options, operation=self.plan.operation, **planned)

    def require_current(self, options: RunOptions, stack: Stack) -> PlanConstraint | None:
        """Return the plan's constraint if state and configuration have not changed since.

        A run that continues the last run of the same plan begins with another state: the constraint
        still allows no more than the plan. With `can_continue`, None stands for a plan that the
        last run has applied.

        Raises:
            PlanRefused: the state or the configuration has changed, or the file was edited.
        """
        digest = stack.crypter.compute_digest
        constraint = PlanConstraint.from_plan(self.plan, digest)
        run = self._find_run(stack) if self.can_continue else PlanRun.NONE
        # Another machine may have applied the plan while this one waited for the lock.
        if run is PlanRun.DONE:
            return None
        is_continued = run is PlanRun.UNFINISHED
        if is_continued:
            # What the lost run has created is known now: unknown parts are not compared.
            constraint = replace(constraint, reads_others=True)
        self._refuse_if_any(
            constraint.find_basis_changes(
                build_initial_basis(stack.build_target(), _collect_options(options), digest),
                compares_state=not is_continued,
            )
        )
        if not is_sealed(self.content, digest):
            raise PlanRefused(f"{self.path} was edited after it was saved", hint=NEW_PLAN_HINT)
        return constraint

    def _find_run(self, stack: Stack) -> PlanRun:
        """Return from the stack's history whether and how the plan was run. Raises EngineError."""
        history = stack.backend.open_history(stack.project.name, stack.name)
        return find_plan_run(history, self.basis.seal)

    def reject_additional_changes(
        self, constraint: PlanConstraint, plan: Plan, preview: Outcome
    ) -> None:
        """Raise PlanRefused if a new preview has another program or more changes than the plan.

        `constraint` is the result of `require_current`.
        """
        new_basis = complete_basis(self.basis, preview, constraint.digest)
        self._refuse_if_any(
            [
                *constraint.find_excess(new_basis, plan.changes),
                *describe_unplanned_repairs(self.plan, plan.changes),
                *describe_unplanned_removals(self.plan, plan.changes),
            ]
        )

    def _refuse_if_any(self, differences: Iterable[str]) -> None:
        """Raise PlanRefused with all differences, if there are any."""
        lines = "".join(f"\n  {difference}" for difference in differences)
        if lines:
            raise PlanRefused(
                f"the plan {self.path} is out of date, and nothing was changed:{lines}",
                hint=NEW_PLAN_HINT,
            )


def describe_unplanned_removals(
    saved_plan: Plan, new_changes: Iterable[ResourceChange]
) -> Iterator[str]:
    """Yield a message for each change of a new preview that removes more than the saved plan.

    Somebody may have enlarged a cluster since the plan: then a planned growth would shrink it.
    """
    planned_removals = sum_removals(saved_plan.changes)
    for urn, removal in sum_removals(new_changes).items():
        planned_removal = planned_removals.get(urn, RemovalCount())
        if removal.exceeds(planned_removal):
            yield (
                f"{name_of(urn)}: this would remove {removal}, and the plan removes "
                f"{planned_removal}"
            )


def sum_removals(changes: Iterable[ResourceChange]) -> dict[str, RemovalCount]:
    """Return what the changes remove, by URN. Old objects have the URN of their replacement."""
    removals: dict[str, RemovalCount] = {}
    for change in changes:
        removals[change.urn] = removals.get(change.urn, RemovalCount(0, 0)) + change.removal
    return removals


def _collect_options(options: RunOptions) -> dict[str, Any]:
    """Return the options which decide about a run's changes, with lists sorted for comparison."""
    values = {name: getattr(options, name) for name in _RECORDED_OPTIONS}
    return {k: tuple(sorted(v)) if isinstance(v, tuple) else v for k, v in values.items()}


def _format_value(value: Any) -> str:
    """Format the value of a flag; empty for a switch."""
    return "" if value is True else ", ".join(value) if isinstance(value, tuple) else str(value)


def _list_to_tuple(value: Any) -> Any:
    """Return lists as tuples, which RunOptions has where JSON has lists."""
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    return tuple(value) if is_list else value
