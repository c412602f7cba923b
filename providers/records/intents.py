"""Record creates that are in progress, so that no object is ever lost or created twice.

Before a create is sent, an intent is written durably (see `records`). When the answer is lost or
the process dies, the next run reads the intent and finds the object; `gpuform.providers.creating`
implements that.

The Pulumi CLI does not ask a provider about interrupted creates: a destroy would delete their
records with the stack, and leave the objects running. The plugin and the lifecycles call
`refuse_incomplete_destroy` before the first change; `gpuform status` lists such creates with the
same functions.
"""

import json
import math
import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from gpuform.providers.errors import GpuformError, NameTaken
from gpuform.providers.records.storing import Records, StoredObjects, compute_digest, read_record

INTENT_PREFIX: Final = "intent-"
"""The prefix of the names of these records."""

NOTHING: Final = "nothing"
CREATE_ANEW: Final = "anew"
"""The outcome of an intent for which the user wants a new object beside those of its name."""

PROPAGATION_TIME_S: Final = 60.0
"""Seconds after a request within which lists and lookups may lack the created object."""

_under_way: set[tuple[str, str]] = set()
_under_way_lock = threading.Lock()


@dataclass(frozen=True)
class Target:
    """The object that a create is for, as the platform's lists show it."""

    platform: str
    kind: str
    name: str
    region: str


@dataclass(frozen=True)
class Intent:
    """One create that was about to be sent.

    Args:
        urn: the URN of the resource; None under hosts that do not report it.
        platform: the platform's name.
        kind: the kind of the resource.
        name: the name of the object, or of the resource that has the parts in `names`.
        region: the declared region.
        started_at: Unix time in seconds when the request was last about to be sent, by the
            platform's clock if `is_timed`, else by this machine's.
        is_timed: `started_at` is by the platform's clock.
        looked_at: when a search first found nothing, by the same clock.
        present_ids: the objects of the name that existed before the request.
        sent: the properties of the request that lists show.
        id: the object, once known.
        tried_region: where the create was sent, which may be an alternative to `region`; empty
            without a choice.
        tried_gpu_type: the GPU type that was sent; empty without a choice.
        names: the names of several parts of one resource that one request creates.
        ids: the ids of these parts, once lists show them.
        outcome: NOTHING if nothing was created, CREATE_ANEW if the user wants another object.
        hints: the ids of the platform's answer, which may be fewer, more or others than those of
            the parts.
        missing: the names of parts that no list has shown yet.
        is_late: the answer came when another machine had taken over the stack, which may have
            forgotten the intent and created the object again.
        project: the project that the request named; empty if it named none.
        is_refused: the platform refused the create by an answer that a proxy may give to a copy of
            a request, and showed no object. A later search shows whether there is one; until then
            no command reports the create.
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
    project: str = ""
    is_refused: bool = False

    def is_stored(self, stored: Collection[str] | None) -> bool:
        """Return True if the state has all objects that this create may have made.

        `stored` are the ids of the parts in the state, or None for an object without parts. A
        create without parts always counts as stored.
        """
        if not self.names or stored is None:
            return True
        return bool(self.ids) and not self.missing and set(self.ids) <= set(stored)

    def is_resolved_by(self, object_id: str, object_names: Collection[str] = ()) -> bool:
        """Return True if the object of this id, which the state has, resolves this create.

        It does if this create made the object, or has an outcome. Without a known id, the create
        also has to be for one of `object_names`, and the object must not be older than the create:
        a killed replacement may have made another object than the state has.
        """
        if self.outcome and not self.is_late:
            return True
        if self.id or self.is_late:
            return self.id == object_id
        return self.name in object_names and object_id not in self.present_ids

    @property
    def target(self) -> Target:
        """The platform, kind, name and region of the object to create."""
        return Target(self.platform, self.kind, self.name, self.region)

    @property
    def made(self) -> tuple[str, ...]:
        """The ids of the objects that the create is known to have made; empty if unknown."""
        return self.ids if self.names else (self.id,) if self.id else ()

    @property
    def open_names(self) -> tuple[str, ...]:
        """The names of parts (such as nodes) of which nobody knows whether the create made them."""
        if self.outcome:
            return ()
        return self.missing or (() if self.ids else self.names)


class DeletionSeries:
    """Deletions of this process that follow each other, for which the state is read only once.

    Another resource can get the object of a deleted one only by an import, which a process of the
    plugin may make. Pulumi deletes what a program no longer declares after all imports of the run;
    until the end the state only loses objects. Before that, it deletes objects that it then creates
    again. So every other call ends the series, and a deletion that failed. The age is limited
    because another run may have broken the lock of this one. Safe for many threads.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._lock = threading.Lock()
        self._objects: StoredObjects | None = None
        self._read_at = -math.inf

    def read_stored_objects(self) -> StoredObjects | None:
        """Return URN and id of each object in the state, as read at the begin of the series."""
        # One thread reads, and the others wait: Pulumi sends many deletions at once.
        with self._lock:
            now = time.monotonic()
            if now - self._read_at >= MAX_SERIES_S:
                self._objects, self._read_at = self._records.list_stored_objects(), now
            return self._objects

    def end(self) -> None:
        """Have the next deletion read the state again."""
        with self._lock:
            self._objects, self._read_at = None, -math.inf


