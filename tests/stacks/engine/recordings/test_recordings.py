"""The embedded engine does what the Pulumi CLI was recorded doing."""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpuform.stacks.engine import integrity
from gpuform.stacks.engine.deployment import Deployment, Options, Outcome, Subject
from gpuform.stacks.engine.events import Event, EventBus, StepDone, StepFailed
from gpuform.stacks.engine.language import Program
from gpuform.stacks.engine.stack_reference import StackReferences
from gpuform.stacks.engine.state import Snapshot
from gpuform.stacks.engine.urn import STACK_TYPE, is_provider
from gpuform.stacks.engine.values import Secret

HERE = Path(__file__).parent
SCENARIOS: dict[str, list[dict[str, Any]]] = yaml.safe_load((HERE / "scenarios.yaml").read_text())

HEAD = (
    "from pulumi import Alias, Config, ResourceOptions, export\nfrom steered import Folder, Thing\n"
)

MASKED = {
    "created", "modified", "sourcePosition", "stackTrace", "ciphertext", "__provider",
}  # fmt: skip
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def masked(value: Any, key: str | None = None) -> Any:
    if key in MASKED and value is not None:
        return f"<{key}>"
    if isinstance(value, dict):
        return {name: masked(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return UUID.sub("<uuid>", value) if isinstance(value, str) else value


@dataclass
class Replay:
    """One stack that goes through the steps of a scenario; its state is what was written."""

    folder: Path
    crypter: Any
    checkpoint: bytes
    config: dict[str, str] = field(default_factory=dict)
    secret: set[str] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)

    def step(self, run: str = "up", program: str = "", config: Any = None, others: Any = None):
        """What one command does, as the recordings say it."""
        for key, value in (config or {}).items():
            self._configure(f"rec:{key}", value)
        if others:
            self._change_platform(others)
        (self.folder / "__main__.py").write_text(HEAD + program)
        (self.folder / "calls.jsonl").unlink(missing_ok=True)
        preview = run == "preview"
        operation = "update" if preview or run == "up" else run
        self.events.clear()
        options = Options(operation, preview, parallel=8)
        outcome = Deployment(self._subject(), options, EventBus([self.events.append])).run()
        return dict(self._facets(outcome, preview))

    def _configure(self, key: str, value: str | list[str]) -> None:
        self.config[key] = value[0] if isinstance(value, list) else value
        if isinstance(value, list):
            self.secret.add(key)

    def _change_platform(self, others: dict[str, dict[str, Any] | None]) -> None:
        file = self.folder / "platform.json"
        platform = json.loads(file.read_text())
        for id_, properties in others.items():
            if properties is None:
                del platform["objects"][id_]
            else:
                platform["objects"][id_].update(properties)
        file.write_text(json.dumps(platform))

    def _subject(self) -> Subject:
        return Subject(
            program=Program(
                "rec", "dev", self.folder, self.folder, self.config, sorted(self.secret), 8
            ),
            snapshot=Snapshot.from_json(self.checkpoint, self.crypter),
            crypter=self.crypter,
            provider_config={
                key: Secret(value) if key in self.secret else value
                for key, value in self.config.items()
            },
            write=self._write,
            stack_references=StackReferences("rec", lambda _project, _stack: None, str),
        )

    def _write(self, checkpoint: bytes) -> None:
        self.checkpoint = checkpoint

    def _facets(self, outcome: Outcome, preview: bool) -> Iterator[tuple[str, Any]]:
        yield "succeeded", outcome.succeeded
        yield "operations", by_urn(self._operations())
        yield "calls", Counter(self._calls())
        snapshot = Snapshot.from_json(self.checkpoint, self.crypter)
        assert integrity.verify(snapshot) == []
        yield "pending operations", len(snapshot.pending_operations)
        latest = json.loads(self.checkpoint)["checkpoint"]["latest"]
        yield from entries(masked(latest.get("resources") or []))
        if preview:
            yield "planned", Counter(self._planned())
            yield "changes", dict(outcome.changes)

    def _operations(self) -> Iterator[list[str]]:
        for event in self.events:
            if isinstance(event, StepDone | StepFailed):
                failed = ["failed"] if isinstance(event, StepFailed) else []
                yield [str(event.step.shown_op), event.step.urn, *failed]

    def _planned(self) -> Iterator[str]:
        steps = {id(e.step): e.step for e in self.events if isinstance(e, StepDone)}
        for step in steps.values():
            hidden = is_provider(step.state.type) or not step.op.is_logical
            if not hidden and (step.op != "same" or step.state.type == STACK_TYPE):
                yield f"{step.op} {step.urn}"

    def _calls(self) -> Iterator[str]:
        file = self.folder / "calls.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        yield from (spelt(json.loads(line)) for line in lines)


def by_urn(operations: Iterable[list[str]]) -> dict[str, list[list[str]]]:
    """What happened to each resource, in order; between resources the order is nobody's."""
    found: dict[str, list[list[str]]] = {}
    for op, urn, *failed in operations:
        found.setdefault(urn, []).append([op, *failed])
    return found


def entries(resources: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    for entry in resources:
        mark = " (delete)" if entry.get("delete") else ""
        yield f"entry {entry['urn']}{mark}", entry


def spelt(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def recorded(step: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "succeeded", step["exit"] == 0
    yield "operations", by_urn(step["operations"])
    yield "calls", Counter(map(spelt, step["calls"]))
    yield "pending operations", step["pending_operations"]
    yield from entries(step["resources"])
    if "planned" in step:
        yield "planned", Counter(" ".join(planned) for planned in step["planned"])
        yield "changes", step["changes"]


def test_every_recording_is_replayed():
    assert {path.stem for path in (HERE / "recorded").iterdir()} == set(SCENARIOS)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_engine_does_as_the_cli(scenario, tmp_path, crypter):
    shutil.copy(HERE / "steered.py", tmp_path)
    empty = Snapshot("organization/rec/dev").to_json(crypter)
    replay = Replay(tmp_path, crypter, empty)
    recording = json.loads((HERE / "recorded" / f"{scenario}.json").read_text())
    for number, (step, expected) in enumerate(zip(SCENARIOS[scenario], recording, strict=True), 1):
        found = replay.step(**step)
        for facet, value in recorded(expected):
            assert (number, facet, found.get(facet)) == (number, facet, value)
        assert found.keys() == dict(recorded(expected)).keys(), f"step {number}"
