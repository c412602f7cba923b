"""Import what version 6 of Samsung's Terraform provider has made, and check that nothing changes.

The configuration has the provider's types and arguments (SamsungSDSCloud/samsungcloudplatformv2,
service/multinodegpucluster).
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.stacks.cli.test_convert_terraform import (
    Run,
    create_other_project,
    expect_import_without_changes,
    platforms,
)

__all__ = ["platforms"]

PROGRAM = """
from gpuform.providers.scp import NodePool, images, products

COMMON = {
    "node_pool_id": "POOL001-krw1a",
    "zone": "kr-west1-a",
    "image_id": images("kr-west1")[0].id,
    "server_type_id": products("SCALE", region="kr-west1")[0].id,
    "region_id": "kr-west1",
    "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
    "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
    "os_user_password": "Only4Tests!",
}
PUBLIC = {"nat_enabled": True, "public_ip_address_id": "b1d1a1c2e3f44a5b8c9d0e1f2a3b4c5d"}
train = NodePool("train", cluster_fabric_name="train-a", gpu_node_name_prefix="train",
    nodes={"001": PUBLIC, "002": {"state": "STATE"}}, **COMMON)
NodePool("extra", cluster_fabric_name="train-a", cluster_fabric_id=train.cluster_fabric_id,
    gpu_node_name_prefix="extra", count=1, **COMMON)
NodePool("eval", cluster_fabric_name="EVAL", gpu_node_name_prefix="eval", count=2, **COMMON)
"""

PREFIX = "samsungcloudplatformv2_multinodegpucluster_"

PROVIDER_V6 = """
terraform {
  required_providers {
    samsungcloudplatformv2 = {
      source  = "SamsungSDSCloud/samsungcloudplatformv2"
      version = "~> 6.0"
    }
  }
}

variable "os_user_password" {
  type      = string
  ephemeral = true
}

variable "public_ips" {
  type    = list(string)
  default = ["b1d1a1c2e3f44a5b8c9d0e1f2a3b4c5d"]
}

data "scp_gpunode_images" "all" {
  region_id = "kr-west1"
}

data "scp_gpunode_products" "scale" {
  type     = "SCALE"
  image_id = data.scp_gpunode_images.all.images[0].id
}

resource "scp_gpunode" "train" {
  cluster_fabric_details = {
    cluster_fabric_name = "train-a"
    node_pool_id        = "POOL001-krw1a"
  }
  gpu_node_name_prefix = "train"
  image_id             = data.scp_gpunode_images.all.images[0].id
  os_user_password     = var.os_user_password
  region_id            = "kr-west1"
  server_details = [
    { zone = "kr-west1-a", state = "RUNNING" },
    { zone = "kr-west1-a", state = "STOPPED" },
  ]
  server_type_id = data.scp_gpunode_products.scale.products[0].id
  subnet_id      = "ab313c43291e4b678f4bacffe10768ae"
  vpc_id         = "e58348b1bc9148e5af86500fd4ef99ca"
}

resource "scp_gpunode" "eval" {
  cluster_fabric_details = {
    cluster_fabric_name = "eval-a"
    node_pool_id        = "POOL001-krw1a"
  }
  gpu_node_name_prefix = "eval"
  image_id             = scp_gpunode.train.image_id
  os_user_password     = var.os_user_password
  region_id            = "kr-west1"
  server_details       = [for n in range(2) : { zone = "kr-west1-a" }]
  server_type_id = one([
    for p in data.scp_gpunode_products.scale.products : p.id if p.state == "AVAILABLE"
  ])
  subnet_id            = scp_gpunode.train.subnet_id
  vpc_id               = scp_gpunode.train.vpc_id
  lifecycle {
    ignore_changes = [cluster_fabric_details]
  }
}

data "scp_node_pools" "fabric" {
  cluster_fabric_id = scp_gpunode.train.cluster_fabric_details.cluster_fabric_id
}

