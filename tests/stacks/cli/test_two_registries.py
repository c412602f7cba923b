"""Two AIOS registries with records of one id, in one stack: each plan asks the right one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpuform.providers.emulator.server import serve

Run = Any
NODE = {
    "gpus": {"gpus": [{"model_name": "NVIDIA A100", "memory": 16384}]},
    "vcpus": {"count": 32},
    "memory": 131072,
    "swap": 8192,
    "storage": {"disks": 2, "size": 1048576},
    "network": {"interfaces": 2, "tx_bandwidth": 10000, "rx_bandwidth": 10000},
}
PROGRAM = """
import pulumi
from gpuform.providers import Provider
from gpuform.providers.aios import Cluster, GpuNode

node = {node}
record = dict(
    cluster_id="west",
    config={{"public_hostname": "west.example.com"}},
    tags=["gpu"],
    cluster_metadata={{"name": "West", "description": "Serves.", "owner": "AI"}},
)
near = Provider("near", aios_registry_url="{near}/aios", aios_parser_url="{near}/aios")
far = Provider("far", aios_registry_url="{far}/aios", aios_parser_url="{far}/aios")
nodes = {{"node_data": [{{"id": "node-1", **node}}]}}
Cluster("near-west", nodes=nodes, opts=pulumi.ResourceOptions(provider=near), **record)
Cluster("far-west", opts=pulumi.ResourceOptions(provider=far), **record)
GpuNode(
    "far-node",
    cluster_id="west",
    node_id="node-2",
    opts=pulumi.ResourceOptions(provider=far),
    **node,
)
"""


@pytest.fixture
def registries(dev: Run, project: Path) -> Iterator[tuple[str, str]]:
    with serve(seed="near") as near, serve(seed="far") as far:
        urls = (near.url, far.url)
        assert dev("config", "set", "gpuform:form", "plugin").code == 0
        program = PROGRAM.format(node=NODE, near=near.url, far=far.url)
        (project / "__main__.py").write_text(program)
        yield urls


def add_foreign_node(url: str, node_id: str) -> None:
    body = {"$push": {"nodes.nodeData": {"id": node_id, "memory": 7}}}
    httpx.put(
        f"{url}/aios/clusters/west", json=body, trust_env=False, verify=False
    ).raise_for_status()


def get_node_ids(url: str) -> list[str]:
    record = httpx.get(f"{url}/aios/clusters/west", trust_env=False, verify=False).json()
    return [node["id"] for node in record["nodes"]["nodeData"]]


@pytest.mark.slow
def test_plans_of_two_registries_use_the_right_records(
    dev: Run, registries: tuple[str, str]
) -> None:
    near, far = registries
    ran = dev("up", "--yes", "--skip-preview", "--parallel", "1")
    assert ran.code == 0, ran.out + ran.err
    assert (get_node_ids(near), get_node_ids(far)) == (["node-1"], ["node-2"])
    ran = dev("preview", "--refresh", "--expect-no-changes")
    assert ran.code == 0, ran.out + ran.err
    add_foreign_node(far, "node-1")  # an id that the stack has in the other registry
    ran = dev("destroy", "--yes")
    assert ran.code == 1
    assert "this Cluster contains node-1, created by others" in ran.out + ran.err
    assert (get_node_ids(near), get_node_ids(far)) == (["node-1"], ["node-2", "node-1"])
    ran = dev("destroy", "--yes", "--allow", "destroy-others")
    assert ran.code == 0, ran.out + ran.err
    assert (
        "delete far-west: is deleted for good; also deletes node-1, which others created" in ran.out
    )
    assert "delete near-west: is deleted for good; node-1" not in ran.out
