"""Read all runs of a stack's history: entries, logs, and copies of the state.

Runs of the Pulumi CLI have an entry and a copy of the state, and no log. A run that was killed has
neither a copy nor a log.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pydantic import ValidationError

from gpuform.schemas.resource_facts import NodeRecord
from gpuform.schemas.stacks_plan import RunLog
from gpuform.schemas.timeline import ExplainedRun
from gpuform.stacks.engine.stack import (
    APPROVED_BY,
    HOST,
    JOB,
    PLAN_MADE_AT,
    PLAN_PULL_REQUEST,
    PLAN_SEAL,
    USER,
)
from gpuform.stacks.engine.state import ResourceState, StateError, decode_resource, load_checkpoint
from gpuform.stacks.engine.store import (
    IN_PROGRESS,
    SEALED,
    DamagedFile,
    HistoryEntry,
    RunHistory,
)
from gpuform.stacks.engine.urn import is_noise, is_own
from gpuform.stacks.pricing import list_entry_nodes

ObjectKey = tuple[str, str]
"""URN and id of an object; the id is empty for a component."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in a state, with its nodes."""

    entry: ResourceState
    nodes: tuple[NodeRecord, ...] = ()

    @property
    def node_keys(self) -> dict[tuple[str, str], NodeRecord]:
        """Return the object's nodes by name and id."""
        return {(node.name, node.node_id): node for node in self.nodes}


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run of the history.

    `objects` are those of the state after the run, None without a copy of the state. `problems` say
    which files could not be read.
    """

    number: int
    entry: HistoryEntry
    log: RunLog | None = None
    objects: Mapping[ObjectKey, StoredObject] | None = None
    problems: tuple[str, ...] = ()

    @property
    def is_interrupted(self) -> bool:
        """Return True for a run whose end is not recorded: it still runs, or was killed."""
        return self.entry.result == IN_PROGRESS

    @property
    def moment(self) -> float:
        """Return when the run ended, or began if the end is not recorded, in Unix seconds."""
        return float(self.entry.end_time or self.entry.start_time)


def read_recorded_runs(history: RunHistory) -> list[RecordedRun]:
    """Return all runs of a stack, the oldest first. A damaged file is a problem of its run."""
    reader = _StateReader()
    return [
        _read_run(history, name, number, reader)
        for number, name in enumerate(history.names, start=1)
    ]


def _read_run(history: RunHistory, name: str, number: int, reader: "_StateReader") -> RecordedRun:
    """Return one run; an unreadable file counts as missing."""
    problems: list[str] = []
    try:
        entry = history.read_entry(name)
    except DamagedFile as error:
        unknown_entry = HistoryEntry(kind="unknown", result="unknown", start_time=0, end_time=0)
        return RecordedRun(number, unknown_entry, problems=(f"run {number}: {error.message}",))
    log, objects = None, None
    try:
        log_data = history.read_log(name)
        log = None if log_data is None else RunLog.model_validate_json(log_data)
    except (DamagedFile, ValidationError):
        problems.append(f"the log of run {number} cannot be read: damaged, or of a newer gpuform")
    try:
        state_data = history.read_state(name)
        objects = None if state_data is None else reader.read(state_data)
    except (DamagedFile, StateError):
        problems.append(f"the copy of the state of run {number} cannot be read")
    return RecordedRun(number, entry, log, objects, tuple(problems))


@dataclass(slots=True)
class _StateReader:
    """Reads copies of a state; an entry that did not change since the last copy is read once."""

    _raw_entries: dict[ObjectKey, Any] = field(default_factory=dict)
    _objects: dict[ObjectKey, StoredObject] = field(default_factory=dict)

    def read(self, data: bytes) -> Mapping[ObjectKey, StoredObject]:
        """Return the objects of a checkpoint. Raises StateError if it is malformed."""
        objects = {}
        for raw_entry in load_checkpoint(data).latest.get("resources") or ():
            key = str(raw_entry.get("urn")), str(raw_entry.get("id") or "")
            if self._raw_entries.get(key) != raw_entry:
                self._raw_entries[key] = raw_entry
                self._objects[key] = build_stored_object(decode_resource(raw_entry, SEALED))
            if _is_object(self._objects[key].entry):
                objects[key] = self._objects[key]
        return objects


def build_stored_object(entry: ResourceState) -> StoredObject:
    """Return an entry of a state, with nodes for one of gpuform's own kinds."""
    return StoredObject(entry, list_entry_nodes(entry) if is_own(entry.type) else ())


def list_stored_objects(entries: list[ResourceState]) -> dict[ObjectKey, StoredObject]:
    """Return the objects of the entries of a state, by URN and id."""
    return {
        (entry.urn, entry.id): build_stored_object(entry) for entry in entries if _is_object(entry)
    }


def _is_object(entry: ResourceState) -> bool:
    """Return False for the stack, for providers, and for objects deleted for a replacement."""
    return not is_noise(entry.type) and not entry.pending_replacement


_MERGED: Final = re.compile(r"^Merge pull request #(\d+) |\(#(\d+)\)$|\(!(\d+)\)$")
"""The number of a pull request in the title of a commit that GitHub or GitLab has merged."""


def describe_run(run: RecordedRun) -> ExplainedRun:
    """Return who ran a run, from where and with which plan, as far as recorded."""
    entry, get = run.entry, run.entry.environment.get
    log = run.log
    return ExplainedRun(
        number=run.number,
        kind=entry.kind,
        result=entry.result,
        started_at=format_time(entry.start_time),
        ended_at="" if run.is_interrupted else format_time(entry.end_time),
        engine=_describe_engine(entry.environment),
        user=get(USER) or get("git.author", ""),
        host=get(HOST, ""),
        commit=get("git.head") or get("ci.pr.headSHA", ""),
        branch=get("git.headName", "").removeprefix("refs/heads/"),
        is_dirty=get("git.dirty") == "true",
        pull_request=get(PLAN_PULL_REQUEST) or get("ci.pr.number") or _find_merged(entry.message),
        ci_job=" ".join(_list_job_parts(entry.environment)),
        url=get("ci.build.url", ""),
        message=entry.message,
        plan_digest=get(PLAN_SEAL) or (log.plan_digest if log else ""),
        plan_made_at=get(PLAN_MADE_AT, ""),
        approval=log.approval if log else "",
        approved_by=get(APPROVED_BY, ""),
    )


def format_time(moment: float) -> str:
    """Return a Unix time in UTC; empty for 0 and for a time out of range."""
    try:
        return f"{datetime.fromtimestamp(moment, UTC):%Y-%m-%dT%H:%M:%SZ}" if moment else ""
    except (ValueError, OverflowError, OSError):  # of a file that somebody edited
        return ""


def _describe_engine(environment: Mapping[str, str]) -> str:
    """Return the program of the run: the Pulumi CLI records its own version, and not gpuform's."""
    if version := environment.get("gpuform.version"):
        return f"gpuform {version}"
    return f"Pulumi CLI {environment.get('pulumi.version', '')}".strip()


def _find_merged(message: str) -> str:
    """Return the number of the pull request in a commit's title, or "" without a number."""
    match = _MERGED.search(message.partition("\n")[0])
    return next(filter(None, match.groups()), "") if match else ""


def _list_job_parts(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield the CI system, the number of the job's run and the job's name, as far as known."""
    if system := environment.get("ci.system"):
        yield system
        if number := environment.get("ci.build.number") or environment.get("ci.build.id"):
            yield number
        if job := environment.get(JOB):
            yield f"({job})"
