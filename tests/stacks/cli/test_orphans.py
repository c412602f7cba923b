"""`gpuform orphans`: what no stack owns, and how sure that is."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.topologies.declarations import BENCH

from gpuform.providers.emulator.server import environment, serve
from gpuform.providers.records import Intent
from gpuform.stacks.engine.records import open_intents
from gpuform.stacks.engine.store import Backend

Run = Any

POOL = """\
node_pools:
  pool:
    platform: scp
    node_pool_id: POOL001-krw1a
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: 2
    region_id: kr-west1
    vpc_id: e58348b1bc9148e5af86500fd4ef99ca
    subnet_id: ab313c43291e4b678f4bacffe10768ae
    image_id: IMAGE-7XFMaJpLsapKvskFMjCtmm
    server_type_id: f90e8ef54cc2451b825608e9f95f7bcb
    os_user_password: Only4Tests!
"""


@pytest.fixture
def applied_stack(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    """Create a cluster and a volume in the stack dev, and return the stack's commands."""
    (project / "__main__.py").unlink()
    with serve(seed="orphans") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        (project / "topology.yaml").write_text(BENCH)
        assert dev("up", "--yes", "--skip-preview").code == 0
        yield dev


def get_state_path(project: Path, stack: str = "dev") -> Path:
    return project / f".pulumi/stacks/demo/{stack}.json"


@pytest.mark.slow
def test_an_object_is_an_orphan_only_after_its_stack_has_lost_it(
    applied_stack: Run, project: Path
) -> None:
    assert applied_stack("stack", "init", "other").code == 0
    (project / "topology.yaml").write_text(POOL)
    assert applied_stack("up", "--yes", "--skip-preview").code == 0
    ran = applied_stack("orphans")
    assert (ran.code, ran.err) == (0, "")
    assert "No orphans on together, scp, tensorone and aios" in ran.out
    get_state_path(project).unlink()
    ran = applied_stack("orphans")
    assert ran.code == 3
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    assert any(line.startswith("tensorone:Cluster bench cluster_") for line in lines)
    assert any(line.endswith("unknown available unknown unknown -") for line in lines)  # the volume
    assert any(line.endswith("/h researcher@company.com") for line in lines)
    assert re.search(r"\n2 orphans, [1-9][.0-9]* USD/h, 1 cost unknown: on together, scp", ran.out)
    commands = re.findall(r"\n    gpuform (import --all --platform \w+)", ran.out)
    assert sorted(command.split()[-1] for command in commands) == ["tensorone", "together"]
    ran = applied_stack(*["import", "--all", "--platform", "tensorone", "--preview-only"])
    assert (ran.code, ran.err) == (0, "")


def test_orphans_json_has_null_for_unknown_values(applied_stack: Run, project: Path) -> None:
    get_state_path(project).unlink()
    ran = applied_stack("orphans", "--json", "--platform", "together", "--platform", "tensorone")
    assert ran.code == 3
    volume, cluster = sorted(ran.json["objects"], key=lambda orphan: str(orphan["platform"]))[::-1]
    assert (volume["age_seconds"], volume["hourly_cost"], volume["region"]) == (None, None, None)
    assert cluster["hourly_cost"] > 0
    assert (volume["owner"], cluster["owner"]) == (None, "researcher@company.com")
    assert cluster["age_seconds"] > 0
    assert ran.json["asked"] == ["together", "tensorone"]
    younger = applied_stack("orphans", "--platform", "tensorone", "--older-than", "1000h")
    assert (younger.code, younger.out[:10]) == (0, "No orphans")


def test_a_platform_without_an_answer_is_not_reported_as_without_orphans(
    applied_stack: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOS_REGISTRY_URL", "http://127.0.0.1:9")
    ran = applied_stack("orphans")
    assert ran.code == 4
    assert "aios: cannot list the objects" in ran.err
    assert "Incomplete result on" in ran.out
    assert "No orphans" not in ran.out


def test_orphans_names_a_platform_without_credentials(
    applied_stack: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TOGETHER_API_KEY")
    ran = applied_stack("orphans")
    assert ran.code == 0
    assert "not asked: together (the API key for Together is missing" in ran.out
    assert applied_stack("orphans", "--platform", "together").code == 4
    for name in ("SCP_TF_ACCESS_KEY", "SCP_TF_SECRET_KEY", "TENSORONE_API_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nowhere")
    monkeypatch.delenv("AIOS_REGISTRY_URL")
    ran = applied_stack("orphans")
    assert ran.code == 4
    assert "No platform was asked." in ran.out


def test_an_unreadable_state_makes_the_orphans_incomplete(
    applied_stack: Run, project: Path
) -> None:
    get_state_path(project, "other").write_text("{")
    ran = applied_stack("orphans")
    assert ran.code == 4
    assert "the resources of stack organization/demo/other are unknown" in ran.err


def test_orphans_reports_unresolved_creates(applied_stack: Run, project: Path) -> None:
    intents = open_intents(Backend.open(f"file://{project}", {}), "demo", "dev")
    assert intents.list_all() == []
    intents.record(Intent("urn:x", "together", "Cluster", "lost", "us-central-8", 1_800_000_000))
    resources = json.loads(get_state_path(project).read_text())["checkpoint"]["latest"]["resources"]
    id_ = next(resource["id"] for resource in resources if "SharedVolume" in resource["type"])
    intents.record(Intent("urn:y", "together", "SharedVolume", "data", "", 1_800_000_000, id=id_))
    ran = applied_stack("orphans")
    assert ran.code == 3
    assert "unresolved create: together:Cluster 'lost' in us-central-8 (id unknown)" in ran.out
    assert "'data'" not in ran.out
    assert len(intents.list_all()) == 2


def test_orphans_changes_no_file_and_no_object(applied_stack: Run, project: Path) -> None:
    def read_files() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}

    before = read_files()
    applied_stack("orphans")
    assert read_files() == before
    assert "did you mean together?" in applied_stack("orphans", "--platform", "togther").err
