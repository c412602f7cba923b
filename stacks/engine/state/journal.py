"""The journal of a run: what changed since the checkpoint, kept change by change.

A checkpoint costs as much as the state is large and is written now and then; a line of the journal
costs as much as the change. What a crash leaves is the last checkpoint and a journal, whose lines
bring the one up to date. Each line is `CRC JSON`; the first says what the journal belongs to.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from gpuform.stacks.engine.errors import EngineError
from gpuform.stacks.engine.state.checkpoint import (
    PendingOperation,
    ResourceState,
    Snapshot,
    StateError,
    decode_operation,
    decode_resource,
)
from gpuform.stacks.engine.state.entries import Entries, Order
from gpuform.stacks.engine.state.journal_log import JournalError, Log, Readable
from gpuform.stacks.engine.urn import is_provider
from gpuform.stacks.engine.values import Crypter, Json, value_json

VERSION = 1
_CHECKPOINTS = ("checkpoint", "unwritten")
"""Records that tell of checkpoints, not of changes."""


def digest(checkpoint: bytes) -> str:
    """What a journal calls the checkpoint that it belongs to."""
    return hashlib.sha256(checkpoint).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """One change. `raw` are parts that are JSON text already."""

    op: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    raw: Mapping[str, bytes] = field(default_factory=dict)

    def encode(self) -> bytes:
        head = value_json.dump({"op": self.op, **self.facts})
        parts = b"".join(b',"%s":%s' % (name.encode(), text) for name, text in self.raw.items())
        return checksummed_line(head[:-1] + parts + b"}")


@dataclass(slots=True)
class Journal:
    """The journal of one stack, while a run writes it.

    `base` is the digest of the checkpoint that is kept. The log has lines from the first record on.
    """

    log: Log
    base: str
    _begun: bool = False
    _denied: Record | None = None

    def append(self, records: Sequence[Record]) -> None:
        """Keeps the records; when this returns they are there. Raises JournalError."""
        lines = [record.encode() for record in (*filter(None, [self._denied]), *records)]
        if not self._begun:
            head: dict[str, Json] = {"gpuform-journal": VERSION, "base": self.base}
            lines.insert(0, checksummed_line(value_json.dump(head)))
        self.log.append(b"".join(lines))
        self._begun, self._denied = True, None

    def deny(self, checkpoint: Record) -> None:
        """A checkpoint that was announced could not be written: what comes now tells so."""
        self._denied = Record("unwritten", {"digest": checkpoint.facts["digest"]})

    def end(self) -> None:
        """The checkpoint says it all: the journal goes."""
        if self._begun:
            # What stays says nothing that the checkpoint does not.
            with contextlib.suppress(EngineError):
                self.log.remove()

    def leave(self, error: EngineError) -> None:
        """The checkpoint could not be written: the journal stays, and the hint says where."""
        told = self.log.close()
        error.hint = "\n".join(filter(None, [error.hint, told]))


def checkpoint_record(checkpoint: bytes, order: Order) -> Record:
    """Precedes the writing of a checkpoint: what comes after it follows on that one."""
    return Record(
        "checkpoint",
        {
            "digest": digest(checkpoint),
            "numbers": [*order.numbers],
            "done": order.done,
            "pending": [*order.pending],
        },
    )


@dataclass(frozen=True, slots=True)
class Overtaken:
    """What the journal of a run tells that another program has gone on without.

    `made` are objects that none of the run's checkpoints has, as far as these were written;
    `begun` are creates of which the run does not know the end. `is_sure` is False when nobody can
    tell whether the run's last checkpoint was written, so that the other program knew of them.
    `others` are components and providers, which objects may need.
    """

    made: tuple[ResourceState, ...] = ()
    begun: tuple[ResourceState, ...] = ()
    is_sure: bool = True
    others: tuple[ResourceState, ...] = ()

    def lost(self, snapshot: Snapshot) -> list[ResourceState]:
        """The objects that this state does not know."""
        known = {entry.id for entry in snapshot.resources}
        return [entry for entry in self.made if entry.id not in known]


@dataclass(frozen=True, slots=True)
class Recovered:
    """A state with what the journals add that belong to it; `changes` counts the lines that did.

    `overtaken` are the journals that do not belong to it.
    """

    snapshot: Snapshot
    changes: int = 0
    overtaken: tuple[Overtaken, ...] = ()


def recover(log: Readable, checkpoint: bytes, snapshot: Snapshot, crypter: Crypter) -> Recovered:
    """The state of a checkpoint, with what its journal adds.

    Raises JournalError for a journal of another version, one that is damaged, and one whose secrets
    cannot be read.
    """
    fitting: list[_Fitting] = []
    overtaken: list[Overtaken] = []
    for head, records in _runs(log):
        with _naming(log.where):
            fits = _fit(head, records, digest(checkpoint), snapshot)
            if fits is None:
                overtaken.append(_overtaken(log.where, records, crypter))
            else:
                fitting.append(fits)
    # Of several, all but one were left by owners that came too late to do anything.
    longest = max(fitting, key=lambda fits: len(fits.added), default=None)
    if longest is None or not longest.added:
        return Recovered(snapshot, overtaken=tuple(overtaken))
    _replay(log.where, longest.entries, longest.added, crypter)
    resources, pending, _ = longest.entries.current()
    recovered = replace(snapshot, resources=resources, pending_operations=pending)
    return Recovered(recovered, len(longest.added), tuple(overtaken))


_Lines = list[dict[str, Any]]


def _runs(log: Readable) -> Iterator[tuple[dict[str, Any], _Lines]]:
    """The journals in a log, of which there is one at most unless owners were lost."""
    with _naming(log.where):
        lines = list(_lines(log.read()))
    starts = [place for place, line in enumerate(lines) if "op" not in line]
    for start, end in pairwise([*starts, len(lines)]):
        head = lines[start]
        version = head.get("gpuform-journal")
        if version != VERSION:
            raise JournalError(
                f"the journal {log.where} has the version {version!r}, this gpuform reads "
                f"{VERSION}",
                hint="Finish with the gpuform that wrote it, or give up what it adds with "
                "`gpuform state repair --discard-journal`.",
            )
        yield head, lines[start + 1 : end]


@dataclass(frozen=True, slots=True)
class _Fitting:
    """A checkpoint's entries, and what a journal adds to them."""

    entries: Entries
    added: _Lines


