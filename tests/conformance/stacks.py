"""Run a stack as its user does, declared, planned and applied, under each of the hosts.

`EmbeddedStack` runs a real program through `Deployment`, with its state in a real backend.
`CalledStack` calls a host over gRPC for one resource, in the order of the Pulumi engine.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from conformance.kind_descriptions import KindDescription
from conformance.operations import Operations, Properties, Refused
from support.servers.bucket_server import KEYS

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import read_run_context
from gpuform.providers.records import INTENT_PREFIX, FolderRecords, Intents, Records
from gpuform.providers.values import Secret, unwrap_secrets
from gpuform.schemas.errors import EngineError
from gpuform.stacks.engine.deployment import (
    Deployment,
    DeploymentTarget,
    Options,
    Outcome,
    recover_creates,
)
from gpuform.stacks.engine.executing import StackReferences
from gpuform.stacks.engine.language_host import Program
from gpuform.stacks.engine.planning import Diagnostic, Event, EventBus, StepDone
from gpuform.stacks.engine.records import BackendRecords
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Journal, ResourceState, Snapshot, journal
from gpuform.stacks.engine.store import Backend
from gpuform.stacks.engine.urn import get_own_type, is_provider
from gpuform.stacks.resource_rules import RULES

PROGRAM = """\
import json
import pathlib

import pulumi

from gpuform.providers.catalog import load_resource_class

here = pathlib.Path(__file__).parent
made = {}
for each in json.loads((here / "declared.json").read_text()):
    inputs = {
        key: made[value["resource"]] if isinstance(value, dict) and "resource" in value else value
        for key, value in each["inputs"].items()
    }
    timeouts = pulumi.CustomTimeouts(**each["timeouts"]) if each["timeouts"] else None
    options = pulumi.ResourceOptions(custom_timeouts=timeouts, **each["options"])
    kind = load_resource_class(each["platform"], each["kind"])
    made[each["name"]] = kind(each["name"], opts=options, **inputs)
"""
"""Declares what `declared.json` lists; `{"resource": NAME}` is an earlier resource."""


@dataclass(frozen=True)
class DeclaredResource:
    """One resource of a program. `timeouts` are Pulumi's `custom_timeouts`, `options` others of
    its options."""

    name: str
    description: KindDescription
    inputs: Mapping[str, Any]
    timeouts: Mapping[str, str] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "platform": self.description.platform,
            "kind": self.description.kind,
            "inputs": dict(self.inputs),
            "timeouts": self.timeouts,
            "options": dict(self.options),
        }


def declare_one(
    description: KindDescription, inputs: Mapping[str, Any] | None = None
) -> DeclaredResource:
    """Declare one resource `thing` with `inputs`, or with the kind's valid inputs."""
    return DeclaredResource(
        "thing", description, description.valid_inputs if inputs is None else inputs
    )


@dataclass(frozen=True)
class Result:
    """The operations of a run or plan, in order, and its errors."""

    ok: bool
    operations: Sequence[str]
    errors: Sequence[str]
    replaces: Sequence[str] = ()


class Stack(Protocol):
    def plan(self, declared: DeclaredResource) -> Result: ...
    def apply(self, declared: DeclaredResource) -> Result: ...
    def refresh(self) -> Result: ...
    def destroy(self) -> Result: ...
    @property
    def id(self) -> str | None: ...
    @property
    def outputs(self) -> Properties: ...
    @property
    def inputs(self) -> Properties: ...


class StackKnowledge:
    """The objects that a stack knows: those in its state, and those in its project's intents."""

    directory: Path
    resources: list[ResourceState]

    @property
    def records(self) -> Records:
        """Return the records of begun operations."""
        return FolderRecords(self.directory / ".gpuform" / "records")

    @property
    def ids(self) -> set[str]:
        """Return the ids of the objects in the state."""
        return {resource.id for resource in self.resources if not resource.pending_replacement}

    def get_state(self, name: str = "thing") -> ResourceState:
        (entry,) = [resource for resource in self.resources if resource.urn.endswith(f"::{name}")]
        return entry

    @property
    def intents(self) -> list[dict[str, Any]]:
        """Return the recorded unresolved creates."""
        records = self.records
        names = sorted(name for name in records.names() if name.startswith(INTENT_PREFIX))
        return [dict(fields) for name in names if (fields := records.read(name))]

    @property
    def unresolved_intents(self) -> list[dict[str, Any]]:
        """Return the intents left by a completed run, which must not exist."""
        return self.intents

    @property
    def recorded_ids(self) -> list[str]:
        """Return the recorded ids of objects in creation."""
        intents_with_ids = [item for item in self.intents if item["ids"] or not item["names"]]
        return [intent["id"] for intent in intents_with_ids if intent["id"]]

    @property
    def recorded_parts(self) -> list[str]:
        """Return the parts of the recorded objects."""
        return [id_ for intent in self.intents for id_ in intent["ids"] or [intent["id"]]]

    @property
    def is_searching(self) -> bool:
        """Return True if the next run searches for objects by name."""
        return any(
            not (intent["ids"] if intent["names"] else intent["id"]) for intent in self.intents
        )

    @property
    def parts(self) -> set[str]:
        """Return the platform's objects behind the resources in the state."""
        return {part for resource in self.resources for part in _get_part_ids(resource)}


