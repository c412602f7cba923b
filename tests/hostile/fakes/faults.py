"""Define the faults of a request, as data: courses choose and print them."""

import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hostile.fakes.answers import Answer, PlatformRequest

# Kinds of requests, as a fault chooses them.
CREATE, CHANGE, DELETE, LIST, GET = "create", "change", "delete", "list", "get"
WRITE, READ, ANY = "write", "read", "any"
_GROUPS = {WRITE: {CREATE, CHANGE, DELETE}, READ: {LIST, GET}}

# When the failure happens: before or after the effect of the request.
BEFORE, AFTER = "before", "after"

_STRANGERS: dict[str, tuple[int, str, bytes]] = {
    "html-404": (404, "text/html", b"<html><body><h1>404 Not Found</h1>nginx</body></html>"),
    "html-200": (200, "text/html", b"<html><body>Please sign in</body></html>"),
    "json-404": (404, "application/json", b'{"detail": "Not Found"}'),
    "json-200": (200, "application/json", b'{"status": "ok", "service": "inventory"}'),
    "empty-200": (200, "application/json", b"{}"),
    "list-200": (200, "application/json", b"[]"),
}
_STATUSES: dict[str, int] = {"429": 429, "500": 500, "502": 502, "503": 503}
_OWN_ERRORS: dict[str, int] = {"own-404": 404, "own-409": 409, "own-500": 500}
"""Failures answered with the platform's own error document, although nothing is wrong."""
_SHIFTS: dict[str, int] = {"shifted-up": 1, "shifted-down": -1}
_ROWS = ("wrong-total", "missing-rows", "fewer-rows", "partial-rows")
_MUTATIONS = ("doubled", "wrong-types", "backwards", *_ROWS)
_BREAKS = ("closed", "truncated", "drip", "stall")
_SIGNALS = ("kill", "term")
IGNORED = "ignored"
LATE = "late"
NOTHING = "nothing"

ON_LISTS = ("own-404", "own-500", "doubled", *_SHIFTS, *_ROWS)
"""Failures of lists. The total of `fewer-rows` counts the shown rows, of `missing-rows` all."""
ON_LOOKUPS = ("own-404", "own-500")
ON_CREATES = ("own-409", "own-500")
KINDS = (*_STRANGERS, *_STATUSES, "doubled", "wrong-types", "backwards", *_BREAKS)
"""Failures of any request."""


@dataclass(frozen=True)
class Fault:
    """A failure of the `nth` request of kind `on`, and of the next ones up to `times` requests.

    `effect`: whether the failure happens before (BEFORE) or after (AFTER) the request's effect.
    `race`: right before a create, the colleague creates the same object, with `equal` or `other`
    properties; right before a change of an AIOS cluster, its node joins or leaves that cluster.
    `delay`: seconds after which a create takes effect.
    """

    on: str
    failure: str
    effect: str = BEFORE
    nth: int = 1
    times: int = 1
    race: str = ""
    delay: int = 0

    def matches(self, kind: str) -> bool:
        return self.on in (ANY, kind) or kind in _GROUPS.get(self.on, ())


@dataclass
class FaultPlan:
    """The faults of one command, and how many matching requests each has counted."""

    faults: tuple[Fault, ...] = ()
    applied_faults: list[Fault] = field(default_factory=list)
    _request_counts: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def choose_fault(self, kind: str) -> Fault | None:
        """Return the first due fault for this request; every fault counts the request."""
        chosen = None
        with self._lock:
            for number, fault in enumerate(self.faults):
                if not fault.matches(kind):
                    continue
                self._request_counts[number] = request_count = (
                    self._request_counts.get(number, 0) + 1
                )
                if chosen is None and fault.nth <= request_count < fault.nth + fault.times:
                    chosen = fault
            if chosen is not None:
                self.applied_faults.append(chosen)
        return chosen


