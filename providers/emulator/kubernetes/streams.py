"""Keep connections open: watches, and commands in pods.

`routes` calls this module. A watch sends changes as lines of JSON for as long as the client
listens. An `Executor` runs the commands of `pods/NAME/exec`.
"""

import json
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

from gpuform.providers.emulator.kubernetes.objects import Object, WatchEvent

# Seconds between two looks for changes.
_POLL_SECONDS = 0.05


def stream_events(
    list_events: Callable[[int], tuple[list[WatchEvent], int]],
    since: int,
    is_selected: Callable[[Object], bool],
    *,
    connection: socket.socket | None,
    seconds: float,
) -> Iterator[bytes]:
    """Yield changes as lines of JSON until `seconds` have passed or the client hangs up.

    Args:
        list_events: returns the events after a version, and the version that they lead to.
        since: the version after which the watch begins.
        is_selected: whether the watch selects an object.
        connection: the client's connection; None in process.
        seconds: how long the watch lasts, in real time.
    """
    ends_at = time.monotonic() + seconds
    shown_uids: set[str] = set()
    while True:
        events, since = list_events(since)
        for event in events:
            if line := _encode_event(event, shown_uids, is_selected):
                yield line
        # Real time: a client waits in it, whatever the emulator's clock does.
        if time.monotonic() >= ends_at or _is_closed(connection):
            return


def _encode_event(
    event: WatchEvent, shown_uids: set[str], is_selected: Callable[[Object], bool]
) -> bytes | None:
    """Return an event as a line of JSON, or None for an object outside of the watch.

    An object that is selected no longer is sent as DELETED. `shown_uids` is updated: the objects
    that the client has.
    """
    uid = event.object["metadata"]["uid"]
    kind = event.kind
    if not is_selected(event.object):
        if uid not in shown_uids:
            return None
        kind = "DELETED"  # for this watch: it is not selected any more
    shown_uids.discard(uid) if kind == "DELETED" else shown_uids.add(uid)
    message: dict[str, Any] = {"type": kind, "object": event.object}
    return json.dumps(message).encode() + b"\n"


def _is_closed(connection: socket.socket | None) -> bool:
    """Wait at most one poll interval and return whether the client has closed the connection.

    The client of a watch sends nothing, so that any readable byte means the end. Without a
    connection the answer is False.
    """
    if connection is None:
        time.sleep(_POLL_SECONDS)
        return False
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_READ)
        return bool(selector.select(_POLL_SECONDS))


@dataclass(frozen=True)
class Execution:
    """A request to run a command; the websocket's handshake has not been answered yet."""

    cluster_id: str
    pod: Object
    container: str
    command: Sequence[str]
    environ: WSGIEnvironment
    """The environment of the request; `werkzeug.socket` is the connection."""


class Executor(Protocol):
    """Answers the handshake, runs the command and closes the websocket, then returns."""

    def __call__(self, execution: Execution) -> Any: ...
