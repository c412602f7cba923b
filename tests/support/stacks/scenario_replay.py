"""Replay a scenario on a stack of its own, command by command, with any engine of Pulumi's flags.

The provider is `recordings/steered.py`; `recordings/scenarios.yaml` shows the fields of a step.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from processes.commands import PASSPHRASE, SALT, Cli, Result
from support.servers.bucket_server import KEYS

from gpuform.stacks.engine.secrets.passphrase import PassphraseCrypter
from gpuform.stacks.engine.state import Snapshot, edits
from gpuform.stacks.engine.store import Backend

STEERED = Path(__file__).parents[2] / "stacks/engine/recordings/steered.py"

HEAD = (
    "from pulumi import Alias, Config, ResourceOptions, export\nfrom steered import Folder, Thing\n"
)

MASKED = {
    "created", "modified", "sourcePosition", "stackTrace", "ciphertext", "__provider",
}  # fmt: skip
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def mask(value: Any, key: str | None = None) -> Any:
    """Return a value of a state without times, positions, ciphertexts and UUIDs."""
    if key in MASKED and value is not None:
        return f"<{key}>"
    if isinstance(value, dict):
        return {name: mask(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [mask(item) for item in value]
    return UUID.sub("<uuid>", value) if isinstance(value, str) else value


def create_project(project: Path, name: str, provider: Path) -> None:
    """Create the folder of a project whose programs import this provider."""
    project.mkdir(parents=True)
    shutil.copy(provider, project)
    (project / "Pulumi.yaml").write_text(f"name: {name}\nruntime: python\n")
    (project / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
    # The Pulumi CLI looks for plugins to fetch among what is installed: half the time of a run.
    (project / "pip.py").write_text("print([])\n")


@dataclass
class Replay:
    """A stack that is taken through the steps of a scenario."""

    folder: Path
    cli: Cli
    url: str
    project: str = "rec"
    head: str = HEAD

    @classmethod
    def create(cls, folder: Path, cli: Cli, url: str = "") -> "Replay":
        (folder / "state").mkdir()
        create_project(folder / "project", "rec", STEERED)
        replay = cls(folder, cli, url or f"file://{folder}/state")
        assert replay.run("stack", "init", "dev").code == 0
        return replay

    def run(self, *arguments: str) -> Result:
        return self.cli(
            self.folder / "project",
            *arguments,
            "--non-interactive",
            PULUMI_BACKEND_URL=self.url,
            PULUMI_HOME=str(self.folder / "home"),
            PULUMI_CONFIG_PASSPHRASE=PASSPHRASE,
            PULUMI_DEBUG_COMMANDS="1",
            **KEYS,
        )

    def play_step(
        self,
        run: str = "up",
        program: str = "",
        config: Any = None,
        others: Any = None,
        flags: Iterable[str] = (),
    ) -> dict[str, Any]:
        """Run the command of one step, and return the effects in the recordings' form."""
        for key, value in (config or {}).items():
            secret = ["--secret"] if isinstance(value, list) else []
            assert (
                self.run("config", "set", key, *(value if secret else [value]), *secret).code == 0
            )
        if others:
            self._change_platform(others)
        project = self.folder / "project"
        (project / "__main__.py").write_text(self.head + program)
        (project / "calls.jsonl").unlink(missing_ok=True)
        always = [] if run == "preview" else ["--yes", "--skip-preview"]
        log = self.folder / "events"
        log.write_text("")
        done = self.run(run, *flags, *always, "--event-log", str(log))
        effects = dict(self._list_effects(done, log))
        if run == "preview":
            effects |= self._preview_json(flags)
        return effects

    def _change_platform(self, others: dict[str, dict[str, Any] | None]) -> None:
        file = self.folder / "project/platform.json"
        platform = json.loads(file.read_text())
        for id_, properties in others.items():
            if properties is None:
                del platform["objects"][id_]
            else:
                platform["objects"][id_].update(properties)
        file.write_text(json.dumps(platform))

    def _list_effects(self, done: Result, log: Path) -> Iterator[tuple[str, Any]]:
        yield "succeeded", done.code == 0
        yield "operations", group_by_urn(_read_operations(log))
        yield "calls", Counter(self._read_calls())
        file = f".pulumi/stacks/{self.project}/dev.json"
        data = Backend.open(self.url, KEYS).storage.read(file).data
        snapshot = Snapshot.from_json(data, PassphraseCrypter(PASSPHRASE, SALT))
        assert edits.verify(snapshot) == []
        yield "pending operations", len(snapshot.pending_operations)
        latest = json.loads(data)["checkpoint"]["latest"]
        yield from list_entries(mask(latest.get("resources") or []))

    def _preview_json(self, flags: Iterable[str]) -> dict[str, Any]:
        calls = self.folder / "project/calls.jsonl"
        calls_before = calls.read_text() if calls.exists() else ""
        digest = json.loads(self.run("preview", *flags, "--json").stdout)
        calls.write_text(calls_before)
        planned = Counter(f"{step['op']} {step['urn']}" for step in digest["steps"])
        return {"planned": planned, "changes": digest["changeSummary"]}

    def _read_calls(self) -> Iterator[str]:
        file = self.folder / "project/calls.jsonl"
        lines = file.read_text().splitlines() if file.exists() else []
        yield from (to_sorted_json(json.loads(line)) for line in lines)


def _read_operations(log: Path) -> Iterator[list[str]]:
    for line in log.read_text().splitlines():
        event = json.loads(line)
        for kind, failed in (("resOutputsEvent", []), ("resOpFailedEvent", ["failed"])):
            if kind in event:
                metadata = event[kind]["metadata"]
                yield [metadata["op"], metadata["urn"], *failed]


def group_by_urn(operations: Iterable[list[str]]) -> dict[str, list[list[str]]]:
    """Return the operations of each resource in order. Between resources no order is promised."""
    operations_by_urn: dict[str, list[list[str]]] = {}
    for op, urn, *failed in operations:
        operations_by_urn.setdefault(urn, []).append([op, *failed])
    return operations_by_urn


def list_entries(resources: list[dict[str, Any]]) -> Iterator[tuple[str, Any]]:
    counts = Counter[str]()
    for entry in sorted(resources, key=lambda entry: entry.get("id", "")):
        key = f"entry {entry['urn']}{' (delete)' if entry.get('delete') else ''}"
        counts[key] += 1
        yield key if counts[key] == 1 else f"{key} {counts[key]}", entry


def to_sorted_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)
