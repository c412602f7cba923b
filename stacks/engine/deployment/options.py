"""Define the options, target and outcome of a run, and the basis and seal of a saved plan.

`operations` builds options and targets and saves plans; `Deployment` reads options and builds the
outcome.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.providers.values import PropertyMap
from gpuform.schemas.plan import Basis, Plan, ResourceChange
from gpuform.schemas.values import RemovalCount
from gpuform.stacks.engine import digests
from gpuform.stacks.engine.digests import DeletionRule, Digest, Rule
from gpuform.stacks.engine.executing import (
    Calendar,
    StackReferences,
)
from gpuform.stacks.engine.language_host import (
    Program,
    TopologyRunner,
)
from gpuform.stacks.engine.planning import (
    Op,
    PlanConstraint,
)
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import (
    Journal,
    ResourceState,
    Selection,
    Snapshot,
)
from gpuform.stacks.engine.store import OtherStacks
from gpuform.stacks.engine.urn import STACK_TYPE, type_of
from gpuform.stacks.engine.value_json import Crypter

Operation = Literal["update", "refresh", "destroy", "expire", "repair"]

DEFAULT_PARALLEL = 256
"""Provider calls at a time: waiting is cheap, and requests are limited per platform."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    `refresh` reads every resource first; `rules` and `deletion_rules` are checked against the
    planned resources and deletions; `selection` limits the run; with `continue_on_error`, resources
    that do not depend on a failed one continue. `constraint` limits the changes to those of a saved
    plan. `planned_removals` are the most that a real run may remove of each resource, by URN.
    `calendar` finds the due changes of an expire or repair; there, `selection` limits what is
    read before, and dependents of expired resources are deleted only with `target_dependents`.
    `concurrent_run` describes another process that changes the stack meanwhile.
    `should_delete_first` says for a type and inputs whether a replacement without an explicit order
    deletes the old object first. With `run_program` a refresh or destroy takes components and
    providers from the program. `should_resume` says which objects a repair creates again when they
    are missing. `run_topology` runs a program that is a topology file. `on_clock_skew` gets, with
    each answer, a platform and how many seconds this machine's clock is ahead of the platform's.
    """

    operation: Operation
    preview: bool
    refresh: bool = False
    parallel: int = DEFAULT_PARALLEL
    rules: Sequence[Rule] = ()
    selection: Selection = field(default_factory=Selection)
    continue_on_error: bool = False
    constraint: PlanConstraint | None = None
    planned_removals: Mapping[str, RemovalCount] = field(default_factory=dict)
    calendar: Calendar | None = None
    should_resume: Callable[[ResourceState], bool] = lambda _entry: False
    concurrent_run: str = ""
    deletion_rules: Sequence[DeletionRule] = ()
    should_delete_first: Callable[[str, Mapping[str, Any]], bool] = lambda _type, _inputs: False
    run_program: bool = False
    run_topology: TopologyRunner | None = None
    on_clock_skew: Callable[[str, float | None], None] = lambda _platform, _ahead: None


@dataclass(frozen=True, slots=True)
class DeploymentTarget:
    """The stack that a run is about, with its state, program and secrets.

    `provider_config` is the configuration in the form of the default provider's properties; `write`
    stores a checkpoint; `stack_references` reads other stacks; a run with changes writes the
    `journal`; `others` are the other stacks of the backend, and `belongs_to_other_stack` says
    whether one of them has the object with an id. `intents` are stored beside the state;
    `check_lock` raises EngineError when another process has taken the stack's lock.
    """

    program: Program
    snapshot: Snapshot
    crypter: Crypter | None
    provider_config: PropertyMap
    write: Callable[[bytes], None]
    stack_references: StackReferences
    intents: Intents = field(default_factory=lambda: Intents(EphemeralRecords()))
    check_lock: Callable[[], None] = lambda: None
    belongs_to_other_stack: Callable[[str], bool] = lambda _id: False
    journal: Journal | None = None
    others: OtherStacks | None = None


_NO_CHANGES = frozenset({Op.SAME, Op.READ, Op.DISCARD})


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a run.

    `changes` counts logical operations by Pulumi's names; `planned` has one change for each of
    them; `effects` are the effects of the executed steps by URN; `outputs_before` and `outputs` are
    the outputs of the stack; `declared` are the registrations and reads of the program;
    `out_of_credit` is True if a platform refused a step for lack of credit; `scope` are the notes
    on the selection; `stack_references` are the full names of the stacks that were read.
    """

    succeeded: bool
    cancelled: bool
    changes: Mapping[str, int]
    planned: Sequence[ResourceChange]
    outputs_before: PropertyMap
    outputs: PropertyMap
    snapshot: Snapshot
    seconds: float
    effects: Mapping[str, Collection[str]] = field(default_factory=dict)
    declared: Sequence[Registration | Read] = ()
    out_of_credit: bool = False
    scope: Sequence[str] = ()
    stack_references: Sequence[str] = ()

    @property
    def has_changes(self) -> bool:
        """True if the run changed or would change the stack's own resources; reads do not count.

        An old object that an interrupted replacement has left is no counted change: its deletion is
        found in the effects.
        """
        return any(n for op, n in self.changes.items() if op not in _NO_CHANGES) or any(
            "delete" in effects for effects in self.effects.values()
        )


