"""Define the options, target and outcome of a run, and the basis and seal of a saved plan.

`operations` builds options and targets; `deployment` reads them.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuform.providers.records import EphemeralRecords, Intents
from gpuform.schemas.plan import Basis, Plan, ResourceChange
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
from gpuform.stacks.engine.registration import (
    DeletionRule,
    Digest,
    Read,
    Registration,
    Rule,
    digests,
)
from gpuform.stacks.engine.state import (
    Journal,
    ResourceState,
    Selection,
    Snapshot,
)
from gpuform.stacks.engine.store import OtherStacks
from gpuform.stacks.engine.urn import STACK_TYPE, type_of
from gpuform.stacks.engine.values import Crypter, PropertyMap

Operation = Literal["update", "refresh", "destroy", "expire", "repair"]

DEFAULT_PARALLEL = 256
"""Provider calls at a time: waiting is cheap, and requests are limited per platform."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is to be done.

    `refresh` reads every resource first; `rules` and `deletion_rules` span resources; `selection`
    limits the run; with `continue_on_error` what does not need a failed resource goes on; a run
    that changes something keeps within the `constraint`, if there is one. The `calendar` says what
    is due in a run that expires; its selection is what is read before, and dependents of what ends
    go along only with `target_dependents`. `at_work` says who else changes the stack meanwhile.
    `deletes_first` says of a type and inputs whether a replacement that nobody orders deletes
    first. With `run_program` a refresh or destroy takes components and providers from the program.
    `resumed` says which objects a repair creates again when they are gone.
    A program that is a topology is run by `run_topology`, where there is one. `on_clock` hears how
    far this machine's clock is ahead of a platform's, in seconds, with each answer.
    """

    operation: Operation
    preview: bool
    refresh: bool = False
    parallel: int = DEFAULT_PARALLEL
    rules: Sequence[Rule] = ()
    selection: Selection = field(default_factory=Selection)
    continue_on_error: bool = False
    constraint: PlanConstraint | None = None
    calendar: Calendar | None = None
    resumed: Callable[[ResourceState], bool] = lambda _entry: False
    at_work: str = ""
    deletion_rules: Sequence[DeletionRule] = ()
    deletes_first: Callable[[str, Mapping[str, Any]], bool] = lambda _type, _inputs: False
    run_program: bool = False
    run_topology: TopologyRunner | None = None
    on_clock: Callable[[str, float | None], None] = lambda _platform, _ahead: None


@dataclass(frozen=True, slots=True)
class DeploymentTarget:
    """What a run is about: a stack with its state, program and secrets.

    `provider_config` is the configuration as the default provider's properties hold it; `write`
    puts a checkpoint on disk; `stack_references` reads other stacks; a run that changes something
    keeps a `journal`, if there is one; `others` are the other stacks of its backend, and
    `is_elsewhere` says whether an object, by its id, is theirs. `intents` are kept with the state;
    `check_lock` raises EngineError when the stack's lock is another's by now.
    """

    program: Program
    snapshot: Snapshot
    crypter: Crypter | None
    provider_config: PropertyMap
    write: Callable[[bytes], None]
    stack_references: StackReferences
    intents: Intents = field(default_factory=lambda: Intents(EphemeralRecords()))
    check_lock: Callable[[], None] = lambda: None
    is_elsewhere: Callable[[str], bool] = lambda _id: False
    journal: Journal | None = None
    others: OtherStacks | None = None


_NO_CHANGES = frozenset({Op.SAME, Op.READ, Op.DISCARD})


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    `changes` counts logical operations by Pulumi's names; `planned` says what changes, one entry
    for each of them; `effects` says what is done to which URN; `outputs` are the stack's, those
    before and those after; `declared` is what the program asked for; with `out_of_credit` a
    platform has refused something for want of credit; `scope` says what the selection takes along
    or leaves; `stack_references` are the full names of the stacks that it reads.
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
        """True if the run changed or would change the stack's own resources; reads do not count."""
        return any(n for op, n in self.changes.items() if op not in _NO_CHANGES)


def basis_before(subject: DeploymentTarget, options: Mapping[str, Any], digest: Digest) -> Basis:
    """Return the part of a plan's basis that is known before a preview."""
    program = subject.program
    return Basis(
        state=digests.compute_state_digests(subject.snapshot, digest),
        config=digests.compute_config_digests(program.config, program.secret_keys, digest),
        program={},
        options=options,
        key=digests.compute_digest(digest, "key"),
    )


def basis_after(before: Basis, preview: Outcome, digest: Digest) -> Basis:
    """Return the complete basis, with the declarations and effects of the preview."""
    program = digests.compute_program_digests(preview.declared, digest)
    for urn, parts in program.items():
        if type_of(urn) == STACK_TYPE:
            parts.update(digests.compute_export_digest(preview.outputs, digest))
    effects = {
        urn: tuple(sorted(step_effects)) for urn, step_effects in sorted(preview.effects.items())
    }
    program = dict(sorted(program.items()))
    return before.model_copy(update={"program": program, "effects": effects})


def seal_plan(plan: Plan, digest: Digest) -> Plan:
    """Return the plan with a seal that reveals later edits."""
    return _set_seal(plan, _compute_seal(plan, digest))


def is_sealed(plan: Plan, digest: Digest) -> bool:
    """Return True if the plan was not edited since it was sealed."""
    return plan.basis is not None and plan.basis.seal == _compute_seal(plan, digest)


def _compute_seal(plan: Plan, digest: Digest) -> str:
    return digests.compute_digest(digest, "plan", json.loads(_set_seal(plan, "").model_dump_json()))


def _set_seal(plan: Plan, seal: str) -> Plan:
    basis = plan.basis and plan.basis.model_copy(update={"seal": seal})
    return plan.model_copy(update={"basis": basis})
