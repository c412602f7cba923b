"""Run a topology with Pulumi's SDK and without, and record everything observable of either run.

The provider is the same in both: its answers depend on the request only, and it records each call.
"""

import json
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.providers.context import read_run_context
from gpuform.providers.values import PropertyMap, Secret, find_changed_keys
from gpuform.stacks.engine.deployment import (
    Deployment,
    DeploymentTarget,
    Options,
    Outcome,
    deployment,
)
from gpuform.stacks.engine.dynamic_providers import ProviderError
from gpuform.stacks.engine.language_host import Program
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    EventBus,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.provider_host import Created, Diff, PropertyFailure, ProviderHost
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.urn import get_own_type, name_of, type_of
from gpuform.stacks.topology import run_topology

STACK_REFERENCE_OUTPUTS: PropertyMap = {
    "shown": "plain",
    "hidden": Secret("hush-other"),
    "count": 3.0,
    "nested": {"a": [1.0, Secret("hush-inner")], "b": None},
}
"""The outputs of the stack that the topologies refer to."""
COMPUTED: PropertyMap = {
    "status": "Ready",
    "ready": True,
    "not_ready_reason": None,
    "kube_config": "hush-kube",
    "duration_hours": 5.0,
    "control_plane_nodes": [{"name": "head", "cores": 8.0, "note": None}],
    "created_at": None,
}


class RecordingHost(ProviderHost):
    """A provider of all kinds: `bad` in a name fails creates and reads, `wrong` fails checks."""

    calls: ClassVar[list[Any]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()

    def record_call(self, verb: str, *arguments: Any) -> None:
        with self.lock:
            self.calls.append(json.dumps([verb, *arguments], default=repr, sort_keys=True))

    def check(self, urn: str, olds: Any, news: Any, provider: str = "", **_: Any) -> Any:
        self.record_call("check", urn, olds, news, remove_provider_id(provider))
        failures = [PropertyFailure("region", "is wrong")] if "wrong" in name_of(urn) else []
        return dict(news), failures

    def diff(
        self,
        urn: str,
        id_: str,
        olds: Any,
        news: Any,
        provider: str = "",
        *,
        refreshing: bool = False,
    ) -> Any:
        self.record_call("diff", urn, id_, olds, news, remove_provider_id(provider), refreshing)
        old_inputs = {key: value for key, value in olds.items() if key in news}
        changed = find_changed_keys(old_inputs, news)
        replaces = [key for key in changed if key in ("region", "gpu_type")]
        return Diff(bool(changed), replaces, delete_before_replace=False)

    def add_planned_repairs(self, *_: Any) -> None:
        return

    def find_field_changes(self, *_: Any) -> Any:
        return ()

    def predict_removed_nodes(self, *_: Any) -> Any:
        return None

    def find_foreign_objects(self, *_: Any) -> Any:
        return ()

    def check_deletion(self, urn: str, outputs: Any, provider: str = "", others: Any = ()) -> None:
        self.record_call("may_delete", urn)

    def create(
        self,
        urn: str,
        inputs: Any,
        timeout: float | None,
        provider: str = "",
        *,
        replaces: str = "",
    ) -> Any:
        self.record_call("create", urn, inputs, timeout, remove_provider_id(provider), replaces)
        if "bad" in name_of(urn):
            raise ProviderError("no machine today")
        return Created(f"id-{name_of(urn)}", self.build_outputs(urn, inputs))

    def update(
        self, urn: str, id_: str, olds: Any, news: Any, timeout: float | None, provider: str = ""
    ) -> Any:
        self.record_call("update", urn, id_, olds, news, timeout, remove_provider_id(provider))
        return Created(id_, self.build_outputs(urn, news))

    def delete(
        self, urn: str, id_: str, outputs: Any, timeout: Any, provider: str = "", *, on_gone: Any
    ) -> None:
        self.record_call("delete", urn, id_)

    def read(self, urn: str, id_: str, inputs: Any, *_: Any, **__: Any) -> Any:
        self.record_call("read", urn, id_, inputs)
        if "bad" in id_:
            return None
        return Created(id_, self.build_outputs(urn, inputs)), None

    def build_outputs(self, urn: str, inputs: PropertyMap) -> PropertyMap:
        platform, _, kind = get_own_type(type_of(urn)).partition(":")
        names = load_lifecycle_class(platform, kind).list_property_names()
        computed = {key: value for key, value in COMPUTED.items() if key in names}
        return {**inputs, **computed}


@dataclass(frozen=True)
class StackReferences:
    warn: Any = None

    def read(self, inputs: PropertyMap) -> PropertyMap:
        if inputs["name"] == "bad":
            raise ProviderError("unknown stack 'bad'")
        return {
            "name": inputs["name"],
            "outputs": STACK_REFERENCE_OUTPUTS,
            "secretOutputNames": ["hidden", "nested"],
        }


@dataclass
class ObservedRun:
    """The observations of a run."""

    outcome: Outcome
    events: list[Event]
    calls: list[str]

    @property
    def comparable(self) -> dict[str, Any]:
        """Return everything observed but times, provider ids and orders that no run promises."""
        outcome = self.outcome
        return {
            "succeeded": outcome.succeeded,
            # The SDK registers independent resources at the same time.
            "errors": sorted(e.message for e in self.events if has_severity(e, "error")),
            "warnings": sorted(e.message for e in self.events if has_severity(e, "warning")),
            "declared": {
                registration.urn: describe_resource(registration)
                for registration in outcome.declared
            },
            "state": {entry.urn: describe_resource(entry) for entry in outcome.snapshot.resources},
            "pending": len(outcome.snapshot.pending_operations),
            "changes": dict(outcome.changes),
            "effects": {urn: sorted(effects) for urn, effects in outcome.effects.items()},
            "outputs": outcome.outputs,
            "planned": sorted(repr(change) for change in outcome.planned),
            "events": Counter(filter(None, map(describe_event, self.events))),
            "calls": Counter(self.calls),
        }

    @property
    def registration_order(self) -> list[str]:
        return [registration.urn for registration in self.outcome.declared]


def has_severity(event: Event, severity: str) -> bool:
    return isinstance(event, Diagnostic) and event.severity == severity


def describe_event(event: Event) -> str:
    if isinstance(event, StepStarted | StepDone | StepFailed):
        return f"{type(event).__name__} {event.step.op} {event.step.urn}"
    if isinstance(event, Diagnostic):
        source_line = (event.source.file, event.source.line) if event.source else ""
        return f"{event.severity} {event.message} {event.urn} {event.path} {source_line}"
    return ""


def remove_provider_id(provider: str) -> str:
    """Return a provider reference without the random id."""
    return provider.rpartition("::")[0]


def describe_resource(resource: Any) -> Any:
    """Return the comparable fields of a registration or state entry."""
    description = remove_ciphertexts(asdict(resource))
    description["stack_trace"] = [
        f for f in description["stack_trace"] if f.startswith("project:///")
    ]
    for name in ("source_position", "created", "modified", "number"):
        description.pop(name, None)
    if isinstance(resource, Registration | Read):
        description["place"] = resource.place if description["stack_trace"] else ""
    elif description["type"].startswith("pulumi:providers:"):
        description.pop("id")
    if "provider" in description:
        description["provider"] = remove_provider_id(description["provider"])
    return {
        key: list(value) if isinstance(value, tuple) else value
        for key, value in description.items()
    }


def remove_ciphertexts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: remove_ciphertexts(v) for key, v in value.items() if key != "ciphertext"}
    return [remove_ciphertexts(v) for v in value] if isinstance(value, list) else value


