"""Provide a stack in a temporary folder, run by the embedded engine over a scripted provider."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from gpuform.providers.context import read_run_context
from gpuform.providers.values import PropertyMap, Secret
from gpuform.stacks.engine.deployment import Deployment, DeploymentTarget, Options, Outcome
from gpuform.stacks.engine.executing import StackReferences
from gpuform.stacks.engine.language_host import Program
from gpuform.stacks.engine.planning import Diagnostic, Event, EventBus, StepDone, StepFailed
from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Checkpoint, Snapshot, edits, load_checkpoint

PASSPHRASE = "test only"

# The platform is a JSON file: id -> properties. A property named `refuse` makes the verbs that it
# names fail; `rack` forces a replacement, `slot` one that deletes first.
PROVIDER = """
import json
import pathlib
import threading

from gpuform.providers.context import get_current_context
from pulumi import Output
from pulumi.dynamic import (
    CheckFailure, CheckResult, CreateResult, DiffResult, ReadResult, Resource, ResourceProvider,
    UpdateResult,
)

HERE = pathlib.Path(__file__).parent
LOCK = threading.Lock()


def change_objects(change=None):
    with LOCK:
        path = HERE / "platform.json"
        objects = json.loads(path.read_text()) if path.exists() else {}
        if change:
            change(objects)
            path.write_text(json.dumps(objects))
        return objects


def note(verb, **facts):
    with LOCK, open(HERE / "calls.jsonl", "a") as log:
        log.write(json.dumps({"verb": verb, **facts}, default=lambda value: "<unknown>") + "\\n")


def own(props):
    return {key: value for key, value in props.items() if key != "__provider"}


class Machines(ResourceProvider):
    def check(self, olds, news):
        note("check", news=own(news))
        refused = [CheckFailure("size", "must not be negative")] if news.get("size") == -1 else []
        return CheckResult(news, refused)

    def diff(self, id, olds, news):
        if "diff" in news.get("refuse", ""):
            raise RuntimeError("nothing to compare with")
        changed = [k for k in own(news) if olds.get(k) != news[k]]
        if any(k.startswith("lazy") for k in news):
            return DiffResult()
        return DiffResult(
            changes=bool(changed),
            replaces=[k for k in changed if k in ("rack", "slot")],
            delete_before_replace="slot" in changed,
        )

    def create(self, props):
        note("create", props=own(props))
        if "create" in props.get("refuse", ""):
            raise RuntimeError("no machine today")
        made = {}

        def add(objects):
            made["id"] = f"m-{sum(1 for _ in objects.get('_made', [])) + 1}"
            objects.setdefault("_made", []).append(made["id"])
            objects[made["id"]] = own(props)

        change_objects(add)
        if "slow" in props:
            get_current_context().progress.init_errors.append("still booting")
        if "wait" in props:
            (HERE / "waiting").touch()
            get_current_context().sleep(3600)
        return CreateResult(made["id"], {**own(props), "address": f"10.0.0.{made['id'][2:]}"})

    def read(self, id, props):
        objects = change_objects()
        if id not in objects:
            return ReadResult("", {})
        return ReadResult(id, {**own(props), **objects[id]})

    def update(self, id, olds, news):
        note("update", id=id, news=own(news))
        if "update" in news.get("refuse", ""):
            raise RuntimeError("it will not change")
        change_objects(lambda objects: objects.__setitem__(id, own(news)))
        if "slow" in news:
            get_current_context().progress.init_errors.append("booting again")
        return UpdateResult({**own(news), "address": olds.get("address")})

    def delete(self, id, props):
        note("delete", id=id)
        if "delete" in props.get("refuse", ""):
            raise RuntimeError("it stays")
        change_objects(lambda objects: objects.pop(id, None))


class Machine(Resource, module="lab", name="Machine"):
    address: Output[str]
    size: Output[float]

    def __init__(self, name, opts=None, **props):
        super().__init__(Machines(), name, {"address": None, "size": None, **props}, opts)