MAX_SERIES_S: Final = 10.0
"""Seconds after which deletions that follow each other read the state again."""


class Intents:
    """The intents of one stack; safe for many threads.

    The records are read once: no other process creates for the stack meanwhile.
    """

    def __init__(self, records: Records) -> None:
        self.records = records
        self.deletions = DeletionSeries(records)
        self._lock = threading.RLock()
        self._by_name: dict[str, Intent] | None = None
        self._by_owner: dict[str, set[str]] = {}

    def record(self, intent: Intent) -> None:
        """Store the record of a create, in place of an earlier record of the same create."""
        name = build_record_name(intent)
        # First the storage: what could not be stored must not look stored here.
        self.records.write(name, asdict(intent))
        with self._lock:
            self._load()[name] = intent
            self._by_owner.setdefault(_build_owner_key(intent.urn), set()).add(name)

    def record_id(self, intent: Intent, object_id: str) -> Intent:
        """Store the object's id in an intent, and return the new intent."""
        return self.record_answer(replace(intent, id=object_id, is_refused=False))

    def record_answer(self, intent: Intent) -> Intent:
        """Store the platform's answer to a create in its intent, and return the intent.

        A process that slept past its lease must not change the stack's records any more: another
        machine may have searched in vain, and forgotten the intent. The answer then becomes an
        additional record before the error is raised.

        Raises:
            GpuformError: the records could not be changed.
        """
        try:
            self.record(intent)
        except GpuformError as error:
            # A record of its own name: those of the other machine must stay as they are.
            late = replace(intent, is_late=True)
            self.records.add(build_record_name(late), asdict(late))
            made = ", ".join(intent.made or intent.hints)
            raise GpuformError(
                f"{error.message}; meanwhile the platform answered the create of the "
                f"{intent.kind} {intent.name!r} with {made}, which gpuform has recorded",
                hint=error.hint,
            ) from None
        return intent

    def find(self, urn: str | None, target: Target) -> Intent | None:
        """Return the recorded create of this object by this resource, or None.

        Creates of parts do not count. Without a URN, now or in the record, the object alone
        decides; a record with the URN is preferred.
        """
        matching_intents = [
            intent
            for intent in self._list_for_urn_or_unknown(urn)
            if intent.target == target and not intent.names
        ]
        return next(
            (intent for intent in matching_intents if intent.urn),
            next(iter(matching_intents), None),
        )

    def list_for_parts(self, urn: str | None, target: Target) -> list[Intent]:
        """Return the unfinished creates of nodes or other parts of this object, oldest first.

        Only of the resource `urn`; without a URN, now or in the record, the object alone decides.
        """
        return [
            intent
            for intent in self._list_for_urn_or_unknown(urn)
            if intent.target == target and intent.names
        ]

    def find_begun_parts(
        self, urn: str | None, object_id: str, stored: Collection[str]
    ) -> list[str]:
        """Return the names of an object's parts that an unfinished create may have made.

        `stored` are the ids of the parts in the state: a create whose parts are all stored does not
        count, and neither does a refused create.
        """
        part_names = [
            intent.names
            for intent in self._list_for_urn_or_unknown(urn)
            if intent.names
            and intent.id == object_id
            and not intent.is_refused
            and (intent.open_names or {*intent.ids} - {*stored})
        ]
        return sorted({name for names in part_names for name in names})

    def list_for_urn(self, urn: str) -> list[Intent]:
        """Return every recorded create of the resource with this URN.

        Several, if the object's name in the declaration has changed between attempts.
        """
        return [intent for intent in self._list_for_urn_or_unknown(urn) if intent.urn]

    def was_refused(self, urn: str) -> bool:
        """Return True if the resource has recorded creates, and the platform refused all of them.

        Such a create most likely did nothing, so that no command reports it.
        """
        intents = self.list_for_urn(urn)
        return bool(intents) and all(intent.is_refused for intent in intents)

    def forget(
        self,
        *,
        urn: str | None = None,
        id_: str | None = None,
        intent: Intent | None = None,
        stored: Collection[str] | None = None,
        object_names: Collection[str] = (),
    ) -> None:
        """Delete the records of resolved creates: by URN, by object id, or one given intent.

        With both a URN and an id, deletes the intents of the URN that the object resolves
        (`Intent.is_resolved_by`), and intents without a URN that name the id. `object_names` are
        the names that the object may have on the platform.

        With `stored`, the ids of the parts in the state, intents that created other parts stay.
        """
        resolved_intents = [] if intent is None else [intent]
        if urn:
            # Others may have made an object that the state lacks.
            resolved_intents += [
                candidate_intent
                for candidate_intent in self.list_for_urn(urn)
                if (
                    candidate_intent.is_resolved_by(id_, object_names)
                    if id_
                    else not candidate_intent.is_late
                )
            ]
        if id_:
            # Hosts that report no URN record creates without one: only the id identifies them.
            others = self._list_for_urn_or_unknown(urn) if urn else self.list_all()
            resolved_intents += [
                candidate_intent
                for candidate_intent in others
                if candidate_intent.id == id_ and not (urn and candidate_intent.urn)
            ]
        self.forget_all(
            candidate_intent
            for candidate_intent in resolved_intents
            if candidate_intent.is_stored(stored)
        )

    def forget_all(self, resolved_intents: Iterable[Intent]) -> None:
        """Delete the records of these creates, if they exist."""
        with self._lock:
            intents_by_name = self._load()
            names = [
                name
                for name in {
                    build_record_name(resolved_intent): None for resolved_intent in resolved_intents
                }
                if name in intents_by_name
            ]
        # Without the lock: the storage may be far away.
        if names:
            self.records.delete(*names)
        with self._lock:
            for name in names:
                if (intent := intents_by_name.pop(name, None)) is not None:
                    self._by_owner[_build_owner_key(intent.urn)].discard(name)

    def list_all(self) -> list[Intent]:
        """Return every recorded create of the stack, oldest first."""
        with self._lock:
            return sorted(self._load().values(), key=lambda intent: intent.started_at)

    @contextmanager
    def claim(self, target: Target) -> Iterator[None]:
        """Reserve a name during its create; refuse a second create of the name in this process.

        Raises:
            NameTaken: another resource of the program is creating the name.
        """
        # Another stack may create an object of the same name at the same time.
        key = (self.records.place, repr(target))
        with _under_way_lock:
            if key in _under_way:
                raise NameTaken(
                    f"another resource of this program is creating the {target.kind} "
                    f"{target.name!r} on {target.platform}",
                    hint="give each resource its own name",
                )
            _under_way.add(key)
        try:
            yield
        finally:
            with _under_way_lock:
                _under_way.discard(key)

    def _list_for_urn_or_unknown(self, urn: str | None) -> list[Intent]:
        """Return the creates recorded for a URN or without any URN, oldest first; all for None."""
        if urn is None:
            return self.list_all()
        with self._lock:
            intents_by_name = self._load()
            names = {
                name
                # A create that was recorded without a URN may be this resource's.
                for owner_urn in (urn, None)
                for name in self._by_owner.get(_build_owner_key(owner_urn), ())
            }
            return sorted(
                (intents_by_name[name] for name in names), key=lambda intent: intent.started_at
            )

    def _load(self) -> dict[str, Intent]:
        """Return the intents by their records' names, read from the storage on the first call.

        The caller holds the lock.

        Raises:
            GpuformError: a record is damaged.
        """
        if self._by_name is None:
            names = [name for name in self.records.names() if name.startswith(INTENT_PREFIX)]
            read = ((name, read_record(self.records, name, Intent)) for name in names)
            self._by_name = {name: intent for name, intent in read if intent is not None}
            for name, intent in self._by_name.items():
                self._by_owner.setdefault(_build_owner_key(intent.urn), set()).add(name)
        return self._by_name


