"""Recover the creates that earlier runs left unfinished, before a run begins.

`operations` calls `recover_creates` before every run. A created object becomes a resource of the
stack; a create without an object is forgotten; a create of unknown result stops the command. Only
the platform is asked, by the lifecycle that created the object.

A create that the platform refused most likely did nothing. Its object is looked for as well, but as
long as no object appears, no command waits, stops or reports anything.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from gpuform.providers import values
from gpuform.providers.context import ProviderContext
from gpuform.providers.errors import AdoptionQuestion
from gpuform.providers.lifecycle import INTERRUPTED
from gpuform.providers.records import (
    CREATE_ANEW,
    NOTHING,
    EphemeralRecords,
    Intent,
    Intents,
    to_dynamic_urn,
)
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.deployment.options import DEFAULT_PARALLEL, DeploymentTarget
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.state import (
    OrphanedJournal,
    ResourceState,
    Snapshot,
    edits,
    format_timestamp,
    repair,
)
from gpuform.stacks.engine.urn import name_of, type_of

Reporter = Callable[[str], None]


class UnresolvedCreate(EngineError):
    """The result of an interrupted create is unknown."""

    help_page = "concepts/intents"


@dataclass(slots=True)
class RecoveredCreates:
    """The results of a recovery.

    `adopted` maps the URNs of creates to entries for their objects; `adopted_intents` are the
    intents of these creates. `lost` are entries of objects that only an orphaned journal knew.
    `objectless_intents` are the intents of creates without an object, `recreated_intents` those
    that the user declares to be without one (`--create-anew`), `unresolved` messages about creates
    of unknown result, and `questions` messages about refused creates that may have made an object
    after all.
    """

    adopted: dict[str, ResourceState] = field(default_factory=dict)
    lost: list[ResourceState] = field(default_factory=list)
    adopted_intents: list[Intent] = field(default_factory=list)
    objectless_intents: list[Intent] = field(default_factory=list)
    recreated_intents: list[Intent] = field(default_factory=list)
    unresolved: list[str] = field(default_factory=list)
    questions: list[str] = field(default_factory=list)

    def describe(self, *, is_stored: bool) -> Iterator[str]:
        """Yield a message for each recovered object, and for each create without an object.

        With `is_stored` the command writes the objects into the state. Nothing is reported about
        refused creates without an object.
        """
        place = (
            "which is in the stack's state now"
            if is_stored
            else "which the next `up`, `refresh` or `destroy` writes into the stack's state"
        )
        refused = {intent.urn for intent in self.adopted_intents if intent.is_refused}
        for urn, entry in self.adopted.items():
            run = "a run whose create was refused" if urn in refused else "an interrupted run"
            yield f"{run} created {name_of(urn)} ({entry.id}), {place}"
        for entry in self.lost:
            yield f"an interrupted run created {name_of(entry.urn)} ({entry.id}), {place}"
        for intent in self.objectless_intents:
            if not intent.is_refused:
                yield f"an interrupted create of {_describe_intents([intent])} created nothing"
        yield from self.questions


def recover_creates(
    target: DeploymentTarget,
    save: Callable[[Snapshot], None] | None,
    report: Reporter,
    cancelled: threading.Event,
    orphaned_journals: Sequence[OrphanedJournal] = (),
    *,
    creates_follow: bool = False,
) -> Snapshot | None:
    """Recover interrupted creates; return the new state, or None without anything to recover.

    Objects that only the journals in `orphaned_journals` know are looked for too. `save` writes the
    new state; without `save` nothing is stored or waited for, and unknown results are only
    reported. With `creates_follow` the command creates resources afterwards, which looks for their
    objects itself.

    Raises:
        UnresolvedCreate: the search was cancelled or, after `save`, the result of a create is
            unknown.
    """
    intents, before = target.intents, target.snapshot
    declared = [
        *(entry for j in orphaned_journals for entry in (*j.unfinished_creates, *j.created)),
        *(o.resource for o in before.pending_operations if o.type == "creating"),
    ]
    begun = {to_dynamic_urn(resource.urn): resource for resource in declared}
    remaining_intents = list(
        _find_remaining_intents(intents, before, begun if creates_follow else None)
    )
    if not remaining_intents and not orphaned_journals:
        return None
    search = _CreateSearch(target, begun, report, cancelled, is_read_only=save is None)
    results = search.find_created(remaining_intents)
    for orphaned_journal in orphaned_journals:
        search.add_journal_objects(orphaned_journal, results)
    for message in results.describe(is_stored=save is not None):
        report(message)
    others = {entry.urn: entry for j in orphaned_journals for entry in j.others}
    snapshot = _add_recovered(before, results, others)
    if save is not None:
        save(snapshot)
        # The state first, the intents afterwards: a crash in between only makes the next run
        # search again.
        _update_intents(intents, results, creates_follow=creates_follow)
    if results.unresolved:
        message = "\n".join(results.unresolved)
        if save is not None:
            raise UnresolvedCreate(message)
        report(message)
    return snapshot


def _find_remaining_intents(
    intents: Intents, snapshot: Snapshot, begun: Collection[str] | None
) -> Iterator[Intent]:
    """Yield the intents (records of creates) whose object is still to be looked for.

    Without `begun` these are all intents of objects missing in the state. With `begun`, the URNs of
    unfinished creates, only their intents without an outcome are yielded, and those answered late
    though the state has the resource: there is a second object.
    """
    all_intents = intents.list_all()
    known_ids = _list_object_ids(snapshot)
    stored = {to_dynamic_urn(resource.urn) for resource in snapshot.resources if resource.id}
    for intent in all_intents:
        if not intent.urn or intent.id in known_ids:
            continue
        urn = to_dynamic_urn(intent.urn)
        is_looked_for = begun is None or urn in begun or (intent.is_late and urn in stored)
        if is_looked_for and not (begun is not None and intent.outcome):
            yield intent


def _update_intents(intents: Intents, results: RecoveredCreates, *, creates_follow: bool) -> None:
    """Remove the intents of adopted objects, and of creates without an object.

    With `creates_follow` the latter stay, marked with their outcome for the create that follows,
    except those of refused creates.
    """
    resolved_intents = [
        *results.adopted_intents,
        *(intent for intent in results.objectless_intents if intent.is_refused),
        *(() if creates_follow else (*results.objectless_intents, *results.recreated_intents)),
    ]
    intents.forget_all(resolved_intents)
    if creates_follow:
        for intent in results.objectless_intents:
            if not intent.is_refused:
                intents.record(replace(intent, outcome=NOTHING))
        for intent in results.recreated_intents:
            intents.record(replace(intent, outcome=CREATE_ANEW))


def _list_object_ids(snapshot: Snapshot) -> set[str]:
    """Return the ids of the objects in a state.

    An object that was deleted for its replacement is left out: its id may be used again.
    """
    existing = (
        resource
        for resource in snapshot.resources
        if resource.custom and not resource.pending_replacement
    )
    return {entry.id for entry in existing if entry.id}


@dataclass(slots=True)
class _CreateSearch:
    target: DeploymentTarget
    begun: Mapping[str, ResourceState]
    report: Reporter
    cancelled: threading.Event
    is_read_only: bool
    intents: Intents = field(init=False)
    _reported: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        stored_intents = self.target.intents
        self.intents = (
            Intents(EphemeralRecords(stored_intents.records))
            if self.is_read_only
            else stored_intents
        )

    def find_created(self, remaining_intents: Sequence[Intent]) -> RecoveredCreates:
        """Look for the object of each interrupted create, and return the results by kind.

        A create of unknown result is in `unresolved`. Raises UnresolvedCreate if cancelled.
        """
        host = self._create_host()
        by_urn = self._group_by_resource(remaining_intents)
        results = RecoveredCreates()
        if not by_urn:
            return results

        def recover_resource(urn: str) -> None:
            try:
                entry = self._find_entry(host, self.begun.get(urn), by_urn[urn])
            except EngineError as error:
                message = f"{_describe_intents(by_urn[urn])}: {error}"
                with self._lock:
                    if not all(intent.is_refused for intent in by_urn[urn]):
                        results.unresolved.append(message)
                    elif isinstance(getattr(error, "cause", None), AdoptionQuestion):
                        results.questions.append(message)
                return
            with self._lock:
                if entry is not None:
                    results.adopted[by_urn[urn][0].urn or ""] = entry
                    results.adopted_intents += by_urn[urn]
                elif self.target.program.run_context.creates_anew:
                    results.recreated_intents += by_urn[urn]
                else:
                    results.objectless_intents += by_urn[urn]

        with ThreadPoolExecutor(min(DEFAULT_PARALLEL, len(by_urn))) as pool:
            # The list takes every result, which raises a thread's unexpected exception here.
            list(pool.map(recover_resource, by_urn))
        if self.cancelled.is_set():
            raise UnresolvedCreate("interrupted while looking for the objects of an earlier run")
        return results

    def _group_by_resource(self, intents: Sequence[Intent]) -> dict[str, list[Intent]]:
        """Return the intents by the URN of their resource, in the dynamic form.

        Refused creates of which the state has no inputs are left out: only a create of the resource
        can look for their objects.
        """
        by_urn: dict[str, list[Intent]] = {}
        for intent in intents:
            by_urn.setdefault(to_dynamic_urn(intent.urn or ""), []).append(intent)
        searchable = {
            urn: [
                intent
                for intent in own_intents
                if not intent.is_refused
                or (urn in self.begun and intent.target == own_intents[-1].target)
            ]
            for urn, own_intents in by_urn.items()
        }
        return {urn: own_intents for urn, own_intents in searchable.items() if own_intents}

    def add_journal_objects(
        self, orphaned_journal: OrphanedJournal, results: RecoveredCreates
    ) -> None:
        """Add the existing, still unknown objects of an orphaned journal to `results`.

        An object that cannot be read is unresolved; one that is gone or may have been removed on
        purpose is only reported.
        """
        host = self._create_host()
        known_ids = {entry.id for entry in (*results.adopted.values(), *results.lost)}
        for entry in orphaned_journal.find_lost_objects(self.target.snapshot):
            if entry.id in known_ids:
                continue
            label = f"{name_of(entry.urn)} ({entry.id})"
            try:
                if not host.can_find_created(entry) and not orphaned_journal.is_sure:
                    self.report(
                        f"an interrupted run created {label}. Another program has written "
                        "the state since then, and may have removed the object from the "
                        "state on purpose: to import the object, run `gpuform import`"
                    )
                    continue
                read = host.read(
                    entry.urn, entry.id, entry.inputs, entry.outputs, None, entry.provider
                )
            except EngineError as error:
                results.unresolved.append(
                    f"an interrupted run created {label}, which cannot be read: {error}"
                )
                continue
            if read is None:
                self.report(f"an interrupted run created {label}, which no longer exists")
                continue
            outputs = values.mark_secret_outputs(
                read[0].outputs, entry.inputs, entry.additional_secret_outputs
            )
            results.lost.append(replace(entry, outputs=outputs))

    def _create_host(self) -> ProviderHost:
        """Create the provider host with the configuration stored in the state."""
        program = self.target.program
        host = ProviderHost(
            program.project, program.config, self._create_context, program.run_context
        )
        host.plugins.configure_from_state(self.target.snapshot.resources)
        return host

    def _find_entry(
        self, host: ProviderHost, begun: ResourceState | None, intents: Sequence[Intent]
    ) -> ResourceState | None:
        """Return a new entry for the object of an interrupted create, or None without a new object.

        The result is also None if the state has the object already, or if every attempt has a
        recorded outcome. Without the declared inputs in `begun`, or after attempts with different
        targets, no search is possible: then the result is None if the user permits to create again.
        An init error in the entry makes the next run update the object.

        Raises:
            EngineError: no search is possible, or the provider cannot tell what the create has
                made.
        """
        intent = intents[-1]
        if all(attempt.outcome for attempt in intents):
            return None
        # The state has the declared inputs of the last attempt only: an attempt with another
        # target may have created another object.
        if begun is None or any(attempt.target != intent.target for attempt in intents):
            which = f" ({', '.join(intent.made)})" if intent.made else ""
            kind, name = f"{intent.platform}:{intent.kind}", name_of(intent.urn or "")
            if self.target.program.run_context.creates_anew:
                return None
            raise EngineError(
                f"its create was interrupted, and the state does not record its inputs{which}",
                hint="if the program declares the resource, `gpuform up` or `pulumi up` looks "
                "for the object. Otherwise look on the platform: to manage the object, run "
                f"`gpuform import {kind} {name} ID`; if no object exists, add "
                "`--create-anew`",
            )
        timeout = begun.custom_timeouts.get("create")
        created = host.find_created(begun.urn, begun.inputs, timeout, begun.provider)
        if created is None or created.id in _list_object_ids(self.target.snapshot):
            return None
        outputs = values.mark_secret_outputs(
            created.outputs, begun.inputs, begun.additional_secret_outputs
        )
        now = format_timestamp()
        return replace(
            begun,
            id=created.id,
            outputs=outputs,
            # Nobody waited until the object was ready: an init error makes the next run update it.
            init_errors=[INTERRUPTED],
            created=now,
            modified=now,
        )

    def _create_context(self, urn: str, timeout: float | None) -> ProviderContext:
        """Create the context of a provider call; each message is reported once."""
        return ProviderContext(
            urn=urn,
            preview=self.is_read_only,
            timeout=timeout,
            run=self.target.program.run_context,
            cancelled=self.cancelled,
            intents=self.intents,
            check_lock=self.target.check_lock,
            belongs_to_other_stack=self.target.belongs_to_other_stack,
            on_progress=lambda text: self._report_once(f"{name_of(urn)}: {text}"),
            on_warning=lambda text: self._report_once(f"{name_of(urn)}: {text}"),
        )

    def _report_once(self, message: str) -> None:
        """Report `message` unless this search has reported the message before."""
        with self._lock:
            is_news = message not in self._reported
            self._reported.add(message)
        if is_news:
            self.report(message)


def _add_recovered(
    snapshot: Snapshot, results: RecoveredCreates, others: Mapping[str, ResourceState]
) -> Snapshot:
    """Return the state with the recovered entries, each after all dependencies.

    Missing dependencies are taken from `others` (by URN), other dangling references dropped.
    Pending creates with a known result are removed. `results` is changed to the entries as added.
    """
    resources = list(snapshot.resources)
    live_entries = {resource.urn: resource for resource in resources if not resource.delete}
    for urn, entry in results.adopted.items():
        results.adopted[urn] = _add_dependencies(resources, live_entries, entry, others)
    results.lost = [
        _add_dependencies(resources, live_entries, entry, others) for entry in results.lost
    ]
    for entry in results.adopted.values():
        # The adopted object was created to replace the live entry's, which is still to be deleted.
        _insert_entry(resources, entry, is_newest=True)
    for entry in results.lost:
        _insert_entry(resources, entry)
    resolved_urns = {
        to_dynamic_urn(intent.urn or "")
        for intent in (
            *results.adopted_intents,
            *results.objectless_intents,
            *results.recreated_intents,
        )
    }
    pending = [
        operation
        for operation in snapshot.pending_operations
        if operation.type != "creating"
        or to_dynamic_urn(operation.resource.urn) not in resolved_urns
    ]
    after = replace(snapshot, resources=resources, pending_operations=pending)
    # Entries of an orphaned journal may refer to resources that are gone.
    return after if not edits.verify(after) else repair(after).snapshot


def _add_dependencies(
    resources: list[ResourceState],
    live_entries: dict[str, ResourceState],
    entry: ResourceState,
    others: Mapping[str, ResourceState],
) -> ResourceState:
    """Add missing parents and provider of `entry`; return `entry` with the provider's present id.

    These come from `others`; a default provider in neither is added without inputs. `live_entries`
    (by URN) and `resources` are extended.
    """

    def add(needed: ResourceState) -> None:
        resources.append(needed)
        live_entries[needed.urn] = needed

    if entry.parent and entry.parent not in live_entries and entry.parent in others:
        add(_add_dependencies(resources, live_entries, others[entry.parent], others))
    urn, _, id_ = entry.provider.rpartition("::")
    if not urn:
        return entry
    current = live_entries.get(urn) or others.get(urn)
    if current is None and name_of(urn).startswith("default"):
        # A default provider can be added without inputs: the next run of the program updates it.
        current = ResourceState(urn, custom=True, type=type_of(urn), id=id_)
    if current is None:
        return entry
    if urn not in live_entries:
        add(current)
    return replace(entry, provider=f"{urn}::{current.id}")


def _insert_entry(
    resources: list[ResourceState], entry: ResourceState, *, is_newest: bool = False
) -> None:
    """Insert `entry`; of two live entries of the URN, mark the older one for deletion.

    The older one is the present one with `is_newest`, else by the times of creation. A present
    entry that waits for its replacement is replaced.
    """
    at = next((n for n, e in enumerate(resources) if e.urn == entry.urn and not e.delete), None)
    if at is None:
        resources.append(entry)
        return
    other = resources[at]
    if other.pending_replacement:
        resources[at] = entry
    elif is_newest or (other.created and other.created < entry.created):
        resources[at : at + 1] = [entry, replace(other, delete=True)]
    else:
        resources.append(replace(entry, delete=True))


def _describe_intents(intents: Sequence[Intent]) -> str:
    """Return the resource's name, then kind, name, platform and names of the intended object.

    `intents` are the creates of one resource.
    """
    intent = intents[0]
    names = [name for create in intents for name in create.names]
    parts = f": {', '.join(names)}" if names else ""
    description = f"{intent.kind} {intent.name!r} on {intent.platform}{parts}"
    return f"{name_of(intent.urn or '')} ({description})"
