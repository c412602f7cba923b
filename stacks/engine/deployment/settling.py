"""Settles the creates that earlier runs have left: before anything else, and whatever comes next.

A create that happened becomes the stack's, one that did not is forgotten; one of which nobody can
tell stops the command, with its name. Asked is the platform alone, by the lifecycle that made it.
"""

import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from gpuform.providers import permissions
from gpuform.providers.context import ProviderContext, get_clock
from gpuform.providers.lifecycle import INTERRUPTED
from gpuform.providers.records import (
    CREATE_ANEW,
    NOTHING,
    EphemeralRecords,
    Intent,
    Intents,
    to_dynamic_urn,
)
from gpuform.stacks.engine import values
from gpuform.stacks.engine.deployment.options import DEFAULT_PARALLEL, DeploymentTarget
from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.provider_host import ProviderHost
from gpuform.stacks.engine.records import raise_as_engine_errors, raise_as_provider_errors
from gpuform.stacks.engine.state import (
    OrphanedJournal,
    PendingOperation,
    ResourceState,
    Snapshot,
    edits,
    format_timestamp,
    repair,
)
from gpuform.stacks.engine.urn import name_of, type_of

Tell = Callable[[str], None]


class Unsettled(EngineError):
    """Nobody can tell what an interrupted create has made."""

    help_page = "concepts/intents"


@dataclass(slots=True)
class Settled:
    """What came of it: `adopted` are entries for what was found, by the URNs of their creates.

    `lost` are entries of objects that only an overtaken journal knew. `over` are the intents of
    what was adopted, `nothing` those that made nothing, `anew` those of which the user says so,
    `unsure` what could not be told, and why.
    """

    adopted: dict[str, ResourceState] = field(default_factory=dict)
    lost: list[ResourceState] = field(default_factory=list)
    over: list[Intent] = field(default_factory=list)
    nothing: list[Intent] = field(default_factory=list)
    anew: list[Intent] = field(default_factory=list)
    unsure: list[str] = field(default_factory=list)


def settle(
    subject: DeploymentTarget,
    save: Callable[[Snapshot], None] | None,
    tell: Tell,
    cancelled: threading.Event,
    overtaken: Sequence[OrphanedJournal] = (),
    *,
    makes: bool = False,
) -> Snapshot | None:
    """The state of a stack with what was found, which is saved; None when nothing was left.

    What journals tell that another program has `overtaken` is looked for too.

    Without `save` nothing is kept, nothing is waited for, and what nobody can tell is only told.
    What `makes` objects afterwards may have to make some of them anew. Raises Unsettled.
    """
    intents, before = subject.intents, subject.snapshot
    declared = [
        *(resource for each in overtaken for resource in (*each.unfinished_creates, *each.created)),
        *(each.resource for each in before.pending_operations if each.type == "creating"),
    ]
    begun = {to_dynamic_urn(resource.urn): resource for resource in declared}
    left = list(_left(intents, before, begun if makes else None))
    if not left and not overtaken:
        return None
    search = _Search(subject, begun, tell, cancelled, looks_only=save is None)
    found = search.settled(left)
    for each in overtaken:
        search.look_for(each, found)
    for entry in (*found.adopted.values(), *found.lost):
        urn = entry.urn
        tell(f"{name_of(urn)} ({entry.id}) was made by an interrupted run: the stack has it now")
    for intent in found.nothing:
        tell(f"an interrupted create of {_named(intent)} made nothing")
    others = {entry.urn: entry for each in overtaken for entry in each.others}
    snapshot = _with_adopted(before, found, others)
    if save is not None:
        save(snapshot)
        with raise_as_engine_errors():
            _keep(intents, found, makes=makes)
    if found.unsure:
        text = "\n".join(found.unsure)
        if save is not None:
            raise Unsettled(text)
        tell(text)
    return snapshot


def _left(intents: Intents, snapshot: Snapshot, begun: Collection[str] | None) -> Iterator[Intent]:
    """Those of objects that the state does not have. Parts of what it has are their lifecycle's.

    With `begun`, the URNs of creates that the state tells of, only those of them: what others have
    made is looked for when their resources are made. Nobody makes a resource that the state has:
    what a late answer tells of it is a second object.
    """
    with raise_as_engine_errors():
        there = intents.list_all()
    known = _ids(snapshot)
    stored = {to_dynamic_urn(each.urn) for each in snapshot.resources if each.id}
    for intent in there:
        if not intent.urn or intent.id in known:
            continue
        urn = to_dynamic_urn(intent.urn)
        is_looked_for = begun is None or urn in begun or (intent.is_late and urn in stored)
        if is_looked_for and not (begun is not None and intent.outcome):
            yield intent


