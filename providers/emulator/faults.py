"""Inject faults: rules say which requests are met, how often, and what goes wrong with them.

Tests add rules over `/_emulator/faults`. `gate` applies the faults that replace or lose an answer;
the API of each platform applies the rest (`routing.FaultEffects`, `routing.PlatformApi`).
"""

import re
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import (
    BaseModel,
    Field,
    JsonValue,
    TypeAdapter,
    field_validator,
    model_validator,
)

from gpuform.providers.emulator.store import Store

_EFFECTS = (
    "status",
    "drop",
    "capacity",
    "stuck",
    "preempted",
    "rolled_back",
    "failing",
    "takes",
    "slow",
    "status_override",
)


class DroppedConnection(ConnectionError):
    """Raised to an in-process caller where a fault closes the connection without an answer."""


class FaultRule(BaseModel, extra="forbid", frozen=True):
    """One fault and the requests that the fault is applied to. Exactly one effect is set.

    `path` is a regular expression (searched) on the path after the platform's prefix. The first
    `skip` matching requests pass, the next `count` get the fault (None: until the rules are
    cleared).
    """

    platform: str | None = None
    """Name of the platform whose requests match; None: of any platform."""
    method: str | None = None
    path: str = ""
    sent: dict[str, JsonValue] = {}
    """Only requests match whose JSON body has these values at its top level."""
    count: int | None = Field(default=1, ge=1)
    skip: int = Field(default=0, ge=0)

    status: int | None = Field(default=None, ge=400, le=599)
    """Answer with this status, `headers` and `body` before any effect."""
    headers: dict[str, str] = {}
    body: JsonValue = None

    drop: Literal["before", "after"] | None = None
    """Close the connection without an answer, before or after the request took effect."""

    capacity: bool = False
    """Whether the platform has no GPUs left."""

    stuck: bool = False
    """Whether what the request starts never gets beyond its first state."""

    rolled_back: bool = False
    """Whether an edit of the platform ends without its effect."""

    failing: str | None = None
    """Regular expression: objects that the request creates under a matching name fail later."""

    preempted: bool = False
    """Whether the preemptible nodes of the objects in the answer are removed before the answer.
    """

    takes: str | None = None
    """Regular expression: a change of size removes the nodes with a matching name first."""

    slow: float | None = Field(default=None, gt=1, allow_inf_nan=False)
    """The factor by which everything takes longer that the request starts and that has stages."""

    status_override: str | None = None
    """The status that objects show. `path` matches the request's path or the object's."""
    phase: str | None = None
    """With `status_override`: the last phase transition that objects show."""

    @field_validator("path", "failing", "takes")
    @classmethod
    def _check_pattern(cls, pattern: str | None) -> str | None:
        """Return a field's pattern unchanged.

        Raises ValueError if the text is no regular expression.
        """
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _require_one_effect(self) -> Self:
        """Return the rule unchanged.

        Raises ValueError unless the rule has exactly one effect.
        """
        if sum(bool(getattr(self, effect)) for effect in _EFFECTS) != 1:
            raise ValueError(f"a fault has exactly one effect of {', '.join(_EFFECTS)}")
        return self

    def matches(self, method: str, *paths: str, body: JsonValue = None, platform: str = "") -> bool:
        """Return whether the rule matches the request's method, platform, body and one of `paths`.

        A part that the rule does not declare matches every request. `count` and `skip` are not
        looked at.
        """
        if self.platform not in (None, platform):
            return False
        fields = body if isinstance(body, dict) else {}
        if any(fields.get(name) != value for name, value in self.sent.items()):
            return False
        if self.method is not None and self.method.upper() != method:
            return False
        return any(re.search(self.path, path) for path in paths)


class LiveFaultRule(FaultRule):
    """A rule that has been added. `number` is unique among all rules that a store ever had."""

    number: int = 0

    def count_match(self) -> "list[LiveFaultRule]":
        """Return the rule after one more matching request, in a list: [] when used up.

        `skip` is lowered first, and `count` once `skip` is 0. A `count` of None stays.
        """
        if self.skip:
            return [self.model_copy(update={"skip": self.skip - 1})]
        if self.count is None:
            return [self]
        return [self.model_copy(update={"count": self.count - 1})] if self.count > 1 else []


# Rules are in the store, not in memory: processes that share a store share its faults.
_RULES_SETTING = "faults"
_RULE_COUNT_SETTING = "faults_added"
_APPLICATIONS_SETTING = "faults_applied"
_RULES = TypeAdapter(list[LiveFaultRule])
_COUNTS = TypeAdapter(dict[int, int])


