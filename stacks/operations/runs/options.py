"""Define the options and the results of operations."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpuform.providers.values import PropertyMap, contains_secret, drop_unknowns, unwrap_secrets
from gpuform.schemas.errors import EngineError
from gpuform.schemas.safe_text import MASK
from gpuform.stacks.engine.state import ResourceState, Selection, UrnPatterns

# The help of commands loads the options, and neither pydantic nor the engine.
if TYPE_CHECKING:
    from gpuform.schemas.plan import GateResult, Plan
    from gpuform.stacks.engine.planning import Diagnostic
    from gpuform.stacks.engine.stack import Stack

ReportSubject = Literal["", "nothing", "failure", "approval", "findings", "run"]
"""What of an operation is reported to people: a failure only, a plan that waits for approval, what
was found, or all; empty for what the options say."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `preview`, `up`, `refresh`, `destroy`, `expire` and `repair`.

    Attributes:
        operation: set by the called function.
        preview_only: change nothing, and return the pending changes.
        skip_preview: apply without a preview, unless gates or limited API keys need one.
        parallel: how many resource operations run at a time; None for the engine's own limit.
        refresh: refresh the resources before an update or destroy; None for the project's setting.
        expect_no_changes: return UNEXPECTED_CHANGES if there are any.
        emulate: run on the emulator of the project.
        allow: names of permissions.
        gates_from: the git revision whose gates, prices and policies judge the plan; None for
            those of the folder.
        event_log: the file of Pulumi's event log.
        profile: the file of a trace of the run's requests.
        target: URNs, names and patterns of the resources that the run is limited to.
        target_dependents: include the dependents of the targets.
        exclude: URNs, names and patterns of resources that are left alone.
        exclude_dependents: leave the dependents of excluded resources alone, too.
        replace: URNs, names and patterns of resources that are replaced.
        target_replace: resources that are targeted and replaced.
        continue_on_error: continue with the resources that do not depend on a failed one.
        save_plan: the file that gets a preview's plan.
        plan: the file of a plan that limits the changes.
        digest: the digest that this plan must have.
        message: a message for the history.
        adopt: ids of objects that the user attributes to interrupted creates.
        create_anew: no object belongs to an interrupted create: create again.
        require_checks: fail if a check could not be made.
        config: keys and values that are set in the stack's settings file before the run.
        config_path: the keys of `config` are paths into values.
        exclude_protected: leave protected resources alone.
        remove: remove the stack after its resources were destroyed.
        run_program: a refresh or destroy runs the program, for its components and providers.
        clear_pending_creates: a refresh forgets interrupted creates that no provider can look for.
        repair_nodes: the nodes to repair, each as NODE or NODE=MODE; empty for all broken ones.
        reviewed: whether a person sees the plan, where the caller asks elsewhere; None derives it
            from `confirm`.

    Raises:
        EngineError: `preview_only` and `skip_preview` are both set.
    """

    operation: Literal["update", "refresh", "destroy", "expire", "repair"] = "update"
    preview_only: bool = False
    skip_preview: bool = False
    parallel: int | None = None
    refresh: bool | None = None
    expect_no_changes: bool = False
    emulate: bool = False
    allow: tuple[str, ...] = ()
    gates_from: str | None = None
    event_log: Path | None = None
    profile: Path | None = None
    target: tuple[str, ...] = ()
    target_dependents: bool = False
    exclude: tuple[str, ...] = ()
    exclude_dependents: bool = False
    replace: tuple[str, ...] = ()
    target_replace: tuple[str, ...] = ()
    continue_on_error: bool = False
    save_plan: Path | None = None
    plan: Path | None = None
    digest: str | None = None
    message: str = ""
    adopt: tuple[str, ...] = ()
    create_anew: bool = False
    require_checks: bool = False
    config: tuple[tuple[str, str], ...] = ()
    config_path: bool = False
    exclude_protected: bool = False
    remove: bool = False
    run_program: bool = False
    clear_pending_creates: bool = False
    repair_nodes: tuple[str, ...] = ()
    reviewed: bool | None = None

    def __post_init__(self) -> None:
        if self.preview_only and self.skip_preview:
            raise EngineError(
                "a run that only previews cannot skip its preview: preview_only and skip_preview "
                "are both set",
                hint="leave one out; with preview_only nothing is changed",
            )

    @property
    def command(self) -> str:
        """Return the name of the command behind the operation, for messages."""
        if self.preview_only and self.operation == "update":
            return "preview"
        return "up" if self.operation == "update" else self.operation

    @property
    def selection(self) -> Selection:
        """Return the selection of resources by the run's flags."""
        return Selection(
            targets=UrnPatterns((*self.target, *self.target_replace)),
            excludes=UrnPatterns(self.exclude),
            replace=UrnPatterns((*self.replace, *self.target_replace)),
            target_dependents=self.target_dependents,
            exclude_dependents=self.exclude_dependents,
        )


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """One object by `type_`, `name` and `id_`, or `everything` in a platform's account.

    Attributes:
        types: with `everything`, the types of the objects to import; empty for all but those that
            only group other objects.
        names: with `everything`, patterns of names; empty for all.
        regions: the regions to list; empty for all, or for the default one where each region has
            an address of its own.
        tags: with `everything`, tags that an object must have.
        set_values: names of inputs that no platform reports, and their values as on the command
            line.
        parent: the name or URN of the parent resource.
        protect: protect the imported resources from deletion.
        out: the file that gets the entries; None for the topology or program of the stack.
        python: write statements of a Python program.
        preview_only: return the entries, and write nothing.
    """

    type_: str | None = None
    name: str | None = None
    id_: str | None = None
    everything: bool = False
    platform: str | None = None
    types: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    regions: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    set_values: tuple[tuple[str, str], ...] = ()
    parent: str | None = None
    protect: bool = False
    out: Path | None = None
    python: bool = False
    preview_only: bool = False
    parallel: int | None = None
    emulate: bool = False


