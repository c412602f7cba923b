"""Check what must hold after every step: the platforms' objects against the stack's knowledge."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostile import planted
from hostile.courses import WATCH, Step
from hostile.fakes.behavior import LONGEST_DELAY
from hostile.fakes.fleet import HONEST, LAG_S, Fleet
from hostile.fakes.lens import HEALTHY
from hostile.fakes.simulation import (
    COLLEAGUE,
    OURS,
    CreateRequest,
    LedgerEntry,
    PlatformObject,
    Simulation,
)
from hostile.projects import ENDS_AT, TTL, TTL_S
from processes.commands import Result

LOST, TOUCHED, DOUBLED, EXIT, LEAKED = "lost", "touched", "doubled", "exit", "leaked"
EARLY, LET_PASS, SUMS = "early", "let pass", "sums"
"""Destroyed before its expiry; created behind a closed gate; wrong totals in a registry."""
KILLED, IDLE = "killed", "idle"
"""A job whose node was removed; a node that was stopped without known idleness."""
EXPLAINED = "explained"
"""An object whose creation or deletion `gpuform explain` attributes to another run."""
HARNESS = "harness"
"""Not gpuform's fault: a course asked for something senseless."""

_SETTLE_SECONDS = 60
_TRUTHFUL_MOODS = (HEALTHY, "sick", "texts")
"""The moods in which Lens reports the true use of GPUs."""
_CLOCKS_DIFFER_S = 1200
"""How wrong a platform's clock and its creation times are together at most."""
_USAGE = 2
_FAULT = 255
_KILLED = (-9, -15)
"""Exit codes of SIGKILL, and of SIGTERM, which commands that change nothing do not handle."""


@dataclass(frozen=True)
class Violation:
    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass
class StackKnowledge:
    """The backend's knowledge: objects in the state, and records of unresolved operations."""

    state_ids: set[str] = field(default_factory=set)
    """Ids of the state's resources, and of the nodes of its pools."""
    records: list[dict[str, Any]] = field(default_factory=list)

    def knows_object(self, platform_object: PlatformObject) -> bool:
        return self.has_in_state(platform_object) or any(
            _is_record_of(record, platform_object) for record in self.records
        )

    def has_in_state(self, platform_object: PlatformObject) -> bool:
        return platform_object.id in self.state_ids


def _is_record_of(record: dict[str, Any], platform_object: PlatformObject) -> bool:
    """Compare the object with the record's id, or without an id by the record's names."""
    encoded = json.dumps(record)
    if json.dumps(platform_object.id) in encoded:
        return True
    names = [platform_object.name, *platform_object.data.get("made_in", ())]
    # The names that were asked for identify the nodes of a pool, whatever ids an answer had.
    is_searched = record.get("names") or not record.get("id")
    return bool(is_searched) and any(json.dumps(name) in encoded for name in names)


def read_knowledge(
    files: Mapping[str, bytes], project: str, exported: str | None
) -> StackKnowledge:
    """Read the knowledge from the backend's files; `exported` is the output of `stack export`."""
    knowledge = StackKnowledge()
    checkpoint = f".pulumi/stacks/{project}/dev.json"
    records = f".pulumi/gpuform/{project}/dev.records/"
    knowledge.records += _merge_records(
        {n: data for n, data in files.items() if n.startswith(records)}
    )
    for name, data in files.items():
        if exported is None and name in (checkpoint, f"{checkpoint}.gz"):
            message = gzip.decompress(data) if name.endswith(".gz") else data
            _add_deployment(knowledge, json.loads(message).get("checkpoint", {}).get("latest"))
    if exported is not None:
        _add_deployment(knowledge, json.loads(exported).get("deployment"))
    return knowledge


def _add_deployment(knowledge: StackKnowledge, deployment: dict[str, Any] | None) -> None:
    """Add the resources of a deployment, and unfinished creates as records."""
    deployment = deployment or {}
    for resource in deployment.get("resources") or []:
        if resource.get("custom") and resource.get("id"):
            knowledge.state_ids.add(resource["id"])
            knowledge.state_ids.update(_list_node_ids(resource.get("outputs") or {}))
    for operation in deployment.get("pending_operations") or []:
        if operation["type"] == "creating":
            knowledge.records.append(operation["resource"].get("inputs") or {})


def _list_node_ids(outputs: dict[str, Any]) -> Iterable[str]:
    """Yield the ids of a pool's nodes, which have no resources in the state."""
    yield from (node for node in outputs.get("node_ids") or [] if isinstance(node, str))
    nodes = outputs.get("gpu_nodes") or {}
    yield from (
        str(node["id"]) for node in nodes.values() if isinstance(node, dict) and "id" in node
    )