def _keep(intents: Intents, found: Settled, *, makes: bool) -> None:
    """Who `makes` objects has to know what was looked for already."""
    gone = [*found.over, *(() if makes else (*found.nothing, *found.anew))]
    intents.forget_all(gone)
    if makes:
        for intent in found.nothing:
            intents.record(replace(intent, outcome=NOTHING))
        for intent in found.anew:
            intents.record(replace(intent, outcome=CREATE_ANEW))


def _ids(snapshot: Snapshot) -> set[str]:
    """The objects that a state has. One that was deleted to be replaced may be made under its id
    again."""
    there = (each for each in snapshot.resources if each.custom and not each.pending_replacement)
    return {entry.id for entry in there if entry.id}


@dataclass(slots=True)
class _Search:
    subject: DeploymentTarget
    begun: Mapping[str, ResourceState]
    tell: Tell
    cancelled: threading.Event
    looks_only: bool
    intents: Intents = field(init=False)
    _told: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        kept = self.subject.intents
        self.intents = Intents(EphemeralRecords(kept.records)) if self.looks_only else kept

    def settled(self, left: Sequence[Intent]) -> Settled:
        host = self._host()
        by_urn: dict[str, list[Intent]] = {}
        for intent in left:
            by_urn.setdefault(to_dynamic_urn(intent.urn or ""), []).append(intent)
        found = Settled()

        if not left:
            return found

        def one(urn: str) -> None:
            try:
                entry = self._found(host, self.begun.get(urn), by_urn[urn])
            except EngineError as error:
                with self._lock:
                    found.unsure.append(f"{_named(by_urn[urn][0])}: {error}")
                return
            with self._lock:
                if entry is not None:
                    found.adopted[by_urn[urn][0].urn or ""] = entry
                    found.over += by_urn[urn]
                elif permissions.should_create_anew():
                    found.anew += by_urn[urn]
                else:
                    found.nothing += by_urn[urn]

        with ThreadPoolExecutor(min(DEFAULT_PARALLEL, len(by_urn))) as pool:
            list(pool.map(one, by_urn))
        if self.cancelled.is_set():
            raise Unsettled("interrupted while looking for what an earlier run has made")
        return found

    def look_for(self, overtaken: OrphanedJournal, found: Settled) -> None:
        """Adds the objects of an overtaken journal that are there and that nobody else knows."""
        host = self._host()
        known = {entry.id for entry in (*found.adopted.values(), *found.lost)}
        for entry in overtaken.find_lost_objects(self.subject.snapshot):
            if entry.id in known:
                continue
            shown = f"{name_of(entry.urn)} ({entry.id})"
            try:
                if not host.can_find_created(entry) and not overtaken.is_sure:
                    self.tell(
                        f"{shown} was made by an interrupted run, and another program has gone on "
                        "since: nobody can tell whether it knew that; `gpuform import` takes it in"
                    )
                    continue
                read = host.read(
                    entry.urn, entry.id, entry.inputs, entry.outputs, None, entry.provider
                )
            except EngineError as error:
                found.unsure.append(f"{shown} was made by an interrupted run: {error}")
                continue
            if read is None:
                self.tell(f"{shown} was made by an interrupted run, and is gone")
                continue
            outputs = values.mark_secret_outputs(
                read[0].outputs, entry.inputs, entry.additional_secret_outputs
            )
            found.lost.append(replace(entry, outputs=outputs))

    def _host(self) -> ProviderHost:
        program = self.subject.program
        host = ProviderHost(program.project, program.config, self._call)
        host.plugins.configure_from_state(self.subject.snapshot.resources)
        return host

    def _found(
        self, host: ProviderHost, begun: ResourceState | None, intents: Sequence[Intent]
    ) -> ResourceState | None:
        """The entry of what a create has made; None when it made nothing."""
        intent = intents[-1]
        if all(each.outcome for each in intents):
            return None
        # What the state says was declared is the last attempt's: one under another name is not it.
        if begun is None or any(each.target != intent.target for each in intents):
            which = f" ({', '.join(intent.made)})" if intent.made else ""
            kind, name = f"{intent.platform}:{intent.kind}", name_of(intent.urn or "")
            if permissions.should_create_anew():
                return None
            raise EngineError(
                f"its create was interrupted, and the state does not say what was declared{which}",
                hint="`gpuform up` or `pulumi up` looks for it while the program declares it. "
                f"Otherwise look on the platform: `gpuform import {kind} {name} ID` takes it in, "
                "`--create-anew` says that there is none",
            )
        timeout = begun.custom_timeouts.get("create")
        created = host.find_created(begun.urn, begun.inputs, timeout, begun.provider)
        if created is None or created.id in _ids(self.subject.snapshot):
            return None
        outputs = values.mark_secret_outputs(
            created.outputs, begun.inputs, begun.additional_secret_outputs
        )
        now = format_timestamp()
        return replace(
            begun,
            id=created.id,
            outputs=outputs,
            init_errors=[INTERRUPTED],
            created=now,
            modified=now,
        )

    def _call(self, urn: str, timeout: float | None) -> ProviderContext:
        return ProviderContext(
            urn=urn,
            preview=self.looks_only,
            timeout=timeout,
            clock=get_clock(os.environ),
            cancelled=self.cancelled,
            intents=self.intents,
            check_lock=self._guard,
            belongs_to_other_stack=self.subject.is_elsewhere,
            on_progress=lambda text: self._tell_once(f"{name_of(urn)}: {text}"),
            on_warning=lambda text: self._tell_once(f"{name_of(urn)}: {text}"),
        )

    def _tell_once(self, text: str) -> None:
        with self._lock:
            is_news = text not in self._told
            self._told.add(text)
        if is_news:
            self.tell(text)

    def _guard(self) -> None:
        with raise_as_provider_errors():
            self.subject.check_lock()


