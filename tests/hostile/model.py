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
from hostile.fakes.world import COLLEAGUE, OURS, Asked, Entry, Thing, World
from hostile.projects import ENDS_AT, TTL, TTL_S
from processes.commands import Result

LOST, TOUCHED, DOUBLED, EXIT, LEAKED = "lost", "touched", "doubled", "exit", "leaked"
EARLY, LET_PASS, SUMS = "early", "let pass", "sums"
"""Destroyed before its end; let through a gate without evidence; a registry's totals are wrong."""
KILLED, IDLE = "killed", "idle"
"""A job, by taking its node; what was stopped though nobody could know that it was idle."""
HARNESS = "harness"
"""Not gpuform's fault: a course asked for something senseless."""

_SETTLE_SECONDS = 60
_TELLING_MOODS = (HEALTHY, "sick", "texts")
"""In which Lens tells the truth about GPUs."""
_CLOCKS_DIFFER_S = 1200
"""How far a platform's clock, and what it says of a creation, are off together."""
_USAGE = 2
_FAULT = 255
_KILLED = (-9, -15)
"""By SIGKILL; and by SIGTERM, which commands that only look leave to the system."""


@dataclass(frozen=True)
class Violation:
    invariant: str
    text: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.text}"


@dataclass
class Known:
    """The backend's knowledge: objects in the state, and records of unresolved operations."""

    held: set[str] = field(default_factory=set)
    """Ids of the state's resources, and of the nodes of its pools."""
    records: list[dict[str, Any]] = field(default_factory=list)

    def has(self, platform_object: Thing) -> bool:
        return self.holds(platform_object) or any(
            _is_record_of(record, platform_object) for record in self.records
        )

    def holds(self, platform_object: Thing) -> bool:
        return platform_object.id in self.held


def _is_record_of(record: dict[str, Any], platform_object: Thing) -> bool:
    """Compare the object with the record's id, or while there is none, with its names."""
    encoded = json.dumps(record)
    if json.dumps(platform_object.id) in encoded:
        return True
    names = [platform_object.name, *platform_object.data.get("made_in", ())]
    # The names that were asked for identify the nodes of a pool, whatever ids an answer had.
    is_searched = record.get("names") or not record.get("id")
    return bool(is_searched) and any(json.dumps(name) in encoded for name in names)


def read(files: Mapping[str, bytes], project: str, exported: str | None) -> Known:
    """Read the knowledge from the backend's files; `exported` is the output of `stack export`."""
    knowledge = Known()
    checkpoint = f".pulumi/stacks/{project}/dev.json"
    records = f".pulumi/gpuform/{project}/dev.records/"
    knowledge.records += _records({n: data for n, data in files.items() if n.startswith(records)})
    for name, data in files.items():
        if exported is None and name in (checkpoint, f"{checkpoint}.gz"):
            message = gzip.decompress(data) if name.endswith(".gz") else data
            _take_over(knowledge, json.loads(message).get("checkpoint", {}).get("latest"))
    if exported is not None:
        _take_over(knowledge, json.loads(exported).get("deployment"))
    return knowledge


def _take_over(knowledge: Known, deployment: dict[str, Any] | None) -> None:
    """Add unfinished creates as records, which name the objects to create."""
    deployment = deployment or {}
    for resource in deployment.get("resources") or []:
        if resource.get("custom") and resource.get("id"):
            knowledge.held.add(resource["id"])
            knowledge.held.update(_node_ids(resource.get("outputs") or {}))
    for operation in deployment.get("pending_operations") or []:
        if operation["type"] == "creating":
            knowledge.records.append(operation["resource"].get("inputs") or {})


def _node_ids(outputs: dict[str, Any]) -> Iterable[str]:
    """Yield the ids of a pool's nodes, which are no resources of their own."""
    yield from (node for node in outputs.get("node_ids") or [] if isinstance(node, str))
    nodes = outputs.get("gpu_nodes") or {}
    yield from (
        str(node["id"]) for node in nodes.values() if isinstance(node, dict) and "id" in node
    )


