"""Provide the context of one operation to lifecycles and clients.

The engine and the plugin create a `ProviderContext` for each call of a provider; under Pulumi's
stock host, which passes nothing on, `get_current_context` creates one with defaults. Lifecycles and
clients read the context; `HostBoundary` keeps errors of other libraries and secrets from the host,
which prints tracebacks.
"""

import hashlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from gpuform.providers.context import stock_host
from gpuform.providers.context.run_context import (
    READS_ONLY,
    Clock,
    RunContext,
    SystemClock,
    read_run_context,
)
from gpuform.providers.context.telemetry import trace_span
from gpuform.providers.errors import Cancelled, GpuformError, NothingMade, UnplannedRemoval
from gpuform.providers.records import FolderRecords, Intents, Target
from gpuform.providers.values import collect_texts, get_redactor
from gpuform.schemas.values import RemovalCount

if TYPE_CHECKING:
    from gpuform.schemas.policies.repair import NodeRepair

logger = logging.getLogger("gpuform")

_current: ContextVar["ProviderContext | None"] = ContextVar("gpuform_call", default=None)
_before_change: ContextVar[Callable[[], None]] = ContextVar(
    "gpuform_before_change", default=lambda: None
)
_can_repeat_create: ContextVar[Callable[[], bool]] = ContextVar(
    "gpuform_can_repeat_create", default=lambda: True
)


FOLDER: Final = Path(".gpuform", "records")
"""The folder of records in a project whose state cannot be reached, relative to the project."""

RECORDS_ENTRY_POINTS: Final = "gpuform.records"
"""Functions `(project, stack, directory, environ) -> Records | None` that find a stack's records
for a process of Pulumi's that works in a directory.

No caller can register these functions: Pulumi's hosts import a provider, and nothing of `stacks`.
"""


def create_project_intents() -> Intents:
    """Return the records of creates in `.gpuform/records` of the working directory."""
    return Intents(FolderRecords(Path.cwd() / FOLDER))


_CLOCK_OF_RUN: Final = SystemClock()
"""Stands for the clock of the run."""


def build_unplanned_removal_error(
    label: str, removal: RemovalCount, expectation: str, since: str
) -> UnplannedRemoval:
    """Return the error for the object `label`, of which a request would remove too much.

    Args:
        label: the name of the object, for the message.
        removal: what the platform would remove now.
        expectation: a clause that says what was planned or drained instead.
        since: when the object has grown, in words.
    """
    return UnplannedRemoval(
        f"{label}: this would remove {removal}, and {expectation}: it has grown {since}; gpuform "
        "did not request this",
        hint="make a new plan (`gpuform preview`), which shows what would be removed now, or "
        "declare the present size",
    )


class ReadsOnly(GpuformError):
    """A process that may only read was about to change a platform."""

    help_page = "guides/agents"


@dataclass(slots=True, eq=False)
class CallProgress:
    """What has happened in a call of a provider so far."""

    init_errors: list[str] = field(default_factory=list)
    """The reasons why the object exists and is not ready."""
    is_search_only: bool = False
    """A create has to find what an earlier create made, and must not create anything."""
    searched_target: Target | None = None
    """The object that a search-only create did not find."""
    just_created: bool = False
    """The call has created the object, and nothing has read the object yet."""
    was_already_deleted: bool = False
    """The object was gone before the call could delete it."""
    accepted_deletions: int = 0
    """How many DELETE requests of this call the platform accepted."""
    deleted_with_id: str = ""
    """The id of the object whose deletion explains why this object is gone."""
    deadline: float | None = None
    """Unix time in seconds after which waits end; set by `start_deadline`."""
    sleep_ended: float | None = None
    """When the last wait ended, by `time.monotonic`."""
    exit_stack: ExitStack = field(default_factory=ExitStack)
    """Closed when the call ends. Holds the claim on the name that a create uses."""
    secrets: set[str] = field(default_factory=set, repr=False)
    """The texts that no message of this call may contain; see `add_secrets`."""
    shown_warnings: set[str] = field(default_factory=set, repr=False)
    """The texts that `warn_once` has shown in this call."""


@dataclass(frozen=True, slots=True)
class _RedactedCallback:
    """Passes each text to `callback`, with the secrets of the call masked by `redact`."""

    callback: Callable[[str], None]
    redact: Callable[[str], str]

    def __call__(self, text: str) -> None:
        self.callback(self.redact(text))


