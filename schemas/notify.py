"""Define who is notified of what: the rules of notify.yaml and of `notify` in stacks.yaml.

Read by `gpuform.stacks.notify`, which sends the notifications.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Any, Final, Literal

from pydantic import Field

from gpuform.schemas.gates import find_name_problems
from gpuform.schemas.models import InputModel, Problem

NAMESPACE: Final = "notify"
"""The namespace of the configuration keys that have the addresses: `notify:on-call`."""


class NotifyEvent(StrEnum):
    """What may be reported; `TITLES` has the words of messages."""

    FAILED = "failed"
    FINISHED = "finished"
    WAITING_FOR_APPROVAL = "waiting-for-approval"
    DRIFT_FOUND = "drift-found"
    EXPIRING = "expiring"
    REPAIR_PROPOSED = "repair-proposed"
    REPAIR_DONE = "repair-done"
    CERTIFICATION_FAILED = "certification-failed"
    OUT_OF_CAPACITY = "out-of-capacity"
    CREDIT_LOW = "credit-low"


TITLES: Final[Mapping[NotifyEvent, str]] = {
    NotifyEvent.FAILED: "failed",
    NotifyEvent.FINISHED: "finished",
    NotifyEvent.WAITING_FOR_APPROVAL: "waits for approval",
    NotifyEvent.DRIFT_FOUND: "drift found",
    NotifyEvent.EXPIRING: "expires within 3 days",
    NotifyEvent.REPAIR_PROPOSED: "repair proposed",
    NotifyEvent.REPAIR_DONE: "repair done",
    NotifyEvent.CERTIFICATION_FAILED: "certification failed",
    NotifyEvent.OUT_OF_CAPACITY: "out of capacity",
    NotifyEvent.CREDIT_LOW: "credit low",
}


NotifyEventName = Literal[
    "failed",
    "finished",
    "waiting-for-approval",
    "drift-found",
    "expiring",
    "repair-proposed",
    "repair-done",
    "certification-failed",
    "out-of-capacity",
    "credit-low",
]
"""The value of a `NotifyEvent` in a file."""


class NotifyRuleInputs(InputModel):
    """One rule: the events of which its address gets a message."""

    events: list[NotifyEventName] = Field(
        min_length=1,
        description="The events, each once while nothing changes.",
        examples=[["failed", "out-of-capacity"]],
    )


class NotifyInputs(InputModel):
    """The file of notification rules."""

    notify: dict[str, NotifyRuleInputs] = Field(
        description="Rules by name. The address of rule on-call is the secret notify:on-call of "
        "the stack's configuration, a URL of Apprise.",
        examples=[{"on-call": {"events": ["failed", "out-of-capacity"]}}],
    )

    @classmethod
    def find_problems(cls, values: Mapping[str, Any]) -> Iterator[Problem]:
        """Yield a problem for each invalid name of a rule."""
        rules = values.get("notify")
        if isinstance(rules, Mapping):
            yield from find_name_problems(rules, "notify")
