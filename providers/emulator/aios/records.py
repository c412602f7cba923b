"""The records in the store, by their ids."""

import json
from typing import Any

from gpuform.providers.emulator.aios import schema
from gpuform.providers.emulator.aios.errors import failed, not_found
from gpuform.providers.emulator.aios.updating import updated
from gpuform.providers.emulator.store import Store

_KIND = "aios.cluster"

Document = dict[str, Any]


class Records:
    """To be used within one transaction."""

    def __init__(self, store: Store, now: float) -> None:
        self._store = store
        self._now = now

    def all(self) -> list[Document]:
        """Oldest first."""
        return [json.loads(body) for body in self._store.all(_KIND)]

    def get(self, cluster_id: str) -> Document:
        body = self._store.get(_KIND, cluster_id)
        if body is None:
            raise not_found()
        record: Document = json.loads(body)
        return record

    def add(self, given: Document) -> Document:
        """Raises ApiError for what is not valid, and for an id that is taken."""
        record = schema.new_record(given, self._new_id)
        self._refuse_taken(record["id"])
        self._keep(record)
        return record

    def update(self, cluster_id: str, update: Document) -> Document:
        """The record after a Mongo update; nothing changes when it is refused."""
        before = self.get(cluster_id)
        after = schema.with_ids(updated(before, schema.cast_update(update)), self._new_id)
        if after.get("id") != cluster_id:
            self._refuse_taken(after.get("id"))
            self.remove(cluster_id)
        self._keep(after)
        return after

    def remove(self, cluster_id: str) -> None:
        self.get(cluster_id)
        self._store.put(_KIND, cluster_id, "{}", gone_at=self._now)
        self._store.sweep(self._now)

    def _keep(self, record: Document) -> None:
        self._store.put(_KIND, str(record.get("id")), json.dumps(record))

    def _refuse_taken(self, cluster_id: object) -> None:
        if self._store.get(_KIND, str(cluster_id)) is not None:
            raise failed(
                "E11000 duplicate key error collection: aios.clusters index: id_1 dup key: "
                f'{{ id: "{cluster_id}" }}'
            )

    def _new_id(self) -> str:
        """24 hexadecimal digits, of which the first eight are the time, as MongoDB makes them."""
        return f"{int(self._now):08x}{self._store.new_id().replace('-', '')[:16]}"
