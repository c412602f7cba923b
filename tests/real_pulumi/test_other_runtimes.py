"""The Pulumi CLI beside gpuform in a project whose program gpuform cannot run.

`pulumi destroy` runs no program, so that these tests need no language host.
"""

import json
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from processes.commands import PASSPHRASE, SALT, Result, pulumi, run_new_process

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend

PROGRAM = """\
from gpuform.providers.together import SharedVolume

SharedVolume("data", volume_name="data", region="us-central-8", size_tib=1)
"""
URN = "urn:pulumi:dev::foreign::gpuform:together:SharedVolume::left"


@dataclass(frozen=True)
class ForeignProject:
    """A stack in the plugin's form, in a project of Pulumi YAML."""

    folder: Path
    url: str

    @property
    def environ(self) -> dict[str, str]:
        return {
            **environment(self.url),
            "PULUMI_BACKEND_URL": f"file://{self.folder}/state",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }

    @property
    def checkpoint(self) -> Path:
        return self.folder / "state/.pulumi/stacks/foreign/dev.json"

    def run_gpuform(self, *arguments: str) -> Result:
        return run_new_process(
            self.folder / "project", *arguments, "--stack", "dev", **self.environ
        )

    def pulumi(self, *arguments: str) -> Result:
        more = ("--stack", "dev", "--non-interactive")
        return pulumi(self.folder / "project", *arguments, *more, **self.environ)

    def write_project(self, runtime: str) -> None:
        (self.folder / "project/Pulumi.yaml").write_text(f"name: foreign\nruntime: {runtime}\n")

    def list_volume_ids(self) -> set[str]:
        with urllib.request.urlopen(f"{self.url}/_emulator/objects") as answer:
            return {volume["id"] for volume in json.load(answer)["together"].get("volumes", [])}

    def interrupt_create(self) -> str:
        """Simulate a killed create of a volume, and return the id, which only a record has."""
        inputs = {"volume_name": "left", "region": "us-central-8", "size_tib": 1}
        request = urllib.request.Request(
            f"{self.url}/together/v1/compute/clusters/storage/volumes",
            json.dumps(inputs).encode(),
            {"Authorization": "Bearer emulator-admin-key", "Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request) as answer:
            id_ = str(json.load(answer)["volume_id"])
        intent = Intent(URN, "together", "SharedVolume", "left", "", 1.0, id=id_)
        backend = Backend.open(f"file://{self.folder}/state", {})
        open_intents(backend, "foreign", "dev").record(intent)
        state = json.loads(self.checkpoint.read_text())
        latest = state["checkpoint"]["latest"]
        (provider,) = [e for e in latest["resources"] if e["type"] == "pulumi:providers:gpuform"]
        begun = {
            "urn": URN,
            "custom": True,
            "type": "gpuform:together:SharedVolume",
            "inputs": inputs,
            "parent": latest["resources"][0]["urn"],
            "provider": f"{provider['urn']}::{provider['id']}",
        }
        latest["pending_operations"] = [{"resource": begun, "type": "creating"}]
        self.checkpoint.write_text(json.dumps(state))
        return id_

    def reset_state_to_provider(self) -> None:
        """Remove all but the provider from the state, as after a killed first create."""
        state = json.loads(self.checkpoint.read_text())
        latest = state["checkpoint"]["latest"]
        latest["resources"] = [
            resource for resource in latest["resources"] if resource["type"].startswith("pulumi:")
        ]
        self.checkpoint.write_text(json.dumps(state))


@pytest.fixture
def foreign_project(tmp_path: Path) -> Iterator[ForeignProject]:
    (tmp_path / "project").mkdir()
    (tmp_path / "state").mkdir()
    with serve(seed="foreign") as server:
        project = ForeignProject(tmp_path, server.url)
        project.write_project("python")
        (tmp_path / "project/Pulumi.dev.yaml").write_text(
            f"encryptionsalt: {SALT}\nconfig:\n  gpuform:form: plugin\n"
        )
        (tmp_path / "project/__main__.py").write_text(PROGRAM)
        assert project.pulumi("stack", "init").code == 0
        done = project.run_gpuform("up", "--yes")
        assert done.code == 0, done.stdout + done.stderr
        project.write_project("yaml")
        yield project


DESTROY = ("destroy", "--yes", "--skip-preview")


def test_a_refused_pulumi_destroy_names_pulumi_up_and_gpuform_destroy_works(
    foreign_project: ForeignProject,
) -> None:
    volume_id = foreign_project.interrupt_create()

    refused = foreign_project.pulumi(*DESTROY)

    output = refused.stdout + refused.stderr
    assert refused.code != 0
    assert volume_id in output
    assert "`pulumi up` resumes the create" in output
    assert volume_id in foreign_project.list_volume_ids()
    destroyed = foreign_project.run_gpuform("destroy", "--yes")
    assert destroyed.code == 0, destroyed.stdout + destroyed.stderr
    assert foreign_project.list_volume_ids() == set()


def test_pulumi_destroy_of_an_interrupted_first_create_asks_no_plugin_and_gpuform_names_it(
    foreign_project: ForeignProject,
) -> None:
    volume_id = foreign_project.interrupt_create()
    foreign_project.reset_state_to_provider()

    destroyed = foreign_project.pulumi(*DESTROY)

    assert destroyed.code == 0, "the engine asks the plugin now: refuse the destroy, and say so"
    assert "pending operations" in destroyed.stdout + destroyed.stderr
    assert volume_id in foreign_project.list_volume_ids()
    for command in ("status", "doctor", "orphans"):
        result = foreign_project.run_gpuform(command)
        assert volume_id in result.stdout, (command, result.stdout, result.stderr)
    assert foreign_project.run_gpuform("orphans").code == 3


def test_gpuform_destroy_deletes_the_object_of_an_interrupted_first_create(
    foreign_project: ForeignProject,
) -> None:
    volume_id = foreign_project.interrupt_create()
    foreign_project.reset_state_to_provider()
    assert volume_id in foreign_project.list_volume_ids()

    destroyed = foreign_project.run_gpuform("destroy", "--yes")

    assert destroyed.code == 0, destroyed.stdout + destroyed.stderr
    assert volume_id not in foreign_project.list_volume_ids()
