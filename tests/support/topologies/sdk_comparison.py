"""A topology run both ways, with Pulumi's SDK and without it, and all that can be seen of either.

The provider is the same in both: it answers by what it is asked, and writes down what that was.
"""

import json
import threading
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gpuform.providers.catalog import load_lifecycle_class
from gpuform.stacks.engine.deployment import (
    Deployment,
    DeploymentTarget,
    Options,
    Outcome,
    deployment,
)
from gpuform.stacks.engine.language_host import Program
from gpuform.stacks.engine.planning import (
    Diagnostic,
    Event,
    EventBus,
    StepDone,
    StepFailed,
    StepStarted,
)
from gpuform.stacks.engine.provider_host import Created, Diff, Failure, ProviderHost
from gpuform.stacks.engine.provider_host.providers import ProviderError
from gpuform.stacks.engine.registration import Read, Registration
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.urn import get_own_type, name_of, type_of
from gpuform.stacks.engine.values import PropertyMap, Secret, find_changed_keys
from gpuform.stacks.topology_runner import run_topology

OTHER: PropertyMap = {
    "shown": "plain",
    "hidden": Secret("hush-other"),
    "count": 3.0,
    "nested": {"a": [1.0, Secret("hush-inner")], "b": None},
}
"""The outputs of the stack that topologies refer to."""
COMPUTED: PropertyMap = {
    "status": "Ready",
    "ready": True,
    "not_ready_reason": None,
    "kube_config": "hush-kube",
    "duration_hours": 5.0,
    "control_plane_nodes": [{"name": "head", "cores": 8.0, "note": None}],
    "created_at": None,
}


class Host(ProviderHost):
    """A provider for all: `bad` in a name has creates fail, `wrong` has checks refuse."""

    calls: ClassVar[list[Any]] = []
    lock: ClassVar[threading.Lock] = threading.Lock()

    def note(self, verb: str, *said: Any) -> None:
        with self.lock:
            self.calls.append(json.dumps([verb, *said], default=repr, sort_keys=True))

    def check(self, urn: str, olds: Any, news: Any, provider: str = "") -> Any:
        self.note("check", urn, olds, news, known(provider))
        failures = [Failure("region", "is wrong")] if "wrong" in name_of(urn) else []
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
        self.note("diff", urn, id_, olds, news, known(provider), refreshing)
        given = {key: value for key, value in olds.items() if key in news}
        changed = find_changed_keys(given, news)
        replaces = [key for key in changed if key in ("region", "gpu_type")]
        return Diff(bool(changed), replaces, delete_before_replace=False)

    def find_field_changes(self, *_: Any) -> Any:
        return ()

    def predict_removed_nodes(self, *_: Any) -> Any:
        return None

    def find_foreign_objects(self, *_: Any) -> Any:
        return ()

    def check_deletion(self, urn: str, outputs: Any, provider: str = "", others: Any = ()) -> None:
        self.note("may_delete", urn)

    def create(
        self,
        urn: str,
        inputs: Any,
        timeout: float | None,
        provider: str = "",
        *,
        replaces: str = "",
    ) -> Any:
        self.note("create", urn, inputs, timeout, known(provider), replaces)
        if "bad" in name_of(urn):
            raise ProviderError("no machine today")
        return Created(f"id-{name_of(urn)}", self.outputs(urn, inputs))

    def update(
        self, urn: str, id_: str, olds: Any, news: Any, timeout: float | None, provider: str = ""
    ) -> Any:
        self.note("update", urn, id_, olds, news, timeout, known(provider))
        return Created(id_, self.outputs(urn, news))

    def delete(
        self, urn: str, id_: str, outputs: Any, timeout: Any, provider: str = "", *, on_gone: Any
    ) -> None:
        self.note("delete", urn, id_)

    def read(self, urn: str, id_: str, inputs: Any, *_: Any, **__: Any) -> Any:
        self.note("read", urn, id_, inputs)
        if "bad" in id_:
            return None
        return Created(id_, self.outputs(urn, inputs)), None

    def outputs(self, urn: str, inputs: PropertyMap) -> PropertyMap:
        platform, _, kind = get_own_type(type_of(urn)).partition(":")
        names = load_lifecycle_class(platform, kind).list_property_names()
        computed = {key: value for key, value in COMPUTED.items() if key in names}
        return {**inputs, **computed}


