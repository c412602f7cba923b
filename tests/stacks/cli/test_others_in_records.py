"""Test that an AIOS record with nodes of others is deleted only with a permission."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import environment, serve

Run = Any
NODE = """{
    "gpus": {"gpus": [{"model_name": "NVIDIA A100", "memory": 16384}]},
    "vcpus": {"count": 32}, "memory": 131072, "swap": 8192,
    "storage": {"disks": 2, "size": 1048576},
    "network": {"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000},
}"""
PROGRAM = f"""
from gpuform.providers.aios import Cluster, GpuNode

west = Cluster(
    "west",
    cluster_id="west-1",
    config={{"public_hostname": "west.example.com"}},
    tags=["gpu"],
    cluster_metadata={{"name": "West", "description": "Serves.", "owner": "AI"}},
)
GpuNode("own", cluster_id="west-1", node_id="node-own", **{NODE})
GpuNode("dependent", cluster_id=west, node_id="node-dependent", **{NODE})
"""
DANGER = "delete west: is deleted for good; also deletes theirs, which others created in west"


@pytest.fixture
def applied_record(dev: Run, project: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    with serve(seed="others") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        (project / "__main__.py").write_text(PROGRAM.split("GpuNode(", maxsplit=1)[0])
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err
        (project / "__main__.py").write_text(PROGRAM)
        ran = dev("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err
        yield dev, f"{server.url}/aios/clusters/west-1"


def add_foreign_node(url: str, node_id: str = "theirs") -> None:
    entry = {"id": node_id, "memory": 7}
    body = {"$push": {"nodes.nodeData": entry}}
    httpx.put(url, json=body, trust_env=False, verify=False).raise_for_status()


def get_node_ids(url: str) -> list[str]:
    record = httpx.get(url, trust_env=False, verify=False).json()
    return [node["id"] for node in record["nodes"]["nodeData"]]


def test_destroy_of_a_record_with_own_nodes_needs_no_permission(applied_record: Any) -> None:
    run, url = applied_record
    ran = run("destroy", "--yes")
    assert ran.code == 0, ran.out + ran.err
    assert "which others created" not in ran.out
    assert httpx.get(url, trust_env=False, verify=False).status_code == 404


def test_a_plan_that_deletes_others_nodes_is_refused_with_their_names(
    applied_record: Any, project: Path
) -> None:
    run, url = applied_record
    add_foreign_node(url)
    (project / "__main__.py").write_text("")
    for command in (["destroy", "--yes"], ["preview"]):
        ran = run(*command)
        assert ran.code == 1, command
        assert "this Cluster contains theirs, created by others" in ran.out + ran.err, command
        assert "--allow destroy-others" in ran.out + ran.err, command
    assert set(get_node_ids(url)) == {"node-own", "node-dependent", "theirs"}


def test_a_second_entry_of_an_own_node_is_somebody_elses(applied_record: Any) -> None:
    run, url = applied_record
    add_foreign_node(url, "node-own")
    ran = run("destroy", "--yes")
    assert ran.code == 1
    assert "this Cluster contains node-own, created by others" in ran.out + ran.err
    assert sorted(get_node_ids(url)) == ["node-dependent", "node-own", "node-own"]


def test_a_destroy_without_preview_is_refused_before_others_nodes_are_deleted(
    applied_record: Any,
) -> None:
    run, url = applied_record
    add_foreign_node(url)
    ran = run("destroy", "--yes", "--skip-preview")
    assert ran.code == 1
    assert "this Cluster contains theirs, created by others" in ran.out + ran.err
    assert "theirs" in get_node_ids(url)


def test_a_permitted_destroy_shows_others_nodes_as_dangerous(applied_record: Any) -> None:
    run, url = applied_record
    add_foreign_node(url)
    ran = run("destroy", "--yes", "--allow", "destroy-others")
    assert ran.code == 0, ran.out + ran.err
    assert DANGER in ran.out
    assert httpx.get(url, trust_env=False, verify=False).status_code == 404