def to_dynamic_urn(urn: str) -> str:
    """Return the URN of the resource in the dynamic form.

    A stack may change between the dynamic form and the plugin between two attempts.
    """
    # A URN has the types of the parents before the type, with `$` between them.
    return re.sub(r"(?<=[:$])gpuform:(\w+):", r"pulumi-python:dynamic/gpuform.\1:", urn)


def _build_owner_key(urn: str | None) -> str:
    """Return the URN of the intent's resource in the dynamic form; empty without a URN."""
    return to_dynamic_urn(urn) if urn else ""


def build_record_name(intent: Intent) -> str:
    """Return the name of an intent's record: one for each create of a resource's object."""
    owner = compute_digest(to_dynamic_urn(intent.urn)) if intent.urn else "no-urn"
    parts = f"-{compute_digest(' '.join(intent.names))}" if intent.names else ""
    # A late answer must not replace the record of the intent that it answers.
    late = (
        f"-{compute_digest(' '.join((intent.id or '', *intent.hints)))}" if intent.is_late else ""
    )
    return (
        f"{INTENT_PREFIX}{owner}-{compute_digest(json.dumps(asdict(intent.target)))}{parts}{late}"
    )


_DESTROY_COMMANDS = frozenset({"destroy", "down", "dn"})
_CLI_NAMES = frozenset({"pulumi", "pulumi-wrapped"})
_MAX_ANCESTORS = 4
"""How many processes may be between this one and the CLI: shells, a launcher, a wrapper."""
_COMMANDS = _DESTROY_COMMANDS | {"up", "update", "preview", "pre", "refresh", "import", "watch"}


