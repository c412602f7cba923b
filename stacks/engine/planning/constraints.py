"""Check inputs by their provider, and hold a plan to its bounds: the saved plan, and the selected
targets.
"""

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Self

from gpuform.providers.forms import PROVIDER_KEY
from gpuform.schemas.plan import Basis, Plan, PropertyChange, ResourceChange
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.planning.steps import WRITTEN, Step, other_changes
from gpuform.stacks.engine.provider_host import Failure, ProviderHost
from gpuform.stacks.engine.registration import (
    EXPORTS,
    INPUTS,
    UNKNOWN_MARK,
    Digest,
    Read,
    Registration,
    registration_digests,
)
from gpuform.stacks.engine.state import ResourceState, Selection, graph
from gpuform.stacks.engine.urn import is_noise, is_urn, name_of
from gpuform.stacks.engine.values import PropertyMap, property_paths, unwrap_secrets


class CheckFailed(EngineError):
    """A resource's inputs were refused; a message for each property, with its path."""

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
) -> PropertyMap:
    """The inputs to use, as the provider of this reference has them. Raises CheckFailed."""
    inputs, failures = host.check(registration.urn, olds, news, provider)
    if failures:
        raise CheckFailed([(f.property, _failure_text(registration, news, f)) for f in failures])
    return inputs


def problem_text(registration: Registration, subject: str, reason: str) -> str:
    """A refused property in Pulumi's words; `subject` is its path, and its value if it is shown."""
    return (
        f"{registration.type} resource '{registration.name}': property {subject} "
        f"has a problem: {reason}"
    )


def _failure_text(registration: Registration, news: PropertyMap, failure: Failure) -> str:
    value = news.get(property_paths.root_of(failure.property))
    plain = unwrap_secrets(value)
    shown = ""
    if plain == value and isinstance(value, str | float | int | bool):
        is_float = isinstance(value, float)
        shown = f" value {f'{value:g}' if is_float else json.dumps(value, ensure_ascii=False)}"
    return problem_text(registration, f"{failure.property}{shown}", failure.reason)


MAKE_A_NEW_ONE: Final = (
    "make a new plan with `gpuform preview --save-plan FILE` (or `destroy`, `refresh`), and apply "
    "that: a plan is good for one run"
)
"""The hint for a plan that cannot be applied any more."""

_ALSO = {"replace": {"update"}, "delete": {"forget"}}  # what is less than something planned
_DONE = {
    "create": "created",
    "update": "updated",
    "replace": "replaced",
    "delete": "deleted",
    "forget": "forgotten",
    "import": "imported",
    "refresh": "taken over from its platform",
}

# Which resources a value comes from is known when the value is.
_FOUND_WITH_VALUES = {"dependencies", "property_dependencies"}


class PlanExceeded(EngineError):
    """A run would do what its plan does not allow."""

    help_page = "concepts/saved-plans"


