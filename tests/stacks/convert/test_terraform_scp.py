"""Test what resources and data sources of Samsung's Terraform provider 4 to 6 become.

Types, arguments and attributes are those of SamsungSDSCloud/samsungcloudplatformv2 (its source,
service/multinodegpucluster). An import on the emulator is in
tests/stacks/cli/test_convert_terraform_scp.py.
"""

import inspect
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.scp import inventory
from gpuform.stacks.convert.terraform import TerraformConversion
from gpuform.stacks.convert.terraform.resource_types import TERRAFORM_TYPES
from gpuform.stacks.convert.terraform.variables import DATA_SOURCE_LOOKUPS
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from tests.stacks.convert.terraform_folder import StateResource, convert_files, list_omissions

PREFIX = "samsungcloudplatformv2_multinodegpucluster_"

POOL = """
resource "scp_gpunode" "NAME" {
  cluster_fabric_details = {
    cluster_fabric_name = "NAME-a"
    node_pool_id        = "POOL001-krw1a"
  }
  gpu_node_name_prefix = "NAME"
  image_id             = "IMAGE-1"
  os_user_password     = var.password
  region_id            = "kr-west1"
  server_details       = [for n in range(2) : { zone = "kr-west1-a" }]
  server_type_id       = "SERVER-1"
  subnet_id            = "SUBNET"
  vpc_id               = "VPC"
}
"""
PASSWORD = """
variable "password" {
  type      = string
  ephemeral = true
}
"""


def build_pool(name: str, fabric: str, **attributes: Any) -> StateResource:
    """Return a pool with the nodes NAME-001 and NAME-002, without the zones of version 6."""
    servers = [
        {
            "gpu_node_name": f"{name}-00{number}",
            "id": f"{name}-{number}",
            "state": "RUNNING",
        }
        for number in (1, 2)
    ]
    details = {
        "cluster_fabric_id": f"id-of-{fabric}",
        "cluster_fabric_name": fabric,
        "node_pool_id": "POOL001-krw1a",
    }
    stored = {
        "cluster_fabric_details": details,
        "gpu_node_name_prefix": None,
        "image_id": "IMAGE-1",
        "os_user_password": None,
        "product_type_id": "SERVER-1",
        "server_details": servers,
        "server_type_id": None,
    }
    return "scp_gpunode", name, [{"attributes": {**stored, **attributes}}]


def convert_scp(folder: Path, files: str, *resources: StateResource) -> TerraformConversion:
    """Convert files in which `scp_` stands for the provider's long prefix."""
    return convert_files(
        folder,
        (files + PASSWORD).replace("scp_", PREFIX),
        *((type_.replace("scp_", PREFIX), name, instances) for type_, name, instances in resources),
    )


def render(conversion: TerraformConversion) -> list[str]:
    """Return the lines of the new topology without indentation."""
    return [line.strip() for line in render_topology(conversion.declarations).splitlines()]


def build_attached(type_: str, **attributes: Any) -> StateResource:
    """Return a resource `it` that declares something about nodes."""
    return f"scp_{type_}", "it", [{"attributes": attributes}]


NAT = """
resource "scp_gpunode_public_nat_ip" "it" {
  gpu_node_id          = "NODE"
  public_ip_address_id = samsungcloudplatformv2_vpc_publicip.it.id
  timeouts {
    create = "20m"
  }
}

output "address" {
  value = scp_gpunode_public_nat_ip.it.policy_nat
}
"""


def test_a_public_nat_ip_is_a_setting_of_its_node(tmp_path: Path) -> None:
    nat = build_attached(
        "gpunode_public_nat_ip", gpu_node_id="train-2", public_ip_address_id="IP-1"
    )
    files = POOL.replace("NAME", "train") + NAT.replace("NODE", "train-2")

    conversion = convert_scp(tmp_path, files, build_pool("train", "train-a"), nat)

    lines = render(conversion)
    assert 'nodes: {"001": {}, "002": {nat_enabled: true, public_ip_address_id: IP-1}}' in lines
    assert "address: \"{{ node_pools.train.gpu_nodes['002'].policy_nat }}\"" in lines
    assert list_omissions(conversion) == [
        (
            f"main.tf:19:1: {PREFIX}gpunode_public_nat_ip.it: public_ip_address_id has the state's "
            "value instead of samsungcloudplatformv2_vpc_publicip.it.id"
        ),
        f"main.tf:20:1: {PREFIX}gpunode_public_nat_ip.it: timeouts was not converted",
    ]