@dataclass(frozen=True)
class References:
    warn: Any = None

    def read(self, inputs: PropertyMap) -> PropertyMap:
        if inputs["name"] == "bad":
            raise ProviderError("unknown stack 'bad'")
        return {"name": inputs["name"], "outputs": OTHER, "secretOutputNames": ["hidden", "nested"]}


@dataclass
class Ran:
    """What can be seen of a run."""

    outcome: Outcome
    events: list[Event]
    calls: list[str]

    @property
    def seen(self) -> dict[str, Any]:
        """All of it, but for times, ids of providers and orders that no run promises."""
        outcome = self.outcome
        return {
            "succeeded": outcome.succeeded,
            "errors": [e.message for e in self.events if is_told(e, "error")],
            "warnings": sorted(e.message for e in self.events if is_told(e, "warning")),
            "declared": {each.urn: seen_of(each) for each in outcome.declared},
            "state": {each.urn: seen_of(each) for each in outcome.snapshot.resources},
            "pending": len(outcome.snapshot.pending_operations),
            "changes": dict(outcome.changes),
            "effects": {urn: sorted(effects) for urn, effects in outcome.effects.items()},
            "outputs": outcome.outputs,
            "planned": sorted(repr(each) for each in outcome.planned),
            "events": Counter(filter(None, map(about, self.events))),
            "calls": Counter(self.calls),
        }

    @property
    def order(self) -> list[str]:
        return [each.urn for each in self.outcome.declared]


def is_told(event: Event, severity: str) -> bool:
    return isinstance(event, Diagnostic) and event.severity == severity


def about(event: Event) -> str:
    if isinstance(event, StepStarted | StepDone | StepFailed):
        return f"{type(event).__name__} {event.step.op} {event.step.urn}"
    if isinstance(event, Diagnostic):
        place = (event.source.file, event.source.line) if event.source else ""
        return f"{event.severity} {event.message} {event.urn} {event.path} {place}"
    return ""


def known(provider: str) -> str:
    """The reference of a provider without its id, which is drawn."""
    return provider.rpartition("::")[0]


def seen_of(each: Any) -> Any:
    """What is said of one resource, and by which lines of the program itself."""
    said = without_ciphertexts(asdict(each))
    said["stack_trace"] = [f for f in said["stack_trace"] if f.startswith("project:///")]
    for name in ("source_position", "created", "modified"):
        said.pop(name, None)
    if isinstance(each, Registration | Read):
        said["place"] = each.place if said["stack_trace"] else ""
    elif said["type"].startswith("pulumi:providers:"):
        said.pop("id")
    if "provider" in said:
        said["provider"] = known(said["provider"])
    return {key: list(value) if isinstance(value, tuple) else value for key, value in said.items()}


def without_ciphertexts(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_ciphertexts(v) for key, v in value.items() if key != "ciphertext"}
    return [without_ciphertexts(v) for v in value] if isinstance(value, list) else value


@dataclass
class Ways:
    """A project's folder, and its last state."""

    directory: Path
    crypter: PassphraseCrypter
    state: bytes
    config: dict[str, str] = field(default_factory=dict)
    secret_keys: list[str] = field(default_factory=list)

    def both(self, operation: str = "update", **options: Any) -> tuple[Ran, Ran]:
        """With the SDK and without; the state of the first is kept, if anything was done."""
        ran = self.run(operation, None, **options), self.run(operation, run_topology, **options)
        if not options.get("preview"):
            self.state = ran[0].outcome.snapshot.to_json(self.crypter)
        return ran

    def run(self, operation: Any, runner: Any, *, preview: bool = False, **options: Any) -> Ran:
        Host.calls = []
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
            ),
            snapshot=Snapshot.from_json(self.state, self.crypter),
            crypter=self.crypter,
            provider_config={
                key: Secret(value) if key in self.secret_keys else value
                for key, value in self.config.items()
            },
            write=written.append,
            stack_references=References(),  # type: ignore[arg-type]
        )
        asked = Options(operation, preview, run_topology=runner, **options)
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(deployment, "ProviderHost", Host)
            outcome = Deployment(target, asked, EventBus([events.append])).run()
        assert edits.verify(outcome.snapshot) == []
        return Ran(outcome, events, Host.calls)
