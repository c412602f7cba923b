"""Build the explanation of a name: find what it names, and select the facts about it.

`operations/explaining` calls `explain` with an open stack. Platforms are not asked.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from gpuform.providers.plugin.interrupted_creates import describe_leftover
from gpuform.providers.records import Repairs
from gpuform.schemas.errors import EngineError
from gpuform.schemas.explanation import (
    ExplainedRepair,
    Explanation,
    LifeEvent,
)
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.explain.figures import compute_costs, list_figures, list_repairs
from gpuform.stacks.explain.life import derive_events
from gpuform.stacks.explain.recorded_runs import (
    ObjectKey,
    StoredObject,
    describe_run,
    list_stored_objects,
    read_recorded_runs,
)
from gpuform.stacks.pricing import PriceBook


@dataclass(frozen=True, slots=True)
class Subject:
    """What a name means: the objects, and the names of the nodes in question.

    `node_names` are the only nodes in question for a node, else all nodes of the objects.
    `node_ids` are empty unless the name is of one node.
    """

    kind: Literal["resource", "object", "node"]
    keys: frozenset[ObjectKey]
    node_names: frozenset[str] = frozenset()
    node_ids: frozenset[str] = frozenset()

    def has_event(self, event: LifeEvent) -> bool:
        """Return whether an event is about the subject.

        Of a node, events of its object do not count, except those that failed with it.
        """
        if self.kind == "node":
            is_only_named = event.node in self.node_names and not event.node_id
            return bool(event.node) and (event.node_id in self.node_ids or is_only_named)
        if self.kind == "resource":
            return any(event.urn == urn for urn, _ in self.keys)
        return (event.urn, event.id) in self.keys


def explain(stack: Stack, name: str, *, now: float) -> Explanation:
    """Return the life of what `name` names: a resource, a URN, a node, or the id of an object.

    Objects and nodes that no longer exist are found in the history. `now` is the end of the cost,
    in Unix seconds.

    Raises:
        EngineError: neither the state nor the history has this name.
    """
    runs = read_recorded_runs(stack.backend.open_history(stack.project.name, stack.name))
    present = list_stored_objects(stack.snapshot.resources)
    events = derive_events(runs, present)
    leftovers = [intent for intent in stack.get_intents().list_all() if intent.urn]
    begun_keys = [
        (str(intent.urn), object_id) for intent in leftovers for object_id in intent.made or ("",)
    ]
    subject = find_subject(name, events, [*present, *begun_keys], present)
    if subject is None:
        raise _build_unknown_name_error(stack, name, events, present)
    own_events = [event for event in events if subject.has_event(event)]
    states = [*((run.moment, run.objects) for run in runs if run.objects is not None)]
    own_states = [*states, (now, present)]
    figures = list_figures(own_states, subject.keys, subject.node_names, subject.kind)
    repairs = list_repairs(
        runs,
        own_states,
        Repairs.from_intents(stack.get_intents()),
        {*subject.keys},
        subject.node_names if subject.kind == "node" else None,
    )
    costs, unpriced = compute_costs(
        own_states,
        events,
        subject.keys,
        PriceBook.read(stack.project.directory),
        share_of=subject.node_names if subject.kind == "node" else None,
    )
    numbers, urns = _list_run_numbers(own_events, repairs), {urn for urn, _ in subject.keys}
    return Explanation(
        project=stack.project.name,
        stack=stack.name,
        name=name,
        kind=subject.kind,
        urns=tuple(sorted(urns)),
        ids=tuple(_list_ids(own_events, subject)),
        exists=_exists(subject, present),
        events=tuple(own_events),
        tests=tuple(figures),
        repairs=tuple(repairs),
        cost=tuple(costs),
        runs=tuple(describe_run(run) for run in runs if run.number in numbers),
        unknown=(
            *(describe_leftover(intent) for intent in leftovers if intent.urn in urns),
            *(text for run in runs for text in run.problems),
            *unpriced,
        ),
    )


def find_subject(
    name: str,
    events: Sequence[LifeEvent],
    known_keys: Sequence[ObjectKey],
    present: Mapping[ObjectKey, StoredObject],
) -> Subject | None:
    """Return what a name means, or None if nothing has it.

    A URN comes first, then the name of a resource, the id of an object, and a node's name or id.
    `known_keys` are the objects of the state and of unfinished creates.
    """
    keys = dict.fromkeys([*((event.urn, event.id) for event in events), *known_keys])
    by_urn = frozenset(key for key in keys if name in (key[0], name_of(key[0])))
    nodes = [
        (event.node, event.node_id, (event.urn, event.id))
        for event in events
        if event.node or event.node_id
    ]
    nodes += [
        (node.name, node.node_id, key) for key, stored in present.items() for node in stored.nodes
    ]
    exact = frozenset(key for key in by_urn if key[0] == name)
    if exact or by_urn:
        chosen = exact or by_urn
        return Subject("resource", chosen, _list_node_names(nodes, chosen))
    by_id = frozenset(key for key in keys if key[1] == name)
    if by_id:
        return Subject("object", by_id, _list_node_names(nodes, by_id))
    matching = [node for node in nodes if name in node[:2]]
    if not matching:
        return None
    return Subject(
        "node",
        frozenset(key for _, _, key in matching),
        frozenset(node_name for node_name, _, _ in matching if node_name),
        frozenset(node_id for _, node_id, _ in matching if node_id),
    )


def _list_node_names(
    nodes: Iterable[tuple[str, str, ObjectKey]], keys: Collection[ObjectKey]
) -> frozenset[str]:
    """Return the names of all nodes that these objects have, or had."""
    return frozenset(node_name for node_name, _, key in nodes if key in keys and node_name)


def _build_unknown_name_error(
    stack: Stack,
    name: str,
    events: Sequence[LifeEvent],
    present: Mapping[ObjectKey, StoredObject],
) -> EngineError:
    """Return the error for a name that nothing has, with the nearest name."""
    names = {name_of(urn) for urn, _ in present} | {name_of(event.urn) for event in events}
    names |= {event.node for event in events} | {
        node.name for stored in present.values() for node in stored.nodes
    }
    nearest_names = get_close_matches(name, sorted(filter(None, names)), n=1)
    return EngineError(
        f"{name!r}: stack {stack.name} has no resource, node or object of this name, and none in "
        "its history",
        hint=f"did you mean {nearest_names[0]}?"
        if nearest_names
        else "`gpuform status` lists the resources, `gpuform stack history` the runs",
    )


def _list_run_numbers(
    events: Iterable[LifeEvent], repairs: Iterable[ExplainedRepair]
) -> set[int | None]:
    """Return the numbers of the runs that events and repairs name."""
    numbers: set[int | None] = {repair.run for repair in repairs}
    for event in events:
        numbers |= {event.run, *event.begun_by}
    return numbers


def _list_ids(events: Iterable[LifeEvent], subject: Subject) -> Iterator[str]:
    """Yield the ids of the subject's objects, or of the node, in the order of their events."""
    if subject.kind == "node":
        yield from dict.fromkeys(event.node_id for event in events if event.node_id)
        return
    known_ids = [event.id for event in events if event.id and not event.node]
    known_ids += [object_id for _, object_id in sorted(subject.keys) if object_id]
    yield from dict.fromkeys(known_ids)


def _exists(subject: Subject, present: Mapping[ObjectKey, StoredObject]) -> bool:
    """Return whether the present state has an object of the subject, or the node."""
    if subject.kind != "node":
        return any(key in present for key in subject.keys)
    return any(
        node.node_id in subject.node_ids or node.name in subject.node_names
        for stored in present.values()
        for node in stored.nodes
    )