def test_a_public_nat_ip_of_an_unknown_node_says_what_to_declare(tmp_path: Path) -> None:
    nat = build_attached("gpunode_public_nat_ip", gpu_node_id="other", public_ip_address_id="IP")
    files = POOL.replace("NAME", "train") + NAT.replace("NODE", "other").partition("output")[0]

    conversion = convert_scp(tmp_path, files, build_pool("train", "train-a"), nat)

    assert "count: 2" in render(conversion)
    assert list_omissions(conversion)[0] == (
        f"main.tf:17:1: {PREFIX}gpunode_public_nat_ip.it: no converted resource has the node other"
        "\n  declare the node by hand, with nat_enabled and public_ip_address_id"
    )


MEMBER = """
resource "scp_cluster_fabric_member" "it" {
  before_cluster_fabric_id = "id-of-train-a"
  after_cluster_fabric_id  = AFTER
  gpu_node_id_list         = scp_gpunode.train.server_details[*].id
}
"""
TO_EVAL = "scp_gpunode.eval.cluster_fabric_details.cluster_fabric_id"
FABRIC = 'data "scp_cluster_fabric" "it" { id = "id-of-eval-a" }\n'


@pytest.mark.parametrize(
    ("after", "train_fabric", "others", "fabric"),
    [
        # The state of the moved pool may be older than the move.
        (TO_EVAL, "train-a", "pool", '"{{ node_pools.eval.cluster_fabric_name }}"'),
        (TO_EVAL, "eval-a", "pool", '"{{ node_pools.eval.cluster_fabric_name }}"'),
        ('"id-of-eval-a"', "train-a", "pool", "eval-a"),
        ('"id-of-eval-a"', "eval-a", "", "eval-a"),
        ("data.scp_cluster_fabric.it.id", "train-a", "data", "eval-a"),
    ],
)
def test_a_cluster_fabric_member_is_the_fabric_of_its_pool(
    tmp_path: Path, after: str, train_fabric: str, others: str, fabric: str
) -> None:
    files = POOL.replace("NAME", "train") + MEMBER.replace("AFTER", after)
    resources = [build_pool("train", train_fabric)]
    if others == "pool":
        files += POOL.replace("NAME", "eval")
        resources.append(build_pool("eval", "eval-a"))
    if others == "data":
        fabric_attributes = {"id": "id-of-eval-a", "cluster_name": "eval-a"}
        files += FABRIC
        resources.append(("data.scp_cluster_fabric", "it", [{"attributes": fabric_attributes}]))

    conversion = convert_scp(tmp_path, files, *resources, build_member("train-1", "train-2"))

    lines = render(conversion)
    assert f"cluster_fabric_name: {fabric}" in lines
    assert "options: {import: POOL001-krw1a/eval-a/train}" in lines
    assert all("data." in omission for omission in list_omissions(conversion))


def build_member(*node_ids: str) -> StateResource:
    """Return the member that moves nodes to the fabric eval-a."""
    return build_attached(
        "cluster_fabric_member",
        after_cluster_fabric_id="id-of-eval-a",
        before_cluster_fabric_id="id-of-train-a",
        gpu_node_id_list=list(node_ids),
    )


@pytest.mark.parametrize(
    ("node_ids", "reason"),
    [
        (
            ["train-1"],
            (
                "moves some of its nodes to another fabric, without train-002, but an entry has "
                "all nodes in one fabric: write a node_pools entry by hand for each fabric"
            ),
        ),
        (
            ["train-1", "train-2"],
            "moves its nodes to the fabric id-of-eval-a, and the state does not contain the name",
        ),
    ],
)
def test_a_pool_whose_fabric_is_unclear_is_left_out_with_the_reason(
    tmp_path: Path, node_ids: list[str], reason: str
) -> None:
    files = POOL.replace("NAME", "train") + MEMBER.replace("AFTER", '"id-of-eval-a"')

    conversion = convert_scp(
        tmp_path, files, build_pool("train", "train-a"), build_member(*node_ids)
    )

    assert not conversion.declarations.entries
    assert not conversion.declarations.variables
    assert conversion.secrets == {}
    [omission] = list_omissions(conversion)
    member = f"{PREFIX}cluster_fabric_member.it"
    assert omission.startswith(f"main.tf:2:1: {PREFIX}gpunode.train: {member} {reason}")


