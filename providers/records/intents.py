"""The record of creates that are under way, so that no object is ever lost or made twice.

Before a create is sent, an intent is written and kept (see `records`). When the answer is lost or
the process dies, the next run reads the intent and finds the object again;
`gpuform.providers.creating` holds that flow.
"""

import hashlib
import json
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from gpuform.providers.errors import GpuformError, NameTaken
from gpuform.providers.records.storing import Records, read_as

INTENT_PREFIX: Final = "intent-"
"""How the names of these records begin."""

NOTHING: Final = "nothing"
ANEW: Final = "anew"
"""Outcomes of intents."""

SETTLE: Final = 60.0
"""Seconds after a request within which lists and lookups may lack what it made."""

_under_way: set[tuple[str, str]] = set()
_under_way_lock = threading.Lock()


@dataclass(frozen=True)
class Target:
    """The object that a create wants, as the platform's lists show it."""

    platform: str
    kind: str
    name: str
    region: str


@dataclass(frozen=True)
class Intent:
    """One create that was about to be sent.

    `started_at` is Unix time in seconds when it was last about to be sent: by the platform's clock
    where `is_timed` says so, else by this machine's; `looked_at` is when it was first looked for in
    vain, by the same clock. `present_ids` are the objects of that name at
    that time; `sent` are the properties that it was sent with, as far as lists show them; `id` is
    the object, once known. `urn` is None under hosts that do not tell it. `tried_region` and
    `tried_gpu_type` say where and as what the create was sent, which may be an alternative to
    `region`; they are empty where the kind has no such choice. `outcome` is what an engine that
    goes on to make objects knows already: that NOTHING was made, or that the user says so and
    wants an object made ANEW beside those that have its name.

    A create that makes several parts of one resource has their `names`, and their `ids` once lists
    show them; then `name` and `id` are the resource's. `hints` are the ids of the platform's
    answer, which may be fewer, more or others than those of the parts; `missing` are the names of
    parts that no list has shown yet. `is_late`: its answer came when another machine had taken the
    stack over, which may have forgotten the intent and created the object again.
    """

    urn: str | None
    platform: str
    kind: str
    name: str
    region: str
    started_at: float
    is_timed: bool = False
    looked_at: float | None = None
    present_ids: tuple[str, ...] = ()
    sent: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None
    tried_region: str = ""
    tried_gpu_type: str = ""
    names: tuple[str, ...] = ()
    ids: tuple[str, ...] = ()
    outcome: str = ""
    hints: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    is_late: bool = False

    def is_stored(self, stored: Collection[str] | None) -> bool:
        """Whether the state has all that it made, if those are the parts that the state has."""
        if not self.names or stored is None:
            return True
        return bool(self.ids) and not self.missing and set(self.ids) <= set(stored)

    @property
    def target(self) -> Target:
        """The object wanted."""
        return Target(self.platform, self.kind, self.name, self.region)

    @property
    def made(self) -> tuple[str, ...]:
        """The ids of what it is known to have made."""
        return self.ids if self.names else (self.id,) if self.id else ()

    @property
    def open_names(self) -> tuple[str, ...]:
        """The names of parts of which nobody knows yet whether the create has made them."""
        if self.outcome:
            return ()
        return self.missing or (() if self.ids else self.names)


