"""Write and recover the journal of a run: the changes since its last checkpoint, one line each.

Writing a checkpoint costs as much as the state is large, a journal line as much as its change.
After a crash, `recover` applies the lines to the last checkpoint. Each line is `CRC JSON`; the
first names the checkpoint that the journal belongs to. `SnapshotManager` appends records, `store`
recovers states, `journal_log` holds the file.
"""

import contextlib
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, TypeVar

from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine import value_json
from gpuform.stacks.engine.state.checkpoint import (
    PendingOperation,
    ResourceState,
    Snapshot,
    StateError,
    decode_operation,
    decode_resource,
)
from gpuform.stacks.engine.state.entries import Entries, EntryOrder
from gpuform.stacks.engine.state.journal_log import JournalError, Log, ReadableLog
from gpuform.stacks.engine.urn import is_provider
from gpuform.stacks.engine.value_json import Crypter, Json

VERSION = 1
_CHECKPOINTS = ("checkpoint", "unwritten")
"""Records about checkpoints; all other records are changes."""


def compute_digest(checkpoint: bytes) -> str:
    """Return the SHA-256 in hex, the name of a checkpoint in journals."""
    return hashlib.sha256(checkpoint).hexdigest()


@dataclass(frozen=True, slots=True)
class Record:
    """One change in the journal; `raw` are parts that are encoded as JSON already."""

    op: str
    facts: Mapping[str, Json] = field(default_factory=dict)
    raw: Mapping[str, bytes] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode the record as a line of the journal."""
        head = value_json.dump({"op": self.op, **self.facts})
        parts = b"".join(
            b',"%s":%s' % (name.encode(), encoded) for name, encoded in self.raw.items()
        )
        return encode_line(head[:-1] + parts + b"}")


@dataclass(slots=True)
class Journal:
    """The journal of one stack while a run writes it.

    `base` is the digest of the stored checkpoint. The log has lines from the first record on.
    """

    log: Log
    base: str
    _has_lines: bool = False
    _failed_checkpoint: Record | None = None

    def append(self, records: Sequence[Record]) -> None:
        """Store records at the end of the log before returning. Raises JournalError."""
        lines = [record.encode() for record in (*filter(None, [self._failed_checkpoint]), *records)]
        # The head comes with the first record, so that a run without changes leaves no journal.
        if not self._has_lines:
            head: dict[str, Json] = {"gpuform-journal": VERSION, "base": self.base}
            lines.insert(0, encode_line(value_json.dump(head)))
        self.log.append(b"".join(lines))
        self._has_lines, self._failed_checkpoint = True, None

    def record_failed_checkpoint(self, checkpoint: Record) -> None:
        """Note the failure of an announced checkpoint; the next append stores the note."""
        self._failed_checkpoint = Record("unwritten", {"digest": checkpoint.facts["digest"]})

    def end(self) -> None:
        """Remove the journal, if possible: the final checkpoint holds every change."""
        if self._has_lines:
            # A journal that could not be removed does no harm: it belongs to an older checkpoint.
            with contextlib.suppress(EngineError):
                self.log.remove()

    def close_after_failure(self, error: EngineError) -> None:
        """Close the journal of a run with a failed checkpoint.

        The hint of `error` is extended by the location of the journal.
        """
        leftover_note = self.log.close()
        error.hint = "\n".join(filter(None, [error.hint, leftover_note]))


def create_checkpoint_record(checkpoint: bytes, order: EntryOrder) -> Record:
    """Create the record to announce a checkpoint; later lines build on the checkpoint."""
    return Record(
        "checkpoint",
        {
            "digest": compute_digest(checkpoint),
            "numbers": [*order.numbers],
            "done": order.done,
            "pending": [*order.pending],
        },
    )


@dataclass(frozen=True, slots=True)
class OrphanedJournal:
    """The content of a run's journal whose state another program has written since.

    `created` are objects that none of the run's written checkpoints has; `unfinished_creates` are
    creates whose result the run does not know. `is_sure` is False when nobody can know whether the
    run's last checkpoint was written, so that the other program knew its objects. `others` are
    components and providers that the objects may depend on.
    """

    created: tuple[ResourceState, ...] = ()
    unfinished_creates: tuple[ResourceState, ...] = ()
    is_sure: bool = True
    others: tuple[ResourceState, ...] = ()

    def find_lost_objects(self, snapshot: Snapshot) -> list[ResourceState]:
        """Return the created objects whose ids are missing in `snapshot`."""
        known_ids = {entry.id for entry in snapshot.resources}
        return [entry for entry in self.created if entry.id not in known_ids]


@dataclass(frozen=True, slots=True)
class RecoveredState:
    """A state with the changes of its journal applied; `changes` counts the applied lines.

    `orphaned_journals` are the journals that do not belong to the state.
    """

    snapshot: Snapshot
    changes: int = 0
    orphaned_journals: tuple[OrphanedJournal, ...] = ()


def recover(
    log: ReadableLog, checkpoint: bytes, snapshot: Snapshot, crypter: Crypter
) -> RecoveredState:
    """Return the state of a checkpoint with the changes of the journal applied.

    Nothing is written. Journals of other checkpoints are in the result as orphaned ones.

    Args:
        log: where the journals of earlier runs lie.
        checkpoint: the checkpoint file, whose digest finds the journal that belongs to it.
        snapshot: the decoded checkpoint; recorded outputs are set on its entries in place.
        crypter: decrypts the secrets in the journal.

    Raises:
        JournalError: a journal has another version or is damaged, or an orphaned one has secrets
            that the crypter does not open.
        EngineError: the crypter does not open a secret of the checkpoint's own journal.
    """
    matching_journals: list[_MatchingJournal] = []
    orphaned_journals: list[OrphanedJournal] = []
    for head, records in _split_journals(log):
        with _raise_as_journal_error(log.where):
            matching_journal = _match_checkpoint(
                head, records, compute_digest(checkpoint), snapshot
            )
            if matching_journal is None:
                orphaned_journals.append(_summarize_orphan(log.where, records, crypter))
            else:
                matching_journals.append(matching_journal)
    # A run that lost its lock may have begun a journal for the same checkpoint without changing
    # anything: of several journals, only the longest has changes.
    longest = max(
        matching_journals, key=lambda matching_journal: len(matching_journal.added), default=None
    )
    if longest is None or not longest.added:
        return RecoveredState(snapshot, orphaned_journals=tuple(orphaned_journals))
    _replay(log.where, longest.entries, longest.added, crypter)
    resources, pending, _ = longest.entries.build_current()
    recovered = replace(snapshot, resources=resources, pending_operations=pending)
    return RecoveredState(recovered, len(longest.added), tuple(orphaned_journals))


_Records = list[dict[str, Any]]


def _split_journals(log: ReadableLog) -> Iterator[tuple[dict[str, Any], _Records]]:
    """Yield head and records of each journal; there are several only after a run lost a lock."""
    with _raise_as_journal_error(log.where):
        lines = list(_parse_lines(log.read()))
    # Only the head of a journal has no `op`.
    starts = [index for index, line in enumerate(lines) if "op" not in line]
    for start, end in pairwise([*starts, len(lines)]):
        head = lines[start]
        version = head.get("gpuform-journal")
        if version != VERSION:
            raise JournalError(
                f"the journal {log.where} has the version {version!r}, but this gpuform reads "
                f"{VERSION}",
                hint="Finish the run with the version of gpuform that wrote it, or discard its "
                "changes with `gpuform state repair --discard-journal`.",
            )
        yield head, lines[start + 1 : end]


@dataclass(frozen=True, slots=True)
class _MatchingJournal:
    """The entries of a checkpoint, and the records that its journal adds to them."""

    entries: Entries
    added: _Records


def _match_checkpoint(
    head: Mapping[str, Any], records: _Records, current: str, snapshot: Snapshot
) -> _MatchingJournal | None:
    """Return the entries at the checkpoint with digest `current`, and the journal's later records.

    None if the journal belongs to another checkpoint.
    """
    entries = None
    start = 0
    if head.get("base") == current:
        entries = Entries.load(snapshot.resources, snapshot.pending_operations)
    # A journal goes on over several checkpoints: only the lines after the stored one are missing in
    # the state.
    for position, record in enumerate(records, 1):
        if record["op"] == "checkpoint" and record["digest"] == current:
            start = position
            order = EntryOrder(
                _get_numbers(record, "numbers"),
                int(record["done"]),
                _get_numbers(record, "pending"),
            )
            entries = Entries.restore(snapshot.resources, snapshot.pending_operations, order)
    if entries is None:
        return None
    return _MatchingJournal(
        entries, [record for record in records[start:] if record["op"] not in _CHECKPOINTS]
    )


def _summarize_orphan(location: str, records: _Records, crypter: Crypter) -> OrphanedJournal:
    """Return the objects created by the records after the last surely written checkpoint.

    Unfinished creates, components and providers come from all records. `is_sure` is False in the
    result if nobody knows whether a last, announced checkpoint was written.
    """
    last = len(records) - 1
    checkpoints = [index for index, record in enumerate(records) if record["op"] == "checkpoint"]
    # The line after an announced checkpoint shows whether the checkpoint was written; after the
    # last line nobody knows.
    written = [
        index for index in checkpoints if index < last and records[index + 1]["op"] != "unwritten"
    ]
    objects = _JournalObjects(location, crypter)
    for record in records[: written[-1] if written else 0]:
        objects.add_record(record)
    ids_in_checkpoint = {*objects.created}
    for record in records[written[-1] if written else 0 :]:
        objects.add_record(record)
    made = tuple(entry for entry in objects.created.values() if entry.id not in ids_in_checkpoint)
    is_sure = not checkpoints or checkpoints[-1] < last
    return OrphanedJournal(
        made, tuple(objects.unfinished_creates.values()), is_sure, tuple(objects.others.values())
    )


@dataclass(slots=True)
class _JournalObjects:
    """The objects that a journal's records mention, read without the state that they change."""

    where: str
    crypter: Crypter
    created: dict[str, ResourceState] = field(default_factory=dict)
    unfinished_creates: dict[int, ResourceState] = field(default_factory=dict)
    others: dict[str, ResourceState] = field(default_factory=dict)
    _creates: set[str] = field(default_factory=set)
    _ids: dict[int, str] = field(default_factory=dict)

    def add_record(self, record: Mapping[str, Any]) -> None:
        """Note the objects created or removed by the record, and unfinished creates."""
        op = record["op"]
        if op == "begin":
            operation = _decode_record(self.where, _decode_operation, record, self.crypter)
            if operation.type in ("creating", "importing"):
                self._creates.add(operation.resource.urn)
                self.unfinished_creates[_get_number(record, "token")] = operation.resource
        elif op == "end":
            self.unfinished_creates.pop(_get_number(record, "token"), None)
        elif op == "same":
            self._ids[_get_number(record, "new")] = self._ids.get(_get_number(record, "old"), "")
        elif op == "remove":
            self.created.pop(self._ids.get(_get_number(record, "old"), ""), None)
        elif "resource" in record:
            self._add_entry(record, _decode_record(self.where, _decode_new, record, self.crypter))

    def _add_entry(self, record: Mapping[str, Any], entry: ResourceState) -> None:
        """Note the record's entry: a created object by its id, a component or provider by its URN.

        Objects that are external or were not created in this run are left out.
        """
        if "new" in record:
            self._ids[_get_number(record, "new")] = entry.id
        is_new = record["op"] == "add" or entry.urn in self._creates
        if not entry.custom or is_provider(entry.type):
            self.others[entry.urn] = entry
        elif is_new and entry.id and not entry.external:
            self.created[entry.id] = entry