def refuse_incomplete_destroy(intents: Intents, *, creates_anew: bool = False) -> None:
    """Raise GpuformError if a `pulumi destroy` would leave objects of interrupted creates behind.

    Does nothing if another command runs, if the state cannot be read from here, or if the user
    declares that none of the objects belongs to the stack (`creates_anew`).

    Raises:
        GpuformError: the command is a destroy, and the state lacks an object that a create may have
            made.
    """
    stored_resources = None if creates_anew else intents.records.list_stored_objects()
    leftover_intents = (
        find_leftover_intents(intents.list_all(), stored_resources)
        if stored_resources is not None
        else []
    )
    if leftover_intents and is_pulumi_destroy():
        raise GpuformError(
            "\n".join(
                f"{describe_leftover(intent)}: a destroy would not delete the object"
                for intent in leftover_intents
            ),
            hint="`pulumi up` resumes the create, and then `pulumi destroy` deletes the object; "
            "`gpuform destroy` does both, whatever language the program is in. If the stack should "
            "leave the object alone, or if no object exists, set GPUFORM_CREATE_ANEW=1",
        )


def find_leftover_intents(
    intents: Iterable[Intent], stored_resources: StoredObjects
) -> list[Intent]:
    """Return the intents of creates whose objects, known or possible, are not in the state.

    Intents with an outcome, which are decided, and refused creates, which most likely did nothing,
    are left out. Objects that are parts of a resource count as stored with the resource.

    Args:
        intents: The recorded creates of the stack.
        stored_resources: URN and id of each resource in the state.
    """
    stored_ids = {id_ for _, id_ in stored_resources}
    stored_urns = {to_dynamic_urn(urn) for urn, _ in stored_resources}

    def is_stored(intent: Intent) -> bool:
        # These objects are parts of a resource: its lifecycle deletes them with the resource.
        if intent.names:
            return to_dynamic_urn(intent.urn or "") in stored_urns
        return bool(intent.made) and stored_ids.issuperset(intent.made)

    return [
        intent
        for intent in intents
        if not (intent.outcome or intent.is_refused or is_stored(intent))
    ]


