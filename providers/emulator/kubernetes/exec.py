"""Commands in pods: whoever emulates what runs inside of them is called for `pods/NAME/exec`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from wsgiref.types import WSGIEnvironment

from gpuform.providers.emulator.kubernetes.objects import Object


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
