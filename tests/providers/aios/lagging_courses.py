"""Play random courses of two stacks and a colleague at one lagging registry, and check them."""

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
from gpuform.providers.context.run_context import mount_transport
from gpuform.providers.errors import AdoptionQuestion, GpuformError
from gpuform.providers.records import FolderRecords, Intents
from gpuform.schemas.aios.parts import complete_node
from gpuform.schemas.aios.wire import node_to_entry

from .conftest import StoredResource
from .lagging_registry import Faults, LaggingRegistry, compute_sums

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
    resources: dict[str, StoredResource] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    is_running: bool = False

    def __post_init__(self) -> None:
        self.url = f"http://{self.name}.test"
        self.intents = Intents(FolderRecords(self.folder / self.name))

    def create_context(self, name: str) -> ProviderContext:
        ours = {resource.id for resource in self.resources.values() if resource.id}
        return ProviderContext(
            urn=f"urn:pulumi:dev::{self.name}::type::{name}",
            clock=self.registry.clock,
            intents=self.intents,
            belongs_to_stack=ours.__contains__,
            on_warning=self.warnings.append,
        )

    def get_resource(self, name: str, kind: Any = GpuNodeLifecycle) -> StoredResource:
        if name not in self.resources:
            self.resources[name] = StoredResource(self, kind(), name)  # type: ignore[arg-type]
        return self.resources[name]

    @contextmanager
    def use_environment(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Run the block in the environment of a run of this stack."""
        with monkeypatch.context() as patched:
            patched.setenv("AIOS_REGISTRY_URL", self.url)
            patched.setenv("AIOS_PARSER_URL", self.url)
            was, self.is_running = self.is_running, True
            try:
                yield
            finally:
                self.is_running = was


@dataclass
class Colleague:
    """A colleague who writes its own nodes with the right sums, and reads without lag."""

    registry: LaggingRegistry
    rng: random.Random
    own: dict[str, Json] = field(default_factory=dict)
    number: int = 0

    def write_randomly(self) -> None:
        record = self.registry.get_record(WEST)
        if record is None:
            self.own.clear()
            return
        entries = record["nodes"]["nodeData"]
        acts = [self._add] + [self._remove, self._change] * bool(self.own)
        self.rng.choice(acts)(entries)

    def _add(self, entries: list[Json]) -> None:
        self.number += 1
        entry = build_entry({"id": f"theirs-{self.number}", **NODE, "memory": 1000 + self.number})
        self.own[entry["id"]] = entry
        self._write("$push", {"nodes.nodeData": entry}, [*entries, entry])

    def _remove(self, entries: list[Json]) -> None:
        id_ = self.rng.choice(sorted(self.own))
        del self.own[id_]
        remaining_entries = [entry for entry in entries if entry["id"] != id_]
        self._write("$pull", {"nodes.nodeData": {"id": id_}}, remaining_entries)

    def _change(self, entries: list[Json]) -> None:
        id_ = self.rng.choice(sorted(self.own))
        memory = self.rng.choice([1, 2, 3, 4])
        self.own[id_]["memory"] = memory
        at = next(at for at, entry in enumerate(entries) if entry and entry["id"] == id_)
        entries[at]["memory"] = memory
        self._write("$set", {f"nodes.nodeData.{at}.memory": memory}, entries)

    def _write(self, operator: str, fields: Json, entries: list[Json]) -> None:
        body: Json = {operator: fields}
        body["$set"] = {**body.get("$set", {}), **compute_sums(entries)}
        status, answer = self.registry.update(WEST, body)
        assert status == 200, answer


@dataclass
class Course:
    """One random course: each command is checked, and everything at the end without faults."""

    seed: int
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.registry = LaggingRegistry(
            self.seed,
            has_entry_ids=self.rng.random() < 0.7,
            envelope=self.rng.choice(["raw", "wrapped"]),
        )
        self.stacks = [Stack(name, self.registry, self.folder) for name in ("one", "two")]
        self.colleague = Colleague(self.registry, self.rng)
        self.declared_nodes: dict[str, dict[str, Json]] = {stack.name: {} for stack in self.stacks}
        self.declared_east_nodes: list[Json] = []
        self.attempted: dict[int, Json] = {}
        self.failures: list[str] = []

    def play(self, acts: int = 12) -> None:
        transport = self.registry.create_transport()
        with (
            mount_transport(self.stacks[0].url, transport),
            mount_transport(self.stacks[1].url, transport),
        ):
            self._play(acts)

    def _play(self, acts: int) -> None:
        stack = self.stacks[0]
        with stack.use_environment(self.monkeypatch):
            stack.get_resource(WEST, ClusterLifecycle).apply({**RECORD, "cluster_id": WEST})
        self.colleague.write_randomly()
        self.registry.faults = Faults(
            lag=self.rng.choice([0.0, 0.5, 1.0]),
            lost_before=self.rng.choice([0.0, 0.1]),
            lost_after=self.rng.choice([0.0, 0.1, 0.2]),
            proxy=self.rng.choice([0.0, 0.05]),
            partial=self.rng.choice([0.0, 0.3]),
            others=self.rng.choice([0.0, 0.2, 0.5]),
        )
        self.registry.others = self._write_as_others
        for _ in range(acts):
            self._run_random_command(self.rng.choice(self.stacks))
            assert not self.failures, self.failures[0]
            self.registry.clock.moment += self.rng.choice([0, 1, 10, 100])
        self._recover_everything()

    def _write_as_others(self) -> None:
        """Let the colleague write, or the other stack, whose commands are not interrupted."""
        idle = [stack for stack in self.stacks if not stack.is_running]
        if idle and self.rng.random() < 0.2:
            self._run_random_command(idle[0])
        else:
            self.colleague.write_randomly()

    def _run_random_command(self, stack: Stack) -> None:
        name = self.rng.choice(["a", "b", "c"])
        declared = self.declared_nodes[stack.name]
        command = self.rng.choice(["up", "up", "change", "destroy", "refresh", "list"])
        if command == "list" and stack is self.stacks[0]:
            self.declared_east_nodes = [
                {"id": f"e{at}", **NODE, "swap": self.rng.choice([1, 2])}
                for at in self.rng.sample(range(4), self.rng.choice([0, 1, 2, 3]))
            ]
            self._run(stack, EAST, "up")
        elif command == "destroy":
            declared.pop(name, None)
            self._run(stack, name, "destroy")
        elif command == "refresh":
            self._run(stack, name, "refresh")
        else:
            memory = self.rng.choice([1, 2, 3, 4]) if command == "change" else NODE["memory"]
            declared[name] = {**NODE, "memory": memory}
            self._run(stack, name, "up")

    def _build_inputs(self, stack: Stack, name: str) -> Json:
        if name == EAST:
            return {**RECORD, "cluster_id": EAST, "nodes": {"node_data": self.declared_east_nodes}}
        own = self.declared_nodes[stack.name][name]
        return {"cluster_id": WEST, "node_id": f"{stack.name}-{name}", **own}

    def _run(self, stack: Stack, name: str, command: str) -> bool:
        """Run a command like an engine, and return the success."""
        resource = stack.get_resource(name, ClusterLifecycle if name == EAST else GpuNodeLifecycle)
        self.log.append(f"+{self.registry.clock.moment - 1.8e9:.0f}s {stack.name} {command} {name}")
        with stack.use_environment(self.monkeypatch):
            try:
                self._recover(resource)
                if command == "up":
                    declared = self._build_inputs(stack, name)
                    self.attempted[id(resource)] = declared
                    resource.apply(declared)
                    self._adopt_lost_values(str(resource.state.get("not_ready_reason")))
                    self._check_up(stack, name, resource)
                elif resource.id and command == "refresh":
                    if not resource.refresh():
                        self._check_gone(resource)
                        resource.id, resource.state = "", {}
                elif resource.id and command == "destroy":
                    resource.delete()
                    self._check_gone(resource)
                    resource.id, resource.state = "", {}
            except AssertionError as error:  # within a request of the other stack's
                self.failures.append(str(error))
                return False
            except AdoptionQuestion:
                self.log.append("  asked")
                self.monkeypatch.setenv("GPUFORM_ADOPT", f"{WEST}/{stack.name}-{name}")
                return False
            except GpuformError as error:
                self._adopt_lost_values(str(error))
                self.log.append(f"  {type(error).__name__}: {str(error)[:200]}")
                return False
            else:
                return True

    def _adopt_lost_values(self, error: str) -> None:
        """Accept the current values of the colleague's nodes where gpuform could not restore any.

        A node created between two requests is overwritten with unknown values; the error names it.
        """
        lost = re.search("; gpuform could not restore the values of (.*?)(?:\n|;|$)", error)
        for id_ in (lost[1] if lost else "").split(", "):
            if id_ in self.colleague.own:
                now = next(entry for entry in self.list_entries(WEST) if entry["id"] == id_)
                self.colleague.own[id_] = {k: v for k, v in now.items() if k != "_id"}

    def _recover(self, resource: StoredResource) -> None:
        """Find the object of an interrupted create, as every command of an engine does first."""
        call = resource.registry.create_context(resource.name)
        declared = self.attempted.get(id(resource))
        if resource.id or declared is None or not call.intents.list_for_urn(str(call.urn)):
            return
        with use_context(call):
            recovered = resource.lifecycle.recover_create(resource.check(declared))
        if recovered is not None:
            self.log.append("  recovered")
            resource.id, resource.state = recovered.id, {**recovered.outs, "__provider": "p"}

    def list_entries(self, cluster_id: str) -> list[Json]:
        record = self.registry.get_record(cluster_id)
        return record["nodes"]["nodeData"] if record else []

    def _check_up(self, stack: Stack, name: str, resource: StoredResource) -> None:
        if resource.state.get("ready") is False:
            self.log.append(f"  not ready: {resource.state.get('not_ready_reason')}")
            return
        if name == EAST:
            entries = strip_entries(self.list_entries(EAST))
            assert entries == strip_entries(map(build_entry, self.declared_east_nodes)), (
                f"{entries}; {self.describe()}"
            )
            return
        id_ = f"{stack.name}-{name}"
        entries = [entry for entry in self.list_entries(WEST) if entry["id"] == id_]
        own = build_entry({"id": id_, **self.declared_nodes[stack.name][name]})
        assert strip_entries(entries) == strip_entries([own]), (
            f"{entries} is not {own}; {self.describe()}"
        )

    def _check_gone(self, resource: StoredResource) -> None:
        cluster_id, _, node_id = resource.id.partition("/")
        entries = [entry for entry in self.list_entries(cluster_id) if entry["id"] == node_id]
        assert entries == [], self.describe()

    def _recover_everything(self) -> None:
        """End all faults, apply every declaration, and check the registry's entries."""
        self.registry.faults, self.registry.others = Faults(), lambda: None
        self.registry.clock.moment += 1000
        for _ in range(3):
            done = [
                self._run(stack, *final_command)
                for stack in self.stacks
                for final_command in self._list_final_commands(stack)
            ]
        assert all(done), self.describe()
        expected = {}
        for stack in self.stacks:
            for name, own in self.declared_nodes[stack.name].items():
                id_ = f"{stack.name}-{name}"
                expected[id_] = build_entry({"id": id_, **own})
        entries = strip_entries(self.list_entries(WEST))
        expected_entries = strip_entries([*expected.values(), *self.colleague.own.values()])
        assert entries == expected_entries, (
            f"{entries} is not {expected_entries}; {self.describe()}"
        )

    def _list_final_commands(self, stack: Stack) -> list[tuple[str, str]]:
        names = [name for name in stack.resources if name not in (WEST, EAST)]
        declared = self.declared_nodes[stack.name]
        acts = [(name, "refresh") for name in names]
        acts += [(name, "up" if name in declared else "destroy") for name in names]
        acts += [(name, "up") for name in declared if name not in names]
        return acts + [(EAST, "up")] * (EAST in stack.resources)

    def describe(self) -> str:
        return "\n".join([f"seed {self.seed}: {self.registry.faults}", *self.log])


def build_entry(entry: Json) -> Json:
    return copy.deepcopy(node_to_entry(entry))


def strip_entries(entries: Any) -> list[Json]:
    """Return the entries without Mongo's fields, sorted by id."""
    stripped_entries = [{k: v for k, v in entry.items() if k != "_id"} for entry in entries]
    return sorted(stripped_entries, key=lambda entry: str(entry.get("id")))