resource "scp_gpunode" "extra" {
  cluster_fabric_details = {
    cluster_fabric_id   = scp_gpunode.train.cluster_fabric_details.cluster_fabric_id
    cluster_fabric_name = scp_gpunode.train.cluster_fabric_details.cluster_fabric_name
    node_pool_id        = data.scp_node_pools.fabric.ids[0]
  }
  gpu_node_name_prefix = "extra"
  image_id             = scp_gpunode.train.image_id
  os_user_password     = var.os_user_password
  region_id            = "kr-west1"
  server_details       = [{ zone = scp_gpunode.train.server_details[0].zone }]
  server_type_id       = data.scp_gpunode_products.scale.products[0].id
  subnet_id            = scp_gpunode.train.subnet_id
  vpc_id               = scp_gpunode.train.vpc_id
}

resource "scp_gpunode_public_nat_ip" "head" {
  count                = length(var.public_ips)
  gpu_node_id          = scp_gpunode.train.server_details[count.index].id
  public_ip_address_id = var.public_ips[count.index]
}

resource "scp_cluster_fabric_member" "eval" {
  before_cluster_fabric_id = "FABRIC-BEFORE"
  after_cluster_fabric_id  = scp_gpunode.train.cluster_fabric_details.cluster_fabric_id
  gpu_node_id_list         = scp_gpunode.eval.server_details[*].id
}

output "head" {
  value = scp_gpunode_public_nat_ip.head[0].policy_nat
}

output "nodes" {
  value = scp_gpunode.eval.server_details[*].id
}
""".replace("scp_", PREFIX)


def build_gpunode_attributes(outputs: Mapping[str, Any], fabric: str) -> dict[str, Any]:
    """Return the attributes of a `gpunode` as the provider stores them for a pool's outputs."""
    nodes = sorted(outputs["gpu_nodes"].values(), key=lambda node: str(node["gpu_node_name"]))
    return {
        "cluster_fabric_details": {
            "cluster_fabric_id": outputs["cluster_fabric_id"],
            "cluster_fabric_name": fabric,
            "node_pool_id": "POOL001-krw1a",
        },
        "gpu_node_name_prefix": None,
        "image_id": nodes[0]["image_id"],
        "init_script": "",
        "lock_enabled": False,
        "os_user_id": "root",
        "os_user_password": None,
        "product_type_id": nodes[0]["product_type_id"],
        "region_id": "kr-west1",
        "server_details": [
            {
                "gpu_node_name": node["gpu_node_name"],
                "id": node["id"],
                "ip_address": node["policy_ip"],
                "nat_enabled": node["policy_use_nat"],
                "policy_nat": node.get("policy_nat"),
                "state": node["state"],
                "zone": node["zone"],
            }
            for node in nodes
        ],
        "server_type_id": None,
        "subnet_id": "ab313c43291e4b678f4bacffe10768ae",
        "vpc_id": "e58348b1bc9148e5af86500fd4ef99ca",
    }


def build_state(
    train: Mapping[str, Any], evaluation: Mapping[str, Any], extra: Mapping[str, Any]
) -> str:
    """Return the provider's state of the configuration, for the outputs of the pools."""
    attributes = build_gpunode_attributes(train, "train-a")
    moved = build_gpunode_attributes(evaluation, "train-a")
    # The provider reads `eval` before the move, and not after it.
    moved["cluster_fabric_details"] |= {
        "cluster_fabric_id": "FABRIC-BEFORE",
        "cluster_fabric_name": "eval-a",
    }
    nat = {
        "gpu_node_id": attributes["server_details"][0]["id"],
        "public_ip_address_id": "b1d1a1c2e3f44a5b8c9d0e1f2a3b4c5d",
        "policy_nat": attributes["server_details"][0]["policy_nat"],
        "policy_use_nat": True,
    }
    member = {
        "after_cluster_fabric_id": train["cluster_fabric_id"],
        "before_cluster_fabric_id": "FABRIC-BEFORE",
        "gpu_node_id_list": [server["id"] for server in moved["server_details"]],
        "id": train["cluster_fabric_id"],
    }
    images = [{"id": attributes["image_id"], "os_distro": "UBUNTU"}]
    products = [{"id": attributes["product_type_id"], "state": "AVAILABLE"}]
    resources = [
        ("data", "gpunode_images", "all", {"attributes": {"images": images}}),
        ("data", "gpunode_products", "scale", {"attributes": {"products": products}}),
        ("managed", "gpunode", "train", {"attributes": attributes}),
        ("managed", "gpunode", "eval", {"attributes": moved}),
        ("managed", "gpunode", "extra", {"attributes": build_gpunode_attributes(extra, "train-a")}),
        ("data", "node_pools", "fabric", {"attributes": {"ids": ["POOL001-krw1a"]}}),
        ("managed", "gpunode_public_nat_ip", "head", {"index_key": 0, "attributes": nat}),
        ("managed", "cluster_fabric_member", "eval", {"attributes": member}),
    ]
    state_resources = [
        {"mode": mode, "type": PREFIX + type_, "name": name, "instances": [instance]}
        for mode, type_, name, instance in resources
    ]
    return json.dumps({"version": 4, "resources": state_resources})