class Faults:
    """The live fault rules of a store, oldest first."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, rule: FaultRule) -> LiveFaultRule:
        """Add `rule` as the newest one and return the rule with a number."""
        with self._store.transaction():
            # Never given twice, so that a test can ask how often a rule was applied that is used
            # up.
            number = int(self._store.get_setting(_RULE_COUNT_SETTING) or 0) + 1
            self._store.set_setting(_RULE_COUNT_SETTING, number)
            live_rule = LiveFaultRule(**{**rule.model_dump(), "number": number})
            self._save([*self.list_live(), live_rule])
        return live_rule

    def count_applications(self) -> dict[int, int]:
        """Return how many requests each rule was applied to, by the rule's number.

        Used up and cleared rules are included; rules that were never applied are not.
        """
        stored_counts = self._store.get_setting(_APPLICATIONS_SETTING)
        return _COUNTS.validate_json(stored_counts) if isinstance(stored_counts, str) else {}

    def list_live(self) -> list[LiveFaultRule]:
        """Return the rules with requests left, oldest first."""
        stored_rules = self._store.get_setting(_RULES_SETTING)
        return _RULES.validate_json(stored_rules) if isinstance(stored_rules, str) else []

    def clear(self) -> None:
        """Remove all fault rules; their numbers of applications stay."""
        self._save([])

    def take(
        self, method: str, path: str, body: JsonValue = None, platform: str = ""
    ) -> FaultRule | None:
        """Return the fault to apply to a request, or None, and count the request in the rules.

        The oldest matching rule with nothing left to skip is applied, and removed when used up.
        Matching rules before that one count the request as skipped; rules after that one do not
        count the request. Rules with a status override are left alone: `take_overrides` applies
        them to answers.
        """
        # Nearly no request meets a rule, and a transaction writes to the file.
        if not self.list_live():
            return None
        applied_rule: FaultRule | None = None
        with self._store.transaction():
            remaining_rules: list[LiveFaultRule] = []
            for rule in self.list_live():
                is_match = rule.matches(method, path, body=body, platform=platform)
                if applied_rule or rule.status_override or not is_match:
                    remaining_rules.append(rule)
                    continue
                # The request is counted for each rule before the one applied, so that two rules
                # with `skip` count the same requests.
                if rule.skip == 0:
                    applied_rule = rule
                    self._record_application(rule)
                remaining_rules += rule.count_match()
            self._save(remaining_rules)
        return applied_rule

    def take_overrides(
        self, method: str, path: str, object_paths: Sequence[str], platform: str = ""
    ) -> dict[str, FaultRule]:
        """Return the rules with a status override for an answer's objects, by object path.

        A rule applies to the objects whose path it matches, and to all objects if it matches the
        request's own path. A rule is counted once for an answer, however many of the objects match;
        an answer without objects counts no rule. Rules with `sent` do not apply. Rules with
        requests left to skip are counted, but not returned. Of several rules for one object the
        newest is returned.

        Args:
            method: that of the request.
            path: that of the request.
            object_paths: the paths of the objects that the answer shows.
            platform: the name of the platform that answers.
        """
        # As in `take`: no transaction where there are no rules.
        if not self.list_live():
            return {}
        overrides: dict[str, FaultRule] = {}
        with self._store.transaction():
            remaining_rules: list[LiveFaultRule] = []
            for rule in self.list_live():
                matching_paths = [
                    object_path
                    for object_path in object_paths
                    if rule.matches(method, path, object_path, platform=platform)
                ]
                if not rule.status_override or not matching_paths:
                    remaining_rules.append(rule)
                    continue
                if rule.skip == 0:
                    overrides |= dict.fromkeys(matching_paths, rule)
                    self._record_application(rule)
                remaining_rules += rule.count_match()
            self._save(remaining_rules)
        return overrides

    def _record_application(self, rule: LiveFaultRule) -> None:
        """Add 1 to the stored number of requests to which the rule was applied."""
        counts = self.count_applications()
        counts[rule.number] = counts.get(rule.number, 0) + 1
        self._store.set_setting(_APPLICATIONS_SETTING, _COUNTS.dump_json(counts).decode())

    def _save(self, rules: list[LiveFaultRule]) -> None:
        """Store the fault rules in place of all earlier ones."""
        self._store.set_setting(_RULES_SETTING, _RULES.dump_json(rules).decode())
