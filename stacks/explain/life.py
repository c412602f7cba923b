"""Derive what happened to each object of a stack from its runs: created, changed, deleted.

`explanation` calls `derive_events`. A run with a log says itself what it did. What a run without a
log did (one of the Pulumi CLI, or one that was killed) is the difference between two copies of the
state. What no run has logged, and is in the state of the next one, was done by the run that was
killed before: the next run has recovered it from the journal or from the record of a create.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from gpuform.schemas.plan import PropertyChange, ResourceChange
from gpuform.schemas.resource_facts import NoticeKind
from gpuform.schemas.stacks_plan import LogLine, RunLog
from gpuform.schemas.timeline import LifeAction, LifeEvent
from gpuform.stacks.explain.recorded_runs import (
    ObjectKey,
    RecordedRun,
    StoredObject,
    format_time,
)
from gpuform.stacks.pricing import to_plain_properties
from gpuform.stacks.review.dangers import format_reason, select_visible_changes
from gpuform.stacks.review.value_text import format_inline

_ACTIONS: Final[Mapping[str, LifeAction]] = {
    "create": "created",
    "create-replacement": "created",
    "import": "imported",
    "read": "read",
    "read-replacement": "read",
    "update": "changed",
    "delete": "deleted",
    "delete-replaced": "deleted",
    "discard": "forgotten",
    "discard-replaced": "forgotten",
}
"""What a step that has succeeded has done, by Pulumi's name of its operation."""

_BEGINNINGS: Final = frozenset({"created", "imported", "read"})
_ENDS: Final = frozenset({"deleted", "forgotten", "missing"})

_PENDING_TYPES: Final[Mapping[str, str]] = {
    "created": "creating",
    "imported": "importing",
    "read": "reading",
}
"""The unfinished operation that a later run ends with an action."""


Objects = Mapping[ObjectKey, StoredObject]


@dataclass(slots=True)
class _EventCollector:
    """Collects the events of all runs, in order.

    `interrupted` are the runs without a recorded end, `failed` the runs that failed to change a
    resource, by URN: they may have begun what a later run finds done. `settled` is the last run
    that left a resource without a failure, by URN.
    """

    events: list[LifeEvent] = field(default_factory=list)
    interrupted: list[int] = field(default_factory=list)
    failed: dict[str, list[int]] = field(default_factory=dict)
    settled: dict[str, int] = field(default_factory=dict)

    def find_unsettled_runs(self, urn: str) -> tuple[int, ...]:
        """Return the runs which may have left a change of the resource half done, in order."""
        candidates = {*self.interrupted, *self.failed.get(urn, ())}
        settled = self.settled.get(urn, 0)
        return tuple(sorted(number for number in candidates if number > settled))

    def build_event(self, key: ObjectKey, found_by: RecordedRun | None) -> LifeEvent:
        """Return the event of a difference found done by the run `found_by`; None is now.

        The last unsettled run has done it, or one of those before; without any, nobody known.
        """
        numbers = self.find_unsettled_runs(key[0])
        authors = {"run": numbers[-1], "begun_by": numbers[:-1]} if numbers else {}
        return _build_event(key, found_by).model_copy(update=authors)


def derive_events(runs: Sequence[RecordedRun], present: Objects) -> list[LifeEvent]:
    """Return all events of the objects of a stack, the oldest first.

    Args:
        runs: all runs of the history, the oldest first.
        present: the objects of the present state, which may have more than the last run's copy.
    """
    collector = _EventCollector()
    before: Objects = {}
    for run in runs:
        if run.is_interrupted and run.objects is None:
            collector.interrupted.append(run.number)
            continue
        after = before if run.objects is None else run.objects
        if run.log is not None:
            collector.events += _LoggedRun(run, run.log, before, after, collector).list_events()
        elif run.objects is not None:
            for key in _list_keys(before, after):
                event = _build_event(key, run).model_copy(update={"run": run.number})
                collector.events += _list_differences(before.get(key), after.get(key), event)
        before = after
    for key in _list_keys(before, present):
        event = collector.build_event(key, None)
        collector.events += _list_differences(before.get(key), present.get(key), event)
    return collector.events


