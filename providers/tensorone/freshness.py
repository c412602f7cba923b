"""Answers from the platform's cache: how old they are, and whether they miss our own last change.

An answer says how old its data is (`meta.data_freshness_seconds`, `meta.cache_hit` of the platform
document).
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuform.schemas.tensorone import wire
from gpuform.schemas.tensorone.moments import is_before

ROUNDING = 1.0
"""Seconds: ages are whole."""


@dataclass(frozen=True)
class Sighting:
    """A cluster as an answer shows it, with the answer's `read_at`."""

    cluster: wire.Cluster
    as_of: float | None


def read_at(meta: wire.Meta, sent_at: float) -> float | None:
    """A time after which the platform read the data of an answer to a request sent at `sent_at`.

    Both in our own time. None when the answer is of the moment.
    """
    age = meta.data_freshness_seconds
    return sent_at - age - ROUNDING if meta.cache_hit or age > 0 else None


class Writes:
    """When this process last changed which cluster; safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._moments: dict[str, float] = {}

    def note(self, cluster_id: str, now: float) -> None:
        with self._lock:
            self._moments[cluster_id] = now

    def is_stale(self, seen: Sighting, known: Mapping[str, Any]) -> bool:
        """Whether it may miss a change of ours, or is older than what is `known` (outputs)."""
        with self._lock:
            moment = self._moments.get(seen.cluster.id)
        if moment is not None and seen.as_of is not None and seen.as_of <= moment:
            return True
        return is_before(seen.cluster.updated_at, known.get("updated_at"))
