"""Read the rules of notifications, find what rules may report, and send it through Apprise.

The rules are in notify.yaml beside `Pulumi.yaml`, and in `notify` of stacks.yaml; the configuration
keys that they name have the addresses. The reports of operations call `list_state_occurrences` with
the state at their end, and send each occurrence once until it changes. What was reported is a
record beside the stack's state, so that a job on any machine knows it. The record has digests
alone. Nothing here fails a run: a problem is a warning.
"""

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from gpuform.providers.records import Records
from gpuform.schemas.errors import EngineError, GpuformError
from gpuform.schemas.notify import NAMESPACE, TITLES, NotifyEvent
from gpuform.schemas.policies.repair import NodeRepair
from gpuform.schemas.resource_facts import Notice, NoticeKind
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.engine.state import ResourceState
from gpuform.stacks.engine.urn import name_of

FILE: Final = "notify.yaml"
STACKS_FILE: Final = "stacks.yaml"


@dataclass(frozen=True, slots=True)
class Rule:
    """The events of which one address gets messages. `source` is where the rule is declared."""

    name: str
    events: frozenset[NotifyEvent]
    source: str

    @property
    def key(self) -> str:
        """Return the configuration key of the rule's address."""
        return f"{NAMESPACE}:{self.name}"


def read_rules(directory: Path) -> list[Rule]:
    """Read the rules of a project, and of the nearest stacks.yaml upwards.

    A rule of both files has the events of both.

    Raises:
        EngineError: with every problem and its position.
    """
    from gpuform.stacks.document.diagnostics import Diagnostics, format_text  # noqa: PLC0415 - a
    # project without rules reads no file.

    rules: dict[str, Rule] = {}
    problems = Diagnostics()
    for file, is_projects in _find_files(directory):
        for rule in _read_file(file, file.name, problems, is_projects=is_projects):
            earlier_rule = rules.get(rule.name, rule)
            events = earlier_rule.events | rule.events
            rules[rule.name] = Rule(rule.name, events, earlier_rule.source)
    if problems:
        raise EngineError(
            f"the notification rules are invalid:\n{format_text(list(problems))}",
            "`gpuform validate` reports all problems",
        )
    return list(rules.values())


def has_rules_file(directory: Path) -> bool:
    """Return True if there may be rules for a project: a look at names, which reads no file."""
    return bool(_find_files(directory))


def check_rules(directory: Path, problems: Any) -> None:
    """Add the problems of a project's notify.yaml, if there is one, to `problems` (Diagnostics)."""
    from gpuform.stacks.topology.files import format_path  # noqa: PLC0415 - as above

    path = directory / FILE
    if path.exists():
        _read_file(path, format_path(path), problems, is_projects=True)


def _find_files(directory: Path) -> list[tuple[Path, bool]]:
    """Return the files in which rules are looked for, and whether each is the project's own."""
    own = directory / FILE
    files = [(own, True)] if own.is_file() else []
    for folder in (directory, *directory.absolute().parents):
        if (folder / STACKS_FILE).is_file():
            return [*files, (folder / STACKS_FILE, False)]
    return files


def _read_file(path: Path, label: str, problems: Any, *, is_projects: bool) -> list[Rule]:
    """Return the rules of a file, and add the file's problems, with `label` as its name."""
    from gpuform.schemas.notify import NotifyInputs  # noqa: PLC0415 - as above
    from gpuform.schemas.stacks_plan import StacksInputs  # noqa: PLC0415 - as above
    from gpuform.stacks.document.diagnostics import Diagnostics  # noqa: PLC0415 - as above
    from gpuform.stacks.document.nodes import find_key_position  # noqa: PLC0415 - as above
    from gpuform.stacks.document.reading import read_checked  # noqa: PLC0415 - as above

    # `read_checked` stops at any problem, also at those of other files.
    own_problems = Diagnostics()
    model = NotifyInputs if is_projects else StacksInputs
    root, values = read_checked(path, label, model, own_problems)
    problems.extend(own_problems)
    if own_problems:
        return []
    rules: Mapping[str, Mapping[str, Any]] = values.get("notify") or {}
    return [
        Rule(
            name,
            frozenset(map(NotifyEvent, rule["events"])),
            str(find_key_position(root, ("notify", name))),
        )
        for name, rule in rules.items()
    ]