def build_initial_basis(
    target: DeploymentTarget, options: Mapping[str, Any], digest: Digest
) -> Basis:
    """Build the basis of a plan from the state and configuration before the preview.

    Declarations and effects are still empty; see `complete_basis`.
    """
    program = target.program
    return Basis(
        state=digests.compute_state_digests(target.snapshot, digest),
        config=digests.compute_config_digests(program.config, program.secret_keys, digest),
        program={},
        options=options,
        key=digests.compute_digest(digest, "key"),
    )


def complete_basis(before: Basis, preview: Outcome, digest: Digest) -> Basis:
    """Return `before`, with the digests of the preview's declarations and the effects by URN.

    The stack's declaration also has the digest of the names of its outputs.
    """
    program = digests.compute_program_digests(preview.declared, digest)
    for urn, parts in program.items():
        if type_of(urn) == STACK_TYPE:
            parts.update(digests.compute_export_digest(preview.outputs, digest))
    effects = {
        urn: tuple(sorted(step_effects)) for urn, step_effects in sorted(preview.effects.items())
    }
    program = dict(sorted(program.items()))
    return before.model_copy(update={"program": program, "effects": effects})


_LATER_FIELDS: Final = ("rehearsal", "stacks_digest")
"""Fields without which the first plan files were sealed; left out where they have no value."""


def seal_plan(plan: Plan, digest: Digest) -> Plan:
    """Return the plan with a keyed seal, by which an apply recognizes later edits.

    The seal holds for the JSON of the returned plan with all of its fields (`model_dump_json`). A
    plan without a basis gets no seal.
    """
    if plan.basis is None:
        return plan
    seal = _compute_seal(json.loads(plan.model_dump_json()), digest)
    return plan.model_copy(update={"basis": plan.basis.model_copy(update={"seal": seal})})


def is_sealed(content: str | bytes, digest: Digest) -> bool:
    """Return True if the JSON of a plan, as it stands in a file, is unchanged since `seal_plan`.

    The text counts, and not the plan that this release reads from it: the fields of an older
    release are neither more nor fewer than those that were sealed.
    """
    document = json.loads(content)
    basis = document.get("basis")
    return basis is not None and basis.get("seal") == _compute_seal(document, digest)


def _compute_seal(document: Mapping[str, Any], digest: Digest) -> str:
    """Compute the keyed digest of a plan's JSON, without regard to a seal in its basis."""
    sealed_fields = {
        name: value
        for name, value in document.items()
        if name not in _LATER_FIELDS or value not in (None, "")
    }
    sealed_fields["basis"] = {**document["basis"], "seal": ""}
    return digests.compute_digest(digest, "plan", sealed_fields)
