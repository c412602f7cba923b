"""A project whose plans are saved and applied by the commands, and what came of it."""

import json
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Run = Any


NOBODY = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Scene:
    """A project, its state and its platform."""

    run: Run
    project: Path
    url: str

    @property
    def requests(self) -> list[str]:
        """Every request so far that was to change something: not the question for a key's role."""
        with urllib.request.urlopen(f"{self.url}/_emulator/requests") as answer:
            found = json.load(answer)
        return [
            f"{r['method']} {r['path']}"
            for r in found
            if r["method"] != "GET" and NOBODY not in r["path"]
        ]

    @property
    def gets(self) -> list[str]:
        """The path of every object or list that was read so far."""
        with urllib.request.urlopen(f"{self.url}/_emulator/requests") as answer:
            return [each["path"] for each in json.load(answer) if each["method"] == "GET"]

    @property
    def state(self) -> bytes:
        return (self.project / ".pulumi/stacks/demo/dev.json").read_bytes()

    @property
    def document(self) -> Any:
        return json.loads((self.project / "plan.json").read_text())

    def save(self, *flags: str) -> None:
        ran = self.run("preview", "--save-plan", "plan.json", *flags)
        assert ran.code == 0, ran.out + ran.err

    def apply(self, *flags: str) -> Any:
        return self.run("up", "--plan", "plan.json", "--yes", *flags)

    def refused(self, *flags: str, **more: str) -> str:
        """The refusal of the plan, before which and by which nothing was changed."""
        before = self.requests, self.state
        ran = self.run("up", "--plan", "plan.json", "--yes", *flags, **more)
        assert ran.code == 1
        assert (self.requests, self.state) == before
        assert not list((self.project / ".pulumi/locks").rglob("*.json"))
        return str(ran.err)

    def edit(self, change: Callable[[Any], None]) -> None:
        document = self.document
        change(document)
        (self.project / "plan.json").write_text(json.dumps(document))

    def write_program(self, *replacements: tuple[str, str]) -> None:
        file = self.project / "__main__.py"
        text = file.read_text()
        for old, new in replacements:
            assert old in text
            text = text.replace(old, new)
        file.write_text(text)
