"""Check keys, and limit how often each may ask (documentation, 'Rate Limits').

`routes` calls this module before every request. Windows are whole hours of the emulator's clock.
How the limits of endpoints go with those of tiers is not documented: here both hold, the endpoints'
five times as high for pro and fifty times for enterprise, as 'Increasing Rate Limits' says. The
headers of an answer show the limit that is closer.
"""

import math
import re
from dataclasses import dataclass

from flask import Request
from pydantic import BaseModel

from gpuform.providers.emulator.store import Store
from gpuform.providers.emulator.tensorone.catalogue import (
    ApiKey,
    TensorOneApiError,
    TensorOneSettings,
)
from gpuform.providers.emulator.tensorone.views import format_timestamp

WINDOW_SECONDS = 3600
_KIND = "tensorone.window"
_TIERS = {
    "free": {"read": 100, "write": 20},
    "pro": {"read": 1000, "write": 200},
    "enterprise": {"read": 10_000, "write": 2000},
}
# How many times as high the endpoints' limits are as the documented ones ('Increasing Rate
# Limits').
_FACTORS = {"free": 1, "pro": 5, "enterprise": 50}
_ENDPOINTS = (
    ("GET", "/clusters", 1000),
    ("POST", "/clusters$", 20),
    ("PUT", "/clusters", 100),
    ("DELETE", "/clusters", 20),
)


class _WindowUsage(BaseModel, frozen=True):
    """How many requests of a window were made, by limit."""

    window: int
    counts: dict[str, int] = {}


@dataclass(frozen=True)
class Budget:
    """What remains of a limit in a window that ends at `reset`, in unix seconds."""

    limit: int
    remaining: int
    reset: int

    def build_headers(self) -> dict[str, str]:
        """Return the documented headers of the rate limit."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(max(0, self.remaining)),
            "X-RateLimit-Reset": str(self.reset),
            "X-RateLimit-Window": str(WINDOW_SECONDS),
        }


def require_key(client_request: Request, settings: TensorOneSettings) -> tuple[str, ApiKey]:
    """Return the text of a request's key, and the key with tier and rights.

    Raises `ApiError` 401 without a known key.
    """
    scheme, _, token = client_request.headers.get("Authorization", "").partition(" ")
    key = settings.keys.get(token)
    if scheme.lower() != "bearer" or key is None:
        raise TensorOneApiError(401, "Invalid or missing API key")
    return token, key


def check_permission(client_request: Request, key: ApiKey) -> None:
    """Raise `ApiError` 403 for a write with a read-only key."""
    if client_request.method != "GET" and not key.may_write:
        raise TensorOneApiError(
            403,
            "Insufficient permissions",
            required_permission="clusters:write",
            current_permissions=["clusters:read"],
        )


def count_request(
    store: Store, name: str, key: ApiKey, endpoint: tuple[str, str], now: float
) -> Budget:
    """Count one more request of a key, and return the budget of the closest of its limits.

    A request beyond a limit is not counted, and has a budget with `remaining` below 0. Call this
    function within a transaction.

    Args:
        store: keeps the counts.
        name: the key's text.
        key: decides the limits.
        endpoint: method and path of the request.
        now: unix seconds.
    """
    window = int(now // WINDOW_SECONDS)
    usage = _load_usage(store, name, window)
    limits = _list_limits(key, *endpoint)
    remaining = {
        limit_name: limit - usage.counts.get(limit_name, 0) - 1
        for limit_name, limit in limits.items()
    }
    closest = min(remaining, key=lambda limit_name: remaining[limit_name])
    budget = Budget(limits[closest], remaining[closest], (window + 1) * WINDOW_SECONDS)
    # A refused request does not count, so that a client that waits for the window gets through.
    if budget.remaining >= 0:
        counts = usage.counts | {
            limit_name: usage.counts.get(limit_name, 0) + 1 for limit_name in limits
        }
        store.put(_KIND, name, _WindowUsage(window=window, counts=counts).model_dump_json())
    return budget


def make_rate_limit_error(budget: Budget, now: float) -> TensorOneApiError:
    """Return the 429 of an exhausted budget, with the seconds from `now` until the window ends."""
    wait_seconds = math.ceil(budget.reset - now)
    return TensorOneApiError(
        429,
        "API rate limit exceeded",
        limit=budget.limit,
        remaining=0,
        reset_at=format_timestamp(budget.reset),
        retry_after=wait_seconds,
    )


def _load_usage(store: Store, name: str, window: int) -> _WindowUsage:
    """Return the stored usage of a key in `window`; an empty one for a new window."""
    stored_usage = store.get(_KIND, name)
    usage = (
        _WindowUsage(window=window)
        if stored_usage is None
        else _WindowUsage.model_validate_json(stored_usage)
    )
    # Counts of an old window are void; nobody removes them, the next request replaces them.
    return usage if usage.window == window else _WindowUsage(window=window)


def _list_limits(key: ApiKey, method: str, path: str) -> dict[str, int]:
    """Return the limits that hold for a request, by name: the tier's, and those of its endpoint."""
    kind = "read" if method == "GET" else "write"
    limits = {kind: _TIERS[key.tier][kind]}
    for limited_method, pattern, limit in _ENDPOINTS:
        if limited_method == method and re.match(pattern, path):
            limits[f"{limited_method} {pattern}"] = limit * _FACTORS[key.tier]
    return limits
