"""The options of operations: one frozen class for runs, one for imports."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import Selection, UrnPatterns


@dataclass(frozen=True, slots=True)
class RunOptions:
    """The options of `preview`, `up`, `refresh`, `destroy`, `expire` and `repair`.

    The called function sets `operation`; with `preview_only` nothing is changed.

    `parallel` None: the engine's own limit. `allow` holds names of permissions; `target`, `exclude`
    and
    `replace` hold URNs, names and patterns; `target_replace` holds resources that are targeted and
    replaced. `event_log` is the file of Pulumi's event log, `profile` the file of a trace,
    `save_plan`
    the file of a preview's plan, `plan` the file of a plan that limits the changes, and `digest`
    the
    digest that this plan must have. `message` is for the history. `adopt` holds ids of objects that
    the
    user attributes to interrupted creates; `create_anew` says that no object is one. `config` is
    set in
    the stack's file before the run, by paths with `config_path`. `exclude_protected` excludes
    protected
    resources. With `remove` a destroyed stack is removed, too. With `run_program` a refresh or
    destroy
    takes components and providers from the program; with `clear_pending_creates` a refresh forgets
    interrupted creates that nothing can look for. With `require_checks` a plan fails if a check
    could
    not be made. `repair_nodes` are the nodes to repair, each as NODE or NODE=MODE; empty for all
    broken
    ones. `reviewed` says whether a person sees the plan, where a caller asks elsewhere. `refresh`
    None:
    as the project says.
    """

    operation: Literal["update", "refresh", "destroy", "expire", "repair"] = "update"
    preview_only: bool = False
    skip_preview: bool = False
    parallel: int | None = None
    refresh: bool | None = None
    expect_no_changes: bool = False
    emulate: bool = False
    allow: tuple[str, ...] = ()
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
                hint="leave one of them out; with preview_only nothing is changed",
            )

    @property
    def selection(self) -> Selection:
        """Return the resources that the run is limited to."""
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

    `types`, `names`, `regions` and `tags` filter `everything`; `given` are inputs, as texts, that
    no platform reports; `out` is the file that gets the entries.
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
    given: tuple[tuple[str, str], ...] = ()
    parent: str | None = None
    protect: bool = False
    out: Path | None = None
    python: bool = False
    preview_only: bool = False
    parallel: int | None = None
    emulate: bool = False
