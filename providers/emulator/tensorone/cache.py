"""The platform's own cache: a GET may answer what it answered some time ago."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from gpuform.providers.emulator.store import Store

_KIND = "tensorone.cached"


class _Entry(BaseModel, frozen=True):
    at: float
    text: str


@dataclass(frozen=True)
class Cached:
    """Data, and how many seconds old it is."""

    data: Any
    age: float = 0.0
    is_hit: bool = False


def cached(store: Store, key: str, now: float, seconds: float, look: Callable[[], Any]) -> Cached:
    """What `look` gave for `key` at most `seconds` ago, else what it gives now."""
    if seconds == 0:
        return Cached(look())
    kept = store.get(_KIND, key)
    entry = None if kept is None else _Entry.model_validate_json(kept)
    if entry is not None and now - entry.at < seconds:
        return Cached(json.loads(entry.text), now - entry.at, is_hit=True)
    data = look()
    entry = _Entry(at=now, text=json.dumps(data))
    store.put(_KIND, key, entry.model_dump_json(), gone_at=now + seconds)
    return Cached(data)