def answer_with_fault(
    fault: Fault | None,
    request: PlatformRequest,
    serve: Callable[[PlatformRequest], Answer],
    refuse: Callable[[int, str], Answer],
    signal: Callable[[str], None],
) -> Answer | None:
    """Return the answer to the client, or None for a closed connection."""
    if fault is None:
        return serve(request)
    request = replace(request, delay=fault.delay, shift=_SHIFTS.get(fault.failure, 0))
    if fault.failure == NOTHING or fault.failure in _SHIFTS:
        return serve(request)
    if fault.failure in (IGNORED, LATE):
        return serve(replace(request, **{fault.failure: True}))
    if fault.failure in _MUTATIONS:
        return _mutate_answer(fault.failure, serve(request))
    if fault.failure in _SIGNALS and fault.effect == BEFORE:
        signal(fault.failure)
    answer = None
    if fault.effect == AFTER or fault.failure in ("drip", "stall", "term"):
        answer = serve(request)
    if fault.failure in _SIGNALS:
        if fault.effect == AFTER:
            signal(fault.failure)
        return answer
    if fault.failure in _OWN_ERRORS:
        return refuse(
            _OWN_ERRORS[fault.failure], "Not Found" if "404" in fault.failure else "Try later"
        )
    return _damage_answer(fault.failure, answer)


def _damage_answer(fault_kind: str, answer: Answer | None) -> Answer | None:
    if fault_kind in _STRANGERS:
        status, kind, body = _STRANGERS[fault_kind]
        return Answer(status, None, raw=body, content_type=kind)
    if fault_kind in _STATUSES:
        more = {"Retry-After": "2"} if fault_kind == "429" else {}
        return Answer(
            _STATUSES[fault_kind], {"error": {"message": "try again later"}}, headers=more
        )
    if fault_kind == "closed":
        return None
    return Answer(**{**vars(answer or Answer(200, {})), "delivery": fault_kind})


def _mutate_answer(fault_kind: str, answer: Answer) -> Answer:
    if answer.status >= 300:
        return answer
    body = copy.deepcopy(answer.body)
    if fault_kind in _ROWS:
        _change_rows(fault_kind, body)
        return replace(answer, body=body)
    change = {
        "doubled": _duplicate_rows,
        "wrong-types": _change_types,
        "backwards": _set_back_states,
    }[fault_kind]
    return replace(answer, body=change(body))


def _change_rows(fault_kind: str, body: Any) -> None:
    """Change the rows of a list in place, or the list's total."""
    holder, rows = _find_rows(body)
    total = next((name for name in ("count", "total") if name in holder), None)
    if fault_kind == "wrong-total":
        if total:
            holder[total] += 1
        return
    if fault_kind == "partial-rows":
        rows[:] = [{name: row[name] for name in list(row)[::2]} for row in rows]
        return
    removed_count = len(rows) - len(rows) // 2
    del rows[:removed_count]
    if fault_kind == "fewer-rows" and total:
        holder[total] -= removed_count


def _find_rows(body: Any) -> tuple[dict[str, Any], list[Any]]:
    """Return the object with the total of a list's answer, or {}, and the rows."""
    if isinstance(body, list):
        return {}, body
    data = body.get("data", body)
    if not isinstance(data, dict):
        return {}, []
    rows = next((value for value in data.values() if isinstance(value, list)), [])
    return data.get("pagination", data), rows


def _duplicate_rows(body: Any) -> Any:
    """Return the list with every object twice."""
    if isinstance(body, list):
        return [item for item in body for _ in range(2)]
    if isinstance(body, dict):
        return {
            name: _duplicate_rows(value) if isinstance(value, list | dict) else value
            for name, value in body.items()
        }
    return body


def _change_types(body: Any) -> Any:
    """Turn texts into numbers, numbers into texts, and lists into objects."""
    if isinstance(body, dict):
        return {name: _change_types(value) for name, value in body.items()}
    if isinstance(body, list):
        return {"items": body} if not body else [_change_types(item) for item in body]
    if isinstance(body, bool) or body is None:
        return body
    return len(json.dumps(body)) if isinstance(body, str) else str(body)


_FIRST_STATES = {
    "Ready": "Scheduled",
    "available": "scheduled",
    "bound": "provisioning",
    "running": "starting",
    "RUNNING": "CREATING",
}


def _set_back_states(body: Any) -> Any:
    """Turn ready objects back into ones in progress."""
    if isinstance(body, dict):
        return {name: _set_back_states(value) for name, value in body.items()}
    if isinstance(body, list):
        return [_set_back_states(item) for item in body]
    return _FIRST_STATES.get(body, body) if isinstance(body, str) else body
