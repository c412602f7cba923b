"""Give a lifecycle the context of its call: URN, deadline, cancellation, progress and secrets.

`HostBoundary` is the border to the host, which prints the traceback of whatever passes it.

gpuform's own engine sets a `ProviderContext` around each provider call; under Pulumi's stock host,
which passes none of this on, `get_current_context` makes one with defaults.
"""

import hashlib
import logging
import os
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from gpuform.providers.context import stock_host
from gpuform.providers.context.clock import Clock, clock_from
from gpuform.providers.context.spans import span
from gpuform.providers.errors import Cancelled, GpuformError, NothingMade
from gpuform.providers.records import FolderRecords, Intents, Target
from gpuform.providers.values import Redactor, texts_in

logger = logging.getLogger("gpuform")

_current: ContextVar["ProviderContext | None"] = ContextVar("gpuform_call", default=None)
_before_change: ContextVar[Callable[[], None]] = ContextVar(
    "gpuform_before_change", default=lambda: None
)


FOLDER: Final = Path(".gpuform", "records")
"""Where records are that cannot lie with the state, in a project."""

RECORDS_ENTRY_POINTS: Final = "gpuform.records"
"""Functions `(project, stack, directory, environ) -> Records | None` that find a stack's records
for a process of Pulumi's that works in a directory."""


def beside_the_project() -> Intents:
    """Intents in `.gpuform/records` of the working directory, which hosts set to the project's."""
    return Intents(FolderRecords(Path.cwd() / FOLDER))


READS_ONLY: Final = "GPUFORM_READS_ONLY"
"""The variable under which a process changes no platform and no state."""


class ReadsOnly(GpuformError):
    """A change in a process that may only read."""

    help_page = "guides/agents"


