"""A project of another language: what needs its state alone works, what runs the program not."""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from support.stacks.stack_copies import StackCopies

from gpuform.providers.emulator.server import Server, environment
from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend

Run = Any

PROGRAM = """\
from gpuform.providers.together import SharedVolume

SharedVolume("data", volume_name="data", region="us-central-8", size_tib=1)
"""


@dataclass(frozen=True)
class ForeignProject:
    """A stack whose program gpuform cannot run any more, with one volume in the plugin's form."""

    run: Run
    directory: Path
    url: str

    def list_volume_ids(self) -> set[str]:
        with urllib.request.urlopen(f"{self.url}/_emulator/objects") as answer:
            return {volume["id"] for volume in json.load(answer)["together"].get("volumes", [])}

    def create_volume(self) -> str:
        request = urllib.request.Request(
            f"{self.url}/together/v1/compute/clusters/storage/volumes",
            json.dumps({"volume_name": "left", "region": "us-central-8", "size_tib": 1}).encode(),
            {"Authorization": "Bearer emulator-admin-key", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            return str(json.load(answer)["volume_id"])

    def interrupt_create(self) -> str:
        """Simulate a killed create of a volume, and return the id, which only a record has."""
        id_ = self.create_volume()
        urn = "urn:pulumi:dev::demo::gpuform:together:SharedVolume::left"
        intent = Intent(urn, "together", "SharedVolume", "left", "", 1.0, id=id_)
        open_intents(Backend.open(f"file://{self.directory}", {}), "demo", "dev").record(intent)
        path = self.directory / ".pulumi/stacks/demo/dev.json"
        state = json.loads(path.read_text())
        latest = state["checkpoint"]["latest"]
        inputs = {"volume_name": "left", "region": "us-central-8", "size_tib": 1}
        (provider,) = [e for e in latest["resources"] if e["type"] == "pulumi:providers:gpuform"]
        begun = {
            "urn": urn,
            "custom": True,
            "type": "gpuform:together:SharedVolume",
            "inputs": inputs,
            "parent": latest["resources"][0]["urn"],
            "provider": f"{provider['urn']}::{provider['id']}",
        }
        latest["pending_operations"] = [{"resource": begun, "type": "creating"}]
        path.write_text(json.dumps(state))
        return id_


@pytest.fixture
def foreign_project(
    dev: Run,
    project: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
    stack_copies: StackCopies,
) -> Iterator[ForeignProject]:
    runtime = getattr(request, "param", "yaml")

    def lead_to(server: Server) -> None:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)

    def make(server: Server) -> None:
        lead_to(server)
        (project / "__main__.py").write_text(PROGRAM)
        assert dev("config", "set", "gpuform:form", "plugin").code == 0
        assert dev("up", "--yes").code == 0

    with stack_copies.serve_copy("foreign", project, make) as server:
        lead_to(server)
        (project / "__main__.py").unlink()
        settings = project / "Pulumi.yaml"
        settings.write_text(settings.read_text().replace("runtime: python", f"runtime: {runtime}"))
        yield ForeignProject(dev, project, server.url)


OF_THE_STATE = [
    ["status"],
    ["drift"],
    ["orphans", "--platform", "together"],
    ["stack", "export"],
    ["state", "list"],
    ["config"],
    ["stack", "history"],
    ["refresh", "--preview-only"],
]


@pytest.mark.parametrize("foreign_project", ["yaml", "nodejs", "go"], indirect=True)
def test_commands_on_the_state_work_for_any_runtime(foreign_project: ForeignProject) -> None:
    for command in OF_THE_STATE:
        ran = foreign_project.run(*command)
        assert ran.code == 0, (command, ran.out + ran.err)


def test_destroy_deletes_resources_and_the_object_of_an_interrupted_create(
    foreign_project: ForeignProject,
) -> None:
    volume_id = foreign_project.interrupt_create()
    assert volume_id in foreign_project.list_volume_ids()

    ran = foreign_project.run("destroy", "--yes")

    assert ran.code == 0, ran.out + ran.err
    assert foreign_project.list_volume_ids() == set()


def test_the_object_of_an_interrupted_create_is_reported(foreign_project: ForeignProject) -> None:
    volume_id = foreign_project.interrupt_create()
    for command in ("status", "doctor", "orphans"):
        assert volume_id in foreign_project.run(command).out, command


def test_refresh_adds_the_object_of_an_interrupted_create_to_the_state(
    foreign_project: ForeignProject,
) -> None:
    volume_id = foreign_project.interrupt_create()

    ran = foreign_project.run("refresh", "--yes")

    assert ran.code == 0, ran.out + ran.err
    resources = foreign_project.run("stack", "export").json["deployment"]["resources"]
    assert volume_id in {resource.get("id") for resource in resources}


@pytest.mark.parametrize("foreign_project", ["yaml", "nodejs", "go"], indirect=True)
def test_commands_that_run_the_program_name_the_pulumi_cli(foreign_project: ForeignProject) -> None:
    for command in (["up", "--yes"], ["preview"], ["destroy", "--yes", "--run-program"]):
        ran = foreign_project.run(*command)
        assert ran.code == 1, command
        assert "Use the Pulumi CLI for this project" in ran.err, command


def test_doctor_finds_no_problem_in_the_runtime(foreign_project: ForeignProject) -> None:
    ran = foreign_project.run("doctor")

    assert "  problem  " not in ran.out
    assert "`pulumi up`" in ran.out
