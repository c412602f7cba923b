"""Check inputs by their provider, and keep a run within its saved plan and selection.

The step generator calls `check_inputs`. The step executor and the resource monitor compare steps
and declarations with the saved plan. `deployment` prints the notes on the selection.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import PropertyMap, unwrap_secrets
from gpuform.schemas.errors import EngineError
from gpuform.schemas.plan import Basis, Plan, PropertyChange, ResourceChange
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.digests import (
    EXPORTS,
    INPUTS,
    UNKNOWN_MARK,
    Digest,
    compute_registration_digests,
)
from gpuform.stacks.engine.planning.steps import WRITING_ACTIONS, Step, find_unplanned_changes
from gpuform.stacks.engine.provider_host import PropertyFailure, ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.state import ResourceState, Selection, graph
from gpuform.stacks.engine.urn import is_noise, is_urn, name_of


class CheckFailed(EngineError):
    """A provider refused inputs; `problems` are pairs of property path and message."""

    help_page = "concepts/plan"

    def __init__(self, problems: Sequence[tuple[str, str]]) -> None:
        super().__init__("\n".join(message for _, message in problems))
        self.problems = tuple(problems)


def check_inputs(
    host: ProviderHost,
    registration: Registration,
    olds: PropertyMap,
    news: PropertyMap,
    provider: str = "",
    *,
    existing: PropertyMap | None = None,
) -> PropertyMap:
    """Ask the provider to check the inputs of `registration`, and return the checked inputs.

    `olds` are the inputs in the state, empty for a new object; `news` are the inputs to check.
    `existing` has the inputs of an object that a new one replaces; it is empty for an import.

    Raises:
        CheckFailed: the provider refused a property.
    """
    inputs, failures = host.check(registration.urn, olds, news, provider, existing=existing)
    if failures:
        raise CheckFailed(
            [(f.property, _format_check_failure(registration, news, f)) for f in failures]
        )
    return inputs


def format_property_problem(registration: Registration, subject: str, reason: str) -> str:
    """Format a refused property as Pulumi does; `subject` is a path, perhaps with a value."""
    return (
        f"{registration.type} resource '{registration.name}': property {subject} "
        f"has a problem: {reason}"
    )


def _format_check_failure(
    registration: Registration, news: PropertyMap, failure: PropertyFailure
) -> str:
    """Format the provider's complaint about an input, with a plain and not secret value.

    Secrets, lists and objects are not shown.
    """
    value = news.get(property_paths.get_root(failure.property))
    unwrapped = unwrap_secrets(value)
    value_suffix = ""
    # A secret must not appear in a message; a list or map would be too long.
    if unwrapped == value and isinstance(value, str | float | int | bool):
        is_float = isinstance(value, float)
        value_suffix = (
            f" value {f'{value:g}' if is_float else json.dumps(value, ensure_ascii=False)}"
        )
    return format_property_problem(
        registration, f"{failure.property}{value_suffix}", failure.reason
    )


NEW_PLAN_HINT: Final = (
    "make a new plan with `gpuform preview --save-plan FILE` (or `destroy`, `refresh`), and apply "
    "the new plan: a plan can be applied only once"
)
"""The hint for a plan that cannot be applied any more."""

NEW_PREVIEW_HINT: Final = (
    "run the command again, and look at its new preview; if this error stays, the program declares "
    "something else in a run than in a preview"
)
"""The hint for a run that would do more than its own preview has shown."""

# A saved plan is an upper bound: these effects may take the place of a planned one.
_LESSER_EFFECTS = {
    "replace": {"update"},
    "delete": {"forget"},
}
_IMPORT: Final = "import"
_EFFECT_PARTICIPLES = {
    "create": "created",
    "update": "updated",
    "replace": "replaced",
    "delete": "deleted",
    "forget": "forgotten",
    _IMPORT: "imported",
    "refresh": "imported from its platform",
}

# While an input is unknown, the list of resources that it comes from may be incomplete too.
_PARTS_KNOWN_WITH_VALUES = {"dependencies", "property_dependencies"}


class PlanExceeded(EngineError):
    """A run would do more than its saved plan allows."""

    help_page = "concepts/saved-plans"


@dataclass(frozen=True, slots=True)
class PlanConstraint:
    """The limits of a saved plan, or of a preview; `changes` maps URNs to planned property changes.

    `reads_others` is True for a plan made with outputs of other stacks, which may not exist yet.
    With `limits_imports_only` other steps than imports, and the updates after them, pass. `hint` is
    what the user of a stopped run should do.
    """

    basis: Basis
    changes: Mapping[str, Sequence[PropertyChange]]
    digest: Digest
    reads_others: bool = False
    limits_imports_only: bool = False
    hint: str = NEW_PLAN_HINT

    @classmethod
    def from_plan(cls, plan: Plan, digest: Digest) -> Self:
        """Return the constraint of a saved plan, which must have a basis."""
        if plan.basis is None:
            raise AssertionError("a saved plan has a basis")
        changes: dict[str, list[PropertyChange]] = {}
        for change in plan.changes:
            if change.action in WRITING_ACTIONS:  # an import may be followed by an update
                changes.setdefault(change.urn, []).extend(change.changes)
        return cls(plan.basis, changes, digest, bool(plan.stack_references))

    def find_basis_changes(self, now: Basis, *, compares_state: bool = True) -> Iterator[str]:
        """Yield one message per part of state and configuration changed since the plan.

        Without `compares_state` only the configuration is compared. After a change of the
        passphrase no digest can be compared; then the only message says so.
        """
        # Digests are keyed with the stack's passphrase, so that nobody can try values against a
        # plan.
        if now.key != self.basis.key:
            yield "the passphrase of the stack changed"
            return
        states = _compare_mappings(self.basis.state, now.state) if compares_state else ()
        for urn, kind in states:
            yield f"state of {urn} {_STATE_CHANGE_WORDS[kind]} since the plan"
        for key, kind in _compare_mappings(self.basis.config, now.config):
            yield f"configuration key {key} {_CONFIG_CHANGE_WORDS[kind]} since the plan"

    def find_excess(self, now: Basis, planned: Iterable[ResourceChange]) -> Iterator[str]:
        """Yield messages about changes of a new preview outside of the saved plan.

        `now` is the basis of the new preview, `planned` its changes. A resource with a changed
        declaration or an unplanned effect gets one message, any other resource one for each
        unplanned property change.
        """
        reported: set[str] = set()
        for urn, message in self._find_changed_declarations(now):
            reported.add(urn)
            yield message
        for urn, effects in now.effects.items():
            for message in self._find_unplanned_effects(urn, effects):
                if urn not in reported:
                    reported.add(urn)
                    yield message
        for change in planned:
            if change.urn not in reported:
                yield from find_unplanned_changes(self.changes, change)

    def _find_changed_declarations(self, now: Basis) -> Iterator[tuple[str, str]]:
        """Yield URN and message of each declaration added, removed or changed since the plan.

        `now` is the basis of a new preview. A declaration counts as changed if the digest of one
        of its parts (an input or an option) differs. If the plan reads outputs of other stacks
        (`reads_others`), parts that were unknown in the plan are not compared; otherwise they are.
        """
        for urn, kind in _compare_mappings(self.basis.program, now.program):
            if kind == "new":
                yield urn, f"program: {urn} is newly declared"
            elif kind == "gone":
                yield urn, f"program: {urn} is no longer declared"
            else:
                before, after = self.basis.program[urn], now.program[urn]
                # The other stacks may have been created since the plan: their outputs, unknown to
                # the plan, are known to the new preview.
                if self.reads_others:
                    before, after = _select_known_parts(before, after)
                if before != after:
                    yield (
                        urn,
                        (
                            f"program: {urn} declares different "
                            f"{_describe_changed_parts(before, after)}"
                        ),
                    )

    def check_declared(self, declaration: Registration | Read) -> None:
        """Raise PlanExceeded if a declaration of a real run is missing in the plan or differs.

        Parts unknown when the plan was made, and outputs of the stack, are not compared.
        """
        if not self._limits(declaration.urn):
            return
        planned_digests, current_digests = (
            self.basis.program.get(declaration.urn),
            compute_registration_digests(declaration, self.digest),
        )
        if planned_digests is None:
            raise self._build_error(f"{declaration.urn} is declared, but not in the plan")
        # A program registers the stack's outputs at its end, after all declarations.
        comparable_digests = {
            part: digest for part, digest in planned_digests.items() if part != EXPORTS
        }
        before, after = _select_known_parts(comparable_digests, current_digests)
        if before != after:
            changed_parts = _describe_changed_parts(before, after)
            raise self._build_error(
                f"{declaration.urn} declares different {changed_parts} than planned"
            )

    def check_step(self, step: Step) -> None:
        """Raise PlanExceeded if the effect or a property change of `step` is not planned.

        A step without an effect passes.
        """
        if not step.effect or not self._limits(step.urn, step.effect):
            return
        messages = list(self._find_unplanned_effects(step.urn, [step.effect]))
        if not messages and step.change is not None:
            messages = list(find_unplanned_changes(self.changes, step.change))
        if messages:
            raise self._build_error("; ".join(messages))

    def _limits(self, urn: str, effect: str = "") -> bool:
        """Return True if declaration and steps of the resource may not exceed the plan.

        With `limits_imports_only` these are the resources that the plan imports, and with `effect`
        an import that the plan does not have.
        """
        effects = (effect, *self.basis.effects.get(urn, ()))
        return not self.limits_imports_only or _IMPORT in effects

    def _build_error(self, message: str) -> PlanExceeded:
        """Build the error of a run about to do more than its plan or preview allows."""
        return PlanExceeded(f"{message}; gpuform did not apply it", hint=self.hint)

    def _find_unplanned_effects(self, urn: str, effects: Collection[str]) -> Iterator[str]:
        """Yield a message for each effect on the resource which the saved plan does not allow.

        A planned "replace" also allows "update", and a planned "delete" also allows "forget".
        """
        allowed = set(self.basis.effects.get(urn, ()))
        allowed.update(*(_LESSER_EFFECTS.get(effect, ()) for effect in [*allowed]))
        # A replacement has two effects, "replace" and "delete": the order of the participles puts
        # the one that explains the other first.
        for effect in sorted({*effects} - allowed, key=[*_EFFECT_PARTICIPLES].index):
            yield f"{urn} would be {_EFFECT_PARTICIPLES[effect]}, which the plan does not contain"


_STATE_CHANGE_WORDS = {"new": "is new", "gone": "was deleted", "other": "changed"}
_CONFIG_CHANGE_WORDS = {"new": "was added", "gone": "was removed", "other": "changed"}


def _compare_mappings(
    before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    """Yield each differing key with `new`, `gone` or `other`."""
    for key in sorted({*before, *after}):
        if key not in before:
            yield key, "new"
        elif key not in after:
            yield key, "gone"
        elif before[key] != after[key]:
            yield key, "other"


def _describe_changed_parts(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Describe the changed parts of a registration, such as inputs, options and outputs."""
    changed_parts = [part for part, _ in _compare_mappings(before, after)]
    inputs = [part.removeprefix(INPUTS) for part in changed_parts if part.startswith(INPUTS)]
    inputs = ["its provider's code" if name == PROVIDER_KEY else name for name in inputs]
    options = [part for part in changed_parts if not part.startswith(INPUTS) and part != EXPORTS]
    reported = {"inputs": inputs, "options": options}
    descriptions = [f"{kind}: {', '.join(names)}" for kind, names in reported.items() if names]
    return " and ".join([*descriptions, *(["outputs"] if EXPORTS in changed_parts else [])])


