"""What can go wrong with a request, as data: courses choose these, and print them."""

import copy
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
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
_MUTATIONS = ("doubled", "wrong-types", "backwards")
_BREAKS = ("closed", "truncated", "drip")
_SIGNALS = ("kill", "term")
IGNORED = "ignored"
LATE = "late"
NOTHING = "nothing"

KINDS = (*_STRANGERS, *_STATUSES, *_MUTATIONS, *_BREAKS, *_SIGNALS, IGNORED, LATE)


@dataclass(frozen=True)
class Fault:
    """From the `nth` request of the kind `on`, for so many `times`, `what` goes wrong.

    `effect`: whether the request takes effect before what goes wrong (after) or not (before).
    `race`: right before a create, the colleague makes the same, with `equal` or `other` properties.
    """

    on: str
    what: str
    effect: str = BEFORE
    nth: int = 1
    times: int = 1
    race: str = ""

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
        """The first fault that is due for this request; every one counts it."""
        chosen = None
        with self._lock:
            for number, fault in enumerate(self.faults):
                if not fault.matches(kind):
                    continue
                self._seen[number] = seen = self._seen.get(number, 0) + 1
                if chosen is None and fault.nth <= seen < fault.nth + fault.times:
                    chosen = fault
            if chosen is not None:
                self.hit.append(chosen)
        return chosen


def answer_under(
    fault: Fault | None, call: Call, serve: Callable[[Call], Answer], signal: Callable[[str], None]
) -> Answer | None:
    """What the client gets, or None when the connection closes without an answer."""
    if fault is None or fault.what == NOTHING:
        return serve(call)
    if fault.what in (IGNORED, LATE):
        return serve(Call(**{**vars(call), fault.what: True}))
    if fault.what in _MUTATIONS:
        return _mutated(fault.what, serve(call))
    if fault.what in _SIGNALS and fault.effect == BEFORE:
        signal(fault.what)
    answer = None
    if fault.effect == AFTER or fault.what in ("drip", "term"):
        answer = serve(call)
    if fault.what in _SIGNALS:
        if fault.effect == AFTER:
            signal(fault.what)
        return answer
    return _broken(fault.what, answer)


def _broken(what: str, answer: Answer | None) -> Answer | None:
    if what in _STRANGERS:
        status, kind, body = _STRANGERS[what]
        return Answer(status, None, raw=body, content_type=kind)
    if what in _STATUSES:
        more = {"Retry-After": "2"} if what == "429" else {}
        return Answer(_STATUSES[what], {"error": {"message": "try again later"}}, headers=more)
    if what == "closed":
        return None
    return Answer(**{**vars(answer or Answer(200, {})), "delivery": what})


def _mutated(what: str, answer: Answer) -> Answer:
    if answer.status >= 300:
        return answer
    body = copy.deepcopy(answer.body)
    change = {"doubled": _double, "wrong-types": _retype, "backwards": _set_back}[what]
    return Answer(**{**vars(answer), "body": change(body)})


def _double(body: Any) -> Any:
    """Every object of a list is there twice."""
    if isinstance(body, list):
        return [each for each in body for _ in range(2)]
    if isinstance(body, dict):
        return {
            name: _double(value) if isinstance(value, list | dict) else value
            for name, value in body.items()
        }
    return body


def _retype(body: Any) -> Any:
    """Texts are numbers, numbers are texts, lists are objects."""
    if isinstance(body, dict):
        return {name: _retype(value) for name, value in body.items()}
    if isinstance(body, list):
        return {"items": body} if not body else [_retype(each) for each in body]
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
    """What is ready is on its way again."""
    if isinstance(body, dict):
        return {name: _set_back(value) for name, value in body.items()}
    if isinstance(body, list):
        return [_set_back(each) for each in body]
    return _FIRST_STATES.get(body, body) if isinstance(body, str) else body
