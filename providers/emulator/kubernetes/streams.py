"""What stays open: watches, and commands in pods.

A watch sends changes as lines of JSON for as long as the client listens. Whoever emulates what runs
inside of pods is called for `pods/NAME/exec`.
"""

import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

from gpuform.providers.emulator.kubernetes.objects import Event, Object

_PAUSE = 0.05


def watched(
    happened: Callable[[int], tuple[list[Event], int]],
    since: int,
    is_wanted: Callable[[Object], bool],
    *,
    connection: socket.socket | None,
    seconds: float,
) -> Iterator[bytes]:
    """Lines until `seconds` of the real time have passed or the client hangs up.

    `happened` tells the events after a version, and the version that they lead to.
    """
    ends_at = time.monotonic() + seconds
    shown: set[str] = set()
    while True:
        events, since = happened(since)
        for event in events:
            if line := _line(event, shown, is_wanted):
                yield line
        if time.monotonic() >= ends_at or _is_over(connection):
            return


def _line(event: Event, shown: set[str], is_wanted: Callable[[Object], bool]) -> bytes | None:
    uid = event.object["metadata"]["uid"]
    kind = event.kind
    if not is_wanted(event.object):
        if uid not in shown:
            return None
        kind = "DELETED"  # it is there, but the selector meets it no more
    shown.discard(uid) if kind == "DELETED" else shown.add(uid)
    told: dict[str, Any] = {"type": kind, "object": event.object}
    return json.dumps(told).encode() + b"\n"


def _is_over(connection: socket.socket | None) -> bool:
    """Waits a moment; what arrives during a watch is the end of the connection."""
    if connection is None:
        time.sleep(_PAUSE)
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(_PAUSE))


@dataclass(frozen=True)
class Execution:
    """One request to run a command; the websocket's handshake has not been answered yet."""

    cluster_id: str
    pod: Object
    container: str
    command: Sequence[str]
    environ: WSGIEnvironment
    """With `werkzeug.socket`, the connection."""


class Executor(Protocol):
    """Answers the handshake, runs the command and closes the websocket; then it returns."""

    def __call__(self, execution: Execution) -> Any: ...