def _select_known_parts(
    planned: Mapping[str, str], current: Mapping[str, str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return planned and current digests, both without the parts unknown to the plan.

    If any part is unknown, the dependencies are left out too.
    """
    unknown_parts = {part for part, digest in planned.items() if digest.startswith(UNKNOWN_MARK)}
    if unknown_parts:
        unknown_parts |= _PARTS_KNOWN_WITH_VALUES
    before = {part: digest for part, digest in planned.items() if part not in unknown_parts}
    return before, {part: digest for part, digest in current.items() if part not in unknown_parts}


_MAX_LISTED: Final = 10


@dataclass(frozen=True, slots=True)
class SelectionNotes:
    """Formats notes on what a selection includes or leaves out beyond the named resources.

    `base` is the state that the last run left; `declared` holds the URNs of the program, `touched`
    the URNs that the run changes.
    """

    selection: Selection
    operation: str
    base: Sequence[ResourceState]
    declared: Collection[str]
    touched: Collection[str]

    def format_notes(self) -> Iterator[str]:
        """Yield at most one sentence about resources affected by the selection but not named.

        These are included dependents, dependents that an update of targets leaves unchanged, or
        resources kept because of excluded ones.
        """
        selection, base = self.selection, self.base
        named = selection.targets or selection.excludes
        urns = {entry.urn for entry in base if entry.urn in named}
        kind = "--target" if selection.targets else "--exclude"
        given_flags = [
            pair for pair in selection.iterate_flags() if pair[0].startswith(kind) and pair[1]
        ]
        flags = " ".join(
            f"{flag} {_join_names(name_of(t) if is_urn(t) else t for t in texts)}"
            for flag, texts in given_flags
        )
        if selection.targets and selection.target_dependents:
            unnamed = self._list_unnamed(graph.add_dependents(base, urns), urns)
            if unnamed:
                yield f"{flags} --target-dependents also includes: {unnamed}"
        elif selection.targets and self.operation == "update":
            changed = urns.intersection(self.touched)
            untouched_dependents = self._select_visible(
                graph.add_dependents(base, changed) - urns.union(self.touched)
            )
            if untouched_dependents:
                is_single = len(untouched_dependents) == 1
                noun = (
                    "1 dependent unchanged"
                    if is_single
                    else f"{len(untouched_dependents)} dependents unchanged"
                )
                names = _join_names(name_of(dependent.urn) for dependent in untouched_dependents)
                yield f"{flags} leaves {noun}: {names}"
        elif selection.excludes:
            kept_urns = graph.add_dependents(base, urns) if selection.exclude_dependents else urns
            # A refresh may read the dependencies of an excluded resource: reading changes no
            # object.
            if self.operation != "refresh":
                kept_urns = kept_urns | (
                    graph.add_dependencies(base, kept_urns) - set(self.declared)
                )
            unnamed = self._list_unnamed(kept_urns, urns)
            if unnamed:
                yield f"{flags} also leaves unchanged: {unnamed}"

    def _select_visible(self, urns: Collection[str]) -> list[ResourceState]:
        """Return the live entries of the URNs, without the stack and providers."""
        entries = (entry for entry in self.base if entry.urn in urns and not entry.delete)
        return [entry for entry in entries if not is_noise(entry.type)]

    def _list_unnamed(self, urns: Collection[str], named: Collection[str]) -> str:
        """Format the unnamed resources among `urns`, each with a dependency or a dependent.

        Resources with neither among `urns` are left out; at most `_MAX_LISTED` are named.
        """
        members = self._select_visible(urns)
        descriptions: list[str] = []
        position_by_urn: dict[str, int] = {}
        for position, entry in enumerate(members):
            position_by_urn.setdefault(entry.urn, position)
        users = {urn: positions[0] for urn, positions in graph.index_dependents(members).items()}
        for entry in members:
            if entry.urn in named:
                continue
            needed_position = min(
                (
                    position_by_urn[urn]
                    for urn in graph.find_dependency_urns(entry)
                    if urn in position_by_urn
                ),
                default=None,
            )
            needed = None if needed_position is None else members[needed_position]
            user = members[users[entry.urn]] if entry.urn in users else None
            if needed is not None and (user is None or needed.urn in named):
                descriptions.append(f"{name_of(entry.urn)} (depends on {name_of(needed.urn)})")
            elif user is not None:
                descriptions.append(f"{name_of(entry.urn)} ({name_of(user.urn)} depends on it)")
        return _join_names(descriptions)


def _join_names(texts: Iterable[str]) -> str:
    """Join the texts with commas; after `_MAX_LISTED` texts, only the number of others follows."""
    texts = list(texts)
    hidden_count = len(texts) - _MAX_LISTED
    return ", ".join(texts[:_MAX_LISTED]) + (
        f" and {hidden_count} more" if hidden_count > 0 else ""
    )
