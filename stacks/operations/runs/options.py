"""The options of operations: one frozen class for runs, one for imports."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.state import Selection, UrnPatterns

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
        """Return the name of the command that runs such an operation, for messages."""
        if self.preview_only and self.operation == "update":
            return "preview"
        return "up" if self.operation == "update" else self.operation

    @property
    def selection(self) -> Selection:
        """Return the resources selected for the run."""
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