@dataclass
class EmbeddedStack(StackKnowledge):
    """A stack `dev` in a folder, its state on disk, run by the embedded engine."""

    directory: Path
    crypter: PassphraseCrypter
    config: Mapping[str, str] = field(default_factory=dict)
    secret_keys: Sequence[str] = ()
    events: list[Event] = field(default_factory=list)
    outcome: Outcome | None = None
    url: str = ""  # of the backend; its folder when there is none

    def __post_init__(self) -> None:
        (self.directory / "__main__.py").write_text(PROGRAM)
        if self._backend.read("conformance", "dev") is None:
            empty = Snapshot("organization/conformance/dev", secrets_provider=self.crypter.provider)
            self._backend.write("conformance", "dev", empty.to_json(self.crypter))

    def plan(self, *declared: DeclaredResource) -> Result:
        return self.run("update", *declared, preview=True)

    def apply(self, *declared: DeclaredResource) -> Result:
        return self.run("update", *declared)

    def refresh(self) -> Result:
        return self.run("refresh")

    def destroy(self) -> Result:
        return self.run("destroy")

    def recover(self) -> None:
        """Recover interrupted operations under the stack's lock, as every command does first."""

        def save(snapshot: Snapshot) -> None:
            self._backend.write("conformance", "dev", snapshot.to_json(self.crypter))

        recover_creates(
            self.build_target(), save, lambda _text: None, threading.Event(), creates_follow=True
        )

    def run(
        self,
        operation: Any,
        *declared: DeclaredResource,
        preview: bool = False,
        refresh: bool = False,
    ) -> Result:
        try:
            if not preview:
                self.recover()
        except EngineError as error:
            return Result(False, [], [str(error)])
        deployment = self.build_deployment(operation, *declared, preview=preview, refresh=refresh)
        self.outcome = deployment.run()
        finished_steps = [
            e.step for e in self.events if isinstance(e, StepDone) and e.step.state.custom
        ]
        steps = {
            (step.op, step.urn): step for step in finished_steps if not is_provider(step.state.type)
        }
        changed = [step for step in steps.values() if step.shown_op != "same"]
        return Result(
            self.outcome.succeeded,
            [str(step.shown_op) for step in changed if step.shown_op.is_logical],
            self.list_messages("error"),
            [key for step in changed if step.op == "replace" for key in step.keys],
        )

    def build_deployment(
        self,
        operation: Any,
        *declared: DeclaredResource,
        preview: bool = False,
        refresh: bool = False,
    ) -> Deployment:
        """Return a new deployment, which reports to `events`."""
        if operation == "update":
            encoded = json.dumps([item.to_json() for item in declared])
            (self.directory / "declared.json").write_text(encoded)
        self.events.clear()
        options = Options(operation, preview, refresh=refresh, parallel=16, rules=RULES)
        return Deployment(self.build_target(), options, EventBus([self.events.append]))

    def build_target(self) -> DeploymentTarget:
        backend = self._backend
        return DeploymentTarget(
            program=Program(
                project="conformance",
                stack="dev",
                directory=self.directory,
                root=self.directory,
                config=self.config,
                secret_keys=self.secret_keys,
                parallel=16,
                run_context=read_run_context(),
            ),
            snapshot=self.snapshot,
            crypter=self.crypter,
            provider_config={
                key: Secret(value) if key in self.secret_keys else value
                for key, value in self.config.items()
            },
            write=lambda data: backend.write("conformance", "dev", data),
            stack_references=StackReferences("conformance", lambda _project, _stack: None, str),
            journal=self._begin_journal(),
            intents=Intents(self.records),
        )

    @property
    def records(self) -> Records:
        return BackendRecords(self._backend, "conformance", "dev")

    def _begin_journal(self) -> Journal:
        """Apply the journal of an interrupted run to the checkpoint, and begin a new one."""
        log, snapshot = self._backend.open_journal("conformance", "dev"), self.snapshot
        if log.read():
            self._backend.write("conformance", "dev", snapshot.to_json(self.crypter))
            log.remove()
        return Journal(log, journal.compute_digest(self._read()))

    def _read(self) -> bytes:
        data = self._backend.read("conformance", "dev")
        assert data is not None
        return data

    @property
    def checkpoint(self) -> Snapshot:
        """Return the state without the journal, as Pulumi reads the state."""
        return Snapshot.from_json(self._read(), self.crypter)

    @property
    def snapshot(self) -> Snapshot:
        """Return the state on disk, with the entries of the journal."""
        data, snapshot = self._read(), self.checkpoint
        log = self._backend.open_journal("conformance", "dev")
        return journal.recover(log, data, snapshot, self.crypter).snapshot

    @property
    def pending_operations(self) -> Sequence[Any]:
        """Return the pending operations of an interrupted run."""
        return self.snapshot.pending_operations

    @property
    def resources(self) -> list[ResourceState]:  # type: ignore[override]  # read anew each time
        return [r for r in self.snapshot.resources if r.custom and not is_provider(r.type)]

    @property
    def id(self) -> str | None:
        return self.get_state().id if self.resources else None

    @property
    def outputs(self) -> Properties:
        return _drop_provider(self.get_state().outputs)

    @property
    def inputs(self) -> Properties:
        return _drop_provider(self.get_state().inputs)

    def list_messages(self, severity: str) -> list[str]:
        diagnostics = [
            e for e in self.events if isinstance(e, Diagnostic) and e.severity == severity
        ]
        return [event.message for event in diagnostics]

    @property
    def _backend(self) -> Backend:
        return Backend.open(self.url or f"file://{self.directory}", KEYS)


