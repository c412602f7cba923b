"""What must hold after every step: what exists, against what the stack knows."""

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
    """What the backend knows: what the state holds, and records of what is unsettled."""

    held: set[str] = field(default_factory=set)
    """Ids of the state's resources, and of the nodes of its pools."""
    records: list[dict[str, Any]] = field(default_factory=list)

    def has(self, thing: Thing) -> bool:
        return self.holds(thing) or any(_means(record, thing) for record in self.records)

    def holds(self, thing: Thing) -> bool:
        return thing.id in self.held


def _means(record: dict[str, Any], thing: Thing) -> bool:
    """Its id, or when the record knows none yet, its name or that of what it is made in."""
    text = json.dumps(record)
    if json.dumps(thing.id) in text:
        return True
    names = [thing.name, *thing.data.get("made_in", ())]
    # The names that were asked for identify the nodes of a pool, whatever ids an answer had.
    is_searched = record.get("names") or not record.get("id")
    return bool(is_searched) and any(json.dumps(name) in text for name in names)


def read(files: Mapping[str, bytes], project: str, exported: str | None) -> Known:
    """From the backend's files; `exported` is what `stack export` prints, where it was asked."""
    known = Known()
    checkpoint = f".pulumi/stacks/{project}/dev.json"
    records = f".pulumi/gpuform/{project}/dev.records/"
    known.records += _records({n: data for n, data in files.items() if n.startswith(records)})
    for name, data in files.items():
        if exported is None and name in (checkpoint, f"{checkpoint}.gz"):
            text = gzip.decompress(data) if name.endswith(".gz") else data
            _take_over(known, json.loads(text).get("checkpoint", {}).get("latest"))
    if exported is not None:
        _take_over(known, json.loads(exported).get("deployment"))
    return known


def _take_over(known: Known, deployment: dict[str, Any] | None) -> None:
    """Creates that were under way are records: they name what they were to make."""
    deployment = deployment or {}
    for resource in deployment.get("resources") or []:
        if resource.get("custom") and resource.get("id"):
            known.held.add(resource["id"])
            known.held.update(_node_ids(resource.get("outputs") or {}))
    for operation in deployment.get("pending_operations") or []:
        if operation["type"] == "creating":
            known.records.append(operation["resource"].get("inputs") or {})


def _node_ids(outputs: dict[str, Any]) -> Iterable[str]:
    """Of a pool's nodes, which are no resources of their own."""
    yield from (each for each in outputs.get("node_ids") or [] if isinstance(each, str))
    nodes = outputs.get("gpu_nodes") or {}
    yield from (
        str(each["id"]) for each in nodes.values() if isinstance(each, dict) and "id" in each
    )


def _records(batches: Mapping[str, bytes]) -> list[dict[str, Any]]:
    """Later batches count before earlier ones; null is a record that was removed."""
    held: dict[str, Any] = {}
    for name in sorted(batches):
        held.update(json.loads(batches[name]))
    return [each for each in held.values() if each is not None]