RECORD: Final = "notifications"
"""The name of the record with what was reported."""

_MAX_LINES: Final = 10
_MAX_LENGTH: Final = 300
"""The most lines of a message, and the most characters of a line: a message is for a phone."""


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that rules may report.

    `subject` is what it is about, such as a URN. The same subject is reported again when `state`
    differs, or after it was over. Something done has no state, and is reported each time.
    """

    event: NotifyEvent
    subject: str
    state: str | None
    text: str


@dataclass(frozen=True, slots=True)
class Sender:
    """Who did what to which stack, for all messages of an operation.

    `link` is the address of the CI job, or empty.
    """

    stack: str
    command: str
    user: str
    link: str = ""
    emulated: bool = False

    def build_message(self, event: NotifyEvent, texts: Sequence[str]) -> tuple[str, str]:
        """Return title and body of a notification about an event."""
        where = " (emulator)" if self.emulated else ""
        title = f"{self.stack}{where}: {TITLES[event]}"
        lines = [_shorten_text(line) for line in texts[:_MAX_LINES]]
        if len(texts) > _MAX_LINES:
            lines.append(f"... and {len(texts) - _MAX_LINES} more")
        return title, "\n".join([*lines, *self.list_origins()])

    def list_origins(self) -> list[str]:
        """Return the last lines of a message: who runs which command, and the CI job's address."""
        return [f"gpuform {self.command}, run by {self.user}", *([self.link] if self.link else [])]


def _shorten_text(text: str) -> str:
    """Return a text as one line without invisible characters, of at most `_MAX_LENGTH`."""
    line = escape_invisible(" ".join(text.split()))
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 4]} ..."


@dataclass(frozen=True, slots=True)
class Notifier:
    """Sends the occurrences of one operation by the rules.

    Args:
        rules: the rules of the project.
        addresses: the address of each rule that has one.
        records: the stack's records.
        redact: replaces secrets in texts.
        warn: receives what could not be sent, without addresses.
    """

    rules: Sequence[Rule]
    addresses: Mapping[str, str]
    records: Records
    sender: Sender
    redact: Callable[[str], str]
    warn: Callable[[str], None]

    def notify(
        self, occurrences: Sequence[Occurrence], checked_events: Mapping[NotifyEvent, str]
    ) -> None:
        """Send the occurrences no rule has reported yet, and store their digests.

        `checked_events` names the events whose missing occurrences have ended, each with the
        subject concerned, or with "" for all subjects. An ended occurrence is reported again when
        it returns.
        """
        stored = dict((self.records.read(RECORD) or {}).get("reported") or {})
        reported = dict(stored)
        for rule in self.rules:
            is_reachable = True
            for event in sorted(rule.events):
                present = {
                    _build_key(rule, event, occurrence.subject): occurrence
                    for occurrence in occurrences
                    if occurrence.event is event
                }
                for key in _list_checked_keys(rule, event, checked_events, reported):
                    if key not in present:
                        del reported[key]
                # Each attempt of an address that does not answer delays the command by seconds.
                if is_reachable:
                    is_reachable = self._notify_rule(rule, event, present, reported)
        if reported != stored:
            # Commands without the stack's lock notify, too: a record of its own replaces none.
            self.records.add(RECORD, {"reported": reported})

    def _notify_rule(
        self,
        rule: Rule,
        event: NotifyEvent,
        present: Mapping[str, Occurrence],
        reported: dict[str, str],
    ) -> bool:
        """Send one rule's message about new occurrences of one event, and add them to `reported`.

        Returns False after a warning that the message was not sent.
        """
        new = {
            key: occurrence
            for key, occurrence in present.items()
            if occurrence.state is None or reported.get(key) != _compute_digest(occurrence.state)
        }
        if not new:
            return True
        texts = [self.redact(occurrence.text) for occurrence in new.values()]
        title, body = self.sender.build_message(event, texts)
        problem = self._send(rule, title, body)
        if problem:
            self.warn(f"warning: notification {rule.name}: {problem}")
            return False
        reported |= {
            key: _compute_digest(occurrence.state)
            for key, occurrence in new.items()
            if occurrence.state is not None
        }
        return True

    def _send(self, rule: Rule, title: str, body: str) -> str:
        address = self.addresses.get(rule.name, "")
        return send_message(address, title, body) if address else describe_missing_address(rule)