@dataclass(slots=True)
class _LoggedRun:
    """A run with a log, the states around it, and what earlier runs have left."""

    run: RecordedRun
    log: RunLog
    before: Objects
    after: Objects
    collector: _EventCollector
    _changes: Mapping[str, ResourceChange] = field(init=False)
    """The planned changes by URN."""

    def __post_init__(self) -> None:
        self._changes = {change.urn: change for change in reversed(self.log.plan.changes)}

    def list_events(self) -> list[LifeEvent]:
        """Return the events: what the run has found done, and its own steps in order."""
        steps = [event for line in self.log.lines for event in self._read_line(line)]
        steps_by_urn: dict[str, list[LifeEvent]] = {}
        for step in steps:
            steps_by_urn.setdefault(step.urn, []).append(step)
        unlogged_events = [
            *self._list_unseen_creates(steps),
            *self._list_unseen_deletions(steps),
        ]
        for key in _list_keys(self.before, self.after):
            own_steps = steps_by_urn.get(key[0], [])
            event = self._build_difference_event(key, own_steps)
            logged_changes = {
                (it.action, it.node, it.node_id) for it in own_steps if it.id == key[1]
            }
            differences = _list_differences(self.before.get(key), self.after.get(key), event)
            unlogged_events += [it for it in differences if not self._is_logged(it, logged_changes)]
        failed_urns = {event.urn for event in steps if event.action == "failed"}
        for urn in failed_urns:
            self.collector.failed.setdefault(urn, []).append(self.run.number)
        if self._looks_at_all_resources:
            settled_urns = {urn for urn, _ in self.after}
            self.collector.settled |= dict.fromkeys(settled_urns, self.run.number)
        # What earlier runs have done was there before this run's own steps.
        earlier = [event for event in unlogged_events if event.run != self.run.number]
        return [
            *earlier,
            *steps,
            *(event for event in unlogged_events if event.run == self.run.number),
        ]

    def _list_unseen_creates(self, steps: Sequence[LifeEvent]) -> Iterator[LifeEvent]:
        """Yield the creates by a killed run of objects deleted by this run.

        No copy of the state has such an object.
        """
        recorded_keys = {*self.before, *self.after}
        for step in steps:
            key = step.urn, step.id
            if step.action in _BEGINNINGS:
                recorded_keys.add(key)
            elif step.action == "deleted" and step.id and key not in recorded_keys:
                recorded_keys.add(key)
                if self.collector.find_unsettled_runs(step.urn):
                    event = self.collector.build_event(key, self.run)
                    yield event.model_copy(update={"action": "created"})

    def _list_unseen_deletions(self, steps: Sequence[LifeEvent]) -> Iterator[LifeEvent]:
        """Yield the deletions by a killed run of objects that this run has created again.

        The new object may have the id of the former one: then the states around it look alike.
        """
        present = {*self.before}
        for step in steps:
            key = step.urn, step.id
            if step.action in _ENDS:
                present.discard(key)
            elif step.action == "created" and not step.node and key in present:
                present.discard(key)
                if self.collector.find_unsettled_runs(step.urn):
                    event = self.collector.build_event(key, self.run)
                    yield event.model_copy(update={"action": "deleted"})

    @property
    def _looks_at_all_resources(self) -> bool:
        """Return True if nothing was left half done: the run succeeded, and was not limited."""
        is_limited = any(it.kind is NoticeKind.SELECTION for it in self.log.plan.notices)
        is_complete = self.log.plan.operation in ("update", "refresh", "destroy")
        return self.run.entry.result == "succeeded" and is_complete and not is_limited

    def _read_line(self, line: LogLine) -> Iterator[LifeEvent]:
        """Yield the event of an ended step, and the events of the changed nodes."""
        action = _find_action(line)
        if action is None:
            return
        object_id = line.id or _guess_id(line.urn, action, self.before, self.after)
        event = LifeEvent(
            time=format_time(line.time),
            action=action,
            run=self.run.number,
            begun_by=self._find_begun_by(line.urn, action),
            urn=line.urn,
            id=object_id,
            **_explain_change(self._changes.get(line.urn), action),
        )
        yield event
        for node_action, nodes in (("added", line.added), ("removed", line.removed)):
            for node in nodes:
                identity = {"action": node_action, "node": node.name, "node_id": node.id}
                yield event.model_copy(update=identity)

    def _find_begun_by(self, urn: str, action: LifeAction) -> tuple[int, ...]:
        """Return the earlier runs which may have begun the action of this run.

        A create was begun before only if the run found a record of it.
        """
        if action not in _BEGINNINGS:
            return self.collector.find_unsettled_runs(urn)
        pending_type = _PENDING_TYPES.get(action)
        is_unfinished = any(
            step.urn == urn and step.type == pending_type for step in self.log.unfinished
        )
        return self.collector.find_unsettled_runs(urn) if is_unfinished else ()

    def _build_difference_event(
        self, key: ObjectKey, resource_steps: Sequence[LifeEvent]
    ) -> LifeEvent:
        """Return the event of a difference without a step: who has made the change, and when.

        A failed step may have changed the object as well. Without any step of the resource, an
        earlier run has changed it: this run has recovered it from the journal or from a record.
        """
        own_steps = [event for event in resource_steps if not event.node]
        if not own_steps:
            # Components have no steps of a platform, and no lines in a log.
            stored = self.after.get(key) or self.before[key]
            if not stored.entry.custom:
                return _build_event(key, self.run).model_copy(update={"run": self.run.number})
            return self.collector.build_event(key, self.run)
        action: LifeAction = "created" if key not in self.before else "changed"
        was_begun = any(it.action in ("failed", "created") for it in own_steps)
        if action == "created" and not was_begun and self.collector.find_unsettled_runs(key[0]):
            return self.collector.build_event(key, self.run)
        identity = {"action": action, "id": key[1]}
        begun_by = self._find_begun_by(key[0], action)
        return own_steps[-1].model_copy(update={**identity, "begun_by": begun_by})

    def _is_logged(self, event: LifeEvent, known: Collection[tuple[str, str, str]]) -> bool:
        """Return True if a step of the run has the event, or an equivalent event."""
        if event.action in ("changed", "read") and not event.node:
            return True
        if event.action == "created":
            return any((action, "", "") in known for action in _BEGINNINGS)
        if event.action == "deleted":
            return any((action, "", "") in known for action in _ENDS)
        return (event.action, event.node, event.node_id) in known