def _merge_records(batches: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the valid records: later batches override earlier ones, and null removes a record."""
    held: dict[str, Any] = {}
    for name in sorted(batches):
        held.update(json.loads(batches[name]))
    return [item for item in held.values() if item is not None]


@dataclass
class InvariantChecker:
    """Finds what violates an invariant in one course."""

    simulation: Simulation
    permitted_ids: set[str] = field(default_factory=set)
    """Ids of the colleague's objects that we have imported explicitly."""
    lifetime: str = ""
    mistaken_ids: set[str] = field(default_factory=set)
    """Ids of our objects for which the stack has adopted an equal object of somebody else."""

    def check(
        self, result: Result, knowledge: StackKnowledge, *, is_settled: bool
    ) -> list[Violation]:
        return [
            *self._find_lost_objects(result, knowledge, is_settled=is_settled),
            *self._find_touched_objects(knowledge),
            *self._find_doubled_objects(),
            *_find_wrong_exits(result),
            *_find_leaks({"stdout": result.stdout.encode(), "stderr": result.stderr.encode()}),
        ]

    def check_step(self, result: Result, command: str) -> list[Violation]:
        """Return the violations by actions of this step: early, ungated or wrongly summed ones."""
        entries = [
            item
            for item in self.simulation.ledger
            if item.step == self.simulation.step and item.actor == OURS
        ]
        results = list(self._find_early_expiries(entries)) if command == "expire" else []
        return [
            *results,
            *self._find_ungated_creates(entries),
            *self._find_wrong_sums(result, entries),
        ]

    def _find_early_expiries(self, entries: list[LedgerEntry]) -> Iterable[Violation]:
        """Check expiries; the oldest object counts, as for the ttl of a pool."""
        deleted = [change for change in entries if change.action == "deleted"]
        for entry in deleted[:1]:
            end = ENDS_AT
            if self.lifetime == TTL:
                end = min(change.platform_object.created_at for change in deleted) + TTL_S
            if entry.moment < end - _CLOCKS_DIFFER_S:
                yield Violation(EARLY, str(entry))

    def _find_ungated_creates(self, entries: list[LedgerEntry]) -> Iterable[Violation]:
        for entry in entries:
            is_gated = entry.action == "created" and self.simulation.is_gated
            if is_gated and not self.simulation.was_healthy:
                yield Violation(LET_PASS, str(entry))

    def _find_wrong_sums(self, result: Result, entries: list[LedgerEntry]) -> Iterable[Violation]:
        """Check sums after a successful command, if the command was the last writer."""
        written_ids = {
            entry.platform_object.data.get("cluster", entry.platform_object.id)
            for entry in entries
            if entry.platform_object.platform == "aios"
        }
        for id_ in written_ids if result.code == 0 else ():
            cluster = self.simulation.find_object("aios", "cluster", id_)
            if cluster is not None:
                writer, is_sound, message = cluster.data.get("sums", (COLLEAGUE, True, ""))
                if writer == OURS and not is_sound:
                    yield Violation(SUMS, f"{message} in {cluster}")

    def check_jobs(self, fleet: Fleet, step: Step) -> list[Violation]:
        """Return the jobs killed by the step, and the nodes stopped without known idleness."""
        result = []
        for entry in self.simulation.ledger:
            if (
                entry.step != self.simulation.step
                or entry.actor != OURS
                or entry.platform_object.kind != "node"
            ):
                continue
            removes_node = entry.action == "deleted" or entry.action.startswith(
                ("changed switch", "changed fabric")
            )
            jobs = fleet.list_jobs_on(entry.platform_object, entry.moment) if removes_node else []
            if step.scheduler_mood == "late":  # nobody can see what has just begun
                jobs = [job for job in jobs if job.begins <= entry.moment - 2 * LAG_S]
            result += [Violation(KILLED, f"{job.name}: {entry}") for job in jobs]
            is_stop = (
                entry.action.startswith("changed switch")
                and entry.platform_object.data["switched"][0] == "stop"
            )
            if is_stop and step.command in ("expire", WATCH):
                is_known = step.lens_mood in _TRUTHFUL_MOODS and step.scheduler_mood == HONEST
                if not is_known or fleet.has_run_since(entry.moment - 1800):
                    result.append(
                        Violation(IDLE, f"{step.lens_mood}, {step.scheduler_mood}: {entry}")
                    )
        return result

    def check_files(self, files: Mapping[str, bytes]) -> list[Violation]:
        return _find_leaks(files)

    def list_our_objects(self) -> list[PlatformObject]:
        """Return the undeleted objects of our requests."""
        return [
            item
            for item in self.simulation.objects
            if item.creator == OURS
            and item.is_alive(self.simulation.now)
            and item.id not in self.mistaken_ids
        ]

    def _find_lost_objects(
        self, result: Result, knowledge: StackKnowledge, *, is_settled: bool
    ) -> Iterable[Violation]:
        output = result.stdout + result.stderr
        for platform_object in self.list_our_objects():
            if knowledge.has_in_state(platform_object):
                continue
            is_recorded = knowledge.knows_object(platform_object)
            is_named = platform_object.id in output or platform_object.name in output or is_recorded
            if (result.code != 0 and is_named) if is_settled else is_recorded:
                continue
            if self._is_mistaken(platform_object, knowledge):
                self.mistaken_ids.add(platform_object.id)
                continue
            where = "the state, and it was not named" if is_settled else "the state or a record"
            yield Violation(LOST, f"{platform_object} is not in {where}; exit {result.code}")

    def _is_mistaken(self, platform_object: PlatformObject, knowledge: StackKnowledge) -> bool:
        """Return whether the stack has, or had, somebody else's equal and earlier object.

        Or had it, and has deleted it since.
        """
        deleted = {
            change.platform_object.id
            for change in self.simulation.ledger
            if change.actor == OURS and change.action == "deleted"
        }
        return any(
            (knowledge.has_in_state(change) or change.id in deleted)
            and self._is_lookalike(change)
            and change.name == platform_object.name
            for change in self.simulation.objects
            if change.kind == platform_object.kind and change.creator != OURS
        )

    def _may_have(self, platform_object: PlatformObject) -> bool:
        return platform_object.id in self.permitted_ids or self._is_lookalike(platform_object)

    def _is_lookalike(self, platform_object: PlatformObject) -> bool:
        """Return whether the object could be the result of a lost create of ours.

        Such an object has the properties that we sent, no list showed it before the create, and it
        appeared within the propagation time. If the create took effect, lists show its own object
        as well, unless the platform shows new objects late.
        """
        return any(
            (not create_request.had_effect or self._is_late(create_request))
            and _is_equal(
                _reduce_to_one_server(create_request.body, platform_object),
                _reduce_to_one_server(platform_object.sent, platform_object),
            )
            and (
                platform_object.was_raced
                or platform_object.listed_from > create_request.moment - create_request.list_lag
            )
            and create_request.moment - create_request.list_lag - LONGEST_DELAY
            <= platform_object.created_at
            and platform_object.created_at <= create_request.moment + _SETTLE_SECONDS
            for create_request in self.simulation.create_requests
        )

    def _is_late(self, create_request: CreateRequest) -> bool:
        """Return whether lists may have shown a lookalike before the object of the create."""
        behavior = self.simulation.behavior
        return (
            create_request.delay > 0
            or create_request.list_lag + behavior.list_delay + behavior.get_delay > 0
        )

    def _find_touched_objects(self, knowledge: StackKnowledge) -> Iterable[Violation]:
        our_ids = {item.id for item in self.simulation.objects if item.creator == OURS}
        for entry in self.simulation.ledger:
            platform_object = entry.platform_object
            if (
                entry.actor == OURS
                and platform_object.creator == COLLEAGUE
                and not self._may_have(platform_object)
            ):
                yield Violation(TOUCHED, str(entry))
        for platform_object in self.simulation.objects:
            is_ours = platform_object.creator != COLLEAGUE or platform_object.id in our_ids
            if (
                not is_ours
                and not self._may_have(platform_object)
                and knowledge.has_in_state(platform_object)
            ):
                yield Violation(TOUCHED, f"{platform_object} is in the state")

    def _find_doubled_objects(self) -> Iterable[Violation]:
        for (kind, name), count in Counter(
            (it.kind, it.name) for it in self.list_our_objects()
        ).items():
            if count > 1:
                yield Violation(DOUBLED, f"{count} living objects {kind} {name} of ours")


def _is_equal(requested: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Compare the common fields without secrets, and always the attached volume."""
    requested = json.loads(
        json.dumps(requested).replace(planted.CONFIG_SECRET, planted.OTHER_SECRET)
    )
    requested, sent = _drop_nulls(requested), _drop_nulls(sent)
    common = requested.keys() & sent.keys()
    return all(requested[name] == sent[name] for name in common) and (
        requested.get("volume_id") == sent.get("volume_id")
    )


def _reduce_to_one_server(body: dict[str, Any], platform_object: PlatformObject) -> dict[str, Any]:
    """Return the create of a batch with one server only: no object shows the batch's size."""
    if "server_details" not in body:
        return body
    servers = [
        server_detail
        for server_detail in body["server_details"]
        if server_detail["gpu_node_name"] == platform_object.name
    ]
    return {**body, "server_details": servers}


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_nulls(item) for name, item in value.items() if item is not None}
    return [_drop_nulls(item) for item in value] if isinstance(value, list) else value


def _find_wrong_exits(result: Result) -> Iterable[Violation]:
    if result.code == _USAGE:
        yield Violation(HARNESS, f"wrong flags: {result.stderr}")
    elif result.code == _FAULT or (result.code < 0 and result.code not in _KILLED):
        yield Violation(EXIT, f"exit {result.code}: {result.stderr[-1500:]}")
    if "Traceback (most recent" in result.stdout + result.stderr:
        yield Violation(EXIT, f"a traceback, exit {result.code}: {result.stderr[-1500:]}")


def _find_leaks(files: Mapping[str, bytes]) -> list[Violation]:
    return [
        Violation(LEAKED, f"{secret} is in {name}")
        for name, data in files.items()
        for secret in planted.ALL
        for encoded in (secret.encode(), base64.b64encode(secret.encode()))
        if encoded in data
    ]