def _build_key(rule: Rule, event: NotifyEvent, subject: str) -> str:
    """Return the key of a reported occurrence: the rule, the event, and the subject's digest."""
    return f"{rule.name}/{event}/{_compute_digest(subject)}"


def _list_checked_keys(
    rule: Rule,
    event: NotifyEvent,
    checked_events: Mapping[NotifyEvent, str],
    reported: Iterable[str],
) -> list[str]:
    """Return the reported keys of a rule and an event that `checked_events` covers."""
    if event not in checked_events:
        return []
    if checked_events[event]:
        return [key for key in reported if key == _build_key(rule, event, checked_events[event])]
    return [key for key in reported if key.startswith(f"{rule.name}/{event}/")]


def _compute_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def describe_missing_address(rule: Rule) -> str:
    """Return the problem of a rule whose address is not among the secrets of the configuration."""
    return (
        f"its address is no secret of the stack's configuration; set it with `gpuform config set "
        f"--secret {rule.key}`"
    )


def send_message(address: str, title: str, body: str) -> str:
    """Send a message to an address of Apprise; return the problem, or an empty text if sent.

    The problem never has the address, which contains a credential.
    """
    from gpuform.stacks.engine.machine import get_pip_requirement  # noqa: PLC0415 - for a problem

    logger, quiet = logging.getLogger("apprise"), logging.NullHandler()
    # Otherwise Python prints Apprise's messages on stderr, with parts of addresses.
    logger.addHandler(quiet)
    try:
        with warnings.catch_warnings():
            # Apprise and its plugins use deprecated functions, which is no matter of users.
            warnings.simplefilter("ignore")
            return _send_with_apprise(address, title, body)
    except ImportError:
        requirement = get_pip_requirement("notify")
        return f"the package apprise is missing; install it: pip install '{requirement}'"
    # Any plugin may raise anything, and a notification must not fail a run.
    except Exception as error:  # noqa: BLE001 - reported as a problem
        return f"the message was not sent ({type(error).__name__})"
    finally:
        logger.removeHandler(quiet)


def _send_with_apprise(address: str, title: str, body: str) -> str:
    """Send the message as `send_message` does; raises whatever Apprise raises."""
    import apprise  # noqa: PLC0415 - an extra

    services = apprise.Apprise()
    if not services.add(address):
        return "its address is not one of Apprise; see https://appriseit.com/services/"
    name = next(iter(services)).service_name
    is_sent = services.notify(title=title, body=body, body_format=apprise.NotifyFormat.TEXT)
    return "" if is_sent else f"{name} did not accept the message, or did not answer"


def count_reported(records: Records, rule: Rule) -> int:
    """Return the number of reported occurrences of a rule which are not over yet."""
    try:
        reported = (records.read(RECORD) or {}).get("reported") or {}
    except GpuformError:
        return 0
    return sum(key.startswith(f"{rule.name}/") for key in reported)


SOON_S: Final = 3 * 86400.0
"""How many seconds before an end the event `expiring` occurs."""

STATE_EVENTS: Final = frozenset(
    {
        NotifyEvent.EXPIRING,
        NotifyEvent.REPAIR_PROPOSED,
        NotifyEvent.CERTIFICATION_FAILED,
        NotifyEvent.CREDIT_LOW,
    }
)
"""The events that `list_state_occurrences` finds."""


