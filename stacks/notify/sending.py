"""Send notifications through Apprise, each once while nothing changes.

What was reported is a record beside the stack's state, so that a job on any machine knows it. The
record has digests alone. Nothing here fails a run: a problem is a warning.
"""

import hashlib
import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpuform.providers.records import Records
from gpuform.schemas.errors import GpuformError
from gpuform.schemas.notify import TITLES, NotifyEvent
from gpuform.schemas.safe_text import escape_invisible
from gpuform.stacks.notify.rules import Rule

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
        """Return title and text of a message."""
        where = " (emulator)" if self.emulated else ""
        title = f"{self.stack}{where}: {TITLES[event]}"
        lines = [_shorten_text(text) for text in texts[:_MAX_LINES]]
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

    def notify(self, occurrences: Sequence[Occurrence], over: Mapping[NotifyEvent, str]) -> None:
        """Send what no rule has reported yet, and store what was reported.

        `over` has the events whose absent occurrences are over, and are reported again when they
        return: with the subject that is over, or an empty text for all.
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
                for key in _list_over(rule, event, over, reported):
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
        """Send one rule's message about what is new of one event, and add it to `reported`.

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
        title, text = self.sender.build_message(event, texts)
        problem = self._send(rule, title, text)
        if problem:
            self.warn(f"warning: notification {rule.name}: {problem}")
            return False
        reported |= {
            key: _compute_digest(occurrence.state)
            for key, occurrence in new.items()
            if occurrence.state is not None
        }
        return True

    def _send(self, rule: Rule, title: str, text: str) -> str:
        """Send a message to a rule's address, and return the problem or an empty text."""
        address = self.addresses.get(rule.name, "")
        return send_message(address, title, text) if address else describe_missing_address(rule)


def _build_key(rule: Rule, event: NotifyEvent, subject: str) -> str:
    """Return the key of what was reported: the rule, the event, and a digest of the subject."""
    return f"{rule.name}/{event}/{_compute_digest(subject)}"


def _list_over(
    rule: Rule, event: NotifyEvent, over: Mapping[NotifyEvent, str], reported: Iterable[str]
) -> list[str]:
    """Return the keys that a rule has reported of an event, and that `over` says may have ended."""
    if event not in over:
        return []
    if over[event]:
        return [key for key in reported if key == _build_key(rule, event, over[event])]
    return [key for key in reported if key.startswith(f"{rule.name}/{event}/")]


def _compute_digest(text: str) -> str:
    """Return a digest of a text that reports nothing about it."""
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def describe_missing_address(rule: Rule) -> str:
    """Return the problem of a rule whose address is not among the secrets of the configuration."""
    return (
        f"its address is no secret of the stack's configuration; set it with `gpuform config set "
        f"--secret {rule.key}`"
    )


def send_message(address: str, title: str, text: str) -> str:
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
            return _send_with_apprise(address, title, text)
    except ImportError:
        requirement = get_pip_requirement("notify")
        return f"the package apprise is missing; install it: pip install '{requirement}'"
    # Any plugin may raise anything, and a notification must not fail a run.
    except Exception as error:  # noqa: BLE001 - reported as a problem
        return f"the message was not sent ({type(error).__name__})"
    finally:
        logger.removeHandler(quiet)


def _send_with_apprise(address: str, title: str, text: str) -> str:
    """Send the message as `send_message` does; raises whatever Apprise raises."""
    import apprise  # noqa: PLC0415 - an extra

    services = apprise.Apprise()
    if not services.add(address):
        return "its address is not one of Apprise; see https://appriseit.com/services/"
    name = next(iter(services)).service_name
    is_sent = services.notify(title=title, body=text, body_format=apprise.NotifyFormat.TEXT)
    return "" if is_sent else f"{name} did not accept the message, or did not answer"


def count_reported(records: Records, rule: Rule) -> int:
    """Return how many occurrences a rule has reported that are not over yet."""
    try:
        reported = (records.read(RECORD) or {}).get("reported") or {}
    except GpuformError:
        return 0
    return sum(key.startswith(f"{rule.name}/") for key in reported)