def test_a_member_for_each_node_moves_the_pool(tmp_path: Path) -> None:
    nodes = MEMBER.replace("AFTER", TO_EVAL).replace("{\n", "{\n  count = 2\n", 1)
    nodes = nodes.replace("server_details[*].id", "server_details[count.index].id")
    members = [
        {
            "index_key": key,
            "attributes": {
                "after_cluster_fabric_id": "id-of-eval-a",
                "gpu_node_id_list": [f"train-{key + 1}"],
            },
        }
        for key in (0, 1)
    ]

    conversion = convert_scp(
        tmp_path,
        POOL.replace("NAME", "train") + POOL.replace("NAME", "eval") + nodes,
        build_pool("train", "train-a"),
        build_pool("eval", "eval-a"),
        ("scp_cluster_fabric_member", "it", members),
    )

    lines = render(conversion)
    assert 'cluster_fabric_name: "{{ node_pools.eval.cluster_fabric_name }}"' in lines
    assert "options: {import: POOL001-krw1a/eval-a/train}" in lines
    assert not list_omissions(conversion)


def test_a_member_of_unknown_nodes_says_what_to_declare(tmp_path: Path) -> None:
    files = POOL.replace("NAME", "train") + MEMBER.replace("AFTER", '"id-of-eval-a"')

    conversion = convert_scp(tmp_path, files, build_pool("train", "train-a"), build_member("other"))

    assert "cluster_fabric_name: train-a" in render(conversion)
    [omission] = list_omissions(conversion)
    assert omission == (
        f"main.tf:17:1: {PREFIX}cluster_fabric_member.it: no converted resource has the node other"
        "\n  declare the node by hand, with the cluster_fabric_id of its fabric"
    )


@pytest.mark.parametrize(
    ("servers", "lines"),
    [
        (
            [
                {"state": "STOPPED", "zone": "kr-west1-a"},
                {"state": "STOPPED", "zone": "kr-west1-a"},
            ],
            ["count: 2", "zone: kr-west1-a", "state: STOPPED"],
        ),
        (
            [{"state": "RUNNING"}, {"state": "STOPPED"}],
            ['nodes: {"001": {}, "002": {state: STOPPED}}'],
        ),
        # The state of a node that is being repaired is no declaration.
        ([{"state": "RUNNING"}, {"state": "ERROR"}], ["count: 2"]),
        (
            [{"zone": "kr-west1-a"}, {"zone": "kr-west1-b"}],
            ['nodes: {"001": {zone: kr-west1-a}, "002": {zone: kr-west1-b}}'],
        ),
    ],
)
def test_settings_of_servers_are_those_of_the_pool_or_of_its_nodes(
    tmp_path: Path, servers: list[dict[str, str]], lines: list[str]
) -> None:
    type_, name, [instance] = build_pool("train", "train-a")
    stored_servers = instance["attributes"]["server_details"]
    for position, changes in enumerate(servers):
        stored_servers[position] |= changes

    conversion = convert_scp(tmp_path, POOL.replace("NAME", "train"), (type_, name, [instance]))

    written = render(conversion)
    settings = [line for line in written if line.split(":")[0] in SETTINGS]
    assert settings == lines
    needs_zones = any("needs version 1.3" in line for line in list_omissions(conversion))
    assert needs_zones == ("zone" in servers[0])


SETTINGS = {"count", "nodes", "zone", "state"}


REFERENCES = """
locals {
  nodes = scp_gpunode.train.server_details
}

output "first" {
  value = "${local.nodes[0].gpu_node_name} ${scp_gpunode.train.server_details.1.ip_address}"
}

output "ids" {
  value = [for server in scp_gpunode.train.server_details : server.id]
}

output "fabric" {
  value = scp_gpunode.train.cluster_fabric_details.cluster_fabric_id
}

output "type" {
  value = scp_gpunode.train.product_type_id
}

output "third" {
  value = scp_gpunode.train.server_details[2].id
}
"""


