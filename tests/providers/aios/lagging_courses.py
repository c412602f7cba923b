"""Random courses of two stacks and a colleague at one lagging registry, and what holds of them."""

import copy
import random
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support.platforms.aios_document import DECLARED

from gpuform.providers.aios.cluster import ClusterLifecycle
from gpuform.providers.aios.gpu_node import GpuNodeLifecycle
from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.transport import mount_transport
from gpuform.providers.errors import AdoptionQuestion, GpuformError
from gpuform.providers.records import FolderRecords, Intents
from gpuform.schemas.aios.documents import node_to_entry
from gpuform.schemas.aios.parts import complete_node

from .conftest import StoredResource
from .lagging_registry import Faults, LaggingRegistry, sums_of

Json = dict[str, Any]
WEST, EAST = "west", "east"
NODE = complete_node({k: v for k, v in DECLARED["nodes"]["node_data"][1].items() if k != "id"})
RECORD = {name: value for name, value in DECLARED.items() if name != "nodes"}


@dataclass
class Stack:
    """A stack with a process of its own: its client, its intents and its state."""

    name: str
    registry: LaggingRegistry
    folder: Path
    things: dict[str, StoredResource] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    is_at_work: bool = False

    def __post_init__(self) -> None:
        self.url = f"http://{self.name}.test"
        self.intents = Intents(FolderRecords(self.folder / self.name))

    def create_context(self, name: str) -> ProviderContext:
        ours = {thing.id for thing in self.things.values() if thing.id}
        return ProviderContext(
            urn=f"urn:pulumi:dev::{self.name}::type::{name}",
            clock=self.registry.clock,
            intents=self.intents,
            belongs_to_stack=ours.__contains__,
            on_warning=self.warnings.append,
        )

    def thing(self, name: str, kind: Any = GpuNodeLifecycle) -> StoredResource:
        if name not in self.things:
            self.things[name] = StoredResource(self, kind(), name)  # type: ignore[arg-type]
        return self.things[name]

    @contextmanager
    def working(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The environment of a run of this stack."""
        with monkeypatch.context() as patched:
            patched.setenv("AIOS_REGISTRY_URL", self.url)
            patched.setenv("AIOS_PARSER_URL", self.url)
            was, self.is_at_work = self.is_at_work, True
            try:
                yield
            finally:
                self.is_at_work = was


@dataclass
class Colleague:
    """Adds, changes and removes nodes of its own, always with the right sums, without lag."""

    registry: LaggingRegistry
    chance: random.Random
    own: dict[str, Json] = field(default_factory=dict)
    number: int = 0

    def act(self) -> None:
        record = self.registry.get_record(WEST)
        if record is None:
            self.own.clear()
            return
        entries = record["nodes"]["nodeData"]
        acts = [self._add] + [self._remove, self._change] * bool(self.own)
        self.chance.choice(acts)(entries)

    def _add(self, entries: list[Json]) -> None:
        self.number += 1
        entry = wired({"id": f"theirs-{self.number}", **NODE, "memory": 1000 + self.number})
        self.own[entry["id"]] = entry
        self._write("$push", {"nodes.nodeData": entry}, [*entries, entry])

    def _remove(self, entries: list[Json]) -> None:
        id_ = self.chance.choice(sorted(self.own))
        del self.own[id_]
        left = [entry for entry in entries if entry["id"] != id_]
        self._write("$pull", {"nodes.nodeData": {"id": id_}}, left)

    def _change(self, entries: list[Json]) -> None:
        id_ = self.chance.choice(sorted(self.own))
        memory = self.chance.choice([1, 2, 3, 4])
        self.own[id_]["memory"] = memory
        at = next(at for at, entry in enumerate(entries) if entry and entry["id"] == id_)
        entries[at]["memory"] = memory
        self._write("$set", {f"nodes.nodeData.{at}.memory": memory}, entries)

    def _write(self, operator: str, fields: Json, entries: list[Json]) -> None:
        body: Json = {operator: fields}
        body["$set"] = {**body.get("$set", {}), **sums_of(entries)}
        status, answer = self.registry.update(WEST, body)
        assert status == 200, answer


@dataclass
class Course:
    """One random course. Each act is checked, and all at the end, when the registry is well."""

    seed: int
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.registry = LaggingRegistry(
            self.seed,
            has_entry_ids=self.chance.random() < 0.7,
            envelope=self.chance.choice(["raw", "wrapped"]),
        )
        self.stacks = [Stack(name, self.registry, self.folder) for name in ("one", "two")]
        self.colleague = Colleague(self.registry, self.chance)
        self.wanted: dict[str, dict[str, Json]] = {stack.name: {} for stack in self.stacks}
        self.east: list[Json] = []
        self.attempted: dict[int, Json] = {}
        self.failures: list[str] = []

    def play(self, acts: int = 12) -> None:
        transport = self.registry.transport()
        with (
            mount_transport(self.stacks[0].url, transport),
            mount_transport(self.stacks[1].url, transport),
        ):
            self._play(acts)

    def _play(self, acts: int) -> None:
        one = self.stacks[0]
        with one.working(self.monkeypatch):
            one.thing(WEST, ClusterLifecycle).apply({**RECORD, "cluster_id": WEST})
        self.colleague.act()
        self.registry.faults = Faults(
            lag=self.chance.choice([0.0, 0.5, 1.0]),
            lost_before=self.chance.choice([0.0, 0.1]),
            lost_after=self.chance.choice([0.0, 0.1, 0.2]),
            proxy=self.chance.choice([0.0, 0.05]),
            partial=self.chance.choice([0.0, 0.3]),
            others=self.chance.choice([0.0, 0.2, 0.5]),
        )
        self.registry.others = self._interfere
        for _ in range(acts):
            self._act(self.chance.choice(self.stacks))
            assert not self.failures, self.failures[0]
            self.registry.clock.moment += self.chance.choice([0, 1, 10, 100])
        self._end()

    def _interfere(self) -> None:
        """The colleague writes, or the stack that is not at work, which others do not interrupt."""
        idle = [stack for stack in self.stacks if not stack.is_at_work]
        if idle and self.chance.random() < 0.2:
            self._act(idle[0])
        else:
            self.colleague.act()

    def _act(self, stack: Stack) -> None:
        name = self.chance.choice(["a", "b", "c"])
        wanted = self.wanted[stack.name]
        act = self.chance.choice(["up", "up", "change", "destroy", "refresh", "list"])
        if act == "list" and stack is self.stacks[0]:
            self.east = [
                {"id": f"e{at}", **NODE, "swap": self.chance.choice([1, 2])}
                for at in self.chance.sample(range(4), self.chance.choice([0, 1, 2, 3]))
            ]
            self._run(stack, EAST, "up")
        elif act == "destroy":
            wanted.pop(name, None)
            self._run(stack, name, "destroy")
        elif act == "refresh":
            self._run(stack, name, "refresh")
        else:
            memory = self.chance.choice([1, 2, 3, 4]) if act == "change" else NODE["memory"]
            wanted[name] = {**NODE, "memory": memory}
            self._run(stack, name, "up")

    def _declared(self, stack: Stack, name: str) -> Json:
        if name == EAST:
            return {**RECORD, "cluster_id": EAST, "nodes": {"node_data": self.east}}
        own = self.wanted[stack.name][name]
        return {"cluster_id": WEST, "node_id": f"{stack.name}-{name}", **own}

    def _run(self, stack: Stack, name: str, act: str) -> bool:
        """Does an act as an engine does it; whether it succeeded."""
        thing = stack.thing(name, ClusterLifecycle if name == EAST else GpuNodeLifecycle)
        self.log.append(f"+{self.registry.clock.moment - 1.8e9:.0f}s {stack.name} {act} {name}")
        with stack.working(self.monkeypatch):
            try:
                self._recover(thing)
                if act == "up":
                    declared = self._declared(stack, name)
                    self.attempted[id(thing)] = declared
                    thing.apply(declared)
                    self._learn_of_lost_values(str(thing.state.get("not_ready_reason")))
                    self._check_up(stack, name, thing)
                elif thing.id and act == "refresh":
                    if not thing.refresh():
                        self._check_gone(thing)
                        thing.id, thing.state = "", {}
                elif thing.id and act == "destroy":
                    thing.delete()
                    self._check_gone(thing)
                    thing.id, thing.state = "", {}
            except AssertionError as error:  # within a request of the other stack's
                self.failures.append(str(error))
                return False
            except AdoptionQuestion:
                self.log.append("  asked")
                self.monkeypatch.setenv("GPUFORM_ADOPT", f"{WEST}/{stack.name}-{name}")
                return False
            except GpuformError as error:
                self._learn_of_lost_values(str(error))
                self.log.append(f"  {type(error).__name__}: {str(error)[:200]}")
                return False
            else:
                return True

    def _learn_of_lost_values(self, error: str) -> None:
        """Of a node that came between two requests nobody knows the values: the error names it."""
        lost = re.search("; gpuform could not restore the values of (.*?)(?:\n|;|$)", error)
        for id_ in (lost[1] if lost else "").split(", "):
            if id_ in self.colleague.own:
                now = next(entry for entry in self.entries(WEST) if entry["id"] == id_)
                self.colleague.own[id_] = {k: v for k, v in now.items() if k != "_id"}

    def _recover(self, thing: StoredResource) -> None:
        """Find what an interrupted create has made, as every command of an engine does first."""
        call = thing.registry.create_context(thing.name)
        declared = self.attempted.get(id(thing))
        if thing.id or declared is None or not call.intents.list_for_urn(str(call.urn)):
            return
        with use_context(call):
            found = thing.lifecycle.recover_create(thing.check(declared))
        if found is not None:
            self.log.append("  recovered")
            thing.id, thing.state = found.id, {**found.outs, "__provider": "p"}

    def entries(self, cluster_id: str) -> list[Json]:
        record = self.registry.get_record(cluster_id)
        return record["nodes"]["nodeData"] if record else []

    def _check_up(self, stack: Stack, name: str, thing: StoredResource) -> None:
        if thing.state.get("ready") is False:
            self.log.append(f"  not ready: {thing.state.get('not_ready_reason')}")
            return
        if name == EAST:
            found = plain(self.entries(EAST))
            assert found == plain(map(wired, self.east)), f"{found}; {self.describe()}"
            return
        id_ = f"{stack.name}-{name}"
        found = [entry for entry in self.entries(WEST) if entry["id"] == id_]
        own = wired({"id": id_, **self.wanted[stack.name][name]})
        assert plain(found) == plain([own]), f"{found} is not {own}; {self.describe()}"

    def _check_gone(self, thing: StoredResource) -> None:
        cluster_id, _, node_id = thing.id.partition("/")
        found = [entry for entry in self.entries(cluster_id) if entry["id"] == node_id]
        assert found == [], self.describe()

    def _end(self) -> None:
        """All faults end; every stack makes what it wants, and nothing is left to do."""
        self.registry.faults, self.registry.others = Faults(), lambda: None
        self.registry.clock.moment += 1000
        for _ in range(3):
            done = [self._run(stack, *each) for stack in self.stacks for each in self._wants(stack)]
        assert all(done), self.describe()
        expected = {}
        for stack in self.stacks:
            for name, own in self.wanted[stack.name].items():
                id_ = f"{stack.name}-{name}"
                expected[id_] = wired({"id": id_, **own})
        found = plain(self.entries(WEST))
        whole = plain([*expected.values(), *self.colleague.own.values()])
        assert found == whole, f"{found} is not {whole}; {self.describe()}"

    def _wants(self, stack: Stack) -> list[tuple[str, str]]:
        names = [name for name in stack.things if name not in (WEST, EAST)]
        wanted = self.wanted[stack.name]
        acts = [(name, "refresh") for name in names]
        acts += [(name, "up" if name in wanted else "destroy") for name in names]
        acts += [(name, "up") for name in wanted if name not in names]
        return acts + [(EAST, "up")] * (EAST in stack.things)

    def describe(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.registry.faults}", *self.log])


def wired(entry: Json) -> Json:
    return copy.deepcopy(node_to_entry(entry))


def plain(entries: Any) -> list[Json]:
    """Entries without what Mongo adds, by their ids."""
    found = [{k: v for k, v in each.items() if k != "_id"} for each in entries]
    return sorted(found, key=lambda each: str(each.get("id")))