class Intents:
    """The intents of one stack; safe for many threads.

    They are read once: nobody else creates for the stack meanwhile.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self._lock = threading.RLock()
        self._by_name: dict[str, Intent] | None = None
        self._by_owner: dict[str, set[str]] = {}

    def record(self, intent: Intent) -> None:
        """Keeps an intent, in place of an earlier one of the same create."""
        name = record_name(intent)
        self.records.write(name, asdict(intent))
        with self._lock:
            self._known()[name] = intent
            self._by_owner.setdefault(_owner(intent.urn), set()).add(name)

    def record_id(self, intent: Intent, id_: str) -> Intent:
        """Adds the object's id to an intent."""
        return self.record_answer(replace(intent, id=id_))

    def record_answer(self, intent: Intent) -> Intent:
        """Keep and return an intent with what the platform has answered.

        A process that slept past its lease may not change the stack's records any more: another
        machine may have looked in vain, and forgotten the intent. The answer then becomes a record
        beside the others before the error is raised.
        """
        try:
            self.record(intent)
        except GpuformError as error:
            late = replace(intent, is_late=True)
            self.records.add(record_name(late), asdict(late))
            made = ", ".join(intent.made or intent.hints)
            raise GpuformError(
                f"{error.message}; meanwhile the create of the {intent.kind} {intent.name!r} was "
                f"answered with {made}, which is recorded",
                hint=error.hint,
            ) from None
        return intent

    def find(self, urn: str | None, target: Target) -> Intent | None:
        """The intent of this resource for this object, left by an attempt that did not end.

        A host that tells no URN, now or then, is matched by the object wanted.
        """
        found = [each for each in self._of(urn) if each.target == target and not each.names]
        return next((each for each in found if each.urn), next(iter(found), None))

    def of_parts(self, urn: str | None, target: Target) -> list[Intent]:
        """The intents of creates of this resource's parts, found as by `find`; oldest first."""
        return [each for each in self._of(urn) if each.target == target and each.names]

    def begun_parts(self, urn: str | None, id_: str, stored: Collection[str]) -> list[str]:
        """Return the names of parts of an object that a create may have made beside `stored`."""
        begun = [
            intent.names
            for intent in self._of(urn)
            if intent.names
            and intent.id == id_
            and (intent.open_names or {*intent.ids} - {*stored})
        ]
        return sorted({name for names in begun for name in names})

    def of_urn(self, urn: str) -> list[Intent]:
        """Every intent of one resource: more than one when it was renamed between attempts."""
        return [each for each in self._of(urn) if each.urn]

    def forget(
        self,
        *,
        urn: str | None = None,
        id_: str | None = None,
        intent: Intent | None = None,
        stored: Collection[str] | None = None,
    ) -> None:
        """Removes the intents of a URN or of an object's id, or one intent; none is no error.

        With both a URN and an id, those of the URN and those without URN that name the id. With
        `stored`, the ids of the parts that the state has, none that made other parts.
        """
        gone = [] if intent is None else [intent]
        if urn:
            # A late one tells of another object than the one that the state has.
            gone += [each for each in self.of_urn(urn) if not each.is_late or each.id == id_]
        if id_:
            others = self._of(urn) if urn else self.all()
            gone += [each for each in others if each.id == id_ and not (urn and each.urn)]
        self.forget_all(each for each in gone if each.is_stored(stored))

    def forget_all(self, gone: Iterable[Intent]) -> None:
        """Removes these intents."""
        with self._lock:
            known = self._known()
            names = [name for name in {record_name(each): None for each in gone} if name in known]
        if names:
            self.records.delete(*names)
        with self._lock:
            for name in names:
                if (intent := known.pop(name, None)) is not None:
                    self._by_owner[_owner(intent.urn)].discard(name)

    def all(self) -> list[Intent]:
        """Every intent of the stack, oldest first."""
        with self._lock:
            return sorted(self._known().values(), key=lambda intent: intent.started_at)

    @contextmanager
    def claim(self, target: Target) -> Iterator[None]:
        """Holds a name while it is being created: two creates of it in one process are refused."""
        key = (self.records.place, repr(target))
        with _under_way_lock:
            if key in _under_way:
                raise NameTaken(
                    f"another resource of this program is creating the {target.kind} "
                    f"{target.name!r} on {target.platform}",
                    hint="give each of them a name of its own",
                )
            _under_way.add(key)
        try:
            yield
        finally:
            with _under_way_lock:
                _under_way.discard(key)

    def _of(self, urn: str | None) -> list[Intent]:
        """Those of a URN and those without any, oldest first; all where the URN is not told."""
        if urn is None:
            return self.all()
        with self._lock:
            known = self._known()
            names = {name for each in (urn, None) for name in self._by_owner.get(_owner(each), ())}
            return sorted((known[name] for name in names), key=lambda intent: intent.started_at)

    def _known(self) -> dict[str, Intent]:
        """The intents by their records' names, with the lock held."""
        if self._by_name is None:
            names = [name for name in self.records.names() if name.startswith(INTENT_PREFIX)]
            read = ((name, read_as(self.records, name, Intent)) for name in names)
            self._by_name = {name: intent for name, intent in read if intent is not None}
            for name, intent in self._by_name.items():
                self._by_owner.setdefault(_owner(intent.urn), set()).add(name)
        return self._by_name


def in_dynamic_form(urn: str) -> str:
    """The URN that a resource has where it is a dynamic one: a stack may change its form between
    two attempts."""
    return re.sub(r"(?<=[:$])gpuform:(\w+):", r"pulumi-python:dynamic/gpuform.\1:", urn)


def _owner(urn: str | None) -> str:
    return in_dynamic_form(urn) if urn else ""


def record_name(intent: Intent) -> str:
    """Return under which name an intent is kept: one for each create of a resource's object."""
    owner = _digest(in_dynamic_form(intent.urn)) if intent.urn else "no-urn"
    parts = f"-{_digest(' '.join(intent.names))}" if intent.names else ""
    late = f"-{_digest(' '.join((intent.id or '', *intent.hints)))}" if intent.is_late else ""
    return f"{INTENT_PREFIX}{owner}-{_digest(json.dumps(asdict(intent.target)))}{parts}{late}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:24]
