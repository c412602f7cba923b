"""Each rule reports an occurrence once, through a real service, and no secret."""

import base64
import json
from collections.abc import Mapping, Sequence
from urllib.parse import quote

import pytest
from support.servers.webhook import TOKEN, Webhook

from gpuform.providers.records import EphemeralRecords, Records
from gpuform.providers.values import Redactor
from gpuform.schemas.notify import NotifyEvent
from gpuform.stacks.notify import RECORD, Notifier, Occurrence, Rule, Sender, send_message

DRIFT, FAILED, FINISHED = NotifyEvent.DRIFT_FOUND, NotifyEvent.FAILED, NotifyEvent.FINISHED
RULE = Rule("team", frozenset({DRIFT, FAILED, FINISHED}), "notify.yaml:2:3")
SENDER = Sender("demo/dev", "drift", "ann", "https://ci.example/jobs/7")
PLANTED = "hunter2-planted-token"


class Team:
    """One address, whose rule is reported occurrences in turn."""

    def __init__(self, webhook: Webhook, rule: Rule = RULE) -> None:
        self.webhook = webhook
        self.rule = rule
        self.records: Records = EphemeralRecords()
        self.warnings: list[str] = []

    def report(
        self,
        occurrences: Sequence[Occurrence],
        checked_events: Mapping[NotifyEvent, str] | None = None,
    ) -> list[str]:
        """Report the occurrences; return the texts that arrived, without the last two lines."""
        redact = Redactor([PLANTED]).redact
        addresses = {self.rule.name: self.webhook.address}
        notifier = Notifier(
            [self.rule], addresses, self.records, SENDER, redact, self.warnings.append
        )
        notifier.notify(occurrences, {} if checked_events is None else checked_events)
        return [
            f"{title}|{text.removesuffix(ORIGINS)}" for title, text in self.webhook.take_messages()
        ]


ORIGINS = "\ngpuform drift, run by ann\nhttps://ci.example/jobs/7"


@pytest.fixture
def team(webhook: Webhook) -> Team:
    return Team(webhook)


def drift(subject: str = "train", state: str = "16 => 24") -> Occurrence:
    return Occurrence(DRIFT, subject, state, f"{subject}: {state}")


def test_an_occurrence_is_told_once_until_it_changes_or_is_over(team: Team) -> None:
    reported = "demo/dev: drift found|train: 16 => 24"
    assert team.report([drift()]) == [reported]
    assert team.report([drift()]) == []
    assert team.report([drift(state="16 => 32")]) == ["demo/dev: drift found|train: 16 => 32"]
    assert team.report([], {DRIFT: ""}) == []
    assert team.report([drift()]) == [reported]


def test_only_what_is_new_is_in_the_next_message(team: Team) -> None:
    team.report([drift()])
    assert team.report([drift(), drift("data", "gone")]) == ["demo/dev: drift found|data: gone"]


def test_an_operation_that_did_not_look_at_everything_ends_nothing(team: Team) -> None:
    team.report([drift()])
    team.report([])
    assert team.report([drift()]) == []


def test_the_success_of_one_command_does_not_end_the_failure_of_another(team: Team) -> None:
    failure = Occurrence(FAILED, "up", "x", "up failed")
    team.report([failure])
    team.report([], {FAILED: "drift"})
    assert team.report([failure]) == []
    team.report([], {FAILED: "up"})
    assert len(team.report([failure])) == 1


def test_what_was_done_is_told_each_time_and_stored_never(team: Team) -> None:
    done = Occurrence(FINISHED, "up", None, "up finished")
    assert len(team.report([done]) + team.report([done])) == 2
    assert team.records.read(RECORD) is None


def test_a_message_that_was_refused_is_sent_by_the_next_operation(team: Team) -> None:
    team.webhook.status = 500
    assert team.report([drift()]) == []
    (warning,) = team.warnings
    assert warning == (
        "warning: notification team: JSON did not accept the message, or did not answer"
    )
    team.webhook.status = 200
    assert len(team.report([drift()])) == 1


def test_an_address_that_does_not_answer_is_tried_once_an_operation(team: Team) -> None:
    team.webhook.status = 500
    team.report([drift(), Occurrence(FAILED, "up", "x", "up failed")])
    assert len(team.warnings) == 1


def test_a_rule_without_the_event_tells_nothing(webhook: Webhook) -> None:
    team = Team(webhook, Rule("team", frozenset({FAILED}), ""))
    assert team.report([drift()]) == []
    assert team.records.read(RECORD) is None


def test_a_message_is_short_whatever_was_found(team: Team) -> None:
    many = [drift(f"n{number:02}", "x" * 1000 + "\nnext line") for number in range(30)]
    (message,) = team.report(many)
    lines = message.splitlines()
    assert len(lines) == 11
    assert lines[-1] == "... and 20 more"
    assert all(len(line) <= 350 for line in lines)


def test_characters_that_hide_text_are_escaped(team: Team) -> None:
    (message,) = team.report([drift(state="\x1b[2Jgone\u202e")])
    assert "\x1b" not in message
    assert "\u202e" not in message


@pytest.mark.parametrize(
    "spelling",
    [
        PLANTED,
        PLANTED.upper(),
        f"https://user:{PLANTED}@host/x",
        base64.b64encode(PLANTED.encode()).decode(),
        PLANTED.encode().hex(),
        quote(PLANTED, safe=""),
        json.dumps({"key": PLANTED}),
        PLANTED.replace("-", "-\n"),
        f"{PLANTED[:12]}",
    ],
)
def test_a_secret_of_any_shape_is_in_no_message_and_no_record(team: Team, spelling: str) -> None:
    (message,) = team.report([Occurrence(DRIFT, spelling, spelling, f"before {spelling} after")])
    assert "[secret]" in message
    stored = json.dumps(team.records.read(RECORD))
    for hidden in (PLANTED[:12], spelling, TOKEN):
        assert hidden not in message
        assert hidden not in stored


@pytest.mark.parametrize("address", ["no address", f"nosuchservice://{TOKEN}", ""])
def test_a_wrong_address_is_a_problem_that_does_not_show_the_address(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = send_message(address, "title", "text")
    assert problem == "its address is not one of Apprise; see https://appriseit.com/services/"
    assert TOKEN not in "".join(capsys.readouterr())


def test_a_service_that_does_not_answer_is_a_problem_that_does_not_show_the_address(
    capsys: pytest.CaptureFixture[str],
) -> None:
    problem = send_message(f"json://127.0.0.1:1/{TOKEN}", "title", "text")
    assert problem == "JSON did not accept the message, or did not answer"
    assert TOKEN not in "".join(capsys.readouterr())