def _fit(
    head: Mapping[str, Any], records: _Lines, current: str, snapshot: Snapshot
) -> _Fitting | None:
    """What comes after the checkpoint with the digest `current`, if that is in the journal."""
    entries = None
    start = 0
    if head.get("base") == current:
        entries = Entries.load(snapshot.resources, snapshot.pending_operations)
    for place, record in enumerate(records, 1):
        if record["op"] == "checkpoint" and record["digest"] == current:
            start = place
            order = Order(
                _numbers(record, "numbers"), int(record["done"]), _numbers(record, "pending")
            )
            entries = Entries.order(snapshot.resources, snapshot.pending_operations, order)
    if entries is None:
        return None
    return _Fitting(entries, [each for each in records[start:] if each["op"] not in _CHECKPOINTS])


def _overtaken(where: str, records: _Lines, crypter: Crypter) -> Overtaken:
    last = len(records) - 1
    checkpoints = [place for place, record in enumerate(records) if record["op"] == "checkpoint"]
    # Whatever follows a checkpoint says whether it was written; of the last line nobody knows.
    written = [
        place for place in checkpoints if place < last and records[place + 1]["op"] != "unwritten"
    ]
    told = _JournalObjects(where, crypter)
    for record in records[: written[-1] if written else 0]:
        told.take(record)
    known = {*told.made}
    for record in records[written[-1] if written else 0 :]:
        told.take(record)
    made = tuple(entry for entry in told.made.values() if entry.id not in known)
    is_sure = not checkpoints or checkpoints[-1] < last
    return Overtaken(made, tuple(told.begun.values()), is_sure, tuple(told.others.values()))


@dataclass(slots=True)
class _JournalObjects:
    """What lines tell of objects, without the state that they change."""

    where: str
    crypter: Crypter
    made: dict[str, ResourceState] = field(default_factory=dict)
    begun: dict[int, ResourceState] = field(default_factory=dict)
    others: dict[str, ResourceState] = field(default_factory=dict)
    _creates: set[str] = field(default_factory=set)
    _ids: dict[int, str] = field(default_factory=dict)

    def take(self, record: Mapping[str, Any]) -> None:
        op = record["op"]
        if op == "begin":
            operation = _decoded(self.where, _operation, record, self.crypter)
            if operation.type in ("creating", "importing"):
                self._creates.add(operation.resource.urn)
                self.begun[_number(record, "token")] = operation.resource
        elif op == "end":
            self.begun.pop(_number(record, "token"), None)
        elif op == "same":
            self._ids[_number(record, "new")] = self._ids.get(_number(record, "old"), "")
        elif op == "remove":
            self.made.pop(self._ids.get(_number(record, "old"), ""), None)
        elif "resource" in record:
            self._entry(record, _decoded(self.where, _new, record, self.crypter))

    def _entry(self, record: Mapping[str, Any], entry: ResourceState) -> None:
        if "new" in record:
            self._ids[_number(record, "new")] = entry.id
        is_new = record["op"] == "add" or entry.urn in self._creates
        if not entry.custom or is_provider(entry.type):
            self.others[entry.urn] = entry
        elif is_new and entry.id and not entry.external:
            self.made[entry.id] = entry


_Decoded = TypeVar("_Decoded")


def _decoded(
    where: str,
    decode: Callable[[Mapping[str, Any], Crypter], _Decoded],
    record: Mapping[str, Any],
    crypter: Crypter,
) -> _Decoded:
    try:
        return decode(record, crypter)
    except StateError:
        raise
    except EngineError as error:
        raise JournalError(
            f"the journal {where} of an interrupted run holds secrets that the stack's key does "
            f"not open: {error.message}",
            hint="If the passphrase is right, another program has changed the stack's secrets "
            "provider since. Compare the state with the platform: what exists can be imported. "
            "Then run `gpuform state repair --discard-journal`, which keeps the journal.",
        ) from error


