"""Which nodes are a pool's own: by the ids in the state, and by the records of its creates.

A node is a pool's own only by its id in the pool's outputs, or by an intent: by an id of the
platform's answer together with a name that was asked for, or by `evidence`. The answer's ids are
hints: it may have one id for five nodes, or ids of no node.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.creating import (
    SETTLE,
    SKEW,
    Candidate,
    Timed,
    credible_time,
    judge,
    kept_properties,
    question,
    require_absence,
    seconds_until_settled,
)
from gpuform.providers.errors import UnknownOutcome
from gpuform.providers.evidence import Observation, find_gaps
from gpuform.providers.evidence.decisions import FORGET_NODE
from gpuform.providers.records import Intent, Target, record_name
from gpuform.providers.scp.nodes.planning import is_leaving
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.statuses import unix_time

SHOWN: Final = ("image_id", "vpc_id", "network_id", "cluster_fabric_name")
"""What tells a node that we have asked for from another one of its name."""


class Ledger:
    """The record of one pool's nodes during one call; safe for the threads of that call.

    `ids` are the nodes of the pool. `clock_ahead` says how far this machine's clock is ahead of the
    platform's, in seconds.
    """

    def __init__(
        self,
        call: ProviderContext,
        target: Target,
        pool_id: str,
        ids: Iterable[str],
        clock_ahead: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._call = call
        self._target = target
        self._pool_id = pool_id
        self._clock_ahead = clock_ahead
        self._lock = threading.Lock()
        self._intents = {
            record_name(each): each for each in call.intents.of_parts(call.urn, target)
        }
        # What this very call has sent is not forgotten by it: the next run looks once more.
        self._earlier = set() if call.just_created else set(self._intents)
        made = (id_ for intent in self._intents.values() for id_ in intent.ids)
        self.ids = {*ids, *made}
        self._ending = set[str]()
        self._absent_since: dict[str, float] = {}
        self._vain_since: dict[str, float] = {}

    @property
    def unsure(self) -> set[str]:
        """Names of nodes that a create may have made, or not."""
        return {name for intent in self._intents.values() for name in intent.open_names}

    @property
    def is_unsettled(self) -> bool:
        """Whether there are nodes of which nobody knows whether they exist."""
        return bool(self.unsure or self._absent_since)

    @property
    def may_show_more(self) -> bool:
        """Whether the settle time of a create, or of a node that is not shown, is not over."""
        return self.is_unsettled and self.seconds_left(self.now()) > 0

    def refuse_while_unsure(self) -> None:
        """Raise UnknownOutcome while nobody knows whether nodes of the pool were made."""
        if self.unsure:
            raise UnknownOutcome(
                f"it is not known whether {', '.join(sorted(self.unsure))} were made",
                hint="run it again: it looks once more before anything is made",
            )

    @property
    def hints(self) -> set[str]:
        """The ids of answers to creates of which not all nodes were found."""
        return {
            id_ for intent in self._intents.values() if intent.open_names for id_ in intent.hints
        } - self.ids

    def now(self) -> float:
        """Return the platform's time."""
        return self._call.platform_time(self._clock_ahead())[0]

    def seconds_left(self, asked_at: float) -> float:
        """Return for how many seconds the platform may still lack nodes that exist.

        Args:
            asked_at: the platform's time when the last list was asked for.
        """
        young = [
            self._seconds_left(intent, asked_at)
            for intent in self._intents.values()
            if intent.open_names
        ]
        absent = [since + SETTLE - asked_at for since in self._absent_since.values()]
        return max([0.0, *young, *absent])

    def _seconds_left(self, intent: Intent, asked_at: float) -> float:
        """Return for how many seconds the platform may still lack nodes of one create.

        What an earlier call has asked for is missed for the settle time by this call, too, before
        it is believed not to exist: a single look may meet a replica that lags behind.
        """
        left = seconds_until_settled(intent, asked_at)
        if record_name(intent) not in self._earlier:
            return left
        since = self._vain_since.setdefault(record_name(intent), asked_at)
        return max(left, since + SETTLE - asked_at)

    def adopt(self, listed: Collection[wire.GpuNode], asked_at: float) -> None:
        """Find the nodes of creates in a complete list, and forget what made nothing.

        Raises:
            AdoptionQuestion: nobody can say which of the nodes are the pool's.
        """
        for intent in list(self._intents.values()):
            if intent.open_names:
                self._adopt(intent, listed, asked_at)

    def _adopt(self, intent: Intent, listed: Collection[wire.GpuNode], asked_at: float) -> None:
        found: dict[str, str] = {}
        doubtful: list[Candidate] = []
        made_at = [
            unix_time(node.created_at)
            for node in listed
            if node.id in intent.hints and node.gpu_node_name in intent.names
        ]
        for name in intent.open_names:
            named = [n for n in listed if n.gpu_node_name == name and n.id not in self.ids]
            answered = [node.id for node in named if node.id in intent.hints]
            if answered:
                found[name] = answered[0]
                continue
            verdict = judge(self._call, intent, map(candidate, named), asked_at)
            sibling = _find_sibling(intent, verdict.doubtful, made_at, asked_at)
            if sibling is not None:
                found[name] = sibling
                continue
            doubtful += verdict.doubtful
            if verdict.ours is not None:
                found[name] = verdict.ours.id
        if found:
            if not intent.hints:
                told = ", ".join(sorted(found))
                self._call.on_warning(f"the answer to a create was lost; found {told} again")
            missing = tuple(name for name in intent.open_names if name not in found)
            ids = (*intent.ids, *found.values())
            intent = self._record(replace(intent, ids=ids, missing=missing))
        left = self._seconds_left(intent, asked_at) if intent.open_names else 0.0
        if not intent.open_names or left > 0:
            return
        if doubtful:
            raise question(intent, doubtful)
        if record_name(intent) in self._earlier:
            self._forget_missing(intent, left)

    def _forget_missing(self, intent: Intent, seconds_left: float) -> None:
        """Forget the nodes of a create that neither the list nor their ids show."""
        names = intent.open_names
        require_absence(intent, names, seconds_left)
        self._call.on_warning(
            f"an interrupted create of {', '.join(names)} made nothing: the platform shows no "
            "node of that name"
        )
        if intent.ids:
            self._record(replace(intent, missing=()))
        else:
            self.forget(intent)

    def begin(
        self, names: Sequence[str], present: Iterable[str], body: wire.CreateGpuNodes
    ) -> Timed:
        """Records durably that nodes of these names are about to be made."""
        intent = Intent(
            urn=self._call.urn,
            platform=self._target.platform,
            kind=self._target.kind,
            name=self._target.name,
            region=self._target.region,
            started_at=0.0,
            present_ids=tuple(sorted(present)),
            sent=kept_properties(self._call, sent(body)),
            id=self._pool_id,
            names=tuple(names),
            missing=tuple(names),
        )
        kept = Timed(self._call, intent, self._clock_ahead)
        with self._lock:
            self._intents[record_name(intent)] = kept.intent
            self._earlier.discard(record_name(intent))
        return kept

    def answered(self, intent: Intent, ids: Iterable[str]) -> None:
        """Record durably the ids of the platform's answer to a create."""
        self.unknown(self._call.intents.record_answer(replace(intent, hints=tuple(ids))))

    def unknown(self, intent: Intent) -> None:
        """The create may have made something: this is what there is to know of it."""
        with self._lock:
            self._intents[record_name(intent)] = intent

    def forget(self, intent: Intent) -> None:
        """The create made nothing."""
        with self._lock:
            self._intents.pop(record_name(intent), None)
        self._call.intents.forget(intent=intent)

    def expect_end(self, ids: Iterable[str]) -> None:
        """Note nodes that are being deleted: when they are not shown any more, they are gone."""
        self._ending.update(ids)

    def note_absent(self, ids: Collection[str], asked_at: float) -> None:
        """Note which nodes neither the list nor a lookup of their id has shown.

        A node whose deletion was seen or asked for is gone; another one only when the platform has
        not shown it for the settle time, in several looks.
        """
        self._absent_since = {id_: self._absent_since.get(id_, asked_at) for id_ in ids}
        for id_, since in list(self._absent_since.items()):
            left = 0.0 if id_ in self._ending else since + SETTLE - asked_at
            missing = [f"node {id_} was shown a moment ago"] if left > 0 else []
            if not find_gaps(FORGET_NODE, Observation("scp", missing)):
                del self._absent_since[id_]
                self._remove(id_)

    @property
    def absent(self) -> Collection[str]:
        """The ids of nodes that were not shown and may still exist."""
        return self._absent_since.keys()

    @property
    def has_recorded_absent(self) -> bool:
        """Whether one of the absent nodes is in the record of a create: the state may lack it."""
        recorded = {id_ for intent in self._intents.values() for id_ in intent.ids}
        return bool(recorded & self._absent_since.keys())

    def _remove(self, id_: str) -> None:
        """The node is no longer there: no record needs it."""
        self.ids.discard(id_)
        for intent in list(self._intents.values()):
            if id_ not in intent.ids:
                continue
            left = tuple(each for each in intent.ids if each != id_)
            if left or intent.open_names:
                self._record(replace(intent, ids=left, missing=intent.open_names))
            else:
                self.forget(intent)

    def _record(self, intent: Intent) -> Intent:
        self.unknown(intent)
        self.ids.update(intent.ids)
        self._call.intents.record(intent)
        return intent


