"""Define the faults of a request, as data: courses choose and print them."""

import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from hostile.fakes.answers import Answer, Call

# Kinds of requests, as a fault chooses them.
CREATE, CHANGE, DELETE, LIST, GET = "create", "change", "delete", "list", "get"
WRITE, READ, ANY = "write", "read", "any"
_GROUPS = {WRITE: {CREATE, CHANGE, DELETE}, READ: {LIST, GET}}

# What happens to the effect.
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
"""The platform's own error document, though a list or a lookup that works has no reason for it."""
_SHIFTS: dict[str, int] = {"shifted-up": 1, "shifted-down": -1}
_ROWS = ("wrong-total", "missing-rows", "fewer-rows", "partial-rows")
_MUTATIONS = ("doubled", "wrong-types", "backwards", *_ROWS)
_BREAKS = ("closed", "truncated", "drip", "stall")
_SIGNALS = ("kill", "term")
IGNORED = "ignored"
LATE = "late"
NOTHING = "nothing"

ON_LISTS = ("own-404", "own-500", "doubled", *_SHIFTS, *_ROWS)
"""What happens to lists alone. `fewer-rows` have a total that fits; `missing-rows` do not."""
ON_LOOKUPS = ("own-404", "own-500")
ON_CREATES = ("own-409", "own-500")
KINDS = (*_STRANGERS, *_STATUSES, "doubled", "wrong-types", "backwards", *_BREAKS)
"""What can happen to any request."""


@dataclass(frozen=True)
class Fault:
    """From the `nth` request of the kind `on`, for so many `times`, `what` goes wrong.

    `effect`: whether the request takes effect before what goes wrong (after) or not (before).
    `race`: right before a create, the colleague makes the same, with `equal` or `other` properties;
    right before a change of an AIOS cluster, it lets a node `join` or `leave` there.
    `delay`: a create takes effect so many seconds later.
    """

    on: str
    what: str
    effect: str = BEFORE
    nth: int = 1
    times: int = 1
    race: str = ""
    delay: int = 0

    def matches(self, kind: str) -> bool:
        return self.on in (ANY, kind) or kind in _GROUPS.get(self.on, ())


@dataclass
class Plan:
    """The faults of one command, and how many requests each has seen."""

    faults: tuple[Fault, ...] = ()
    hit: list[Fault] = field(default_factory=list)
    _seen: dict[int, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def choose(self, kind: str) -> Fault | None:
        """Return the first fault that is due for this request; every fault counts the request."""
        chosen = None
        with self._lock:
            for number, fault in enumerate(self.faults):
                if not fault.matches(kind):
                    continue
                self._seen[number] = request_count = self._seen.get(number, 0) + 1
                if chosen is None and fault.nth <= request_count < fault.nth + fault.times:
                    chosen = fault
            if chosen is not None:
                self.hit.append(chosen)
        return chosen


def answer_under(
    fault: Fault | None,
    call: Call,
    serve: Callable[[Call], Answer],
    refuse: Callable[[int, str], Answer],
    signal: Callable[[str], None],
) -> Answer | None:
    """Return what the client gets, or None when the connection closes without an answer."""
    if fault is None:
        return serve(call)
    call = replace(call, delay=fault.delay, shift=_SHIFTS.get(fault.what, 0))
    if fault.what == NOTHING or fault.what in _SHIFTS:
        return serve(call)
    if fault.what in (IGNORED, LATE):
        return serve(replace(call, **{fault.what: True}))
    if fault.what in _MUTATIONS:
        return _mutate_answer(fault.what, serve(call))
    if fault.what in _SIGNALS and fault.effect == BEFORE:
        signal(fault.what)
    answer = None
    if fault.effect == AFTER or fault.what in ("drip", "stall", "term"):
        answer = serve(call)
    if fault.what in _SIGNALS:
        if fault.effect == AFTER:
            signal(fault.what)
        return answer
    if fault.what in _OWN_ERRORS:
        return refuse(_OWN_ERRORS[fault.what], "Not Found" if "404" in fault.what else "Try later")
    return _break_answer(fault.what, answer)


def _break_answer(fault_kind: str, answer: Answer | None) -> Answer | None:
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
    change = {"doubled": _double, "wrong-types": _retype, "backwards": _set_back}[fault_kind]
    return replace(answer, body=change(body))


def _change_rows(fault_kind: str, body: Any) -> None:
    """Change the rows of a list in place, or the total that stands beside them."""
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
    """Return the rows of a list's answer, and the object that has their total, if there is one."""
    if isinstance(body, list):
        return {}, body
    data = body.get("data", body)
    if not isinstance(data, dict):
        return {}, []
    rows = next((value for value in data.values() if isinstance(value, list)), [])
    return data.get("pagination", data), rows


def _double(body: Any) -> Any:
    """Return the list with every object twice."""
    if isinstance(body, list):
        return [item for item in body for _ in range(2)]
    if isinstance(body, dict):
        return {
            name: _double(value) if isinstance(value, list | dict) else value
            for name, value in body.items()
        }
    return body


def _retype(body: Any) -> Any:
    """Turn texts into numbers, numbers into texts, and lists into objects."""
    if isinstance(body, dict):
        return {name: _retype(value) for name, value in body.items()}
    if isinstance(body, list):
        return {"items": body} if not body else [_retype(item) for item in body]
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


def _set_back(body: Any) -> Any:
    """Turn ready objects back into ones in progress."""
    if isinstance(body, dict):
        return {name: _set_back(value) for name, value in body.items()}
    if isinstance(body, list):
        return [_set_back(item) for item in body]
    return _FIRST_STATES.get(body, body) if isinstance(body, str) else body