class ExitReason(StrEnum):
    """Why an operation ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    DECLINED = "declined"
    """The user did not confirm the plan."""
    POLICY_VIOLATION = "policy-violation"
    """A mandatory gate stops the plan."""
    UNCHECKED = "unchecked"
    """A required check could not be made."""
    UNEXPECTED_CHANGES = "unexpected-changes"
    OUT_OF_CREDIT = "out-of-credit"
    END_UNKNOWN = "end-unknown"
    """A resource has a time to live, but its creation time is unknown."""
    DUE = "due"
    """A preview of `expire` or `repair` has found something that is due."""


@dataclass(frozen=True, slots=True)
class OutputValue:
    """An output of the stack in plain text; the repr of a secret output hides its value."""

    value: Any
    secret: bool

    def __repr__(self) -> str:
        # Programs that use the API may log results.
        value_text = MASK if self.secret else repr(self.value)
        return f"OutputValue(value={value_text}, secret={self.secret})"


@dataclass(frozen=True, slots=True)
class FinalState:
    """The open stack at the end of an operation, and its resources as the operation has seen them.

    `now` is the operation's time in Unix seconds, by an emulator's clock with `has_emulated_clock`.
    """

    stack: "Stack"
    entries: Sequence[ResourceState]
    now: float
    has_emulated_clock: bool = False
    emulated: bool = False


@dataclass(frozen=True)
class RunResult:
    """The result of `preview`, `up`, `refresh`, `destroy`, `expire` or `repair`.

    Attributes:
        preview: the last run was a preview: nothing was changed.
        outputs: the stack's outputs, without values that a preview cannot know.
        was_applied: an earlier run has applied the saved plan, and nothing was done.
        changes: the number of operations by Pulumi's names: create, update, same, ...
        gates: the gates that stop the plan.
        unchecked: the checks that could not be made, where they stop the plan.
        unknown_ends: the names of resources with an unknown expiry time.
        refusals: the reasons why `expire` left something due unchanged.
        seconds: the duration of the last run.
        build_plan: builds `plan`; None where a preview failed.
        seal_plan: returns the plan that limits a later run; receives the seals of the plans of
            other stacks that the plan depends on, and the digest of all stacks that are planned
            together.
        planned_outputs: the planned outputs in the engine's form, with secrets and unknown values.
        final_state: the stack at the end of the operation.
    """

    reason: ExitReason
    preview: bool
    outputs: Mapping[str, OutputValue] = field(default_factory=dict)
    changes: Mapping[str, int] = field(default_factory=dict)
    has_changes: bool = False
    was_applied: bool = False
    diagnostics: Sequence["Diagnostic"] = ()
    gates: Sequence["GateResult"] = ()
    unchecked: Sequence[str] = ()
    unknown_ends: Sequence[str] = ()
    refusals: Sequence[str] = ()
    seconds: float = 0.0
    build_plan: "Callable[[], Plan] | None" = field(default=None, repr=False)
    seal_plan: "Callable[[Mapping[str, str], str], Plan] | None" = field(default=None, repr=False)
    planned_outputs: PropertyMap = field(default_factory=dict, repr=False)
    final_state: FinalState | None = field(default=None, repr=False)

    @property
    def succeeded(self) -> bool:
        return self.reason is ExitReason.SUCCEEDED

    @cached_property
    def plan(self) -> "Plan | None":
        """Return the planned or made changes, with secrets masked; None where a preview failed."""
        return None if self.build_plan is None else self.build_plan()


def convert_outputs(outputs: PropertyMap) -> dict[str, OutputValue]:
    """Return a stack's outputs in plain text, without outputs unknown in a preview."""
    return {
        name: OutputValue(unwrap_secrets(value), contains_secret(value))
        for name, value in drop_unknowns(outputs).items()
    }
