"""Define and publish the engine's events, and describe steps as changes of a plan.

The executor, the monitor and `deployment` emit events from many threads; views, logs and tests
listen, and `EventBus` calls them one event at a time. Descriptions of gpuform's own resources come
from their providers' property-level diffs; for other resources the engine compares inputs. Secrets
are masked.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from gpuform.providers import values
from gpuform.providers.platform import PROVIDER_KEY
from gpuform.providers.values import PropertyMap, Redactor, find_changed_keys
from gpuform.schemas.changes import RESUME_PREFIX, Action, FieldChange
from gpuform.schemas.changes import UNKNOWN as PLAN_UNKNOWN
from gpuform.schemas.errors import GpuformError
from gpuform.schemas.plan import PlanAction, PlanReason, PropertyChange, ResourceChange
from gpuform.schemas.values import convert_leaves
from gpuform.stacks.engine import property_paths
from gpuform.stacks.engine.planning.steps import Op, Step
from gpuform.stacks.engine.project import mark_as_run
from gpuform.stacks.engine.provider_host import Diff
from gpuform.stacks.engine.registration import DeclarationSource
from gpuform.stacks.engine.state import ResourceState, find_dependency_urns
from gpuform.stacks.engine.urn import STACK_TYPE, is_urn, name_of, type_of

Severity = Literal["debug", "info", "info#err", "warning", "error"]


@dataclass(frozen=True, slots=True)
class Prelude:
    """The first event of a run; secrets in `config` are masked."""

    operation: str
    preview: bool
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A step begins, or would begin in a preview."""

    step: Step
    planning: bool


