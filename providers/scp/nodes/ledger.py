"""Which nodes are a pool's own: by the ids in the state, and by the records of its creates.

A node is a pool's own only by its id in the pool's outputs, or by an intent: by the id that the
intent has, or, where the answer to the create was lost, by `evidence`.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpuform.providers.calls import Call
from gpuform.providers.creating import SETTLE, Candidate, Timed, judge, kept_properties, question
from gpuform.providers.records import Intent, Target
from gpuform.providers.scp.nodes.states import is_leaving
from gpuform.schemas.scp import requests, wire
from gpuform.schemas.scp.moments import unix_time

SHOWN: Final = ("image_id", "vpc_id", "network_id", "cluster_fabric_name")
"""What tells a node that we have asked for from another one of its name."""


class Ledger:
    """The record of one pool's nodes during one call; safe for the threads of that call.

    `ids` are the nodes of the pool; `unsure` the names whose create has an unknown outcome.
    `clock_ahead` says how far this machine's clock is ahead of the platform's, in seconds.
    """

    def __init__(
        self,
        call: Call,
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
        self._intents = {each.names: each for each in call.intents.of_parts(call.urn, target)}
        self._earlier = set(self._intents)
        made = (id_ for intent in self._intents.values() for id_ in intent.ids)
        self.ids = {*ids, *made}

    @property
    def unsure(self) -> set[str]:
        """Names of nodes that a create of this call may have made, or not."""
        return {
            name
            for names, intent in self._intents.items()
            if intent.is_searched and names not in self._earlier
            for name in names
        }

    @property
    def is_searching(self) -> bool:
        """Whether there is a create whose outcome is not known."""
        return any(intent.is_searched for intent in self._intents.values())

    def adopt(self, listed: Sequence[wire.GpuNode]) -> float:
        """Finds the nodes of creates whose answers were lost, and forgets what made nothing.

        Returns for how many seconds lists may still lack some of them: only then all that there is
        to know is known. Raises AdoptionQuestion when nobody can tell.
        """
        longest = 0.0
        for intent in list(self._intents.values()):
            if intent.is_searched:
                longest = max(longest, self._adopt(intent, listed))
        return longest

    def _adopt(self, intent: Intent, listed: Sequence[wire.GpuNode]) -> float:
        now, _ = self._call.platform_time(self._clock_ahead())
        left = max(0.0, intent.started_at + SETTLE - now)
        found: dict[str, str] = {}
        doubtful: list[Candidate] = []
        for name in intent.names:
            named = [candidate(n) for n in listed if n.gpu_node_name == name]
            free = [each for each in named if each.id not in self.ids]
            verdict = judge(self._call, intent, free, now)
            doubtful += verdict.doubtful
            if verdict.ours is not None:
                found[name] = verdict.ours.id
        if left and len(found) < len(intent.names):
            return left
        if doubtful:
            raise question(intent, doubtful)
        if found:
            told = ", ".join(sorted(found))
            self._call.on_warning(f"the answer to a create was lost; found {told} again")
            self.made(intent, found.values())
        elif intent.names in self._earlier:
            self.forget(intent)
        return 0.0

    def begin(
        self, names: Sequence[str], present: Iterable[str], body: requests.CreateGpuNodes
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
        )
        kept = Timed(self._call, intent, self._clock_ahead)
        with self._lock:
            self._intents[intent.names] = kept.intent
            self._earlier.discard(intent.names)
        return kept

    def made(self, intent: Intent, ids: Iterable[str]) -> None:
        """Records durably which nodes a create has made."""
        known = replace(intent, ids=tuple(ids))
        self.unknown(known)
        self.ids.update(known.ids)
        self._call.intents.record(known)

    def unknown(self, intent: Intent) -> None:
        """The create may have made something: this is what there is to know of it."""
        with self._lock:
            self._intents[intent.names] = intent

    def forget(self, intent: Intent) -> None:
        """The create made nothing."""
        with self._lock:
            self._intents.pop(intent.names, None)
        self._call.intents.forget(intent=intent)

    def gone(self, id_: str) -> None:
        """The node is no longer there: no record needs it."""
        self.ids.discard(id_)
        for intent in list(self._intents.values()):
            if id_ not in intent.ids:
                continue
            left = tuple(each for each in intent.ids if each != id_)
            if left:
                self.made(intent, left)
            else:
                self.forget(intent)


def candidate(node: wire.GpuNode) -> Candidate:
    """A node as the flow of a create looks at it."""
    return Candidate(
        node.id,
        unix_time(node.created_at),
        leaving=is_leaving(node.state),
        region=node.node_pool_id,
        shown={name: getattr(node, name) or None for name in SHOWN},
    )


def sent(body: requests.CreateGpuNodes) -> Mapping[str, Any]:
    """A request's properties under the names that nodes show them by."""
    return {
        "image_id": body.image_id,
        "vpc_id": body.vpc_id,
        "network_id": body.subnet_id,
        "cluster_fabric_name": body.cluster_fabric_details.cluster_fabric_name,
    }