@dataclass(frozen=True, slots=True)
class PlanConstraint:
    """What a saved plan allows. `changes` are those of its resources' properties, by URN.

    With `reads_others` it was made with values of other stacks, of which some may not be made yet.
    """

    basis: Basis
    changes: Mapping[str, Sequence[PropertyChange]]
    digest: Digest
    reads_others: bool = False

    @classmethod
    def of(cls, plan: Plan, digest: Digest) -> Self:
        """The constraint that a plan is; it must have a basis."""
        if plan.basis is None:
            raise AssertionError("a saved plan has a basis")
        changes: dict[str, list[PropertyChange]] = {}
        for change in plan.changes:
            if change.action in WRITTEN:  # an import may be followed by an update
                changes.setdefault(change.urn, []).extend(change.changes)
        return cls(plan.basis, changes, digest, bool(plan.stack_references))

    def changes_since(self, now: Basis) -> Iterator[str]:
        """What of state and configuration is not as it was."""
        if now.key != self.basis.key:
            yield "the stack's passphrase was changed"
            return
        for urn, how in _differences(self.basis.state, now.state):
            yield f"state of {urn} {_MOVED[how]} since the plan"
        for key, how in _differences(self.basis.config, now.config):
            yield f"configuration key {key} {_CONFIGURED[how]} since the plan"

    def exceeded(self, now: Basis, planned: Iterable[ResourceChange]) -> Iterator[str]:
        """What a new preview of the same state wants that the plan does not have.

        `now` is its basis, `planned` its changes.
        """
        reported: set[str] = set()
        for urn, text in self._declared_otherwise(now):
            reported.add(urn)
            yield text
        for urn, effects in now.effects.items():
            for text in self._more(urn, effects):
                if urn not in reported:
                    reported.add(urn)
                    yield text
        for change in planned:
            if change.urn not in reported:
                yield from other_changes(self.changes, change)

    def _declared_otherwise(self, now: Basis) -> Iterator[tuple[str, str]]:
        """What the program declares that is not as it was, by URN."""
        for urn, how in _differences(self.basis.program, now.program):
            if how == "new":
                yield urn, f"program: {urn} is declared, and was not"
            elif how == "gone":
                yield urn, f"program: {urn} is declared no more"
            else:
                before, after = self.basis.program[urn], now.program[urn]
                if self.reads_others:  # which may have made since what was not known
                    before, after = _known_before(before, after)
                if before != after:
                    yield urn, f"program: {urn} declares other {_parts(before, after)}"

    def check_declared(self, asked: Registration | Read) -> None:
        """In a real run the program asks for what it asked for, as far as that was known.

        Raises PlanExceeded.
        """
        planned, found = self.basis.program.get(asked.urn), registration_digests(asked, self.digest)
        if planned is None:
            raise _plan_exceeded(f"{asked.urn} is declared, and is not in the plan")
        asked_for = {part: text for part, text in planned.items() if part != EXPORTS}
        before, after = _known_before(asked_for, found)
        if before != after:
            raise _plan_exceeded(f"{asked.urn} declares other {_parts(before, after)} than planned")

    def check_step(self, step: Step) -> None:
        """Raises PlanExceeded for a step that the plan does not allow."""
        if not step.effect:
            return
        more = list(self._more(step.urn, [step.effect]))
        if not more and step.change is not None:
            more = list(other_changes(self.changes, step.change))
        if more:
            raise _plan_exceeded("; ".join(more))

    def _more(self, urn: str, effects: Collection[str]) -> Iterator[str]:
        allowed = set(self.basis.effects.get(urn, ()))
        allowed.update(*(_ALSO.get(effect, ()) for effect in [*allowed]))
        # The first says all: with a replacement goes the deletion of its old object.
        for effect in sorted({*effects} - allowed, key=[*_DONE].index):
            yield f"{urn} would be {_DONE[effect]}, which is not planned"


_MOVED = {"new": "is new", "gone": "is gone", "other": "changed"}
_CONFIGURED = {"new": "was set", "gone": "was removed", "other": "changed"}