_Decoded = TypeVar("_Decoded")


def _decode_record(
    location: str,
    decode: Callable[[Mapping[str, Any], Crypter], _Decoded],
    record: Mapping[str, Any],
    crypter: Crypter,
) -> _Decoded:
    """Decode the record. Raises JournalError if the crypter does not decrypt its secrets."""
    try:
        return decode(record, crypter)
    except StateError:
        raise
    except EngineError as error:
        raise JournalError(
            f"the journal {location} of an interrupted run contains secrets that the stack's key "
            f"does not decrypt: {error.message}",
            hint="If the passphrase is right, another program has changed the stack's secrets "
            "provider since. Compare the state with the platform and import the objects that "
            "exist. Then run `gpuform state repair --discard-journal`, which keeps a copy of "
            "the journal.",
        ) from error


def find_objects(log: ReadableLog) -> list[tuple[str, str]]:
    """Return URN and id of each object recorded in a journal, even if deleted later.

    Unreadable lines are skipped.
    """
    parsed_lines = (_parse_line(line) for line in log.read().split(b"\n"))
    resources = [record.get("resource") for record in parsed_lines if record is not None]
    entries = [entry for entry in resources if isinstance(entry, dict) and entry.get("id")]
    return list(dict.fromkeys((str(entry.get("urn")), str(entry["id"])) for entry in entries))


