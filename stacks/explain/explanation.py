"""Build the explanation of a name: find what it names, and select the facts about it.

`operations/explaining` calls `explain` with an open stack. Platforms are not asked. Tests and
repairs of nodes, and estimated costs, come from all copies of the state: a state has the results of
the last run of a certification only. A copy says how much an object used from one run to the next;
prices are the present ones.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from gpuform.providers.records import Repairs, describe_leftover
from gpuform.schemas.checking import suggest_name
from gpuform.schemas.errors import EngineError
from gpuform.schemas.timeline import (
    ExplainedCost,
    ExplainedRepair,
    Explanation,
    LifeEvent,
    TestFigure,
)
from gpuform.schemas.values import to_unix_time
from gpuform.stacks.engine.stack import Stack
from gpuform.stacks.engine.urn import name_of
from gpuform.stacks.explain.life import derive_events
from gpuform.stacks.explain.recorded_runs import (
    ObjectKey,
    RecordedRun,
    StoredObject,
    describe_run,
    format_time,
    list_stored_objects,
    read_recorded_runs,
)
from gpuform.stacks.pricing import (
    PriceBook,
    compute_current_usage,
    price_usage,
    sum_costs,
    to_plain_properties,
)
from gpuform.stacks.resource_rules import find_kind, find_lifecycle


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
    """Return the life of a resource, URN, node or object id called `name`.

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
            *(
                describe_leftover(intent)
                for intent in leftovers
                if intent.urn in urns and not intent.is_refused
            ),
            *(problem for run in runs for problem in run.problems),
            *unpriced,
        ),
    )


def find_subject(
    name: str,
    events: Sequence[LifeEvent],
    known_keys: Sequence[ObjectKey],
    present: Mapping[ObjectKey, StoredObject],
) -> Subject | None:
    """Return the resource, object or node meant by a name, or None.

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
    """Return the names of all present and former nodes of the objects `keys`."""
    return frozenset(node_name for node_name, _, key in nodes if key in keys and node_name)


def _build_unknown_name_error(
    stack: Stack,
    name: str,
    events: Sequence[LifeEvent],
    present: Mapping[ObjectKey, StoredObject],
) -> EngineError:
    """Return the error for a name of nothing, with the nearest name."""
    names = {name_of(urn) for urn, _ in present} | {name_of(event.urn) for event in events}
    names |= {event.node for event in events} | {
        node.name for stored in present.values() for node in stored.nodes
    }
    return EngineError(
        f"{name!r}: stack {stack.name} has no resource, node or object of this name, and none in "
        "its history",
        hint=suggest_name(
            name,
            sorted(filter(None, names)),
            "`gpuform status` lists the resources, `gpuform stack history` the runs",
            similarity=0.6,
        ),
    )


def _list_run_numbers(
    events: Iterable[LifeEvent], repairs: Iterable[ExplainedRepair]
) -> set[int | None]:
    numbers: set[int | None] = {repair.run for repair in repairs}
    for event in events:
        numbers |= {event.run, *event.begun_by}
    return numbers


def _list_ids(events: Iterable[LifeEvent], subject: Subject) -> Iterator[str]:
    """Yield the ids of the subject's objects, or of the node, in the order of the events."""
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


States = Sequence[tuple[float, Mapping[ObjectKey, StoredObject]]]
"""The objects of the stack at moments in Unix seconds, the oldest first."""

_RESULT_OUTPUTS: Final = ("results", "acceptance")
"""The outputs with results of tests: of a certification, and of a platform's own tests."""


def list_figures(
    states: States, keys: Collection[ObjectKey], node_names: Collection[str], kind: str
) -> list[TestFigure]:
    """Return the results of tests of the nodes, the oldest first, each once.

    Args:
        states: all states of the stack.
        keys: the objects in question. All results of a certification among them are returned.
        node_names: the nodes in question.
        kind: what is in question; the results of a node are those that name it.
    """
    figures: dict[tuple[object, ...], TestFigure] = {}
    for key, _, outputs in _iterate_outputs(states):
        is_own = key in keys and kind != "node"
        for figure in _read_figures(name_of(key[0]), outputs):
            if is_own or {*figure.nodes} & {*node_names}:
                identity = (figure.certification, figure.category, figure.at, figure.nodes)
                figures.setdefault(identity, figure)
    return sorted(figures.values(), key=lambda figure: figure.at)


def _iterate_outputs(states: States) -> Iterator[tuple[ObjectKey, StoredObject, Mapping[str, Any]]]:
    """Yield the outputs of gpuform's own objects in each state; equal ones in a row once."""
    last: dict[ObjectKey, StoredObject] = {}
    for _, objects in states:
        for key, stored in objects.items():
            if last.get(key) is not stored and find_kind(stored.entry.type) is not None:
                last[key] = stored
                yield key, stored, to_plain_properties(stored.entry.outputs)


def _read_figures(name: str, outputs: Mapping[str, Any]) -> Iterator[TestFigure]:
    """Yield the results in the outputs of an object; a malformed one is left out."""
    reasons = {
        (str(failure.get("node")), str(failure.get("category"))): str(failure.get("because"))
        for failure in _list_mappings(outputs.get("failures"))
    }
    for output in _RESULT_OUTPUTS:
        for result in _list_mappings(outputs.get(output)):
            nodes = tuple(map(str, result.get("nodes") or ()))
            category = str(result.get("category") or "")
            failures = [reasons[node, category] for node in nodes if (node, category) in reasons]
            yield TestFigure(
                certification=name,
                category=category,
                nodes=nodes,
                passed=result.get("passed") is True,
                measured=_to_number(result.get("measured")),
                unit=str(result.get("unit") or ""),
                required=_to_number(result.get("required")),
                at=str(result.get("at") or ""),
                because="; ".join(dict.fromkeys(failures)),
            )


