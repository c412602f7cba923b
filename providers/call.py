"""What a lifecycle knows of the call it serves: for whom, until when, and whom to tell.

gpuform's own engine sets a `Call` around each provider call; under Pulumi's stock host, which
passes none of this on, `current_call` makes one with defaults.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from gpuform.providers.clock import Clock, clock_from
from gpuform.providers.errors import Cancelled
from gpuform.providers.intents import Intents
from gpuform.providers.tracing import span

logger = logging.getLogger("gpuform")

_current: ContextVar["Call | None"] = ContextVar("gpuform_call", default=None)


@dataclass(eq=False)
class Call:
    """The context of one provider call.

    `timeout` is in seconds; None means the lifecycle's own default for the verb. `on_unchecked`
    hears of a check that could not be made while planning. `init_errors` gets a reason when the
    object exists and is not ready. `refreshing` tells `diff` that it compares what was just read
    with inputs that nobody asked to apply.
    """

    urn: str | None = None
    preview: bool = False
    timeout: float | None = None
    clock: Clock = field(default_factory=lambda: clock_from(os.environ))
    cancelled: threading.Event = field(default_factory=threading.Event)
    intents: Intents = field(default_factory=Intents)
    on_progress: Callable[[str], None] = logger.info
    on_warning: Callable[[str], None] = logger.warning
    on_unchecked: Callable[[str], None] = logger.info
    init_errors: list[str] = field(default_factory=list)
    refreshing: bool = False
    stores_answers: bool = False
    """The host stores an id as soon as it gets it, and never says when it has."""
    as_of: float | None = None
    """By `time.monotonic`: what was read after that moment need not be read again for this call."""
    known: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What is stored of the object: its outputs, or its inputs while they are checked; plain."""
    just_created: bool = False
    """The call has made its object and nothing of it was read yet."""
    deadline: float | None = None
    """Unix time after which nothing is waited for; set by `begin`."""
    held: ExitStack = field(default_factory=ExitStack)
    """What is given up when the call ends: the claim on the name being created."""

    def begin(self, default_timeout: float) -> None:
        """Starts the call's time: its own timeout, else the default, both in seconds."""
        self.clock.sleep(0, self.cancelled)
        self.deadline = self.clock.now() + (
            default_timeout if self.timeout is None else self.timeout
        )

    @contextmanager
    def searching(self, seconds: float) -> Iterator[None]:
        """A block that may take so long beside what the call takes, unless its timeout is set."""
        began, extra = self.clock.now(), seconds if self.timeout is None else 0.0
        self._postpone(extra)
        try:
            yield
        finally:
            self._postpone(min(extra, self.clock.now() - began) - extra)

    def _postpone(self, seconds: float) -> None:
        if self.deadline is not None:
            self.deadline += seconds

    def remaining(self) -> float | None:
        """Seconds until the deadline, never below 0; None when there is none."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self.clock.now())

    def sleep(self, seconds: float) -> None:
        """Waits that long, but not past the deadline. Raises Cancelled when interrupted."""
        self.raise_if_cancelled()
        remaining = self.remaining()
        pause = seconds if remaining is None else min(seconds, remaining)
        with span("wait", f"wait {pause:.1f} s", self.urn):
            self.clock.sleep(pause, self.cancelled)
        self.raise_if_cancelled()

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled when the run was interrupted."""
        if self.cancelled.is_set():
            raise Cancelled


@contextmanager
def serving(call: Call) -> Iterator[Call]:
    """Makes `call` the current one of this thread (and task) for the length of the block."""
    token = _current.set(call)
    try:
        yield call
    finally:
        _current.reset(token)


def current_call() -> Call:
    """The call that an engine set with `serving`, else a new one with the defaults."""
    return _current.get() or Call()