def test_attributes_of_servers_are_outputs_of_the_pools_nodes(tmp_path: Path) -> None:
    files = POOL.replace("NAME", "train") + REFERENCES

    conversion = convert_scp(tmp_path, files, build_pool("train", "train-a"))

    assert render(conversion)[-4:] == [
        (
            "first: \"{{ node_pools.train.gpu_nodes['train-001'].gpu_node_name }} "
            "{{ node_pools.train.gpu_nodes['train-002'].policy_ip }}\""
        ),
        'ids: "{{ node_pools.train.node_ids }}"',
        'fabric: "{{ node_pools.train.cluster_fabric_id }}"',
        'type: "{{ node_pools.train.server_type_id }}"',
    ]
    [omission] = list_omissions(conversion)
    assert "output third was not converted" in omission


VARIABLES = """
variable "fabric" {
  type = object({
    cluster_fabric_id   = optional(string)
    cluster_fabric_name = string
    node_pool_id        = string
  })
  default = { cluster_fabric_name = "train-a", node_pool_id = "POOL001-krw1a" }
}

variable "prefix" {
  default   = "train"
  ephemeral = true
}
"""


def test_a_fabric_in_a_variable_stays_a_reference_to_the_configuration(tmp_path: Path) -> None:
    pool = POOL.replace("NAME", "train")
    begin, _, rest = pool.partition("{\n    cluster_fabric_name")
    files = begin + "var.fabric" + rest.partition("}")[2] + VARIABLES
    files = files.replace('= "train"\n  image', "= var.prefix\n  image")

    conversion = convert_scp(tmp_path, files, build_pool("train", "train-a"))

    lines = render(conversion)
    assert 'node_pool_id: "{{ config.fabric.node_pool_id }}"' in lines
    assert 'cluster_fabric_name: "{{ config.fabric.cluster_fabric_name }}"' in lines
    assert "options: {import: POOL001-krw1a/train-a/train}" in lines
    # The prefix comes from the names in the state: nobody has to set the ephemeral variable.
    assert "gpu_node_name_prefix: train" in lines
    assert not any("prefix: {" in line for line in lines)
    assert "prefix" not in conversion.secrets
    assert not list_omissions(conversion)


DATA = """
data "samsungcloudplatformv2_vpc_vpcs" "all" {}

data "scp_gpunodes" "old" {
  count             = 2
  cluster_fabric_id = scp_gpunode.train.cluster_fabric_details.cluster_fabric_id
  state             = "RUNNING"
}

output "images" {
  value = data.scp_gpunodes.old[1].ids
}

output "names" {
  value = data.samsungcloudplatformv2_vpc_vpcs.all.vpcs[*].name
}
"""


def test_values_of_data_sources_are_those_of_the_state_with_a_lookup_as_hint(
    tmp_path: Path,
) -> None:
    files = POOL.replace("NAME", "train").replace(
        '"VPC"', "data.samsungcloudplatformv2_vpc_vpcs.all.ids[0]"
    )
    vpcs = {"ids": ["VPC-1"], "vpcs": [{"name": "a"}, {"name": "b"}]}
    conversion = convert_scp(
        tmp_path,
        files + DATA,
        build_pool("train", "train-a"),
        ("data.samsungcloudplatformv2_vpc_vpcs", "all", [{"attributes": vpcs}]),
        (
            "data.scp_gpunodes",
            "old",
            [{"index_key": key, "attributes": {"ids": [f"node-{key}"]}} for key in (0, 1)],
        ),
    )

    lines = render(conversion)
    assert "vpc_id: VPC-1" in lines
    assert lines[-2:] == ["images: [node-1]", "names: [a, b]"]
    assert list_omissions(conversion) == [
        "main.tf:17:1: data.samsungcloudplatformv2_vpc_vpcs.all: its values are those of the state",
        (
            f"main.tf:19:1: data.{PREFIX}gpunodes.old: its values are those of the state\n"
            "  to look them up in each run, write {{ scp.gpu_nodes(state='RUNNING', "
            "cluster_fabric_id=node_pools.train.cluster_fabric_id) | map(attribute='id') | list }} "
            "in a topology"
        ),
    ]