def parse_records(location: str, lines: bytes) -> list[dict[str, Any]]:
    """Parse the records of journal lines without heads. Raises JournalError."""
    with _raise_as_journal_error(location):
        return [record for record in _parse_lines(lines) if "op" in record]


def reject_lost_ids(
    location: str, snapshot: Snapshot, records: Iterable[Mapping[str, Any]]
) -> None:
    """Reject a journal with objects missing in a state written by another program.

    An object whose deletion the journal records counts as missing as well.

    Raises:
        JournalError: lists the unknown objects.
    """
    known_ids = {entry.id for entry in snapshot.resources}
    resources = [record["resource"] for record in records if "resource" in record]
    lost_urns_by_id = {
        e["id"]: e["urn"] for e in resources if e.get("id") and e["id"] not in known_ids
    }
    if lost_urns_by_id:
        names = "".join(f"\n  {urn} (id {id_})" for id_, urn in lost_urns_by_id.items())
        raise JournalError(
            f"the journal {location} of an interrupted run does not belong to the state, which "
            "another program has written since, and records objects that the state does not "
            f"have:{names}",
            hint="Compare the state with the platform and import the objects that exist. Then run "
            "`gpuform state repair --discard-journal`.",
        )


def _replay(
    location: str, entries: Entries, records: Sequence[Mapping[str, Any]], crypter: Crypter
) -> None:
    """Apply the records to `entries`. Raises JournalError if one does not fit."""
    for record in records:
        with _raise_as_journal_error(
            location, f"a record {record.get('op')!r} does not match the state"
        ):
            _APPLY[record["op"]](entries, record, crypter)