def _with_adopted(
    snapshot: Snapshot, found: Settled, others: Mapping[str, ResourceState]
) -> Snapshot:
    """The state with the entries of what was found, each behind what it needs.

    What another program has removed since, and they need, is taken from the `others`.
    """
    resources = list(snapshot.resources)
    there = {each.urn: each for each in resources if not each.delete}
    for urn, entry in found.adopted.items():
        found.adopted[urn] = _needing(resources, there, entry, others)
    found.lost = [_needing(resources, there, entry, others) for entry in found.lost]
    for entry in found.adopted.values():
        # It was made to take the other's place, which has still to be deleted.
        _place(resources, entry, is_newest=True)
    for entry in found.lost:
        _place(resources, entry)
    settled = {
        to_dynamic_urn(each.urn or "") for each in (*found.over, *found.nothing, *found.anew)
    }
    pending = [each for each in snapshot.pending_operations if not _is_of(each, settled)]
    after = replace(snapshot, resources=resources, pending_operations=pending)
    return after if not edits.verify(after) else repair(after).snapshot


def _needing(
    resources: list[ResourceState],
    there: dict[str, ResourceState],
    entry: ResourceState,
    others: Mapping[str, ResourceState],
) -> ResourceState:
    """The entry with a provider that is there, and its parents too where they are known.

    `there` are the resources that are not to be deleted, by URN.
    """

    def add(needed: ResourceState) -> None:
        resources.append(needed)
        there[needed.urn] = needed

    if entry.parent and entry.parent not in there and entry.parent in others:
        add(_needing(resources, there, others[entry.parent], others))
    urn, _, id_ = entry.provider.rpartition("::")
    if not urn:
        return entry
    current = there.get(urn) or others.get(urn)
    if current is None and name_of(urn).startswith("default"):
        # The program's next run gives it what is configured.
        current = ResourceState(urn, custom=True, type=type_of(urn), id=id_)
    if current is None:
        return entry
    if urn not in there:
        add(current)
    return replace(entry, provider=f"{urn}::{current.id}")


def _place(
    resources: list[ResourceState], entry: ResourceState, *, is_newest: bool = False
) -> None:
    """Puts in what an interrupted run made: the newer one of a URN stays, the other is to go.

    What another program has made since is newer, unless the times of their creation say otherwise.
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


def _is_of(operation: PendingOperation, urns: set[str]) -> bool:
    return operation.type == "creating" and to_dynamic_urn(operation.resource.urn) in urns


def _named(intent: Intent) -> str:
    parts = f": {', '.join(intent.names)}" if intent.names else ""
    what = f"{intent.kind} {intent.name!r} on {intent.platform}{parts}"
    return f"{name_of(intent.urn or '')} ({what})"