def _records(batches: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Return the valid records: later batches override earlier ones, and null removes a record."""
    held: dict[str, Any] = {}
    for name in sorted(batches):
        held.update(json.loads(batches[name]))
    return [item for item in held.values() if item is not None]


@dataclass
class Model:
    """The ledger of one course."""

    world: World
    permitted: set[str] = field(default_factory=set)
    """Ids that an explicit flag of ours has taken over."""
    lifetime: str = ""
    confused: set[str] = field(default_factory=set)
    """Ids of ours in whose place the stack has an equal object of somebody else's."""

    def check(self, result: Result, knowledge: Known, *, is_settled: bool) -> list[Violation]:
        return [
            *self._lost(result, knowledge, is_settled=is_settled),
            *self._touched(knowledge),
            *self._doubled(),
            *_find_wrong_exits(result),
            *_find_leaks({"stdout": result.stdout.encode(), "stderr": result.stderr.encode()}),
        ]

    def check_step(self, result: Result, command: str) -> list[Violation]:
        """Return what is wrong with what the command has done, apart from what is left of it."""
        entries = [
            item
            for item in self.world.ledger
            if item.step == self.world.step and item.actor == OURS
        ]
        results = list(self._find_early(entries)) if command == "expire" else []
        return [*results, *self._find_let_pass(entries), *self._find_wrong_sums(result, entries)]

    def _find_early(self, entries: list[Entry]) -> Iterable[Violation]:
        """Check expiries; the oldest object counts, as for the ttl of a pool."""
        deleted = [change for change in entries if change.action == "deleted"]
        for entry in deleted[:1]:
            end = ENDS_AT
            if self.lifetime == TTL:
                end = min(change.thing.made for change in deleted) + TTL_S
            if entry.moment < end - _CLOCKS_DIFFER_S:
                yield Violation(EARLY, str(entry))

    def _find_let_pass(self, entries: list[Entry]) -> Iterable[Violation]:
        for entry in entries:
            is_gated = entry.action == "made" and self.world.is_gated
            if is_gated and not self.world.was_healthy:
                yield Violation(LET_PASS, str(entry))

    def _find_wrong_sums(self, result: Result, entries: list[Entry]) -> Iterable[Violation]:
        """Check sums only after a successful command that was the last to write them."""
        touched = {
            entry.thing.data.get("cluster", entry.thing.id)
            for entry in entries
            if entry.thing.platform == "aios"
        }
        for id_ in touched if result.code == 0 else ():
            cluster = self.world.get("aios", "cluster", id_)
            if cluster is not None:
                writer, is_sound, message = cluster.data.get("sums", (COLLEAGUE, True, ""))
                if writer == OURS and not is_sound:
                    yield Violation(SUMS, f"{message} in {cluster}")

    def check_jobs(self, fleet: Fleet, step: Step) -> list[Violation]:
        """Return the jobs that the step has killed, and what it stopped without a reason."""
        result = []
        for entry in self.world.ledger:
            if entry.step != self.world.step or entry.actor != OURS or entry.thing.kind != "node":
                continue
            takes = entry.action == "deleted" or entry.action.startswith(
                ("changed switch", "changed fabric")
            )
            jobs = fleet.jobs_on(entry.thing, entry.moment) if takes else []
            if step.fleet == "late":  # nobody can see what has just begun
                jobs = [job for job in jobs if job.begins <= entry.moment - 2 * LAG_S]
            result += [Violation(KILLED, f"{job.name}: {entry}") for job in jobs]
            is_stop = (
                entry.action.startswith("changed switch")
                and entry.thing.data["switched"][0] == "stop"
            )
            if is_stop and step.command in ("expire", WATCH):
                is_known = step.mood in _TELLING_MOODS and step.fleet == HONEST
                if not is_known or fleet.ran_since(entry.moment - 1800):
                    result.append(Violation(IDLE, f"{step.mood}, {step.fleet}: {entry}"))
        return result

    def check_files(self, files: Mapping[str, bytes]) -> list[Violation]:
        return _find_leaks(files)

    def ours(self) -> list[Thing]:
        """Return the objects that our requests created and nobody has deleted."""
        return [
            item
            for item in self.world.things
            if item.maker == OURS and item.lives(self.world.now) and item.id not in self.confused
        ]

    def _lost(self, result: Result, knowledge: Known, *, is_settled: bool) -> Iterable[Violation]:
        output = result.stdout + result.stderr
        for platform_object in self.ours():
            if knowledge.holds(platform_object):
                continue
            is_recorded = knowledge.has(platform_object)
            is_named = platform_object.id in output or platform_object.name in output or is_recorded
            if (result.code != 0 and is_named) if is_settled else is_recorded:
                continue
            if self._is_confused(platform_object, knowledge):
                self.confused.add(platform_object.id)
                continue
            where = "the state, and it was not named" if is_settled else "the state or a record"
            yield Violation(LOST, f"{platform_object} is not in {where}; exit {result.code}")

    def _is_confused(self, platform_object: Thing, knowledge: Known) -> bool:
        """Return whether the stack has an equal object of somebody else's that was seen first.

        Or had it, and has deleted it since.
        """
        deleted = {
            change.thing.id
            for change in self.world.ledger
            if change.actor == OURS and change.action == "deleted"
        }
        return any(
            (knowledge.holds(change) or change.id in deleted)
            and self._is_lookalike(change)
            and change.name == platform_object.name
            for change in self.world.things
            if change.kind == platform_object.kind and change.maker != OURS
        )

    def _may_have(self, platform_object: Thing) -> bool:
        return platform_object.id in self.permitted or self._is_lookalike(platform_object)

    def _is_lookalike(self, platform_object: Thing) -> bool:
        """Nobody can tell it from what a lost create of ours would have made.

        It has the properties that we sent, lists did not show it before, and it came within the
        propagation time. When the create took effect, they show what it made together with that,
        unless what is new is late.
        """
        return any(
            (not create_request.had_effect or self._is_late(create_request))
            and _is_equal(
                _of_one_server(create_request.body, platform_object),
                _of_one_server(platform_object.sent, platform_object),
            )
            and (
                platform_object.raced
                or platform_object.listed_from > create_request.moment - create_request.list_lag
            )
            and create_request.moment - create_request.list_lag - LONGEST_DELAY
            <= platform_object.made
            and platform_object.made <= create_request.moment + _SETTLE_SECONDS
            for create_request in self.world.asked
        )

    def _is_late(self, create_request: Asked) -> bool:
        """Return whether what the request made may have been seen after a lookalike."""
        behavior = self.world.behavior
        return (
            create_request.delay > 0
            or create_request.list_lag + behavior.list_delay + behavior.get_delay > 0
        )

    def _touched(self, knowledge: Known) -> Iterable[Violation]:
        made_by_us = {item.id for item in self.world.things if item.maker == OURS}
        for entry in self.world.ledger:
            platform_object = entry.thing
            if (
                entry.actor == OURS
                and platform_object.maker == COLLEAGUE
                and not self._may_have(platform_object)
            ):
                yield Violation(TOUCHED, str(entry))
        for platform_object in self.world.things:
            is_ours = platform_object.maker != COLLEAGUE or platform_object.id in made_by_us
            if (
                not is_ours
                and not self._may_have(platform_object)
                and knowledge.holds(platform_object)
            ):
                yield Violation(TOUCHED, f"{platform_object} is in the state")

    def _doubled(self) -> Iterable[Violation]:
        for (kind, name), count in Counter((it.kind, it.name) for it in self.ours()).items():
            if count > 1:
                yield Violation(DOUBLED, f"{count} living objects {kind} {name} of ours")


def _is_equal(requested: dict[str, Any], sent: dict[str, Any]) -> bool:
    """Compare as far as both have values, without secrets; attached objects always count."""
    requested = json.loads(
        json.dumps(requested).replace(planted.CONFIG_SECRET, planted.OTHER_SECRET)
    )
    requested, sent = _drop_nulls(requested), _drop_nulls(sent)
    common = requested.keys() & sent.keys()
    return all(requested[name] == sent[name] for name in common) and (
        requested.get("volume_id") == sent.get("volume_id")
    )


def _of_one_server(body: dict[str, Any], platform_object: Thing) -> dict[str, Any]:
    """Return a create as that of one server of its batch: how many it asked for shows nowhere."""
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
        for written in (secret.encode(), base64.b64encode(secret.encode()))
        if written in data
    ]