@dataclass(frozen=True, slots=True)
class StepDone:
    """A step succeeded; `seconds` is the time it took."""

    step: Step
    planning: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class StepFailed:
    """A step failed; a `Diagnostic` of the same URN has already given the reason."""

    step: Step
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Progress:
    """The status that a running step waits on, in the platform's words."""

    urn: str
    text: str


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A message to the user; `urn` is empty when the message concerns the run as a whole.

    `source` is where the program declares the resource; `path` is the property concerned. `error`
    is the exception behind the message, for callers that need more than its text.
    """

    severity: Severity
    message: str
    urn: str = ""
    path: str = ""
    source: DeclarationSource | None = None
    error: GpuformError | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class SkippedCheck:
    """A check that a preview could not make; `text` says why."""

    text: str


@dataclass(frozen=True, slots=True)
class Summary:
    """The last event of a run; `changes` counts logical operations without providers."""

    preview: bool
    result: Literal["succeeded", "failed"]
    changes: Mapping[str, int]
    seconds: float


Event = (
    Prelude | StepStarted | StepDone | StepFailed | Progress | Diagnostic | SkippedCheck | Summary
)
Listener = Callable[[Event], None]


@dataclass(slots=True)
class EventBus:
    """Passes each event to every listener, one event at a time.

    Messages of severity debug, about four per resource, are passed on only if `debug` is set.
    """

    listeners: list[Listener] = field(default_factory=list)
    debug: bool = False
    sources: dict[str, DeclarationSource] = field(default_factory=dict)
    """The line that declares each resource, by URN; errors show the line."""
    _redactor: Redactor = field(default_factory=lambda: Redactor(()))
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _emitting: int | None = None

    @property
    def is_emitting_here(self) -> bool:
        """True while this thread is inside a listener."""
        return self._emitting == threading.get_ident()

    def redact_secrets(self, secrets: Iterable[str]) -> None:
        """Replace `secrets` by `[secret]` in all further messages, instead of an earlier set."""
        self._redactor = Redactor(secrets)

    def emit(self, event: Event) -> None:
        """Send the event to all listeners, one event at a time, with secrets masked in every text.

        Secrets in the exception of an event are masked in place. Debug messages are dropped unless
        `debug` is set; errors get their source line.
        """
        if isinstance(event, Diagnostic):
            if event.severity == "debug" and not self.debug:
                return
            source = self.sources.get(event.urn) if event.severity == "error" else None
            message = self._redactor.redact(event.message)
            if event.error is not None:
                event.error.redact(self._redactor.redact)
            event = replace(event, message=message, source=source)
        elif isinstance(event, Progress | SkippedCheck):
            event = replace(event, text=self._redactor.redact(event.text))
        with self._lock:
            # A listener may emit an event itself: the lock is reentrant, and the outer mark comes
            # back.
            outer, self._emitting = self._emitting, threading.get_ident()
            try:
                with mark_as_run():
                    for listener in self.listeners:
                        listener(event)
            finally:
                self._emitting = outer


_ACTIONS = {
    Op.SAME: PlanAction.SAME,
    Op.CREATE: PlanAction.CREATE,
    Op.UPDATE: PlanAction.UPDATE,
    Op.REPLACE: PlanAction.REPLACE,
    Op.DELETE: PlanAction.DELETE,
    Op.IMPORT: PlanAction.IMPORT,
    Op.READ: PlanAction.READ,
}

_REASONS = {
    Op.CREATE: PlanReason.NEW,
    Op.DELETE: PlanReason.NOT_IN_PROGRAM,
    Op.IMPORT: PlanReason.IMPORTED,
    Op.READ: PlanReason.READ_BY_PROGRAM,
    Op.SAME: PlanReason.UNCHANGED,
}


class GpuCounter(Protocol):
    """Knows how many GPUs a resource has; `ProviderHost` implements the protocol."""

    def count_gpus(self, resource: ResourceState) -> int | None:
        """Return the number of GPUs of `resource`, or None while unknown."""


def describe_change(
    host: GpuCounter,
    op: Op,
    old: ResourceState | None,
    new: ResourceState | None,
    diff: Diff | None = None,
) -> ResourceChange:
    """Return the planned change of a step: action, reason, property changes and GPUs.

    The GPUs of a retained object do not count as removed.
    """
    subject = new or old
    if subject is None:
        raise AssertionError("a step has an old or a new state")
    fields = list(_list_field_changes(op, old, new, diff))
    # A retained object stays on its platform, and so do its GPUs.
    retained = bool(old and old.retain_on_delete and op in (Op.DELETE, Op.REPLACE))
    before = host.count_gpus(old) if old and not retained else 0
    after = host.count_gpus(new) if new else 0
    existing = before
    if old and op is Op.UPDATE:
        # After an interrupted create, fewer GPUs exist than the inputs declare.
        observed = {change.path: change.before for change in fields if change.path in old.inputs}
        existing = host.count_gpus(replace(old, inputs={**old.inputs, **observed}))
    return ResourceChange(
        urn=subject.urn,
        type=subject.type,
        name=name_of(subject.urn),
        action=_ACTIONS[op],
        reason=_choose_reason(op, old, diff),
        replace_paths=tuple(diff.replaces) if diff and op is Op.REPLACE else (),
        changes=tuple(_build_property_changes(fields, old, new)),
        gpus_added=_count_added_gpus(op, existing, after),
        gpus_removed=_count_added_gpus(op, after, before),
        retained=retained,
        repairs=tuple(field.repair for field in fields if field.repair is not None),
        **build_relations(subject),
    )


def describe_drift(
    host: GpuCounter, old: ResourceState, new: ResourceState | None, diff: Diff | None
) -> ResourceChange:
    """Return the drift found by a refresh, as a planned change from the last known values.

    The action is UPDATE, SAME without drift, or DELETE if `new` is None: the object is gone.
    """
    fields: list[FieldChange] = []
    if new is not None and diff is not None:
        fields = [
            # The diff of a refresh goes from the read values to the state; drift is shown the other
            # way.
            FieldChange(
                change.path,
                change.action,
                change.after,
                change.before,
                secret=change.secret,
                because=change.because.removeprefix(RESUME_PREFIX)
                if change.path == "ready"
                else "",
            )
            for change in (diff.fields or ())
            if change.action is not Action.KEEP
        ]
        if diff.fields is None and diff.changes:
            fields = list(_compare_properties(old.outputs, new.outputs))
    action = PlanAction.UPDATE if fields or (diff and diff.changes) else PlanAction.SAME
    before, after = host.count_gpus(old), host.count_gpus(new) if new else 0
    return ResourceChange(
        urn=old.urn,
        type=old.type,
        name=name_of(old.urn),
        action=PlanAction.DELETE if new is None else action,
        reason=PlanReason.GONE if new is None else PlanReason.DRIFT,
        changes=tuple(_build_property_changes(fields, old, new)),
        gpus_added=_count_added_gpus(Op.UPDATE, before, after),
        gpus_removed=_count_added_gpus(Op.UPDATE, after, before),
        **build_relations(old),
    )


def build_relations(resource: ResourceState) -> dict[str, Any]:
    """Return parent and dependencies of a resource as fields of a plan.

    The parent is empty if it is the stack. Parent and provider are not among the dependencies.
    """
    is_top = not is_urn(resource.parent) or type_of(resource.parent) == STACK_TYPE
    dependencies = find_dependency_urns(resource, provider=False) - {resource.parent, resource.urn}
    return {
        "parent": "" if is_top else resource.parent,
        "dependencies": tuple(sorted(dependencies)),
    }


def _count_added_gpus(op: Op, before: int | None, after: int | None) -> int | None:
    """Return how many GPUs a change adds, never less than 0, or None if unknown.

    A read adds none; a replacement adds all GPUs of the new object.
    """
    if op is Op.READ:
        return 0
    if before is None or after is None:
        return None
    # All GPUs of the new object are added, because all GPUs of the old one are removed.
    return after if op is Op.REPLACE else max(0, after - before)


def _choose_reason(op: Op, old: ResourceState | None, diff: Diff | None) -> PlanReason:
    """Return the plan's reason for a step, by its operation and diff.

    NOT_READY if only `ready` changes, or only init errors ask for the update.
    """
    if op is Op.DELETE and old is not None and old.delete:
        return PlanReason.REPLACED_EARLIER
    if op in _REASONS:
        return _REASONS[op]
    if op is Op.REPLACE:
        forced_reason = PlanReason.FIELD_FORCES_REPLACEMENT if diff and diff.replaces else None
        return (diff and diff.reason) or forced_reason or PlanReason.DEPENDENCY_REPLACED
    field_changes = (diff.fields if diff else None) or ()
    # gpuform's providers report an object that is not usable yet as a change of `ready`.
    is_waiting = bool(field_changes) and all(field.path == "ready" for field in field_changes)
    has_init_errors = bool(old and old.init_errors and not (diff and diff.changes))
    return PlanReason.NOT_READY if is_waiting or has_init_errors else PlanReason.CHANGED


def _list_field_changes(
    op: Op, old: ResourceState | None, new: ResourceState | None, diff: Diff | None
) -> Iterator[FieldChange]:
    """Yield the property changes of a step: the provider's, or else of the compared inputs.

    Deletions and reads yield nothing, nor does an unchanged resource without a provider's list.
    """
    if op in (Op.DELETE, Op.READ) or new is None:
        return
    if old is None:
        yield from _compare_properties({}, new.inputs)
    elif diff is not None and diff.fields is not None:
        yield from (field for field in diff.fields if field.path != PROVIDER_KEY)
    elif op is not Op.SAME:
        replaces = diff.replaces if diff else ()
        yield from _compare_properties(old.inputs, new.inputs, replaces)


def _compare_properties(
    olds: PropertyMap, news: PropertyMap, replaces: Sequence[str] = ()
) -> Iterator[FieldChange]:
    """Yield each differing property, in the program's order; a key in `replaces` is marked so.

    The code of a dynamic provider is left out.
    """
    changed = set(find_changed_keys(olds, news)) - {PROVIDER_KEY}
    # Properties in the order of the program are easier to read than in alphabetical order.
    for key in dict.fromkeys([*news, *olds]):
        if key in changed:
            before, after = _to_plan_value(olds.get(key)), _to_plan_value(news.get(key))
            action = Action.UPDATE
            if key not in olds:
                action = Action.ADD
            elif key not in news:
                action = Action.DELETE
            yield FieldChange(key, action, before, after, replaces=key in replaces)


def _build_property_changes(
    fields: Sequence[FieldChange], old: ResourceState | None, new: ResourceState | None
) -> Iterator[PropertyChange]:
    """Convert changes; a change is secret if the property contains a secret in either state."""
    for change in fields:
        root = property_paths.get_root(change.path)
        property_maps = [m for s in (old, new) if s for m in (s.inputs, s.outputs)]
        # Providers get and return plain values, so that one copy may be marked and another not.
        secret = any(values.contains_secret(holder.get(root)) for holder in property_maps)
        yield PropertyChange.from_field_change(change, secret=secret)


def _to_plan_value(value: Any) -> Any:
    """Return the value in the form of plans: secrets unwrapped, unknown values as PLAN_UNKNOWN.

    A float without a fraction becomes an int, an asset or any other object its `repr`.
    """
    return convert_leaves(values.unwrap_secrets(value), _to_plan_leaf)


def _to_plan_leaf(leaf: Any) -> Any:
    """Return a value other than an object or list in the form of plans."""
    if isinstance(leaf, values.Unknown):
        return PLAN_UNKNOWN
    # Numbers are doubles in Pulumi's protocol: 1.0 is the 1 of the program.
    if isinstance(leaf, float) and leaf.is_integer():
        return int(leaf)
    return leaf if leaf is None or isinstance(leaf, str | bool | int | float) else repr(leaf)