@dataclass(frozen=True, eq=False)
class ProviderContext:
    """The context of one call of a provider, from its start to its answer.

    Callbacks (`on_progress`, `on_warning`, `on_skipped_check`) receive texts without the secrets of
    `progress`, which alone changes during the call.

    Args:
        urn: the URN of the resource; None if the host does not report it.
        preview: the call plans only.
        timeout: seconds for the call; None for the lifecycle's default of the operation.
        on_skipped_check: receives why a check could not be made while planning.
        refreshing: `diff` compares what was just read, with inputs that nobody asked to apply.
    """

    urn: str | None = None
    preview: bool = False
    timeout: float | None = None
    run: RunContext = field(default_factory=read_run_context)
    """What the run was asked."""
    clock: Clock = _CLOCK_OF_RUN
    cancelled: threading.Event = field(default_factory=threading.Event)
    intents: Intents = field(default_factory=create_project_intents)
    check_lock: Callable[[], None] = lambda: None
    """Raises GpuformError if another process has the lock, so that this one may change nothing."""
    belongs_to_other_stack: Callable[[str], bool] = lambda _id: False
    """Returns True if an object, by its id, belongs to another stack."""
    belongs_to_stack: Callable[[str], bool] = lambda _id: False
    """Returns True if the stack has the id in its state. Pulumi's hosts never report that."""
    on_progress: Callable[[str], None] = logger.info
    on_warning: Callable[[str], None] = logger.warning
    on_skipped_check: Callable[[str], None] = logger.info
    on_clock_skew: Callable[[str, float | None], None] = lambda _platform, _ahead: None
    """Receives a platform's name, and the seconds that this machine's clock is ahead.

    None for an answer without a Date header.
    """
    refreshing: bool = False
    planned_repairs: "Sequence[NodeRepair]" = ()
    """The repairs by earlier steps of the run: planned, under way or done."""
    can_store_unready: bool = True
    """The host stores a resource that is not ready, and fails. Pulumi's dynamic host cannot."""
    is_pulumi_host: bool = False
    """The host is Pulumi's: the host stores an id when it receives the id, and never confirms that.
    """
    fresh_since: float | None = None
    """By `time.monotonic`: answers that were read after this moment need not be read again.
    See `get_freshness_limit`."""
    stored_properties: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The stored outputs of the object, or its stored inputs during a check; unwrapped values."""
    existing_inputs: Mapping[str, Any] | None = field(default=None, repr=False)
    """During a check without stored inputs: those of the existing object that the new one replaces,
    empty for an object to import. None for a new object, or if the host does not report this."""
    planned_removal: RemovalCount = field(default_factory=RemovalCount)
    """The most that a plan allows the call to remove. Pulumi's hosts never report that."""
    replaced_id: str = ""
    """The id of the existing object that a create will replace. Pulumi's hosts do not report it."""
    progress: CallProgress = field(default_factory=CallProgress)
    """What has happened in the call. Copies of the context share it."""

    def __post_init__(self) -> None:
        if self.clock is _CLOCK_OF_RUN:
            object.__setattr__(self, "clock", self.run.clock)
        for name in ("on_progress", "on_warning", "on_skipped_check"):
            callback = getattr(self, name)
            # A copy's callbacks mask the secrets already.
            if not isinstance(callback, _RedactedCallback):
                object.__setattr__(self, name, _RedactedCallback(callback, self.redact))

    def warn_once(self, message: str) -> None:
        """Show a warning, unless this call has shown it before."""
        if message not in self.progress.shown_warnings:
            self.progress.shown_warnings.add(message)
            self.on_warning(message)

    def add_secrets(self, values: Iterable[Any]) -> None:
        """Add every text in `values`, at any depth, to the secrets of this call."""
        self.progress.secrets.update(collect_texts([*values]))

    def redact(self, text: str) -> str:
        """Return `text` with the secrets of this call replaced by a mask."""
        return get_redactor(frozenset(self.progress.secrets)).redact(text)

    def redact_for_record(self, text: str) -> str:
        """Return `text` for a record: a digest instead of a text that contains a secret."""
        if self.redact(text) == text:
            return text
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()[:24]}"

    def start_deadline(self, default_timeout: float) -> None:
        """Set the call's deadline by the user's timeout, else by `default_timeout` seconds."""
        # Another process may have moved the emulator's clock since the last answer.
        self.clock.sleep(0, self.cancelled)
        self.progress.deadline = self.clock.now() + (
            default_timeout if self.timeout is None else self.timeout
        )

    @property
    def is_read_only(self) -> bool:
        """Return True if the call has no deadline, and so changes nothing: a refresh or lookup."""
        return self.progress.deadline is None

    @contextmanager
    def extend_deadline(self, seconds: float) -> Iterator[None]:
        """Extend the deadline by up to `seconds` for the block, unless the user has set a timeout.

        When the block ends, the deadline moves back by the seconds that the block did not use.
        """
        # A timeout that a user has set is never extended.
        began, extra = self.clock.now(), seconds if self.timeout is None else 0.0
        self._move_deadline(extra)
        try:
            yield
        finally:
            self._move_deadline(min(extra, self.clock.now() - began) - extra)

    def _move_deadline(self, seconds: float) -> None:
        """Move the call's deadline, if any, by `seconds`, which may be negative."""
        if self.progress.deadline is not None:
            self.progress.deadline += seconds

    def compute_remaining_seconds(self) -> float | None:
        """Return the seconds until the deadline, at least 0; None if there is no deadline."""
        if self.progress.deadline is None:
            return None
        return max(0.0, self.progress.deadline - self.clock.now())

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`, but not past the deadline.

        Answers that were read before the wait are not fresh any more afterwards.

        Raises:
            Cancelled: the run was interrupted.
        """
        self.raise_if_cancelled()
        remaining = self.compute_remaining_seconds()
        pause = seconds if remaining is None else min(seconds, remaining)
        with trace_span("wait", f"wait {pause:.1f} s", self.urn):
            self.clock.sleep(pause, self.cancelled)
        self.progress.sleep_ended = time.monotonic()
        self.raise_if_cancelled()

    def get_freshness_limit(self) -> float | None:
        """Return the time by `time.monotonic` since when answers are fresh; None if none is fresh.

        That is `fresh_since`, or the end of the call's last wait.
        """
        # Whoever waits wants to see a change: a cached answer from before the wait would show none.
        if self.fresh_since is None or self.progress.sleep_ended is None:
            return self.fresh_since
        return self.progress.sleep_ended

    def get_platform_time(self, clock_ahead: float | None) -> tuple[float, bool]:
        """Return the Unix time by the platform's clock, and whether the platform's clock is known.

        Args:
            clock_ahead: how many seconds this machine's clock is ahead of the platform's; None if
                unknown.
        """
        if self.clock.is_platforms:
            # Another process may have moved the emulator's clock.
            self.clock.sleep(0, self.cancelled)
            return self.clock.now(), True
        return self.clock.now() - (clock_ahead or 0.0), clock_ahead is not None

    def authorize_change(self) -> None:
        """Raise GpuformError unless this process may send a request which changes a platform.

        Called right before each such request. Runs the action of `run_before_each_change` if the
        request may be sent.

        Raises:
            GpuformError: the process may only read, or another process has the lock of the stack.
        """
        if self.run.is_read_only:
            raise ReadsOnly(
                f"gpuform changes nothing on a platform, because {READS_ONLY} is set",
                hint="this process may only read: a person has to run the command",
            )
        # Another machine may have taken over the stack while this process slept.
        self.check_lock()
        _before_change.get()()

    @contextmanager
    def run_before_each_change(
        self, action: Callable[[], None], can_repeat: Callable[[], bool] = lambda: True
    ) -> Iterator[None]:
        """Run `action` right before each changing request sent by this thread in the block.

        `can_repeat` decides whether a create may be sent again after a 429. The functions of an
        enclosing block do not run meanwhile.
        """
        token, repetition_token = _before_change.set(action), _can_repeat_create.set(can_repeat)
        try:
            yield
        finally:
            _can_repeat_create.reset(repetition_token)
            _before_change.reset(token)

    def can_repeat_create(self) -> bool:
        """Return True if a create that was answered with 429 may be sent again."""
        return _can_repeat_create.get()()

    def require_planned_removal(self, label: str, removal: RemovalCount) -> None:
        """Raise UnplannedRemoval if the plan of this run removes less than the platform would now.

        `label` is the name of the object for messages. Called before anything is sent.
        """
        if removal.exceeds(self.planned_removal):
            raise build_unplanned_removal_error(
                label,
                removal,
                f"the plan removes {self.planned_removal}",
                "since the plan was made",
            )

    def refuse_creation(self, sought: Target | None = None) -> None:
        """Raise NothingMade in a call that only searches for the object of an interrupted create.

        In any other call do nothing. Before the error, `sought` is stored as `searched_target`.
        """
        if self.progress.is_search_only:
            self.progress.searched_target = sought
            raise NothingMade("an interrupted create created nothing")

    def raise_if_cancelled(self) -> None:
        """Raise Cancelled if the run was interrupted."""
        if self.cancelled.is_set():
            raise Cancelled


@contextmanager
def use_context(context: ProviderContext) -> Iterator[ProviderContext]:
    """Make `context` the current one of this thread (and task) in the block."""
    reset_token = _current.set(context)
    try:
        yield context
    finally:
        _current.reset(reset_token)


def get_current_context() -> ProviderContext:
    """Return the context set by an engine with `use_context`, else a new context.

    Under Pulumi's own host, the new one knows the URN of the resource, ends waits when the run is
    interrupted, shows messages at the resource, and cannot store an unready resource.
    """
    current = _current.get()
    if current is not None:
        return current
    urn = stock_host.find_request_urn()
    if urn is None:
        return ProviderContext()
    # Pulumi's dynamic host stores nothing of a create that fails.
    context = replace(create_hosted_context(urn), can_store_unready=False)
    host = stock_host.find_host()
    return context if host is None else _connect_to_host(host, context, urn)


def get_run_context() -> RunContext:
    """Return the run context of the current call, else of the current operation."""
    current = _current.get()
    return read_run_context() if current is None else current.run


def _connect_to_host(
    host: stock_host.StockHost, context: ProviderContext, urn: str
) -> ProviderContext:
    """Return `context` with the interruption and the messages of Pulumi's stock host.

    Messages are shown at the resource `urn`.
    """
    context = replace(context, cancelled=host.cancelled)
    log = host.log
    if log is None:
        return context
    return replace(
        context,
        on_progress=lambda text: log.show_progress(urn, text),
        on_warning=lambda text: log.show_warning(urn, text),
        on_skipped_check=log.show_once,
    )


def create_hosted_context(urn: str) -> ProviderContext:
    """Return a new context for a host of Pulumi's, whose process serves one run.

    The records are stored with the state if this process can reach the state, else in the project's
    folder.
    """
    run = read_run_context()
    intents = _find_hosted_intents(urn, run)
    return ProviderContext(urn=urn, run=run, intents=intents, is_pulumi_host=True)


_hosted: dict[tuple[str, str], Intents | None] = {}
_hosted_lock = threading.Lock()


def _find_hosted_intents(urn: str, run: RunContext) -> Intents:
    """Return the records of creates of the stack in `urn`, through other packages' entry points.

    Without access to the state, the records are those in the project's folder.
    """
    # A URN is `urn:pulumi:STACK::PROJECT::TYPE::NAME`.
    head, project, *_ = [*urn.split("::"), ""]
    stack = head.rpartition(":")[2]
    # One lookup per stack and process: an entry point may ask the state's backend.
    with _hosted_lock:
        if (project, stack) not in _hosted:
            _hosted[project, stack] = None
            for entry in entry_points(group=RECORDS_ENTRY_POINTS):
                records = entry.load()(project, stack, Path.cwd(), run.environ)
                if records is not None:
                    _hosted[project, stack] = Intents(records)
        return _hosted.get((project, stack)) or create_project_intents()


class HostBoundary(AbstractContextManager[ProviderContext]):
    """The boundary to the host: inside is the call's context, and only gpuform's errors get out.

    The context has `stored_properties`. No error that gets out contains a secret, a cause or a
    frame: the stock host prints tracebacks. This is a class because contextlib gives an exception
    that passes a generator its old frames back.
    """

    def __init__(
        self, verb: str, subject: str, secrets: Iterable[Any], stored_properties: Mapping[str, Any]
    ) -> None:
        self._verb, self._subject = verb, subject
        self._context = replace(get_current_context(), stored_properties=stored_properties)
        self._context.add_secrets(secrets)
        if verb != "delete":
            self._context.intents.deletions.end()
        self._use_context = use_context(self._context)

    def __enter__(self) -> ProviderContext:
        return self._use_context.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._use_context.__exit__(kind, error, trace)
        if error is not None or self._verb != "delete":
            self._context.intents.deletions.end()
        if isinstance(error, GpuformError):
            error.redact(self._context.redact)
            raise error.with_traceback(None) from None
        if isinstance(error, Exception):  # its text may hold values: none may pass
            subject = self._context.urn or self._subject
            raise GpuformError(
                describe_unexpected_error(f"{self._verb} of {subject}", error)
            ) from None


def describe_unexpected_error(label: str, error: Exception) -> str:
    """Return the message for an unknown error: its type alone; the frames go to the log."""
    # The text of another library's error may contain values: only its type and frames are kept.
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.debug("%s failed with %s:\n%s", label, type(error).__name__, frames)
    return f"{label} failed: unexpected {type(error).__name__} (this is an error in gpuform)"