def _differences(
    before: Mapping[str, object], after: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    for key in sorted({*before, *after}):
        if key not in before:
            yield key, "new"
        elif key not in after:
            yield key, "gone"
        elif before[key] != after[key]:
            yield key, "other"


def _parts(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """The parts of a registration that differ, in a person's words."""
    moved = [part for part, _ in _differences(before, after)]
    inputs = [part.removeprefix(INPUTS) for part in moved if part.startswith(INPUTS)]
    inputs = ["its provider's code" if name == PROVIDER_KEY else name for name in inputs]
    options = [part for part in moved if not part.startswith(INPUTS) and part != EXPORTS]
    reported = {"inputs": inputs, "options": options}
    texts = [f"{kind}: {', '.join(names)}" for kind, names in reported.items() if names]
    return " and ".join([*texts, *(["outputs"] if EXPORTS in moved else [])])


def _known_before(
    planned: Mapping[str, str], found: Mapping[str, str]
) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """The parts of a registration that were known when it was planned: then, and now."""
    open_ = {part for part, text in planned.items() if text.startswith(UNKNOWN_MARK)}
    if open_:
        open_ |= _FOUND_WITH_VALUES
    before = {part: text for part, text in planned.items() if part not in open_}
    return before, {part: text for part, text in found.items() if part not in open_}


def _plan_exceeded(text: str) -> PlanExceeded:
    return PlanExceeded(f"{text}; nothing of it was done", hint=MAKE_A_NEW_ONE)


_SHOWN: Final = 10


@dataclass(frozen=True, slots=True)
class SelectionNotes:
    """A selection and the run that it limits.

    `base` is the state that the last run left; `declared` has the URNs of the program, `touched`
    those of what the run changes.
    """

    selection: Selection
    operation: str
    base: Sequence[ResourceState]
    declared: Collection[str]
    touched: Collection[str]

    def sentences(self) -> Iterator[str]:
        """Sentences about resources that nobody named and that the selection decides about."""
        selection, base = self.selection, self.base
        named = selection.targets or selection.excludes
        urns = {each.urn for each in base if each.urn in named}
        kind = "--target" if selection.targets else "--exclude"
        given = [pair for pair in selection.iterate_flags() if pair[0].startswith(kind) and pair[1]]
        flags = " ".join(f"{flag} {_joined(map(_named, texts))}" for flag, texts in given)
        if selection.targets and selection.target_dependents:
            also = self._listed(graph.add_dependents(base, urns), urns)
            if also:
                yield f"{flags} --target-dependents also takes: {also}"
        elif selection.targets and self.operation == "update":
            changed = urns.intersection(self.touched)
            left = self._shown(graph.add_dependents(base, changed) - urns.union(self.touched))
            if left:
                one = len(left) == 1
                noun = "1 dependent as it is" if one else f"{len(left)} dependents as they are"
                yield f"{flags} leaves {noun}: {_joined(name_of(each.urn) for each in left)}"
        elif selection.excludes:
            kept = graph.add_dependents(base, urns) if selection.exclude_dependents else urns
            if self.operation != "refresh":
                kept = kept | (graph.add_dependencies(base, kept) - set(self.declared))
            also = self._listed(kept, urns)
            if also:
                yield f"{flags} also keeps: {also}"

    def _shown(self, urns: Collection[str]) -> list[ResourceState]:
        entries = (each for each in self.base if each.urn in urns and not each.delete)
        return [each for each in entries if not is_noise(each.type)]

    def _listed(self, urns: Collection[str], named: Collection[str]) -> str:
        """Those that nobody named, and what each needs or is needed by."""
        members = self._shown(urns)
        texts: list[str] = []
        places: dict[str, int] = {}
        for place, entry in enumerate(members):
            places.setdefault(entry.urn, place)
        users = {urn: found[0] for urn, found in graph.index_dependents(members).items()}
        for entry in members:
            if entry.urn in named:
                continue
            needs = min(
                (places[urn] for urn in graph.find_dependency_urns(entry) if urn in places),
                default=None,
            )
            needed = None if needs is None else members[needs]
            user = members[users[entry.urn]] if entry.urn in users else None
            if needed is not None and (user is None or needed.urn in named):
                texts.append(f"{name_of(entry.urn)} (needs {name_of(needed.urn)})")
            elif user is not None:
                texts.append(f"{name_of(entry.urn)} ({name_of(user.urn)} needs it)")
        return _joined(texts)


def _named(given: str) -> str:
    """As people know it: a URN by its name alone."""
    return name_of(given) if is_urn(given) else given


def _joined(texts: Iterable[str]) -> str:
    texts = list(texts)
    more = len(texts) - _SHOWN
    return ", ".join(texts[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
