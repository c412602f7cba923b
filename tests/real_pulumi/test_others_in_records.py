"""Test `pulumi destroy` of AIOS records with nodes of other people or stacks."""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from processes.commands import PASSPHRASE, Result, pulumi

from gpuform.providers.emulator.server import environment, serve

EXAMPLE: Final = Path(__file__).parents[2] / "examples" / "04-aios-registry"
AT_ONCE: Final = ("--yes", "--skip-preview", "--non-interactive")
EAST: Final = "east-training-001"


@dataclass(frozen=True)
class Project:
    """A copy of the example: the record `east`, whose node is a resource of its own, is up."""

    directory: Path
    environ: dict[str, str]
    record_url: str

    def destroy(self, **variables: str) -> Result:
        return pulumi(self.directory, "destroy", *AT_ONCE, **{**self.environ, **variables})

    def add_node_of_others(self) -> None:
        body = {"$push": {"nodes.nodeData": {"id": "theirs", "memory": 7}}}
        httpx.put(self.record_url, json=body, trust_env=False, verify=False).raise_for_status()

    def read_record(self) -> Any:
        answer = httpx.get(self.record_url, trust_env=False, verify=False)
        return answer.json() if answer.status_code == 200 else None

    def list_stored_types(self) -> list[str]:
        path = self.directory / ".pulumi" / "stacks" / "aios-registry" / "dev.json"
        resources = json.loads(path.read_text())["checkpoint"]["latest"].get("resources") or []
        return [resource["type"].rpartition(":")[2] for resource in resources]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml", "python", "pulumi-yaml", "tests")
    directory = shutil.copytree(EXAMPLE, tmp_path / "project", ignore=ignored)
    with serve(seed="others") as server:
        environ = {
            **environment(server.url),
            "PULUMI_DEBUG_COMMANDS": "1",
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_BACKEND_URL": f"file://{directory}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }
        for command in (["stack", "init", "dev"], ["up", *AT_ONCE]):
            done = pulumi(directory, *command, **environ)
            assert done.code == 0, done.stdout + done.stderr
        yield Project(directory, environ, f"{server.url}/aios/clusters/{EAST}")


def test_a_destroy_needs_no_permission_for_nodes_of_the_stack(project: Project) -> None:
    assert [node["id"] for node in project.read_record()["nodes"]["nodeData"]] == ["node-1"]
    done = project.destroy()
    assert done.code == 0, done.stdout + done.stderr
    assert project.read_record() is None
    assert project.list_stored_types() == []


def test_a_destroy_is_refused_only_if_the_record_has_nodes_of_others(project: Project) -> None:
    project.add_node_of_others()
    refused = project.destroy()
    assert refused.code != 0
    assert "this Cluster contains theirs, created by others" in refused.stdout + refused.stderr
    assert "GPUFORM_ALLOW=destroy-others" in refused.stdout + refused.stderr
    assert [node["id"] for node in project.read_record()["nodes"]["nodeData"]] == ["theirs"]
    allowed = project.destroy(GPUFORM_ALLOW="destroy-others")
    assert allowed.code == 0, allowed.stdout + allowed.stderr
    assert project.read_record() is None
    assert project.list_stored_types() == []