def test_a_sensitive_value_of_a_data_source_is_not_written(tmp_path: Path) -> None:
    files = POOL.replace("NAME", "train").replace("var.password", "data.vault.it.password")
    secret = {
        "attributes": {"password": "Pl4nted!Secret"},
        "sensitive_attributes": [[{"type": "get_attr", "value": "password"}]],
    }
    output = 'output "all" { value = data.vault.it }\n'

    conversion = convert_scp(
        tmp_path, files + output, build_pool("train", "train-a"), ("data.vault", "it", [secret])
    )

    lines = render(conversion)
    assert 'os_user_password: "{{ config.os_user_password }}"' in lines
    assert "Pl4nted" not in "".join([*lines, *list_omissions(conversion)])
    assert "output all was not converted: data.vault.it" in "".join(list_omissions(conversion))


@pytest.mark.parametrize(
    ("product", "server_type"),
    [("SERVER-9", "SERVER-9"), (None, '"{{ config.server_type_id }}"')],
)
def test_a_server_type_without_an_equivalent_is_read_from_the_state_or_asked_for(
    tmp_path: Path, product: str | None, server_type: str
) -> None:
    files = POOL.replace("NAME", "train").replace('"SERVER-1"', "data.missing.it.products[0].id")

    conversion = convert_scp(
        tmp_path, files, build_pool("train", "train-a", product_type_id=product)
    )

    assert f"server_type_id: {server_type}" in render(conversion)
    [omission] = list_omissions(conversion)
    assert (
        "server_type_id has the state's value instead of data.missing.it.products[0].id"
        if product
        else "set it with `gpuform config set server_type_id VALUE`"
    ) in omission


META = """
  depends_on = [data.scp_gpunode_images.all]
  timeouts {
    create = lower("60M")
  }
  lifecycle {
    ignore_changes = [server_details, cluster_fabric_details, image_id]
  }
}
"""


def test_meta_arguments_are_those_of_the_pools_properties(tmp_path: Path) -> None:
    files = POOL.replace("NAME", "train").rstrip().removesuffix("}") + META

    conversion = convert_scp(
        tmp_path,
        files + 'data "scp_gpunode_images" "all" {}\n',
        build_pool("train", "train-a"),
        ("data.scp_gpunode_images", "all", [{"attributes": {"images": []}}]),
    )

    [entry] = conversion.declarations.entries
    assert entry.options == {
        "import": "POOL001-krw1a/train-a/train",
        "ignore_changes": ["cluster_fabric_name", "node_pool_id", "image_id"],
    }
    pool = f"{PREFIX}gpunode.train"
    assert list_omissions(conversion) == [
        f'main.tf:18:1: {pool}: the create timeout lower("60M") was not converted',
        f"main.tf:21:1: {pool}: changes of server_details are not ignored",
    ]


@pytest.mark.parametrize(
    "damage",
    [
        {"cluster_fabric_details": ["train-a"]},
        {"server_details": {"id": "train-1"}},
        {"server_details": "train-1"},
    ],
)
def test_attributes_of_another_form_are_as_missing_ones(
    tmp_path: Path, damage: dict[str, Any]
) -> None:
    files = POOL.replace("NAME", "train") + MEMBER.replace("AFTER", '"id-of-eval-a"')
    member = build_attached("cluster_fabric_member", gpu_node_id_list=5)

    conversion = convert_scp(tmp_path, files, build_pool("train", "train-a", **damage), member)

    [entry] = conversion.declarations.entries
    assert entry.options["import"] == "POOL001-krw1a/train-a/train"


@pytest.mark.parametrize("type_", DATA_SOURCE_LOOKUPS)
def test_each_data_source_has_a_lookup_with_its_arguments(type_: str) -> None:
    lookup = DATA_SOURCE_LOOKUPS[type_]
    function = getattr(inventory, lookup.function.removeprefix("scp."))

    assert set(lookup.arguments) <= inspect.signature(function).parameters.keys()


def test_the_guide_names_each_type_and_data_source() -> None:
    guide = (Path(__file__).parents[3] / "docs/guides/terraform.md").read_text()

    assert all(f"`{type_}`" in guide for type_ in TERRAFORM_TYPES)
    assert all(f"`{type_.removeprefix(PREFIX)}`" in guide for type_ in DATA_SOURCE_LOOKUPS)