@dataclass
class Model:
    """The books of one course."""

    world: World
    permitted: set[str] = field(default_factory=set)
    """Ids that an explicit flag of ours has taken over."""
    lifetime: str = ""
    confused: set[str] = field(default_factory=set)
    """Ids of ours in whose place the stack has an equal object of somebody else's."""

    def check(self, result: Result, known: Known, *, is_settled: bool) -> list[Violation]:
        return [
            *self._lost(result, known, is_settled=is_settled),
            *self._touched(known),
            *self._doubled(),
            *_exits(result),
            *_leaks({"stdout": result.stdout.encode(), "stderr": result.stderr.encode()}),
        ]

    def check_step(self, result: Result, command: str) -> list[Violation]:
        """Return what is wrong with what the command has done, apart from what is left of it."""
        entries = [
            each
            for each in self.world.ledger
            if each.step == self.world.step and each.actor == OURS
        ]
        found = list(self._find_early(entries)) if command == "expire" else []
        return [*found, *self._find_let_pass(entries), *self._find_wrong_sums(result, entries)]

    def _find_early(self, entries: list[Entry]) -> Iterable[Violation]:
        """The oldest object counts, for the ttl of a pool does so."""
        deleted = [each for each in entries if each.action == "deleted"]
        for entry in deleted[:1]:
            end = ENDS_AT
            if self.lifetime == TTL:
                end = min(each.thing.made for each in deleted) + TTL_S
            if entry.moment < end - _CLOCKS_DIFFER_S:
                yield Violation(EARLY, str(entry))

    def _find_let_pass(self, entries: list[Entry]) -> Iterable[Violation]:
        for entry in entries:
            is_gated = entry.action == "made" and self.world.is_gated
            if is_gated and not self.world.was_healthy:
                yield Violation(LET_PASS, str(entry))

    def _find_wrong_sums(self, result: Result, entries: list[Entry]) -> Iterable[Violation]:
        """Only after a command that has succeeded, and was the last to write there."""
        touched = {
            each.thing.data.get("cluster", each.thing.id)
            for each in entries
            if each.thing.platform == "aios"
        }
        for id_ in touched if result.code == 0 else ():
            cluster = self.world.get("aios", "cluster", id_)
            if cluster is not None:
                writer, is_sound, text = cluster.data.get("sums", (COLLEAGUE, True, ""))
                if writer == OURS and not is_sound:
                    yield Violation(SUMS, f"{text} in {cluster}")

    def check_jobs(self, fleet: Fleet, step: Step) -> list[Violation]:
        """Return the jobs that the step has killed, and what it stopped without a reason."""
        found = []
        for entry in self.world.ledger:
            if entry.step != self.world.step or entry.actor != OURS or entry.thing.kind != "node":
                continue
            takes = entry.action == "deleted" or entry.action.startswith(
                ("changed switch", "changed fabric")
            )
            jobs = fleet.jobs_on(entry.thing, entry.moment) if takes else []
            if step.fleet == "late":  # nobody can see what has just begun
                jobs = [job for job in jobs if job.begins <= entry.moment - 2 * LAG_S]
            found += [Violation(KILLED, f"{job.name}: {entry}") for job in jobs]
            is_stop = (
                entry.action.startswith("changed switch")
                and entry.thing.data["switched"][0] == "stop"
            )
            if is_stop and step.command in ("expire", WATCH):
                is_known = step.mood in _TELLING_MOODS and step.fleet == HONEST
                if not is_known or fleet.ran_since(entry.moment - 1800):
                    found.append(Violation(IDLE, f"{step.mood}, {step.fleet}: {entry}"))
        return found

    def check_files(self, files: Mapping[str, bytes]) -> list[Violation]:
        return _leaks(files)

    def ours(self) -> list[Thing]:
        """What our requests made and nobody has deleted."""
        return [
            each
            for each in self.world.things
            if each.maker == OURS and each.lives(self.world.now) and each.id not in self.confused
        ]

    def _lost(self, result: Result, known: Known, *, is_settled: bool) -> Iterable[Violation]:
        said = result.stdout + result.stderr
        for thing in self.ours():
            if known.holds(thing):
                continue
            is_recorded = known.has(thing)
            is_named = thing.id in said or thing.name in said or is_recorded
            if (result.code != 0 and is_named) if is_settled else is_recorded:
                continue
            if self._is_confused(thing, known):
                self.confused.add(thing.id)
                continue
            where = "the state, and it was not named" if is_settled else "the state or a record"
            yield Violation(LOST, f"{thing} is not in {where}; exit {result.code}")

    def _is_confused(self, thing: Thing, known: Known) -> bool:
        """Return whether the stack has an equal object of somebody else's that was seen first.

        Or had it, and has deleted it since.
        """
        deleted = {
            each.thing.id
            for each in self.world.ledger
            if each.actor == OURS and each.action == "deleted"
        }
        return any(
            (known.holds(each) or each.id in deleted)
            and self._is_lookalike(each)
            and each.name == thing.name
            for each in self.world.things
            if each.kind == thing.kind and each.maker != OURS
        )

    def _may_have(self, thing: Thing) -> bool:
        return thing.id in self.permitted or self._is_lookalike(thing)

    def _is_lookalike(self, thing: Thing) -> bool:
        """Nobody can tell it from what a lost create of ours would have made.

        It has the properties that we sent, lists did not show it before, and it came within the
        propagation time. When the create took effect, they show what it made together with that,
        unless what is new is late.
        """
        return any(
            (not each.had_effect or self._is_late(each))
            and _equal(_of_one_server(each.body, thing), _of_one_server(thing.sent, thing))
            and (thing.raced or thing.listed_from > each.moment - each.list_lag)
            and each.moment - each.list_lag - LONGEST_DELAY <= thing.made
            and thing.made <= each.moment + _SETTLE_SECONDS
            for each in self.world.asked
        )

    def _is_late(self, asked: Asked) -> bool:
        """Return whether what the request made may have been seen after a lookalike."""
        behavior = self.world.behavior
        return asked.delay > 0 or asked.list_lag + behavior.list_delay + behavior.get_delay > 0

    def _touched(self, known: Known) -> Iterable[Violation]:
        made_by_us = {each.id for each in self.world.things if each.maker == OURS}
        for entry in self.world.ledger:
            thing = entry.thing
            if entry.actor == OURS and thing.maker == COLLEAGUE and not self._may_have(thing):
                yield Violation(TOUCHED, str(entry))
        for thing in self.world.things:
            is_ours = thing.maker != COLLEAGUE or thing.id in made_by_us
            if not is_ours and not self._may_have(thing) and known.holds(thing):
                yield Violation(TOUCHED, f"{thing} is in the state")

    def _doubled(self) -> Iterable[Violation]:
        for (kind, name), count in Counter((it.kind, it.name) for it in self.ours()).items():
            if count > 1:
                yield Violation(DOUBLED, f"{count} living objects {kind} {name} of ours")