"""

HEAD = "import pulumi\nfrom pulumi import ResourceOptions\nfrom lab import Machine\n"


@dataclass
class Lab:
    """A stack with its last state and the events of its last run."""

    directory: Path
    crypter: PassphraseCrypter
    snapshot: Snapshot = field(default_factory=lambda: Snapshot("organization/lab/dev"), repr=False)
    config: dict[str, str] = field(default_factory=dict)
    secret_keys: list[str] = field(default_factory=list)
    written: list[bytes] = field(default_factory=list, repr=False)
    events: list[Event] = field(default_factory=list, repr=False)
    others: dict[str, bytes] = field(default_factory=dict, repr=False)  # by project/stack
    planned_outputs: dict[str, Any] = field(default_factory=dict, repr=False)  # by project/stack

    def up(self, program: str = "", **options: Any) -> Outcome:
        return self.run("update", program, **options)

    def preview(self, program: str = "", **options: Any) -> Outcome:
        return self.run("update", program, preview=True, **options)

    def run(
        self, operation: Any, program: str = "", *, preview: bool = False, **options: Any
    ) -> Outcome:
        """Run the program, keep the new state, and check the integrity rules."""
        (self.directory / "__main__.py").write_text(HEAD + dedent(program))
        (self.directory / "calls.jsonl").unlink(missing_ok=True)
        self.events.clear()
        deployment = Deployment(
            self.subject(), Options(operation, preview, **options), EventBus([self.events.append])
        )
        outcome = deployment.run()
        assert edits.verify(outcome.snapshot) == []
        if not preview:
            self.snapshot = outcome.snapshot
            if self.written:
                data = self.written[-1]
                assert edits.verify(Snapshot.from_json(data, self.crypter)) == []
        return outcome

    def subject(self) -> DeploymentTarget:
        config: PropertyMap = {
            key: Secret(value) if key in self.secret_keys else value
            for key, value in self.config.items()
        }
        return DeploymentTarget(
            program=Program(
                "lab",
                "dev",
                self.directory,
                self.directory,
                self.config,
                self.secret_keys,
                16,
                read_run_context(),
            ),
            snapshot=self.snapshot,
            crypter=self.crypter,
            provider_config=config,
            write=self.written.append,
            stack_references=StackReferences(
                "lab",
                self._load,
                lambda: PASSPHRASE,
                planned_outputs=lambda project, stack: self.planned_outputs.get(
                    f"{project}/{stack}"
                ),
            ),
        )

    def _load(self, project: str, stack: str) -> Checkpoint | None:
        data = self.others.get(f"{project}/{stack}")
        return load_checkpoint(data) if data else None

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Return operation and name of each step on a machine, done or planned."""
        done = [e.step for e in self.events if isinstance(e, StepDone)]
        return [
            (str(s.op), s.urn.rsplit("::", 1)[1])
            for s in done
            if s.state.custom and "Machine" in s.urn
        ]

    @property
    def failures(self) -> list[tuple[str, str]]:
        done = [e.step for e in self.events if isinstance(e, StepFailed)]
        return [(str(s.op), s.urn.rsplit("::", 1)[1]) for s in done]

    @property
    def errors(self) -> list[str]:
        return [
            e.message for e in self.events if isinstance(e, Diagnostic) and e.severity == "error"
        ]

    def list_messages(self, severity: str) -> list[str]:
        return [
            e.message for e in self.events if isinstance(e, Diagnostic) and e.severity == severity
        ]

    @property
    def calls(self) -> list[dict[str, Any]]:
        path = self.directory / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def platform_objects(self) -> dict[str, Any]:
        path = self.directory / "platform.json"
        objects = json.loads(path.read_text()) if path.exists() else {}
        return {key: value for key, value in objects.items() if key != "_made"}

    def change_platform_object(self, id_: str, properties: dict[str, Any] | None) -> None:
        """Change or remove an object on the platform without the stack."""
        path = self.directory / "platform.json"
        objects = json.loads(path.read_text())
        if properties is None:
            del objects[id_]
        else:
            objects[id_].update(properties)
        path.write_text(json.dumps(objects))

    def state(self, name: str) -> Any:
        """Return the one entry with the name, without entries pending deletion."""
        (entry,) = [
            r for r in self.snapshot.resources if r.urn.endswith(f"::{name}") and not r.delete
        ]
        return entry

    @property
    def names(self) -> list[str]:
        return [r.urn.rsplit("::", 1)[1] for r in self.snapshot.resources if "Machine" in r.urn]


@pytest.fixture(scope="session")
def crypter() -> PassphraseCrypter:
    return PassphraseCrypter.create_new(PASSPHRASE)


@pytest.fixture
def lab(tmp_path: Path, crypter: PassphraseCrypter) -> Lab:
    (tmp_path / "lab.py").write_text(PROVIDER)
    return Lab(tmp_path, crypter)