def _build_event(key: ObjectKey, run: RecordedRun | None) -> LifeEvent:
    """Return an event recorded in a run, as yet without an author; None is the present state."""
    time = format_time(run.moment) if run else ""
    return LifeEvent(time=time, action="changed", urn=key[0], id=key[1])


def _find_action(line: LogLine) -> LifeAction | None:
    """Return the action a line of a log records of an object, or None for another line."""
    if line.event == "failed":
        return "failed"
    if line.event != "done":
        return None
    if line.op == "refresh":
        return "missing" if line.found == "delete" else None
    return _ACTIONS.get(line.op)


def _guess_id(
    urn: str,
    action: LifeAction,
    before: Mapping[ObjectKey, StoredObject],
    after: Mapping[ObjectKey, StoredObject],
) -> str:
    """Return the id of a step's object from the states before and after, for a log without ids.

    Empty if neither state decides.
    """
    ids_before = {object_id for key_urn, object_id in before if key_urn == urn}
    ids_after = {object_id for key_urn, object_id in after if key_urn == urn}
    if action in _BEGINNINGS:
        candidates = ids_after - ids_before
    elif action in _ENDS:
        candidates = ids_before - ids_after
    else:
        candidates = ids_after & ids_before
    return next(iter(candidates)) if len(candidates) == 1 else ""


def _explain_change(change: ResourceChange | None, action: LifeAction) -> dict[str, object]:
    """Return reason and changed properties of a step, by the plan of the run."""
    if change is None:
        return {}
    property_changes = select_visible_changes(change) if action in ("changed", "failed") else ()
    causes = dict.fromkeys(it.because for it in change.changes if it.because)
    reasons = [format_reason(change), *(causes if action == "changed" else ())]
    reason = "; ".join(dict.fromkeys(filter(None, reasons)))
    return {
        "reason": reason or ("" if property_changes else str(change.reason).replace("_", " ")),
        "changes": tuple(_format_property(it) for it in property_changes),
    }


def _format_property(change: PropertyChange) -> str:
    """Return a changed property as `num_gpus: 16 -> 24`; secrets are masked in the plan."""
    after = "known after apply" if change.unknown else format_inline(change.after)
    if change.before is None:
        return f"{change.path}: {after}"
    return f"{change.path}: {format_inline(change.before)} -> {after}"


def _list_keys(
    before: Mapping[ObjectKey, StoredObject], after: Mapping[ObjectKey, StoredObject]
) -> list[ObjectKey]:
    """Return the keys of both states, the keys of ended objects first."""
    return [*(key for key in before if key not in after), *after]


def _list_differences(
    before: StoredObject | None, after: StoredObject | None, event: LifeEvent
) -> Iterator[LifeEvent]:
    """Yield the events between two states of an object, each like `event`."""
    if before is None and after is not None:
        yield event.model_copy(update={"action": "read" if after.entry.external else "created"})
    elif after is None:
        yield event.model_copy(update={"action": "deleted"})
    elif before is not None and before is not after:
        names = tuple(_list_changed_names(before, after))
        if names:
            yield event.model_copy(update={"action": "changed", "changes": names})
    nodes_before = before.node_keys if before else {}
    nodes_after = after.node_keys if after else {}
    for name, node_id in dict.fromkeys([*nodes_before, *nodes_after]):
        is_new = (name, node_id) not in nodes_before
        if is_new or (name, node_id) not in nodes_after:
            action = "added" if is_new else "removed"
            yield event.model_copy(update={"action": action, "node": name, "node_id": node_id})


def _list_changed_names(before: StoredObject, after: StoredObject) -> list[str]:
    """Return the names of the changed inputs: the values may be secret.

    Secrets are not compared: each encryption of one gives another text.
    """
    inputs_before = to_plain_properties(before.entry.inputs)
    inputs_after = to_plain_properties(after.entry.inputs)
    return sorted(
        name
        for name in {*inputs_before, *inputs_after}
        if inputs_before.get(name) != inputs_after.get(name)
    )