def _list_mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the objects in a list; nothing for another value."""
    if isinstance(value, list | tuple):
        yield from (item for item in value if isinstance(item, Mapping))


def _to_number(value: Any) -> float | None:
    """Return a number as a float, or None for another value."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def list_repairs(
    runs: Iterable[RecordedRun],
    states: States,
    records: Repairs,
    keys: Collection[ObjectKey],
    node_names: Collection[str] | None,
) -> list[ExplainedRepair]:
    """Return the repairs of the objects' nodes: those of runs, then those that platforms report.

    A repair that both name is one, with the evidence of the run's plan and the platform's state.

    Args:
        runs: all runs of the history.
        states: all states of the stack.
        records: the last requested repair of each node.
        keys: the objects in question.
        node_names: the nodes in question; None for all nodes of the objects.
    """

    def is_asked(node: str) -> bool:
        return node_names is None or node in node_names

    urns = {urn for urn, _ in keys}
    repairs = [
        ExplainedRepair(
            node=repair.node,
            mode=repair.mode,
            evidence=repair.evidence,
            run=run.number,
            id=repair.id,
            at=format_time(run.moment),
        )
        for run in runs
        for change in (run.log.plan.changes if run.log else ())
        for repair in change.repairs
        if change.urn in urns and is_asked(repair.node)
    ]
    for _, object_id in sorted(keys):
        for record in records.list_for(object_id):
            recorded = ExplainedRepair(
                node=record.node, mode=record.mode, id=record.repair, at=format_time(record.at)
            )
            if is_asked(record.node):
                _merge_repair(repairs, recorded)
    for key, stored, outputs in _iterate_outputs(states):
        lifecycle = find_lifecycle(stored.entry.type)
        if key in keys and lifecycle is not None:
            for observed in lifecycle.hooks.list_observed_repairs(outputs):
                if is_asked(observed.node):
                    _merge_repair(repairs, observed)
    return repairs


def _merge_repair(repairs: list[ExplainedRepair], observed: ExplainedRepair) -> None:
    """Add the facts of a platform or record about a repair to the repair requested by a run.

    The latest repair of the node with the same id, or without any id yet, is that repair. A repair
    that no run requested is added.
    """
    for index in reversed(range(len(repairs))):
        requested = repairs[index]
        if requested.node == observed.node and requested.id in ("", observed.id):
            facts = observed.model_dump(exclude_defaults=True, exclude={"node", "evidence", "at"})
            evidence = requested.evidence or observed.evidence
            repairs[index] = requested.model_copy(update={**facts, "evidence": evidence})
            return
    repairs.append(observed)


_HOUR_S = 3600.0


def compute_costs(
    states: States,
    events: Sequence[LifeEvent],
    keys: Collection[ObjectKey],
    book: PriceBook,
    *,
    share_of: Collection[str] | None = None,
) -> tuple[list[ExplainedCost], list[str]]:
    """Return the cost of objects by currency, and why the cost of some part is unknown.

    Args:
        states: the objects at moments in Unix seconds, the oldest first; the last moment is now.
        events: all events of the stack.
        keys: the objects in question.
        book: the present prices.
        share_of: names of nodes; the cost of an object is shared equally by its nodes. None for the
            complete objects.
    """
    totals: dict[str, list[float]] = {}
    present: dict[str, float] = {}
    unknown: dict[str, None] = {}
    ends = {
        (event.urn, event.id): to_unix_time(event.time)
        for event in events
        if event.action in ("deleted", "missing", "forgotten") and event.time
    }
    now = states[-1][0]
    for key in sorted(keys):
        previous_moment: float | None = None
        for index, (moment, objects) in enumerate(states):
            stored = objects.get(key)
            if stored is None or not stored.entry.custom or stored.entry.external:
                continue
            begin = moment
            if previous_moment is None:
                begin = min(moment, to_unix_time(stored.entry.created) or moment)
            next_moment = states[index + 1][0] if index + 1 < len(states) else now
            if index + 1 < len(states) and key not in states[index + 1][1]:
                next_moment = ends.get(key) or next_moment
            previous_moment = moment
            hours = max(0.0, next_moment - begin) / _HOUR_S
            hourly, problems = _price_object(stored, key, book, share_of)
            unknown.update(dict.fromkeys(problems))
            for currency, amount in hourly.items():
                total = totals.setdefault(currency, [0.0, 0.0])
                total[0] += amount * hours
                total[1] += hours
                if index == len(states) - 1:
                    present[currency] = present.get(currency, 0.0) + amount
    costs = [
        ExplainedCost(
            currency=currency,
            hourly=round(present.get(currency, 0.0), 6),
            total=round(amount, 2),
            hours=round(hours, 2),
        )
        for currency, (amount, hours) in sorted(totals.items())
    ]
    return costs, list(unknown)


def _price_object(
    stored: StoredObject, key: ObjectKey, book: PriceBook, share_of: Collection[str] | None
) -> tuple[dict[str, float], list[str]]:
    """Return the hourly cost by currency, of some nodes only if asked, and the unknown costs."""
    usage = price_usage(compute_current_usage(stored.entry), book)
    if usage is None or not usage.expenses:
        return {}, []
    cost = sum_costs([(key[0].rpartition("::")[2], usage)])
    share = 1.0
    if share_of is not None:
        own_nodes = sum(node.name in share_of for node in stored.nodes)
        share = own_nodes / len(stored.nodes) if stored.nodes else 0.0
    return {currency: hourly * share for currency, hourly in cost.sum_hourly_costs().items()}, [
        f"cost unknown: {unknown_cost}" for unknown_cost in cost.unknown
    ]