@pytest.mark.slow
@pytest.mark.parametrize("form", ["yaml", "python"])
def test_scp_resources_of_provider_6_are_imported_unchanged(
    platforms: Run, project: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setenv("SCP_API_VERSION", "1.3")
    for eval_fabric, state in (("eval-a", "RUNNING"), ("train-a", "STOPPED")):
        program = PROGRAM.replace("EVAL", eval_fabric).replace("STATE", state)
        (project / "__main__.py").write_text(program)
        ran = platforms("up", "--yes", "--skip-preview")
        assert ran.code == 0, ran.out + ran.err
    resources = json.loads(platforms("stack", "export").out)["deployment"]["resources"]
    outputs = {item["urn"].rpartition("::")[2]: item.get("outputs") for item in resources}
    folder = create_other_project(platforms, project, "other")
    (folder / "main.tf").write_text(PROVIDER_V6)
    (folder / "terraform.tfstate").write_text(
        build_state(outputs["train"], outputs["eval"], outputs["extra"])
    )

    ran = platforms("convert", "--from", "terraform", "--to", form, "--cwd", str(folder))

    assert ran.code == 1  # values of data sources are to be looked at
    if form == "yaml":
        expect_references_and_hints(platforms, folder, ran.err)
    run = ("config", "set", "--secret", "os_user_password", "Only4Tests!", "--cwd", str(folder))
    assert platforms(*run).code == 0
    expect_import_without_changes(platforms, folder)


def expect_references_and_hints(run: Run, folder: Path, notes: str) -> None:
    """Assert that references are kept, and that the look-ups of the notes give the values."""
    content = (folder / "topology.yaml").read_text()
    for line in (
        '"001": {nat_enabled: true, public_ip_address_id: "{{ config.public_ips[0] }}"}',
        '"002": {state: STOPPED}',
        "zone: kr-west1-a",
        'cluster_fabric_name: "{{ node_pools.train.cluster_fabric_name }}"',
        'cluster_fabric_id: "{{ node_pools.train.cluster_fabric_id }}"',
        'image_id: "{{ node_pools.train.image_id }}"',
        "ignore_changes: [cluster_fabric_name, node_pool_id]",
        "head: \"{{ node_pools.train.gpu_nodes['001'].policy_nat }}\"",
        'nodes: "{{ node_pools.eval.node_ids }}"',
    ):
        assert f"{line}\n" in content, content
    assert f"main.tf:21:1: data.{PREFIX}gpunode_images.all: its values are those" in notes
    assert "server_type_id has the state's value instead of one([" in notes
    lookups = re.findall(r"write {{ (.*) }} in a topology", notes)
    assert [lookup.partition("(")[0] for lookup in lookups] == [
        "scp.images",
        "scp.products",
        "scp.node_pools",
    ]
    for lookup in lookups[:2]:
        asked = run("console", "-e", f"{lookup}[0].id", "--cwd", str(folder))
        id_ = asked.out.strip().strip('"')
        assert f"_id: {id_}\n" in content, asked.err