def list_state_occurrences(
    entries: Iterable[ResourceState], notices: Iterable[Notice], now: float
) -> list[Occurrence]:
    """Return the occurrences about resources for notification rules.

    Args:
        entries: the resources, with their last observed outputs.
        notices: the notices about them.
        now: the present time in Unix seconds.
    """
    own = [entry for entry in entries if entry.custom and not (entry.delete or entry.external)]
    return [
        *_list_endings(notices, now),
        *_list_lost_credit(notices),
        *(repair for entry in own for repair in _list_proposed_repairs(entry)),
        *(failure for entry in own for failure in _list_failed_certifications(entry)),
    ]


def _list_endings(notices: Iterable[Notice], now: float) -> Iterator[Occurrence]:
    """Yield an occurrence for each end within `SOON_S`, and for each end already due."""
    for notice in notices:
        # A notice of an idle rule has no moment.
        if notice.kind is not NoticeKind.EXPIRY or not notice.at:
            continue
        if datetime.fromisoformat(notice.at).timestamp() - now <= SOON_S:
            message = f"{notice.name}: {notice.text}"
            yield Occurrence(NotifyEvent.EXPIRING, notice.urn, notice.at, message)


def _list_lost_credit(notices: Iterable[Notice]) -> Iterator[Occurrence]:
    """Yield an occurrence for each stop, present or coming, for lack of credit."""
    for notice in notices:
        if notice.kind is NoticeKind.CREDIT:
            message = f"{notice.name}: {notice.text}" if notice.name else notice.text
            # Texts of what comes next count down; the moment of a stop stays.
            yield Occurrence(NotifyEvent.CREDIT_LOW, notice.urn, notice.at, message)


def _list_proposed_repairs(entry: ResourceState) -> Iterator[Occurrence]:
    """Yield an occurrence for each broken node, with the proposed repair, if any."""
    from gpuform.stacks.pricing import to_plain_properties  # noqa: PLC0415 - not for rules alone
    from gpuform.stacks.resource_rules import find_lifecycle  # noqa: PLC0415 - as above

    lifecycle = find_lifecycle(entry.type)
    if lifecycle is None:
        return
    name = name_of(entry.urn)
    try:
        decision = lifecycle.hooks.decide_repairs(
            to_plain_properties(entry.outputs), to_plain_properties(entry.inputs)
        )
    # GPUFORM_REPAIR requests something that the platform does not allow.
    except GpuformError:
        return
    for repair in decision.due_repairs:
        yield build_repair_occurrence(NotifyEvent.REPAIR_PROPOSED, entry.urn, repair)
    for unrepaired in decision.unrepaired:
        fault = unrepaired.fault
        proposal = f"; proposed repair: {fault.mode}" if fault.mode else ""
        yield Occurrence(
            NotifyEvent.REPAIR_PROPOSED,
            f"{entry.urn}::{fault.node}",
            f"{fault.cause}/{fault.mode}/{fault.id}",
            f"{name}: node {fault.node} is broken: {fault.because}{proposal}; not repaired by "
            f"itself: {unrepaired.reason}",
        )


def build_repair_occurrence(event: NotifyEvent, urn: str, repair: NodeRepair) -> Occurrence:
    """Return the occurrence of a planned or done repair of a node."""
    return Occurrence(
        event,
        f"{urn}::{repair.node}",
        f"{repair.cause}/{repair.mode}/{repair.id}",
        f"{name_of(urn)}: node {repair.node}, repair {repair.mode}: {repair.evidence}",
    )


def _list_failed_certifications(entry: ResourceState) -> Iterator[Occurrence]:
    from gpuform.stacks.pricing import to_plain_properties  # noqa: PLC0415 - as above

    failures = to_plain_properties(entry.outputs).get("failures")
    is_certification = entry.type.endswith(":Certification")
    if not is_certification or not isinstance(failures, list):
        return
    for failure in failures:
        node, category = str(failure.get("node")), str(failure.get("category"))
        yield Occurrence(
            NotifyEvent.CERTIFICATION_FAILED,
            f"{entry.urn}::{node}::{category}",
            str(failure.get("at")),
            f"{name_of(entry.urn)}: node {node} failed {category}: {failure.get('because')}",
        )
