"""Add and remove entries of a kubeconfig.

gpuform's own entries have a mark among their extensions; no other character changes.

Block and flow style (JSON), comments and line breaks stay. A text that would not say exactly what
was intended afterwards is refused instead: anchors, tags and merge keys can make it so.

kubectl keeps extensions when it writes a file anew. What bears no mark is somebody else's.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from gpuform.stacks.access.kubeconfig_source import CURRENT, HEAD, NotEdited, Source

Before = dict[str, str | None]
"""What stood behind the keys that were filled; None for those that were not there."""

_BOM: Final = "\ufeff"


class KubeconfigText:
    """A text that has been read. `where` names it in messages. Every edit makes another one.

    Raises NotEdited for what only a person can read or edit.
    """

    def __init__(self, text: str, where: str) -> None:
        self.text, self.where = text, where
        self._bom = _BOM if text.startswith(_BOM) else ""
        self._source = Source(text[len(self._bom) :], where)

    @property
    def meaning(self) -> dict[str, Any]:
        """What the file says."""
        return self._source.meaning

    @property
    def current(self) -> str:
        """The current context; empty when there is none."""
        pair = self._source.pairs.get(CURRENT)
        return "" if pair is None or pair.is_empty else str(pair.value.value)

    def entries(self, section: str) -> dict[str, Mapping[str, Any]]:
        """Name -> what the entry holds, under `cluster`, `context` or `user`."""
        found: dict[str, Mapping[str, Any]] = {}
        listed = self.meaning.get(section) or ()
        for name, each in zip(self._source.list_names(section), listed, strict=True):
            held = each.get(section.removesuffix("s")) if isinstance(each, dict) else None
            if name is not None:
                found[name] = held if isinstance(held, dict) else {}
        return found

    def line_of(self, section: str, name: str) -> int:
        """Where an entry begins, counted from 1."""
        return int(self._source.item(section, name)[1].start_mark.line) + 1

    def before(self, *keys: str) -> Before:
        """What stands behind these keys, as far as it goes when they are filled."""
        found: Before = {}
        for key in keys:
            pair = self._source.pairs.get(key)
            if pair is None:
                found[key] = None
            elif key == CURRENT or (pair.is_empty and not self._source.is_flow_list(pair)):
                found[key] = self._source.body[pair.colon : pair.end]
        return found

    def added(self, section: str, name: str, held: Mapping[str, Any]) -> Self:
        """With an entry of a name that is not there yet."""
        entry = {"name": name, section.removesuffix("s"): held}
        wanted = {**self.meaning, section: [entry, *(self.meaning.get(section) or [])]}
        return self._saying(self._source.with_item(section, entry), wanted)

    def without(self, section: str, name: str, before: Before) -> Self:
        """Without an entry; an emptied section is as it was before, if that is known."""
        at, _ = self._source.item(section, name)
        left = [each for n, each in enumerate(self.meaning[section]) if n != at]
        if left:
            wanted = {**self.meaning, section: left}
            return self._saying(self._source.without_item(section, at), wanted)
        if section in before and before[section] is None:
            return self._without_key(section)
        body = self._source.emptied(section, before.get(section))
        return self._saying(body, self.meaning, emptied=section)

    def with_current(self, name: str) -> Self:
        """With this context as the current one."""
        return self._with_text(CURRENT, name)

    def with_former(self, before: str | None) -> Self:
        """With what stood behind `current-context` once, or without the key."""
        if before is None:
            return self._without_key(CURRENT)
        source, pair = self._source, self._source.pairs[CURRENT]
        body = source.body[: pair.colon] + before + source.body[pair.end :]
        made = type(self)(self._bom + body, self.where)
        return self._saying(body, {**self.meaning, CURRENT: made.meaning.get(CURRENT)})

    def with_head(self) -> Self:
        """With `apiVersion` and `kind`, which it has not got yet."""
        document = self
        for key in reversed(HEAD):
            document = document._with_text(key, HEAD[key])
        return document

    def without_head(self, before: Before) -> Self:
        """Without these keys, if they came with gpuform and nothing else is left."""
        document = self
        came = {key for key in HEAD if key in before and before[key] is None}
        if came == set(HEAD) == set(self.meaning):
            for key in HEAD:
                document = document._without_key(key)
        return document

    def _with_text(self, key: str, value: str) -> Self:
        source, wanted = self._source, {**self.meaning, key: value}
        pair = source.pairs.get(key)
        if pair is None:
            return self._saying(source.with_key(key, value), wanted)
        said = f" {json.dumps(value, ensure_ascii=False)}"
        return self._saying(source.body[: pair.colon] + said + source.body[pair.end :], wanted)

    def _without_key(self, key: str) -> Self:
        wanted = {name: value for name, value in self.meaning.items() if name != key}
        return self._saying(self._source.without_key(key), wanted)

    def _saying(self, body: str, wanted: Mapping[str, Any], *, emptied: str = "") -> Self:
        """The text, which has to say what is wanted, and nothing in the section that is emptied."""
        made = type(self)(self._bom + body, self.where)
        said = dict(made.meaning)
        if emptied:
            wanted, said = {**wanted, emptied: None}, {**said, emptied: said.get(emptied) or None}
        if said != wanted:
            raise NotEdited(
                f"{self.where}: the file cannot be edited as it is written",
                hint="Nothing was changed. Let kubectl write it anew (any `kubectl config set-...` "
                "does), or choose another file with --file.",
            )
        return made


NAME: Final = "gpuform"
"""The name of the extension: a text without it holds no mark."""


@dataclass(frozen=True, slots=True)
class Mark:
    """Which cluster an entry is of.

    `state` is where the state of its stack is; `before` what stood in the file in the place of
    what was written with the entry, so that taking it out leaves what was there.
    """

    id: str
    urn: str
    state: str
    before: Before = field(default_factory=dict)

    def is_same(self, other: "Mark") -> bool:
        """Whether both are of one cluster, or of two that one resource had in turn."""
        return self.id == other.id or (self.urn, self.state) == (other.urn, other.state)

    @classmethod
    def of(cls, held: Mapping[str, Any]) -> Self | None:
        """The mark of what an entry holds, if gpuform wrote it."""
        for each in _extensions(held):
            told = each.get("extension")
            if each.get("name") == NAME and isinstance(told, dict):
                id_, urn, state = (str(told.get(key) or "") for key in ("id", "urn", "state"))
                before = told.get("before")
                known = before if isinstance(before, dict) else {}
                texts = {str(k): v for k, v in known.items() if v is None or isinstance(v, str)}
                return cls(id_, urn, state, texts) if id_ else None
        return None

    def on(self, held: Mapping[str, Any]) -> dict[str, Any]:
        """What an entry holds, with this mark."""
        told: dict[str, Any] = {"id": self.id, "urn": self.urn, "state": self.state}
        if self.before:
            told["before"] = dict(self.before)
        others = [each for each in _extensions(held) if each.get("name") != NAME]
        return {**held, "extensions": [*others, {"name": NAME, "extension": told}]}


def _extensions(held: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    found = held.get("extensions")
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