@dataclass(frozen=True)
class _StateEntry:
    """The values that the Pulumi engine stores of a resource for its provider host."""

    id: str
    inputs: Properties
    outputs: Properties


@dataclass
class CalledStack:
    """One resource under a host of the Pulumi engine: the calls of `pulumi up` in their order."""

    verbs: Operations
    entry: _StateEntry | None = None

    def plan(self, declared: DeclaredResource) -> Result:
        return self._decide(declared)[0]

    def apply(self, declared: DeclaredResource) -> Result:
        result, checked = self._decide(declared)
        try:
            for operation in result.operations:
                getattr(self, f"_{operation}")(checked)
        except Refused as error:
            return Result(False, [], [str(error)])
        return result

    def refresh(self) -> Result:
        """Call `read`, and then `diff` for the drift."""
        if self.entry is None:
            return Result(True, [], [])
        read_result = self.verbs.read(self.entry.id, self.entry.outputs)
        if not read_result.id:
            self.entry = None
            return Result(True, ["delete"], [])
        before = self.entry
        inputs = before.inputs if read_result.inputs is None else read_result.inputs
        self.entry = _StateEntry(read_result.id, inputs, read_result.outputs)
        drift = self.verbs.diff(read_result.id, read_result.outputs, before.inputs)
        return Result(True, ["update"] if drift.changes else [], [])

    def destroy(self) -> Result:
        if self.entry is None:
            return Result(True, [], [])
        try:
            self._delete({})
        except Refused as error:
            return Result(False, [], [str(error)])
        return Result(True, ["delete"], [])

    @property
    def id(self) -> str | None:
        return None if self.entry is None else self.entry.id

    @property
    def outputs(self) -> Properties:
        return {} if self.entry is None else self.entry.outputs

    @property
    def inputs(self) -> Properties:
        return {} if self.entry is None else self.entry.inputs

    def _decide(self, declared: DeclaredResource) -> tuple[Result, Properties]:
        """Return the operation and the checked inputs."""
        olds = self.entry.inputs if self.entry else None
        checked = self.verbs.check(declared.inputs, olds)
        if checked.failures:
            messages = [f"property {path}: {reason}" for path, reason in checked.failures.items()]
            return Result(False, [], messages), {}
        if self.entry is None:
            return Result(True, ["create"], []), checked.inputs
        try:
            diff = self.verbs.diff(self.entry.id, self.entry.outputs, checked.inputs)
        except Refused as error:
            return Result(False, [], [str(error)]), {}
        if not diff.changes:
            return Result(True, [], []), checked.inputs
        if not diff.replaces:
            return Result(True, ["update"], []), checked.inputs
        assert diff.delete_first
        fresh = self.verbs.check(declared.inputs)
        return Result(True, ["replace"], [], diff.replaces), fresh.inputs

    def _create(self, checked: Properties) -> None:
        created = self.verbs.create(checked)
        self.entry = _StateEntry(created.id, checked, created.outputs)

    def _update(self, checked: Properties) -> None:
        assert self.entry is not None
        outputs = self.verbs.update(self.entry.id, self.entry.outputs, checked)
        self.entry = replace(self.entry, inputs=checked, outputs=outputs)

    def _replace(self, checked: Properties) -> None:
        self._delete(checked)
        self._create(checked)

    def _delete(self, _checked: Properties) -> None:
        assert self.entry is not None
        self.verbs.delete(self.entry.id, self.entry.outputs)
        self.entry = None


def _get_part_ids(resource: ResourceState) -> Sequence[str]:
    """Return the ids in a resource's list, or the resource's own id."""
    platform, _, kind = get_own_type(resource.type).partition(":")
    name = load_lifecycle_class(platform, kind).parts_field
    result = unwrap_secrets(resource.outputs.get(name)) if name else None
    return [str(item) for item in result] if isinstance(result, list) else [resource.id]


def _drop_provider(properties: Mapping[str, Any]) -> Properties:
    plain = unwrap_secrets(dict(properties))
    assert isinstance(plain, dict)
    return {key: value for key, value in plain.items() if key != "__provider"}
