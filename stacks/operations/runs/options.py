"""What is asked of an operation, as data: one frozen value for each kind."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state import Selection, UrnPatterns


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How `preview`, `up`, `refresh`, `destroy` and `expire` go about it.

    `operation` is set by the function that is called; with `preview_only` it changes nothing.

    `parallel` None: the engine's own limit. `allow` holds names of permissions, as given; `target`,
    `exclude` and `replace` hold URNs, names and patterns; what `target_replace` holds is both a
    target and replaced. `event_log` is the file that Pulumi's event log goes to, `profile` the one
    that a trace goes to, `save_plan` the one that a preview's plan goes to, `plan` the one whose
    plan is a bound, and `digest` the one that it has to have. `message` is for the history. `adopt`
    holds ids of objects that an interrupted create is said to have made; with `create_anew` none
    is. `config` is set in the stack's file before the run, by paths with `config_path`.
    `exclude_protected` adds what is protected to what is excluded. With `remove` a destroyed stack
    is removed, too. With `run_program` a refresh or destroy takes components and providers from the
    program; with `clear_pending_creates` a refresh forgets the creates that were interrupted and
    that nothing can look for. With `require_checks` a plan fails whose checks could not be made.
    `repair_nodes` are the nodes that a repair is for, each as NODE or NODE=MODE; with none it is
    for all broken ones. `reviewed` says whether a person sees the plan, where that is asked
    elsewhere. `refresh` None: as the project says.
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
        """The resources that the run is limited to."""
        return Selection(
            targets=UrnPatterns((*self.target, *self.target_replace)),
            excludes=UrnPatterns(self.exclude),
            replace=UrnPatterns((*self.replace, *self.target_replace)),
            target_dependents=self.target_dependents,
            exclude_dependents=self.exclude_dependents,
        )


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """`import_`: one object by `type_`, `name` and `id_`, or `everything` of a platform's account.

    `types`, `names`, `regions` and `tags` say what of that; `given` are inputs, as texts, that no
    platform tells; `out` is the file that gets the entries.
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
