"""Track which nodes are a pool's own: by the ids in the state, and by the records of its creates.

A node is a pool's own only by its id in the pool's outputs, or by an intent: by an id of the
platform's answer together with a name that was requested, or by `evidence`. The answer's ids are
hints: it may have one id for five nodes, or ids of no node. `pool.nodes` and `pool.creating` call
this module.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.context import ProviderContext
from gpuform.providers.creating import (
    CLOCK_SKEW_S,
    PROPAGATION_TIME_S,
    Candidate,
    TimedIntent,
    build_adoption_question,
    compute_remaining_propagation_s,
    find_credible_time,
    judge_candidates,
    redact_sent_properties,
    require_absence,
)
from gpuform.providers.errors import UnknownOutcome
from gpuform.providers.evidence import FORGET_NODE, Observation, find_gaps
from gpuform.providers.records import Intent, Target, build_record_name
from gpuform.providers.scp.nodes.planning import is_terminating
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.outputs import to_unix_time

COMPARED_FIELDS: Final = ("image_id", "vpc_id", "network_id", "cluster_fabric_name")
"""The fields that distinguish a node that gpuform requested from another node of its name."""


class NodeLedger:
    """The record of one pool's nodes during one call; safe for the threads of that call.

    `ids` are the nodes of the pool. `clock_ahead` returns how many seconds this machine's clock is
    ahead of the platform's.
    """

    def __init__(
        self,
        context: ProviderContext,
        target: Target,
        pool_id: str,
        ids: Iterable[str],
        clock_ahead: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._context = context
        self._target = target
        self._pool_id = pool_id
        self._clock_ahead = clock_ahead
        self._lock = threading.Lock()
        self._intents = {
            build_record_name(intent): intent
            for intent in context.intents.list_for_parts(context.urn, target)
        }
        # What this very call has sent is not forgotten by it: the next run looks once more.
        self._earlier_records = set() if context.progress.just_created else set(self._intents)
        created_ids = (id_ for intent in self._intents.values() for id_ in intent.ids)
        # A run that was killed after a create has its nodes in the intent alone, not in the state.
        self.ids = {*ids, *created_ids}
        self._ending_ids = set[str]()
        self._absent_since: dict[str, float] = {}
        self._missed_since: dict[str, float] = {}

    @property
    def uncertain_names(self) -> set[str]:
        """Return the names of nodes whose create has an unknown outcome."""
        return {name for intent in self._intents.values() for name in intent.open_names}

    @property
    def lost_names(self) -> set[str]:
        """Return the uncertain names without those of creates that SCP refused.

        A refused create most likely did nothing: no call waits for its nodes only to show them.
        """
        return {
            name
            for intent in self._intents.values()
            if not intent.is_refused
            for name in intent.open_names
        }

    @property
    def has_uncertain_nodes(self) -> bool:
        """Return True if a create has an unknown outcome, or a node of the pool is absent."""
        return bool(self.uncertain_names or self._absent_since)

    @property
    def may_miss_nodes(self) -> bool:
        """Return True while the platform may lack existing nodes, of a create or absent so far.

        The propagation time is then not over.
        """
        return self.has_uncertain_nodes and self.get_seconds_to_wait(self.get_platform_time()) > 0

    def refuse_while_uncertain(self) -> None:
        """Raise UnknownOutcome while nobody knows whether nodes of the pool were created."""
        if self.uncertain_names:
            raise UnknownOutcome(
                f"the creates of {', '.join(sorted(self.uncertain_names))}: their result is "
                "unknown",
                hint="run the command again: it looks for the object before it creates anything",
            )

    @property
    def hinted_ids(self) -> set[str]:
        """Return the ids in answers to incomplete creates, without ids of the pool."""
        return {
            id_ for intent in self._intents.values() if intent.open_names for id_ in intent.hints
        } - self.ids

    def get_platform_time(self) -> float:
        """Return the platform's time, in Unix seconds."""
        return self._context.get_platform_time(self._clock_ahead())[0]

    def get_seconds_to_wait(self, asked_at: float) -> float:
        """Return for how many seconds the platform may still lack existing nodes.

        `asked_at` is the platform's time when the last list was requested.
        """
        create_waits = [
            self._get_seconds_to_wait(intent, asked_at)
            for intent in self._intents.values()
            if intent.open_names
        ]
        absence_waits = [
            since + PROPAGATION_TIME_S - asked_at for since in self._absent_since.values()
        ]
        return max([0.0, *create_waits, *absence_waits])

    def _get_seconds_to_wait(self, intent: Intent, asked_at: float) -> float:
        """Return for how many seconds the platform may still lack nodes of one create.

        For a create of an earlier call the propagation time begins again with this call's first
        list, whose time is recorded here: a single list may come from a replica that lags behind.
        For a refused create one list after the propagation time is enough.
        """
        seconds = compute_remaining_propagation_s(intent, asked_at)
        if intent.is_refused or build_record_name(intent) not in self._earlier_records:
            return seconds
        first_missed_at = self._missed_since.setdefault(build_record_name(intent), asked_at)
        return max(seconds, first_missed_at + PROPAGATION_TIME_S - asked_at)

    def adopt_created_nodes(self, listed: Collection[wire.GpuNode], asked_at: float) -> None:
        """Add the nodes of recorded creates to the pool, from a complete list of nodes.

        `asked_at` is the platform's time when the list was requested. A create of an earlier call
        whose nodes are missing after the propagation time is forgotten, with a warning; a refused
        create also of this call, and without a warning.

        Raises:
            AdoptionQuestion: nobody can say which of the nodes are the pool's.
        """
        for intent in list(self._intents.values()):
            if intent.open_names:
                self._adopt_nodes_of_create(intent, listed, asked_at)

    def _adopt_nodes_of_create(
        self, intent: Intent, listed: Collection[wire.GpuNode], asked_at: float
    ) -> None:
        """Adopt the nodes of one create from a list, and forget nodes missing for too long.

        A missing node of an earlier call's create is forgotten once the propagation time is over.
        Records the adopted ids, and warns about nodes found after a lost answer.

        Raises:
            AdoptionQuestion: after the propagation time nobody can say which nodes are the pool's.
                For a refused create, a call that changes nothing only warns.
        """
        ids_by_name: dict[str, str] = {}
        doubtful: list[Candidate] = []
        sibling_times = [
            to_unix_time(node.created_at)
            for node in listed
            if node.id in intent.hints and node.gpu_node_name in intent.names
        ]
        for name in intent.open_names:
            candidates = [
                node for node in listed if node.gpu_node_name == name and node.id not in self.ids
            ]
            hinted_ids = [node.id for node in candidates if node.id in intent.hints]
            # The name was requested, and the id is of the answer: that is proof enough.
            if hinted_ids:
                ids_by_name[name] = hinted_ids[0]
                continue
            # Without an answer the name alone proves nothing: times and properties are compared.
            verdict = judge_candidates(
                self._context, intent, map(node_to_candidate, candidates), asked_at
            )
            sibling = _find_sibling(intent, verdict.doubtful, sibling_times, asked_at)
            if sibling is not None:
                ids_by_name[name] = sibling
                continue
            doubtful += verdict.doubtful
            if verdict.ours is not None:
                ids_by_name[name] = verdict.ours.id
        if ids_by_name:
            if not intent.hints:
                listed_names = ", ".join(sorted(ids_by_name))
                reason = (
                    "SCP refused a create"
                    if intent.is_refused
                    else "the answer to a create was lost"
                )
                self._context.on_warning(f"{reason}; found the nodes: {listed_names}")
            missing_names = tuple(name for name in intent.open_names if name not in ids_by_name)
            ids = (*intent.ids, *ids_by_name.values())
            intent = self._save_intent(
                replace(intent, ids=ids, missing=missing_names, is_refused=False)
            )
        seconds = self._get_seconds_to_wait(intent, asked_at) if intent.open_names else 0.0
        # The platform may still show the missing nodes: the intent stays.
        if intent.open_names and seconds <= 0:
            self._resolve_missing(intent, doubtful, seconds)

    def _resolve_missing(
        self, intent: Intent, doubtful: Sequence[Candidate], seconds: float
    ) -> None:
        """Ask about the doubtful nodes of a create, or forget the create's missing nodes.

        What this very call has sent is forgotten only if SCP refused it. Raises AdoptionQuestion.
        """
        if doubtful:
            question = build_adoption_question(intent, doubtful)
            if not (intent.is_refused and self._context.is_read_only):
                raise question
            self._context.warn_once(question.message)
        elif intent.is_refused or build_record_name(intent) in self._earlier_records:
            self._forget_missing(intent, seconds)

    def _forget_missing(self, intent: Intent, seconds_left: float) -> None:
        """Forget the nodes of a create which neither the list nor lookups have shown.

        Warns, except of a refused create. Raises NotEnoughEvidence while the absence is not proven.
        """
        missing_names = intent.open_names
        # Raises while the absence is not proven: a forgotten node would cost money unseen.
        require_absence(intent, missing_names, seconds_left)
        if not intent.is_refused:
            self._context.on_warning(
                f"an interrupted create of {', '.join(missing_names)} created nothing: the "
                "platform shows no node of that name"
            )
        if intent.ids:
            self._save_intent(replace(intent, missing=()))
        else:
            self.forget_create(intent)

    def record_create(
        self, names: Sequence[str], present_ids: Iterable[str], body: wire.CreateGpuNodes
    ) -> TimedIntent:
        """Record durably which nodes are about to be created.

        `present_ids` are the nodes that had the names before. A run that finds the intent knows
        which nodes the request may have made.
        """
        intent = Intent(
            urn=self._context.urn,
            platform=self._target.platform,
            kind=self._target.kind,
            name=self._target.name,
            region=self._target.region,
            # `TimedIntent` sets the time of each request.
            started_at=0.0,
            present_ids=tuple(sorted(present_ids)),
            sent=redact_sent_properties(self._context, request_to_node_fields(body)),
            id=self._pool_id,
            names=tuple(names),
            missing=tuple(names),
        )
        timed_intent = TimedIntent(self._context, intent, self._clock_ahead)
        with self._lock:
            self._intents[build_record_name(intent)] = timed_intent.intent
            self._earlier_records.discard(build_record_name(intent))
        return timed_intent

    def record_answer(self, intent: Intent, ids: Iterable[str]) -> None:
        """Record durably the ids of the platform's answer to a create."""
        self.remember_intent(self._context.intents.record_answer(replace(intent, hints=tuple(ids))))

    def record_refusal(self, intent: Intent) -> None:
        """Record durably that SCP refused a create, although a late list may show its nodes."""
        self._save_intent(replace(intent, is_refused=True))

    def remember_intent(self, intent: Intent) -> None:
        """Replace the recorded intent of a node create in memory; nothing is written to disk."""
        with self._lock:
            self._intents[build_record_name(intent)] = intent

    def forget_create(self, intent: Intent) -> None:
        """Forget a create without effect, here and on disk."""
        with self._lock:
            self._intents.pop(build_record_name(intent), None)
        self._context.intents.forget(intent=intent)

    def expect_deletion(self, ids: Iterable[str]) -> None:
        """Note nodes under deletion: if a later list lacks one, it is gone without a wait."""
        self._ending_ids.update(ids)

    def record_absent(self, ids: Collection[str], asked_at: float) -> None:
        """Record which nodes neither list nor lookup shows; remove the proven ones from the pool.

        `ids` are all nodes absent now: others count as shown again. A node whose deletion was seen
        or requested is gone; another node only when the platform has not shown it for the
        propagation time, in several lists.
        """
        # The propagation time runs from the first list that lacked the node.
        self._absent_since = {id_: self._absent_since.get(id_, asked_at) for id_ in ids}
        for id_, since in list(self._absent_since.items()):
            seconds = 0.0 if id_ in self._ending_ids else since + PROPAGATION_TIME_S - asked_at
            gaps = [f"node {id_} was shown a moment ago"] if seconds > 0 else []
            if not find_gaps(FORGET_NODE, Observation("scp", gaps)):
                del self._absent_since[id_]
                self._remove_node(id_)

    @property
    def absent_ids(self) -> Collection[str]:
        """Return the ids of nodes missing in the platform's lists; each node may still exist."""
        return self._absent_since.keys()

    @property
    def has_recorded_absent(self) -> bool:
        """Return True if the record of a create has an absent node, which the state may lack."""
        recorded = {id_ for intent in self._intents.values() for id_ in intent.ids}
        return bool(recorded & self._absent_since.keys())

    def _remove_node(self, id_: str) -> None:
        """Remove a deleted node from the pool and from the records.

        A create's record without further nodes is forgotten.
        """
        self.ids.discard(id_)
        for intent in list(self._intents.values()):
            if id_ not in intent.ids:
                continue
            remaining_ids = tuple(other_id for other_id in intent.ids if other_id != id_)
            # The record stays as long as one of its nodes may need it.
            if remaining_ids or intent.open_names:
                self._save_intent(replace(intent, ids=remaining_ids, missing=intent.open_names))
            else:
                self.forget_create(intent)

    def _save_intent(self, intent: Intent) -> Intent:
        """Store the intent in memory and on disk, and add the intent's ids to the pool."""
        self.remember_intent(intent)
        self.ids.update(intent.ids)
        self._context.intents.record(intent)
        return intent


