"""Who may ask, and how often: keys, and the limits of their tiers (documentation, 'Rate Limits').

Windows are whole hours of the emulator's clock. How the limits of endpoints go with those of tiers
is not documented: here both hold, the endpoints' five times as high for pro and fifty times for
enterprise, as 'Increasing Rate Limits' says. Headers tell of the one that is closer.
"""

import math
import re
from dataclasses import dataclass

from flask import Request
from pydantic import BaseModel

from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.catalogue import ApiError, Key, Settings
from gpuform.providers.emulator.tensorone.views import timestamp

WINDOW = 3600
_KIND = "tensorone.window"
_TIERS = {
    "free": {"read": 100, "write": 20},
    "pro": {"read": 1000, "write": 200},
    "enterprise": {"read": 10_000, "write": 2000},
}
_FACTORS = {"free": 1, "pro": 5, "enterprise": 50}
_ENDPOINTS = (
    ("GET", "/clusters", 1000),
    ("POST", "/clusters$", 20),
    ("PUT", "/clusters", 100),
    ("DELETE", "/clusters", 20),
)


class _Used(BaseModel, frozen=True):
    """How many requests of a window were made, by limit."""

    window: int
    counts: dict[str, int] = {}


@dataclass(frozen=True)
class Budget:
    """What is left of a limit in a window that ends at `reset`, in unix seconds."""

    limit: int
    remaining: int
    reset: int

    def headers(self) -> dict[str, str]:
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(0, self.remaining)),
            "X-RateLimit-Reset": str(self.reset),
            "X-RateLimit-Window": str(WINDOW),
        }


def key_of(asked: Request, settings: Settings) -> tuple[str, Key]:
    """The key of a request. Raises `ApiError` 401."""
    scheme, _, text = asked.headers.get("Authorization", "").partition(" ")
    key = settings.keys.get(text)
    if scheme.lower() != "bearer" or key is None:
        raise ApiError(401, "Invalid or missing API key")
    return text, key


def check_permission(asked: Request, key: Key) -> None:
    """Raises `ApiError` 403 when a key that may only read writes."""
    if asked.method != "GET" and not key.may_write:
        raise ApiError(
            403,
            "Insufficient permissions",
            required_permission="clusters:write",
            current_permissions=["clusters:read"],
        )


def counted(store: Store, name: str, key: Key, asked: tuple[str, str], now: float) -> Budget:
    """What is left after one more request of a method and a path; a refused one is not counted.

    Call it in a transaction.
    """
    window = int(now // WINDOW)
    used = _used(store, name, window)
    limits = _limits(key, *asked)
    left = {each: limit - used.counts.get(each, 0) - 1 for each, limit in limits.items()}
    closest = min(left, key=lambda each: left[each])
    budget = Budget(limits[closest], left[closest], (window + 1) * WINDOW)
    if budget.remaining >= 0:
        counts = used.counts | {each: used.counts.get(each, 0) + 1 for each in limits}
        store.put(_KIND, name, _Used(window=window, counts=counts).model_dump_json())
    return budget


def exceeded(budget: Budget, now: float) -> ApiError:
    wait = math.ceil(budget.reset - now)
    return ApiError(
        429,
        "API rate limit exceeded",
        limit=budget.limit,
        remaining=0,
        reset_at=timestamp(budget.reset),
        retry_after=wait,
    )


def _used(store: Store, name: str, window: int) -> _Used:
    kept = store.get(_KIND, name)
    used = _Used(window=window) if kept is None else _Used.model_validate_json(kept)
    return used if used.window == window else _Used(window=window)


def _limits(key: Key, method: str, path: str) -> dict[str, int]:
    kind = "read" if method == "GET" else "write"
    limits = {kind: _TIERS[key.tier][kind]}
    for own, pattern, limit in _ENDPOINTS:
        if own == method and re.match(pattern, path):
            limits[f"{own} {pattern}"] = limit * _FACTORS[key.tier]
    return limits