@contextlib.contextmanager
def _raise_as_journal_error(location: str, context: str = "") -> Iterator[None]:
    """Raise JournalError for unreadable or inapplicable journal lines in the context."""
    try:
        yield
    except (LookupError, TypeError, ValueError, AttributeError, StateError) as error:
        cause = error.message if isinstance(error, StateError) else str(error)
        message = ": ".join(filter(None, [context, cause]))
        raise JournalError(
            f"the journal {location} is damaged: {message}",
            hint="Compare the state with the platform and import the objects that exist. Discard "
            "the journal's changes with `gpuform state repair --discard-journal`, which "
            "keeps a copy of the journal.",
        ) from error


_Apply = Callable[[Entries, Mapping[str, Any], Crypter], object]


def _decode_new(record: Mapping[str, Any], crypter: Crypter) -> ResourceState:
    """Return the entry stored in a journal record, with secrets decrypted."""
    return decode_resource(record["resource"], crypter)


def _decode_operation(record: Mapping[str, Any], crypter: Crypter) -> PendingOperation:
    """Return the pending operation stored in a journal record, with secrets decrypted."""
    return decode_operation(record["operation"], crypter)


def _set_outputs(entries: Entries, record: Mapping[str, Any], crypter: Crypter) -> None:
    """Set the recorded outputs on the entry numbered `of` in the record."""
    entry = entries.get_entry(_get_number(record, "of"))
    entry.outputs = value_json.decode_map(record["outputs"], crypter)


def _get_old(entries: Entries, record: Mapping[str, Any]) -> ResourceState:
    """Return the state entry changed by a journal record, found by the number in `old`."""
    return entries.get_entry(_get_number(record, "old"))


def _get_number(record: Mapping[str, Any], name: str) -> int:
    """Return the field `name` of a journal record as an integer."""
    return int(record[name])


def _get_numbers(record: Mapping[str, Any], name: str) -> list[int]:
    """Return the field `name` of a journal record as a list of integers."""
    return [int(number) for number in record[name]]


# The operation names are the journal's format: a later release reads them after an upgrade.
_APPLY: dict[str, _Apply] = {
    "add": lambda e, r, c: e.add(_decode_new(r, c), _get_number(r, "new")),
    "same": lambda e, r, _: e.replace(_get_old(e, r), _get_old(e, r), _get_number(r, "new")),
    "replace": lambda e, r, c: e.replace(_get_old(e, r), _decode_new(r, c), _get_number(r, "new")),
    "replace_keeping": lambda e, r, c: e.add_replacement(
        _get_old(e, r), _decode_new(r, c), _get_number(r, "new")
    ),
    "put": lambda e, r, c: e.set_in_place(_get_old(e, r), _decode_new(r, c)),
    "await_replacement": lambda e, r, _: e.mark_awaiting_replacement(_get_old(e, r)),
    "remove": lambda e, r, _: e.remove(_get_old(e, r)),
    "rebuild": lambda e, _r, _c: e.rebuild(),
    "outputs": _set_outputs,
    "begin": lambda e, r, c: e.begin(_decode_operation(r, c), _get_number(r, "token")),
    "end": lambda e, r, _: e.end(_get_number(r, "token")),
}


def encode_line(encoded: bytes) -> bytes:
    """Return a line of the journal: CRC-32 in hex, a space, and the encoded record."""
    return b"%08x %s\n" % (zlib.crc32(encoded), encoded)


def _parse_lines(data: bytes) -> Iterator[dict[str, Any]]:
    """Yield the parsed lines, without a last one cut off by a crash: no step relied on it yet.

    Raises:
        ValueError: a line is damaged; the object that it recorded may exist.
    """
    *complete_lines, _ = data.split(b"\n")
    for number, line in enumerate(complete_lines, 1):
        document = _parse_line(line)
        if document is None:
            raise ValueError(f"line {number} is corrupt")
        yield document


def _parse_line(line: bytes) -> dict[str, Any] | None:
    """Parse one line; return None for a wrong checksum or invalid JSON."""
    crc, _, encoded = line.partition(b" ")
    if crc != b"%08x" % zlib.crc32(encoded) or not encoded:
        return None
    try:
        document = value_json.load(encoded)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