@dataclass(eq=False)
class ProviderContext:
    """The context of one provider call.

    `timeout` is in seconds; None means the lifecycle's own default for the verb. `on_skipped_check`
    hears of a check that could not be made while planning. `init_errors` gets a reason when the
    object exists and is not ready. `refreshing` tells `diff` that it compares what was just read
    with inputs that nobody asked to apply. Whoever is told something hears none of the `secrets`.
    """

    urn: str | None = None
    preview: bool = False
    timeout: float | None = None
    clock: Clock = field(default_factory=lambda: clock_from(os.environ))
    cancelled: threading.Event = field(default_factory=threading.Event)
    intents: Intents = field(default_factory=beside_the_project)
    check_lock: Callable[[], None] = lambda: None
    """Raises GpuformError when this process may change nothing any more: its lock is another's."""
    belongs_to_other_stack: Callable[[str], bool] = lambda _id: False
    """Whether an object, by its id, belongs to another stack."""
    belongs_to_stack: Callable[[str], bool] = lambda _id: False
    """Whether the stack has an object of this id in its state; Pulumi's hosts do not tell it."""
    is_search_only: bool = False
    """A create is to find what an earlier one has made, and to make nothing."""
    searched_target: Target | None = None
    """What such a call has looked for in vain."""
    on_progress: Callable[[str], None] = logger.info
    on_warning: Callable[[str], None] = logger.warning
    on_skipped_check: Callable[[str], None] = logger.info
    on_clock_skew: Callable[[str, float | None], None] = lambda _platform, _ahead: None
    """Hears with each answer of a platform how far this machine's clock is ahead of the platform's,
    in seconds; None for an answer without a Date."""
    init_errors: list[str] = field(default_factory=list)
    refreshing: bool = False
    can_store_unready: bool = True
    """The host stores what is not ready as such, and fails; Pulumi's own dynamic host cannot."""
    is_pulumi_host: bool = False
    """The host is Pulumi's: it stores an id when it gets it, and never says that it has."""
    fresh_since: float | None = None
    """By `time.monotonic`: what was read after that moment need not be read again for this call."""
    stored_properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What is stored of the object: its outputs, or its inputs while they are checked; plain."""
    replaced_id: str = ""
    """The id of the object that a create is to replace and that is still there; Pulumi's hosts do
    not tell it."""
    was_already_deleted: bool = False
    """The object was gone before the call could delete it; without one it says nothing."""
    accepted_deletions: int = 0
    """How many DELETE requests of this call were answered with success."""
    deleted_with_id: str = ""
    """The id of another object whose end explains that this one is gone."""
    just_created: bool = False
    """The call has made its object and nothing of it was read yet."""
    deadline: float | None = None
    """Unix time after which nothing is waited for; set by `begin`."""
    exit_stack: ExitStack = field(default_factory=ExitStack)
    """What is given up when the call ends: the claim on the name being created."""
    secrets: set[str] = field(default_factory=set, repr=False)
    """The texts that nothing may say which is told of this call; see `hide`."""

    def __post_init__(self) -> None:
        self.on_progress = self._redacting(self.on_progress)
        self.on_warning = self._redacting(self.on_warning)
        self.on_skipped_check = self._redacting(self.on_skipped_check)

    def add_secrets(self, values: Iterable[Any]) -> None:
        """From now on, every text in these values is a secret."""
        self.secrets.update(texts_in([*values]))

    def redact(self, text: str) -> str:
        """The text without secrets."""
        return Redactor(self.secrets).redact(text)

    def redact_for_record(self, text: str) -> str:
        """The text as a record may have it: a digest in the place of one that has a secret."""
        if self.redact(text) == text:
            return text
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    def _redacting(self, tell: Callable[[str], None]) -> Callable[[str], None]:
        return lambda text: tell(self.redact(text))

    def start_deadline(self, default_timeout: float) -> None:
        """Starts the call's time: its own timeout, else the default, both in seconds."""
        self.clock.sleep(0, self.cancelled)
        self.deadline = self.clock.now() + (
            default_timeout if self.timeout is None else self.timeout
        )

    @property
    def is_read_only(self) -> bool:
        """Whether it makes, changes and deletes nothing: a refresh, an import, a look-up."""
        return self.deadline is None

    @contextmanager
    def extend_deadline(self, seconds: float) -> Iterator[None]:
        """A block that may take so long beside what the call takes, unless its timeout is set."""
        began, extra = self.clock.now(), seconds if self.timeout is None else 0.0
        self._move_deadline(extra)
        try:
            yield
        finally:
            self._move_deadline(min(extra, self.clock.now() - began) - extra)

    def _move_deadline(self, seconds: float) -> None:
        if self.deadline is not None:
            self.deadline += seconds

    def compute_remaining_seconds(self) -> float | None:
        """Seconds until the deadline, never below 0; None when there is none."""
        if self.deadline is None:
            return None
        return max(0.0, self.deadline - self.clock.now())

    def sleep(self, seconds: float) -> None:
        """Wait that long, but not past the deadline. Raises Cancelled when interrupted.

        Who waits wants to see something new: what was read before will not do afterwards.
        """
        self.raise_if_cancelled()
        remaining = self.compute_remaining_seconds()
        pause = seconds if remaining is None else min(seconds, remaining)
        with span("wait", f"wait {pause:.1f} s", self.urn):
            self.clock.sleep(pause, self.cancelled)
        if self.fresh_since is not None:
            self.fresh_since = time.monotonic()
        self.raise_if_cancelled()

    def get_platform_time(self, clock_ahead: float | None) -> tuple[float, bool]:
        """Unix time in seconds by the platform's clock, and whether it is that clock's.

        `clock_ahead` is how many seconds this machine's clock is ahead of it, None if not known.
        """
        if self.clock.is_platforms:
            self.clock.sleep(0, self.cancelled)
            return self.clock.now(), True
        return self.clock.now() - (clock_ahead or 0.0), clock_ahead is not None

    def authorize_change(self) -> None:
        """What sends a request that changes a platform says so right before, each time.

        Raises GpuformError when it may not be sent, or not any more.
        """
        if os.environ.get(READS_ONLY):
            raise ReadsOnly(
                f"nothing is changed on a platform: {READS_ONLY} is set",
                hint="this process may only read; a person does what is to be done",
            )
        self.check_lock()
        _before_change.get()()

    @contextmanager
    def run_before_each_change(self, act: Callable[[], None]) -> Iterator[None]:
        """Does `act` right before each request of the block (and thread) that changes something."""
        token = _before_change.set(act)
        try:
            yield
        finally:
            _before_change.reset(token)

    def refuse_creation(self, sought: Target | None = None) -> None:
        """Raise NothingMade where the object `sought` is only to be found."""
        if self.is_search_only:
            self.searched_target = sought
            raise NothingMade("an interrupted create has made nothing")

    def raise_if_cancelled(self) -> None:
        """Raises Cancelled when the run was interrupted."""
        if self.cancelled.is_set():
            raise Cancelled