def _find_sibling(
    intent: Intent, doubtful: Sequence[Candidate], sibling_times: Iterable[float | None], now: float
) -> str | None:
    """Return the id of the one node created at the time of other nodes of the create.

    None if there are several nodes, or if the node's time or properties do not fit. The platform's
    own times agree whatever our clock says. `doubtful` are the nodes of one name that the create
    may have made, `sibling_times` the creation times of the nodes that the answer's ids have shown,
    `now` the platform's time when the list was requested.
    """
    if len(doubtful) != 1 or doubtful[0].find_differences(intent.sent):
        return None
    created_at = find_credible_time(doubtful[0], intent, now)
    if created_at is None or not any(
        at is not None and abs(created_at - at) <= CLOCK_SKEW_S for at in sibling_times
    ):
        return None
    return doubtful[0].id


def node_to_candidate(node: wire.GpuNode) -> Candidate:
    """Convert a node to a candidate of an exactly-once create."""
    return Candidate(
        node.id,
        to_unix_time(node.created_at),
        is_being_deleted=is_terminating(node.state),
        # A vendor pool stands for the region: names of nodes are compared within it.
        region=node.node_pool_id,
        reported_properties={name: getattr(node, name) or None for name in COMPARED_FIELDS},
    )


def request_to_node_fields(body: wire.CreateGpuNodes) -> Mapping[str, Any]:
    """Return image, VPC, network and fabric of a create request, under the names of node fields."""
    return {
        "image_id": body.image_id,
        "vpc_id": body.vpc_id,
        "network_id": body.subnet_id,
        "cluster_fabric_name": body.cluster_fabric_details.cluster_fabric_name,
    }