@dataclass
class RunComparison:
    """A project's folder and its last state, to run with the SDK and without."""

    directory: Path
    crypter: PassphraseCrypter
    state: bytes
    config: dict[str, str] = field(default_factory=dict)
    secret_keys: list[str] = field(default_factory=list)

    def run_both(
        self, operation: str = "update", **options: Any
    ) -> tuple[ObservedRun, ObservedRun]:
        """Run with the SDK and without; store the first state, except of a preview."""
        runs = self.run(operation, None, **options), self.run(operation, run_topology, **options)
        if not options.get("preview"):
            self.state = runs[0].outcome.snapshot.to_json(self.crypter)
        return runs

    def run(
        self, operation: Any, runner: Any, *, preview: bool = False, **options: Any
    ) -> ObservedRun:
        RecordingHost.calls = []
        events: list[Event] = []
        written: list[bytes] = []
        target = DeploymentTarget(
            program=Program(
                "demo",
                "dev",
                self.directory,
                self.directory,
                self.config,
                self.secret_keys,
                options.pop("parallel", 16),
                read_run_context(),
            ),
            snapshot=Snapshot.from_json(self.state, self.crypter),
            crypter=self.crypter,
            provider_config={
                key: Secret(value) if key in self.secret_keys else value
                for key, value in self.config.items()
            },
            write=written.append,
            stack_references=StackReferences(),  # type: ignore[arg-type]
        )
        engine_options = Options(operation, preview, run_topology=runner, **options)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(deployment, "ProviderHost", RecordingHost)
            outcome = Deployment(target, engine_options, EventBus([events.append])).run()
        assert edits.verify(outcome.snapshot) == []
        return ObservedRun(outcome, events, RecordingHost.calls)