def _equal(asked: dict[str, Any], sent: dict[str, Any]) -> bool:
    """As far as both say something, and but for secrets; what is attached is always seen."""
    asked = json.loads(json.dumps(asked).replace(planted.CONFIG_SECRET, planted.OTHER_SECRET))
    asked, sent = _drop_nulls(asked), _drop_nulls(sent)
    common = asked.keys() & sent.keys()
    return all(asked[name] == sent[name] for name in common) and (
        asked.get("volume_id") == sent.get("volume_id")
    )


def _of_one_server(body: dict[str, Any], thing: Thing) -> dict[str, Any]:
    """Return a create as that of one server of its batch: how many it asked for shows nowhere."""
    if "server_details" not in body:
        return body
    servers = [each for each in body["server_details"] if each["gpu_node_name"] == thing.name]
    return {**body, "server_details": servers}


def _drop_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _drop_nulls(each) for name, each in value.items() if each is not None}
    return [_drop_nulls(each) for each in value] if isinstance(value, list) else value


def _exits(result: Result) -> Iterable[Violation]:
    if result.code == _USAGE:
        yield Violation(HARNESS, f"wrong flags: {result.stderr}")
    elif result.code == _FAULT or (result.code < 0 and result.code not in _KILLED):
        yield Violation(EXIT, f"exit {result.code}: {result.stderr[-1500:]}")
    if "Traceback (most recent" in result.stdout + result.stderr:
        yield Violation(EXIT, f"a traceback, exit {result.code}: {result.stderr[-1500:]}")


def _leaks(files: Mapping[str, bytes]) -> list[Violation]:
    return [
        Violation(LEAKED, f"{secret} is in {name}")
        for name, data in files.items()
        for secret in planted.ALL
        for written in (secret.encode(), base64.b64encode(secret.encode()))
        if written in data
    ]