def find_objects(log: Readable) -> list[tuple[str, str]]:
    """The URNs and ids of the objects that a journal tells of, as far as it can be read."""
    read = (_document(line) for line in log.read().split(b"\n"))
    resources = [record.get("resource") for record in read if record is not None]
    entries = [entry for entry in resources if isinstance(entry, dict) and entry.get("id")]
    return list(dict.fromkeys((str(entry.get("urn")), str(entry["id"])) for entry in entries))


def records(where: str, lines: bytes) -> list[dict[str, Any]]:
    """What lines of a journal tell, without its head. Raises JournalError."""
    with _naming(where):
        return [record for record in _lines(lines) if "op" in record]


def refuse_lost_ids(where: str, snapshot: Snapshot, records: Iterable[Mapping[str, Any]]) -> None:
    """Another program has written the state since: does it know all that the journal knows?

    Raises JournalError, with what it does not know.
    """
    known = {entry.id for entry in snapshot.resources}
    told = [record["resource"] for record in records if "resource" in record]
    lost = {e["id"]: e["urn"] for e in told if e.get("id") and e["id"] not in known}
    if lost:
        names = "".join(f"\n  {urn} (id {id_})" for id_, urn in lost.items())
        raise JournalError(
            f"the journal {where} of an interrupted run does not belong to the state, which "
            "another program has written since, and tells of objects that the state does not know:"
            f"{names}",
            hint="Compare with the platform: what exists can be imported. Then run `gpuform state "
            "repair --discard-journal`.",
        )


def _replay(
    where: str, entries: Entries, records: Sequence[Mapping[str, Any]], crypter: Crypter
) -> None:
    for record in records:
        with _naming(where, f"a record {record.get('op')!r} does not fit the state"):
            _APPLY[record["op"]](entries, record, crypter)


@contextlib.contextmanager
def _naming(where: str, what: str = "") -> Iterator[None]:
    """Around the reading of lines: JournalError for what they cannot say."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, StateError) as error:
        why = error.message if isinstance(error, StateError) else str(error)
        told = ": ".join(filter(None, [what, why]))
        raise JournalError(
            f"the journal {where} is damaged: {told}",
            hint="Compare the state with the platform: what exists can be imported. Give up what "
            "the journal adds with `gpuform state repair --discard-journal`, which keeps it.",
        ) from error


_Apply = Callable[[Entries, Mapping[str, Any], Crypter], object]


def _new(record: Mapping[str, Any], crypter: Crypter) -> ResourceState:
    return decode_resource(record["resource"], crypter)


def _operation(record: Mapping[str, Any], crypter: Crypter) -> PendingOperation:
    return decode_operation(record["operation"], crypter)


def _set_outputs(entries: Entries, record: Mapping[str, Any], crypter: Crypter) -> None:
    entry = entries.numbered(_number(record, "of"))
    entry.outputs = value_json.decode_map(record["outputs"], crypter)


def _old(entries: Entries, record: Mapping[str, Any]) -> ResourceState:
    return entries.numbered(_number(record, "old"))


def _number(record: Mapping[str, Any], name: str) -> int:
    return int(record[name])


def _numbers(record: Mapping[str, Any], name: str) -> list[int]:
    return [int(number) for number in record[name]]


_APPLY: dict[str, _Apply] = {
    "add": lambda e, r, c: e.add(_new(r, c), _number(r, "new")),
    "same": lambda e, r, _: e.replace(_old(e, r), _old(e, r), _number(r, "new")),
    "replace": lambda e, r, c: e.replace(_old(e, r), _new(r, c), _number(r, "new")),
    "replace_keeping": lambda e, r, c: e.replace_keeping(_old(e, r), _new(r, c), _number(r, "new")),
    "put": lambda e, r, c: e.put(_old(e, r), _new(r, c)),
    "await_replacement": lambda e, r, _: e.await_replacement(_old(e, r)),
    "remove": lambda e, r, _: e.remove(_old(e, r)),
    "rebuild": lambda e, _r, _c: e.rebuild(),
    "outputs": _set_outputs,
    "begin": lambda e, r, c: e.begin(_operation(r, c), _number(r, "token")),
    "end": lambda e, r, _: e.end(_number(r, "token")),
}


def checksummed_line(text: bytes) -> bytes:
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _lines(data: bytes) -> Iterator[dict[str, Any]]:
    """The lines. A crash may have cut off the end of the last one, on which nobody relied.

    Raises ValueError for one that is damaged, since what it told of may exist.
    """
    *whole, _ = data.split(b"\n")
    for number, line in enumerate(whole, 1):
        document = _document(line)
        if document is None:
            raise ValueError(f"line {number} is not as it was written")
        yield document


def _document(line: bytes) -> dict[str, Any] | None:
    """What a line says; None for one that is not as it was written."""
    crc, _, text = line.partition(b" ")
    if crc != b"%08x" % zlib.crc32(text) or not text:
        return None
    try:
        document = value_json.load(text)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
