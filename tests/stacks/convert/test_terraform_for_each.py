"""Test what `each.value` of a map, a set and another resource of Terraform becomes."""

from pathlib import Path

import pytest

from gpuform.stacks.convert.terraform import TerraformConversion
from gpuform.stacks.declaration_writer.python_program import render_program
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from tests.stacks.convert.terraform_folder import convert_files

VOLUMES = """
resource "together_beta_cluster_storage" "data" {
  for_each    = FOR_EACH
  volume_name = "data-${each.key}"
  region      = VALUE
  size_tib    = 5
}
"""


def convert_volumes(
    folder: Path, for_each: str, value: str, declarations: str = ""
) -> TerraformConversion:
    """Convert the volumes `a` and `b` of one `for_each`, whose regions are `value`."""
    volumes = VOLUMES.replace("FOR_EACH", for_each).replace("VALUE", value)
    instances = [
        {"index_key": key, "attributes": {"volume_id": f"v-{key}", "region": f"state-{key}"}}
        for key in ("a", "b")
    ]
    return convert_files(
        folder, declarations + volumes, ("together_beta_cluster_storage", "data", instances)
    )


def list_regions(conversion: TerraformConversion) -> list[str]:
    """Return the region line of each volume, in the order of the file."""
    lines = render_topology(conversion.declarations).splitlines()
    return [line.strip() for line in lines if "region:" in line]


MAP = '{ a = { region = "us-a", size = max(1, 2) }, b = { region = "us-b" } }'
TWO_REGIONS = ["region: us-a", "region: us-b"]
TWO_KEYS = ["region: a", "region: b"]


@pytest.mark.parametrize(
    ("for_each", "value", "declarations", "regions"),
    [
        (MAP, "each.value.region", "", TWO_REGIONS),
        (
            "local.regions",
            "each.value",
            'locals { regions = { a = "us-a", b = "us-b" } }',
            TWO_REGIONS,
        ),
        ("local.pools", "each.value.region", f"locals {{ pools = {MAP} }}", TWO_REGIONS),
        ("local.pools", 'each.value["region"]', f"locals {{ pools = {MAP} }}", TWO_REGIONS),
        ("local.names", "each.value", 'locals { names = toset(["a", "b"]) }', TWO_KEYS),
        ('toset(["a", "b"])', "each.value", "", TWO_KEYS),
        ("toset(var.names)", "each.value", 'variable "names" { default = ["a", "b"] }', TWO_KEYS),
        (
            "var.names",
            "each.value",
            'variable "names" {\n type = set(string)\n default = ["a", "b"]\n}',
            TWO_KEYS,
        ),
    ],
)
def test_each_value_is_the_value_of_a_map_and_the_key_of_a_set(
    tmp_path: Path, for_each: str, value: str, declarations: str, regions: list[str]
) -> None:
    conversion = convert_volumes(tmp_path, for_each, value, f"{declarations}\n")

    assert list_regions(conversion) == regions
    assert [str(omission) for omission in conversion.omissions] == []


POOLS = """
variable "pools" {
  type    = map(object({ region = string, zone = optional(string, "z") }))
  default = { a = { region = "us-a" }, b = { region = "us-b" } }
}
"""


def test_each_value_of_a_variable_stays_a_reference_to_the_configuration(tmp_path: Path) -> None:
    conversion = convert_volumes(tmp_path, "var.pools", "each.value.region", POOLS)

    assert list_regions(conversion) == [
        "pools: {type: object, default: {a: {region: us-a}, b: {region: us-b}}}",
        'region: "{{ config.pools.a.region }}"',
        'region: "{{ config.pools.b.region }}"',
    ]
    assert not conversion.omissions
    program = render_program(conversion.declarations)
    assert 'region=pools["a"]["region"],' in program


@pytest.mark.parametrize(
    ("for_each", "value", "expression"),
    [
        # The variable's value has no member with a default of the type.
        ("var.pools", "each.value.zone", "each.value.zone"),
        ("{ for key, pool in var.pools : key => pool.region }", "each.value", "{for key"),
        ("merge(var.pools, {})", "each.value.region", "each.value.region"),
        ("var.missing", "each.value", "each.value"),
        ('{ c = "us-c" }', "each.value", "each.value"),
    ],
)
def test_each_value_without_an_equivalent_is_the_value_in_the_state(
    tmp_path: Path, for_each: str, value: str, expression: str
) -> None:
    conversion = convert_volumes(tmp_path, for_each, value, POOLS)

    assert list_regions(conversion)[-2:] == ["region: state-a", "region: state-b"]
    for key, omission in zip("ab", conversion.omissions, strict=True):
        address = f'together_beta_cluster_storage.data["{key}"]'
        expected = f"{address}: region has the state's value instead of {expression}"
        assert expected in str(omission)


CHAIN = """
resource "together_beta_cluster_storage" "data" {
  for_each    = toset(["a"])
  volume_name = each.key
  region      = "us-central-8"
  size_tib    = 5
}

resource "together_beta_cluster" "train" {
  for_each       = together_beta_cluster_storage.data
  cluster_name   = each.key
  region         = each.value.region
  gpu_type       = "H100_SXM"
  num_gpus       = 8
  driver_version = "CUDA_12_6_560"
  billing_type   = "ON_DEMAND"
  volume_id      = each.value.volume_id
}
"""


def test_each_value_of_another_resource_is_a_reference_to_its_instance(tmp_path: Path) -> None:
    conversion = convert_files(
        tmp_path,
        CHAIN,
        (
            "together_beta_cluster_storage",
            "data",
            [{"index_key": "a", "attributes": {"volume_id": "v"}}],
        ),
        ("together_beta_cluster", "train", [{"index_key": "a", "attributes": {"cluster_id": "c"}}]),
    )

    assert not conversion.omissions
    topology = render_topology(conversion.declarations)
    assert "    region: \"{{ shared_volumes['data-a'].region }}\"\n" in topology
    assert "    volume: \"{{ shared_volumes['data-a'] }}\"\n" in topology


@pytest.mark.parametrize(
    "value",
    [
        "[for volume in together_beta_cluster_storage.data : volume.volume_id]",
        "together_beta_cluster_storage.data[*].volume_id",
    ],
)
def test_an_attribute_of_all_instances_is_a_list_of_references(tmp_path: Path, value: str) -> None:
    output = f'output "all" {{ value = {value} }}\n'
    conversion = convert_volumes(tmp_path, 'toset(["b", "a"])', '"us"', output)

    assert render_topology(conversion.declarations).endswith(
        """  all: ["{{ shared_volumes['data-a'] }}", "{{ shared_volumes['data-b'] }}"]\n"""
    )


@pytest.mark.parametrize(
    "value",
    [
        "[for key, volume in together_beta_cluster_storage.data : volume.volume_id]",
        "[for volume in together_beta_cluster_storage.data : volume.id if volume.a > 1]",
        "together_beta_cluster_storage.data[*].unknown",
        "together_beta_cluster_storage.missing[*].volume_id",
    ],
)
def test_a_list_without_an_equivalent_is_reported_as_it_is_written(
    tmp_path: Path, value: str
) -> None:
    output = f'output "all" {{ value = {value} }}\n'
    conversion = convert_volumes(tmp_path, 'toset(["b", "a"])', '"us"', output)

    [omission] = conversion.omissions
    assert omission.message == f"output all was not converted: {value}"
    assert "all" not in conversion.declarations.outputs
