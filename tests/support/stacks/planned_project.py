"""Provide a project whose plans are saved and applied by commands, on an emulator."""

import json
import os
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Run = Any


KEY_CHECK_ID = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class PlannedProject:
    """A project, its commands and its emulator."""

    run: Run
    project: Path
    url: str

    @property
    def sent_changes(self) -> list[str]:
        """Return method and path of every changing request, without role checks."""
        with urllib.request.urlopen(f"{self.url}/_emulator/requests") as answer:
            recorded_requests = json.load(answer)
        return [
            f"{request['method']} {request['path']}"
            for request in recorded_requests
            if request["method"] != "GET" and KEY_CHECK_ID not in request["path"]
        ]

    @property
    def read_paths(self) -> list[str]:
        """Return the path of every object or list read so far."""
        with urllib.request.urlopen(f"{self.url}/_emulator/requests") as answer:
            return [request["path"] for request in json.load(answer) if request["method"] == "GET"]

    @property
    def state_file(self) -> bytes:
        return (self.project / ".pulumi/stacks/demo/dev.json").read_bytes()

    @property
    def plan_document(self) -> Any:
        return json.loads((self.project / "plan.json").read_text())

    def resize_cluster_outside(self, gpus: int) -> None:
        """Resize the cluster as somebody else, and wait until the platform has done it."""
        resources = json.loads(self.state_file)["checkpoint"]["latest"]["resources"]
        (id_,) = (resource["id"] for resource in resources if resource["urn"].endswith("::train"))
        headers = {
            "Authorization": f"Bearer {os.environ['TOGETHER_API_KEY']}",
            "Content-Type": "application/json",
        }
        for method, path, body in (
            ("PUT", f"/together/v1/compute/clusters/{id_}", {"num_gpus": gpus}),
            ("POST", "/_emulator/clock", {"advance": 3600}),
        ):
            data = json.dumps(body).encode()
            request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
            urllib.request.urlopen(request).close()

    def save_plan(self, *flags: str) -> None:
        ran = self.run("preview", "--save-plan", "plan.json", *flags)
        assert ran.code == 0, ran.out + ran.err

    def apply_plan(self, *flags: str) -> Any:
        return self.run("up", "--plan", "plan.json", "--yes", *flags)

    def apply_refused_plan(self, *flags: str, **more: str) -> str:
        """Apply the plan, check for a refusal without any change, and return stderr."""
        state_before = self.sent_changes, self.state_file
        ran = self.run("up", "--plan", "plan.json", "--yes", *flags, **more)
        assert ran.code == 1
        assert (self.sent_changes, self.state_file) == state_before
        assert not list((self.project / ".pulumi/locks").rglob("*.json"))
        return str(ran.err)

    def edit_plan(self, change: Callable[[Any], None]) -> None:
        plan_document = self.plan_document
        change(plan_document)
        (self.project / "plan.json").write_text(json.dumps(plan_document))

    def edit_program(self, *replacements: tuple[str, str]) -> None:
        file = self.project / "__main__.py"
        program = file.read_text()
        for old, new in replacements:
            assert old in program
            program = program.replace(old, new)
        file.write_text(program)