def _find_sibling(
    intent: Intent,
    doubtful: Sequence[Candidate],
    made_at: Iterable[float | None],
    now: float,
) -> str | None:
    """Return the id of the one node that the platform says was made with others of its create.

    The platform's own times agree whatever our clock says.

    Args:
        intent: the create, of which the answer's ids have shown other nodes.
        doubtful: the nodes of one name that the create may have made.
        made_at: when those others were made, by the platform.
        now: the platform's time when the list was asked for.
    """
    if len(doubtful) != 1 or doubtful[0].differences(intent.sent):
        return None
    own = credible_time(doubtful[0], intent, now)
    if own is None or not any(at is not None and abs(own - at) <= SKEW for at in made_at):
        return None
    return doubtful[0].id


def candidate(node: wire.GpuNode) -> Candidate:
    """A node as the flow of a create looks at it."""
    return Candidate(
        node.id,
        unix_time(node.created_at),
        leaving=is_leaving(node.state),
        region=node.node_pool_id,
        shown={name: getattr(node, name) or None for name in SHOWN},
    )


def sent(body: wire.CreateGpuNodes) -> Mapping[str, Any]:
    """A request's properties under the names that nodes show them by."""
    return {
        "image_id": body.image_id,
        "vpc_id": body.vpc_id,
        "network_id": body.subnet_id,
        "cluster_fabric_name": body.cluster_fabric_details.cluster_fabric_name,
    }
