"""What programs can ask: with the keys of the environment or of the running program."""

from collections.abc import Iterator

import pulumi
import pytest
from scp_document import ID
from scp_emulated import H100, IMAGE, POOL, SUBNET, Emulated, emulated, environ, new_nodes

from gpuform.providers.errors import GpuformError, InvalidRequest, MissingCredentials
from gpuform.providers.scp import lookups


@pytest.fixture
def scp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulated]:
    with emulated() as platform:
        for name, value in environ(platform.url).items():
            monkeypatch.setenv(name, value)
        yield platform


def test_images_of_a_region(scp: Emulated) -> None:
    (image,) = (each for each in lookups.images("kr-west1") if each.id == IMAGE)
    assert (image.os_distro, image.scp_os_version) == ("UBUNTU", "22.04")
    with pytest.raises(InvalidRequest, match="region_id"):
        lookups.images("mars-1")


def test_types_of_servers(scp: Emulated) -> None:
    (product,) = (each for each in lookups.products("SCALE", IMAGE) if each.id == H100)
    assert product.product_attrs.gpu_model == "H100"
    assert product.state == "AVAILABLE"
    assert lookups.products(type="NO-SUCH-TYPE") == ()
    assert len(lookups.products()) >= len(lookups.products(image_id=IMAGE))


def test_vendor_pools(scp: Emulated) -> None:
    assert POOL in [each.node_pool_id for each in lookups.node_pools()]
    assert POOL in [each.node_pool_id for each in lookups.node_pools(SUBNET)]
    assert [each.node_pool_id for each in lookups.node_pools(node_pool_id=POOL)] == [POOL]
    assert lookups.node_pools(cluster_fabric_id=ID) == ()


def test_fabrics_and_nodes(scp: Emulated) -> None:
    assert (lookups.fabrics(), lookups.gpu_nodes()) == ([], [])
    made = scp.client.create_nodes(new_nodes("fabric-a", "a-001", "a-002"))
    scp.client.create_nodes(new_nodes("fabric-b", "b-001", "b-002"))
    scp.advance(1000)
    (fabric,) = lookups.fabrics("fabric-a", "RUNNING", POOL)
    assert [each.gpu_node_id for each in fabric.gpu_node_details] == made
    assert [each.id for each in lookups.gpu_nodes(cluster_fabric_id=fabric.id)] == made
    assert [each.id for each in lookups.gpu_nodes("a-002")] == made[1:]
    address = lookups.gpu_nodes("a-001")[0].policy_ip
    assert [each.id for each in lookups.gpu_nodes(ip=address)] == made[:1]
    assert lookups.gpu_nodes(state="STOPPED") == []


def test_the_keys_of_the_stack_are_used(scp: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"access": environ(scp.url)["SCP_TF_ACCESS_KEY"]}
    keys["secret"] = environ(scp.url)["SCP_TF_SECRET_KEY"]
    monkeypatch.delenv("SCP_TF_ACCESS_KEY")
    monkeypatch.delenv("SCP_TF_SECRET_KEY")
    with pytest.raises(MissingCredentials):
        lookups.products()
    config = {"scp:accessKey": keys["access"], "scp:secretKey": keys["secret"]}
    pulumi.runtime.set_all_config(config, [*config])
    try:
        assert lookups.products()
    finally:
        pulumi.runtime.set_all_config({})


def test_a_region_chooses_the_address(scp: Emulated, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the override there is no such region, and no request."""
    monkeypatch.delenv("SCP_TF_ENDPOINT_OVERRIDE")
    monkeypatch.delenv("SCP_TF_DEFAULT_REGION", raising=False)
    for look in (
        lambda: lookups.images("mars-1"),
        lambda: lookups.products(region="mars-1"),
        lambda: lookups.node_pools(region="mars-1"),
        lambda: lookups.fabrics(region="mars-1"),
        lambda: lookups.gpu_nodes(region="mars-1"),
    ):
        with pytest.raises(GpuformError, match="SCP has no region mars-1"):
            look()
    assert scp.requests() == []