def get_urn_type(urn: str) -> str:
    """Return the type of the resource in a URN, without the types of its parents."""
    # `urn:pulumi:STACK::PROJECT::PARENT$TYPE::NAME`
    return "".join(urn.split("::")[2:3]).rpartition("$")[2]


def list_owner_urns(
    intents: Intents, urn: str, object_id: str, *, is_deleted: bool = False
) -> list[str]:
    """Return the URNs in the stack's state that have the object of the id, in the dynamic form.

    Only URNs of the same type as `urn`; without any, those that have the object as a part, such as
    a node of a pool. Empty if the state cannot be read from here. With `is_deleted` the state is
    that of the series of deletions, which has no parts, else the present one.
    """
    own_type, records = get_urn_type(to_dynamic_urn(urn)), intents.records
    if is_deleted:
        stored_resources = intents.deletions.read_stored_objects()
    else:
        stored_resources = records.list_stored_objects()
    owner_urns = [
        owner_urn
        for owner, id_ in stored_resources or ()
        if id_ == object_id and get_urn_type(owner_urn := to_dynamic_urn(owner)) == own_type
    ]
    if owner_urns or is_deleted:
        return owner_urns
    # The parts are in the state, too, which may be far away: it is read again only if necessary.
    return [to_dynamic_urn(owner) for owner, id_ in records.list_stored_parts() if id_ == object_id]


def is_pulumi_destroy() -> bool:
    """Return True if this process is part of a `pulumi destroy`."""
    return is_destroy_command(_find_cli_arguments())


def is_destroy_command(arguments: Sequence[str]) -> bool:
    """Return True if the Pulumi CLI's arguments request a destroy, by name or alias."""
    # The first command word decides: `pulumi refresh --target destroy` is no destroy.
    return (
        next((argument for argument in arguments if argument in _COMMANDS), "") in _DESTROY_COMMANDS
    )


def _find_cli_arguments() -> list[str]:
    """Return the arguments of the Pulumi CLI above this process, directly or through scripts.

    Returns the arguments of the parent if none of the nearest ancestors is a `pulumi`.
    """
    process_id = os.getppid()
    parent_arguments = _read_process_arguments(process_id)
    arguments = parent_arguments
    for _ in range(_MAX_ANCESTORS):
        if arguments and Path(arguments[0]).stem.strip(".") in _CLI_NAMES:
            return arguments
        process_id = _get_parent_id(process_id)
        arguments = _read_process_arguments(process_id) if process_id > 1 else []
    return parent_arguments


def _get_parent_id(process_id: int) -> int:
    """Return the id of the parent process; 0 if the system does not report the id."""
    try:
        # The name in parentheses may have spaces: what follows it is the state and the parent.
        return int(Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        pass
    import subprocess  # noqa: PLC0415 - only where the system has no /proc

    try:
        command = ["ps", "-o", "ppid=", "-p", str(process_id)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed
        return int(completed.stdout)
    except (OSError, ValueError):
        return 0


def _read_process_arguments(process_id: int) -> list[str]:
    """Return the command line of a process; empty if the system does not report one."""
    try:
        # Linux has /proc; macOS has only `ps`.
        return Path(f"/proc/{process_id}/cmdline").read_text().split("\0")
    except OSError:
        pass
    import subprocess  # noqa: PLC0415 - as above

    try:
        command = ["ps", "-o", "args=", "-p", str(process_id)]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - fixed
        return completed.stdout.split()
    except OSError:
        return []


def describe_leftover(intent: Intent) -> str:
    """Return a sentence about an interrupted create whose object is missing in the state."""
    label = f"{intent.kind} {intent.name!r} on {intent.platform}"
    if intent.made:
        outcome = f"created {', '.join(intent.made)}, which is not in the state"
    else:
        outcome = "may have created an object that is not in the state"
    return f"an interrupted create of {label} {outcome}"
