"""Which nodes are a pool's own: by the ids in the state, and by the records of its creates.

A node is a pool's own only by its id in the pool's outputs, or by an intent: by the id that the
intent has, or, where the answer to the create was lost, as the only new node of a name in it.
"""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import replace

from gpuform.providers.call import Call
from gpuform.providers.creating import Candidate, new_since
from gpuform.providers.errors import AmbiguousObject
from gpuform.providers.intents import Intent, Target
from gpuform.providers.scp.states import is_leaving
from gpuform.schemas.scp import wire
from gpuform.schemas.scp.moments import unix_time


class Ledger:
    """The record of one pool's nodes during one call; safe for the threads of that call.

    `ids` are the nodes of the pool; `unsure` the names whose create has an unknown outcome.
    """

    def __init__(self, call: Call, target: Target, pool_id: str, ids: Iterable[str]) -> None:
        self._call = call
        self._target = target
        self._pool_id = pool_id
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
            if not intent.ids and names not in self._earlier
            for name in names
        }

    @property
    def is_searching(self) -> bool:
        """Whether there is a create whose outcome is not known."""
        return any(not intent.ids for intent in self._intents.values())

    def adopt(self, listed: Sequence[wire.GpuNode]) -> None:
        """Finds the nodes of creates whose answers were lost.

        What an earlier run left no trace of never came to be. Raises AmbiguousObject when several
        nodes of one name could be ours.
        """
        for names, intent in list(self._intents.items()):
            if intent.ids:
                continue
            found = self._new(intent, [each for each in listed if each.gpu_node_name in names])
            if found:
                self._call.on_warning(
                    f"the answer to a create was lost; found {', '.join(sorted(found))} again"
                )
                self.made(intent, found.values())
            elif names in self._earlier:
                self.forget(intent)

    def begin(self, names: Sequence[str], present: Iterable[str]) -> Intent:
        """Records durably that nodes of these names are about to be made."""
        intent = Intent(
            urn=self._call.urn,
            platform=self._target.platform,
            kind=self._target.kind,
            name=self._target.name,
            region=self._target.region,
            started_at=self._call.clock.now(),
            present_ids=tuple(sorted(present)),
            id=self._pool_id,
            names=tuple(names),
        )
        with self._lock:
            self._intents[intent.names] = intent
            self._earlier.discard(intent.names)
        self._call.intents.record(intent)
        return intent

    def made(self, intent: Intent, ids: Iterable[str]) -> None:
        """Records durably which nodes a create has made."""
        known = replace(intent, ids=tuple(ids))
        with self._lock:
            self._intents[intent.names] = known
            self.ids.update(known.ids)
        self._call.intents.record(known)

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

    def _new(self, intent: Intent, named: Sequence[wire.GpuNode]) -> dict[str, str]:
        """Ids by name of the nodes that can be the intent's."""
        candidates = [candidate(each) for each in named if each.id not in self.ids]
        new = {each.id for each in new_since(self._call, intent, candidates)}
        found: dict[str, str] = {}
        for node in named:
            if node.id not in new:
                continue
            if node.gpu_node_name in found:
                both = f"{found[node.gpu_node_name]}, {node.id}"
                raise AmbiguousObject(
                    f"several new GPU nodes are named {node.gpu_node_name!r} ({both}): it is not "
                    "known which one this project made",
                    hint="delete the ones that are not wanted, then run it again",
                )
            found[node.gpu_node_name] = node.id
        return found


def candidate(node: wire.GpuNode) -> Candidate:
    """A node as the flow of a create looks at it."""
    return Candidate(
        node.id,
        unix_time(node.created_at),
        leaving=is_leaving(node.state),
        region=node.node_pool_id,
    )