@contextmanager
def use_context(context: ProviderContext) -> Iterator[ProviderContext]:
    """Makes `call` the current one of this thread (and task) for the length of the block."""
    token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(token)


def get_current_context() -> ProviderContext:
    """Return the context that an engine set with `use_context`, else a new one.

    Under Pulumi's own host, the new one knows the URN of the resource.
    """
    found = _current.get()
    if found is not None:
        return found
    urn = stock_host.urn_of_call()
    if urn is None:
        return ProviderContext()
    context = create_hosted_context(urn)
    context.can_store_unready = False
    host = stock_host.find_host()
    return context if host is None else _told_to(host, context, urn)


def _told_to(host: stock_host.StockHost, context: ProviderContext, urn: str) -> ProviderContext:
    """Return `call` with its interruption from `host`, and its messages shown at its resource."""
    context = replace(context, cancelled=host.cancelled)
    log = host.log
    if log is None:
        return context
    return replace(
        context,
        on_progress=lambda text: log.progress(urn, text),
        on_warning=lambda text: log.warning(urn, text),
        on_skipped_check=log.once,
    )


def create_hosted_context(urn: str) -> ProviderContext:
    """A call of a host of Pulumi's, whose process serves one run.

    Its records lie with the state where that can be reached from here, else beside the project.
    """
    return ProviderContext(urn=urn, intents=_intents_of_host(urn), is_pulumi_host=True)


_hosted: dict[tuple[str, str], Intents | None] = {}
_hosted_lock = threading.Lock()


def _intents_of_host(urn: str) -> Intents:
    """What a room above this one, found by its entry point, can reach for the URN's stack."""
    head, project, *_ = [*urn.split("::"), ""]
    stack = head.rpartition(":")[2]
    with _hosted_lock:
        if (project, stack) not in _hosted:
            _hosted[project, stack] = None
            for entry in entry_points(group=RECORDS_ENTRY_POINTS):
                records = entry.load()(project, stack, Path.cwd(), os.environ)
                if records is not None:
                    _hosted[project, stack] = Intents(records)
        return _hosted.get((project, stack)) or beside_the_project()


class HostBoundary(AbstractContextManager[ProviderContext]):
    """The edge to the host: the current call, and only gpuform's errors, without causes or frames.

    Nothing that passes it says one of the `secrets`, or of those that the call hides besides.
    The stock host prints tracebacks. This is a class because contextlib gives an exception that
    passes a generator its old frames back.
    """

    def __init__(self, verb: str, subject: str, secrets: Iterable[Any] = ()) -> None:
        self._verb, self._subject = verb, subject
        self._context = get_current_context()
        self._context.add_secrets(secrets)
        self._serving = use_context(self._context)

    def __enter__(self) -> ProviderContext:
        return self._serving.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._serving.__exit__(kind, error, trace)
        if isinstance(error, GpuformError):
            error.redact(self._context.redact)
            raise error.with_traceback(None) from None
        if isinstance(error, Exception):  # its text may hold values: none may pass
            subject = self._context.urn or self._subject
            raise GpuformError(unexpected(f"{self._verb} of {subject}", error)) from None


def unexpected(what: str, error: Exception) -> str:
    """What to say of an error that nobody foresaw: its type alone; the frames go to the log."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.debug("%s failed with %s:\n%s", what, type(error).__name__, frames)
    return f"{what} failed: unexpected {type(error).__name__} (this is an error in gpuform)"
