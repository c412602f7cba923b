"""Test the look-ups for programs, with keys of the environment or of the running program."""

from collections.abc import Iterator

import pulumi
import pytest
from support.platforms.emulated_scp import (
    H100,
    IMAGE,
    POOL,
    SUBNET,
    EmulatedScp,
    build_create_request,
    build_variables,
    run_emulator,
)
from support.platforms.provider_contexts import change_context
from support.platforms.scp_document import ID

from gpuform.providers.context import (
    ProviderContext,
    get_current_context,
    read_run_context,
    use_context,
)
from gpuform.providers.errors import GpuformError, InvalidRequest, MissingCredentials
from gpuform.providers.scp import inventory


@pytest.fixture
def scp(monkeypatch: pytest.MonkeyPatch) -> Iterator[EmulatedScp]:
    with run_emulator() as platform:
        for name, value in build_variables(platform.url).items():
            monkeypatch.setenv(name, value)
        with use_context(ProviderContext(clock=get_current_context().clock)):
            yield platform


def test_images_are_those_of_the_region(scp: EmulatedScp) -> None:
    (image,) = (image for image in inventory.images("kr-west1") if image.id == IMAGE)
    assert (image.os_distro, image.scp_os_version) == ("UBUNTU", "22.04")
    with pytest.raises(InvalidRequest, match="region_id"):
        inventory.images("mars-1")


def test_server_types_have_their_gpus_and_states(scp: EmulatedScp) -> None:
    (product,) = (product for product in inventory.products("SCALE", IMAGE) if product.id == H100)
    assert product.product_attrs.gpu_model == "H100"
    assert product.state == "AVAILABLE"
    assert inventory.products(type="NO-SUCH-TYPE") == ()
    assert len(inventory.products()) >= len(inventory.products(image_id=IMAGE))


def test_vendor_pools_have_their_fabrics(scp: EmulatedScp) -> None:
    assert POOL in [pool.node_pool_id for pool in inventory.node_pools()]
    assert POOL in [pool.node_pool_id for pool in inventory.node_pools(SUBNET)]
    assert [pool.node_pool_id for pool in inventory.node_pools(node_pool_id=POOL)] == [POOL]
    assert inventory.node_pools(cluster_fabric_id=ID) == ()


def test_existing_fabrics_and_nodes_are_returned(scp: EmulatedScp) -> None:
    assert (inventory.fabrics(), inventory.gpu_nodes()) == ([], [])
    nodes = scp.client.create_nodes(build_create_request("fabric-a", "a-001", "a-002"))
    scp.client.create_nodes(build_create_request("fabric-b", "b-001", "b-002"))
    scp.move_clock(1000)
    (fabric,) = inventory.fabrics("fabric-a", "RUNNING", POOL)
    assert [member.gpu_node_id for member in fabric.gpu_node_details] == nodes
    assert [node.id for node in inventory.gpu_nodes(cluster_fabric_id=fabric.id)] == nodes
    assert [node.id for node in inventory.gpu_nodes("a-002")] == nodes[1:]
    address = inventory.gpu_nodes("a-001")[0].policy_ip
    assert [node.id for node in inventory.gpu_nodes(ip=address)] == nodes[:1]
    assert inventory.gpu_nodes(state="STOPPED") == []


def test_the_keys_of_the_stack_are_used(scp: EmulatedScp, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"access": build_variables(scp.url)["SCP_TF_ACCESS_KEY"]}
    keys["secret"] = build_variables(scp.url)["SCP_TF_SECRET_KEY"]
    monkeypatch.delenv("SCP_TF_ACCESS_KEY")
    monkeypatch.delenv("SCP_TF_SECRET_KEY")
    change_context(get_current_context(), run=read_run_context())
    with pytest.raises(MissingCredentials):
        inventory.products()
    config = {"scp:accessKey": keys["access"], "scp:secretKey": keys["secret"]}
    pulumi.runtime.set_all_config(config, [*config])
    try:
        assert inventory.products()
    finally:
        pulumi.runtime.set_all_config({})


def test_a_region_chooses_the_address(scp: EmulatedScp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the override the region is unknown, and no request is sent."""
    monkeypatch.delenv("SCP_TF_ENDPOINT_OVERRIDE")
    monkeypatch.delenv("SCP_TF_DEFAULT_REGION", raising=False)
    change_context(get_current_context(), run=read_run_context())
    for look in (
        lambda: inventory.images("mars-1"),
        lambda: inventory.products(region="mars-1"),
        lambda: inventory.node_pools(region="mars-1"),
        lambda: inventory.fabrics(region="mars-1"),
        lambda: inventory.gpu_nodes(region="mars-1"),
    ):
        with pytest.raises(GpuformError, match="SCP has no region mars-1"):
            look()
    assert scp.list_requests() == []
