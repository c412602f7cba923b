"""Faults that tests inject: which requests they meet, and how often.

The gate in `app` applies those that replace or lose an answer; a platform's room applies the rest.
"""

import re
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
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
    "failing",
    "takes",
    "status_override",
)


class DroppedConnection(ConnectionError):
    """The connection ended without an answer. An in-process caller sees it raised."""


class Rule(BaseModel):
    """One fault and the requests that it meets. Exactly one effect is set.

    `path` is a regular expression (searched) on the path after the platform's prefix. The first
    `skip` matching requests pass, the next `count` are met (None: until the rules are cleared).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    platform: str | None = None
    """Only requests to this one."""
    method: str | None = None
    path: str = ""
    sent: dict[str, JsonValue] = {}
    """Only requests whose JSON body has these values at its top."""
    count: int | None = Field(default=1, ge=1)
    skip: int = Field(default=0, ge=0)

    status: int | None = Field(default=None, ge=400, le=599)
    """Answer with this status, `headers` and `body` before any effect."""
    headers: dict[str, str] = {}
    body: JsonValue = None

    drop: Literal["before", "after"] | None = None
    """Close the connection without an answer, before or after the request took effect."""

    capacity: bool = False
    """The platform has no GPUs left."""

    stuck: bool = False
    """What the request starts never gets beyond its first state."""

    failing: str | None = None
    """What the request makes under names in which this regular expression is found fails later."""

    preempted: bool = False
    """The preemptible nodes of the objects that the answer shows are taken back before it."""

    takes: str | None = None
    """A change of size takes the nodes first under whose names this regular expression is found."""

    status_override: str | None = None
    """Objects show this status. Here the path meets the request's path or the object's own."""
    phase: str | None = None
    """With `status_override`: the last phase transition shown."""

    @field_validator("path", "failing", "takes")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _one_effect(self) -> Self:
        if sum(bool(getattr(self, effect)) for effect in _EFFECTS) != 1:
            raise ValueError(f"a fault has exactly one effect of {', '.join(_EFFECTS)}")
        return self

    def meets(self, method: str, *paths: str, body: JsonValue = None, platform: str = "") -> bool:
        if self.platform not in (None, platform):
            return False
        fields = body if isinstance(body, dict) else {}
        if any(fields.get(name) != value for name, value in self.sent.items()):
            return False
        if self.method is not None and self.method.upper() != method:
            return False
        return any(re.search(self.path, path) for path in paths)


class LiveRule(Rule):
    """A rule that is injected; `number` is its own among all that a store ever had."""

    number: int = 0

    def counted(self) -> "list[LiveRule]":
        """What is left of the rule after one more matching request: none when it is used up."""
        if self.skip:
            return [self.model_copy(update={"skip": self.skip - 1})]
        if self.count is None:
            return [self]
        return [self.model_copy(update={"count": self.count - 1})] if self.count > 1 else []


_SETTING = "faults"
_ADDED = "faults_added"
_APPLIED = "faults_applied"
_RULES = TypeAdapter(list[LiveRule])
_COUNTS = TypeAdapter(dict[int, int])


class Faults:
    """The live rules, oldest first, in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def add(self, rule: Rule) -> LiveRule:
        with self._store.transaction():
            number = int(self._store.setting(_ADDED) or 0) + 1
            self._store.set(_ADDED, number)
            added = LiveRule(**{**rule.model_dump(), "number": number})
            self._keep([*self.live(), added])
        return added

    def applied(self) -> dict[int, int]:
        """How many requests each rule was applied to, by its number; used up ones are among them,
        those that were applied to none are not."""
        kept = self._store.setting(_APPLIED)
        return _COUNTS.validate_json(kept) if isinstance(kept, str) else {}

    def live(self) -> list[LiveRule]:
        kept = self._store.setting(_SETTING)
        return _RULES.validate_json(kept) if isinstance(kept, str) else []

    def clear(self) -> None:
        self._keep([])

    def take(
        self, method: str, path: str, body: JsonValue = None, platform: str = ""
    ) -> Rule | None:
        """The first fault that meets this request, counted as used; status overrides apart."""
        if not self.live():
            return None
        taken: Rule | None = None
        with self._store.transaction():
            kept: list[LiveRule] = []
            for rule in self.live():
                is_met = rule.meets(method, path, body=body, platform=platform)
                if taken or rule.status_override or not is_met:
                    kept.append(rule)
                    continue
                if rule.skip == 0:
                    taken = rule
                    self._count(rule)
                kept += rule.counted()
            self._keep(kept)
        return taken

    def take_overrides(
        self, method: str, path: str, objects: Sequence[str], platform: str = ""
    ) -> dict[str, Rule]:
        """The status overrides of the objects in an answer, by the objects' own paths.

        A rule is counted once for an answer, however many objects it meets there.
        """
        if not self.live():
            return {}
        overrides: dict[str, Rule] = {}
        with self._store.transaction():
            kept: list[LiveRule] = []
            for rule in self.live():
                met = [own for own in objects if rule.meets(method, path, own, platform=platform)]
                if not rule.status_override or not met:
                    kept.append(rule)
                    continue
                if rule.skip == 0:
                    overrides |= dict.fromkeys(met, rule)
                    self._count(rule)
                kept += rule.counted()
            self._keep(kept)
        return overrides

    def _count(self, rule: LiveRule) -> None:
        counts = self.applied()
        counts[rule.number] = counts.get(rule.number, 0) + 1
        self._store.set(_APPLIED, _COUNTS.dump_json(counts).decode())

    def _keep(self, rules: list[LiveRule]) -> None:
        self._store.set(_SETTING, _RULES.dump_json(rules).decode())
