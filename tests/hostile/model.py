"""What must hold after every step: what exists, against what the stack knows."""

import base64
import gzip
import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hostile import planted
from hostile.fakes.world import COLLEAGUE, OURS, Thing, World
from processes.commands import Result

LOST, TOUCHED, DOUBLED, EXIT, LEAKED = "lost", "touched", "doubled", "exit", "leaked"
HARNESS = "harness"
"""Not gpuform's fault: a course asked for something senseless."""

_SETTLE_SECONDS = 60
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
    # A pool's record has the pool's own id before it knows its nodes.
    is_known = record.get("ids") if record.get("names") else record.get("id")
    is_searched = bool(record.get("missing")) or not is_known
    return is_searched and any(json.dumps(name) in text for name in names)


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

    def check(self, result: Result, known: Known, *, is_settled: bool) -> list[Violation]:
        return [
            *self._lost(result, known, is_settled=is_settled),
            *self._touched(known),
            *self._doubled(),
            *_exits(result),
            *_leaks({"stdout": result.stdout.encode(), "stderr": result.stderr.encode()}),
        ]

    def check_files(self, files: Mapping[str, bytes]) -> list[Violation]:
        return _leaks(files)

    def ours(self) -> list[Thing]:
        """What our requests made and nobody has deleted."""
        return [
            each for each in self.world.things if each.maker == OURS and each.lives(self.world.now)
        ]

    def _lost(self, result: Result, known: Known, *, is_settled: bool) -> Iterable[Violation]:
        said = result.stdout + result.stderr
        for thing in self.ours():
            if known.holds(thing):
                continue
            is_named = result.code != 0 and (thing.id in said or thing.name in said)
            if is_named if is_settled else known.has(thing):
                continue
            where = "the state, and it was not named" if is_settled else "the state or a record"
            yield Violation(LOST, f"{thing} is not in {where}; exit {result.code}")

    def _may_have(self, thing: Thing) -> bool:
        return thing.id in self.permitted or self._is_lookalike(thing)

    def _is_lookalike(self, thing: Thing) -> bool:
        """Nobody can tell it from what a lost create of ours would have made.

        It has the properties that we sent, lists did not show it before, and it came within the
        settle time.
        """
        return any(
            not each.had_effect
            and _equal(each.body, thing.sent)
            and (thing.raced or thing.made > each.moment - each.list_lag)
            and each.moment - each.list_lag <= thing.made <= each.moment + _SETTLE_SECONDS
            for each in self.world.asked
        )

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
    common = asked.keys() & sent.keys()
    return all(asked[name] == sent[name] for name in common) and (
        asked.get("volume_id") == sent.get("volume_id")
    )


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
