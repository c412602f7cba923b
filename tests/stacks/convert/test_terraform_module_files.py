"""Test what local modules of Terraform become in a topology: files that it includes."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.convert.terraform import TerraformConversion, convert_terraform
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.topology.planning import plan, read_plan_context
from tests.stacks.convert.test_terraform_modules import INNER, POOL, describe_object

VOLUME = """
variable "label" { description = "What the platform shows." }
variable "size" {
  type    = number
  default = 1
}
resource "together_beta_cluster_storage" "data" {
  region      = "us-central-8"
  size_tib    = var.size
  volume_name = "volume-${var.label}"
}
output "id" { value = together_beta_cluster_storage.data.volume_id }
output "region" { value = together_beta_cluster_storage.data.region }
output "unused" { value = var.label }
"""


def describe_volumes(*modules: str, name: str = "data") -> list[dict[str, Any]]:
    """Return the state of one volume in each module."""
    return [
        describe_object("together_beta_cluster_storage", name, f"v-{at}", module)
        for at, module in enumerate(modules)
    ]


def convert_files(
    folder: Path, files: dict[str, str], state: list[dict[str, Any]]
) -> tuple[TerraformConversion, dict[str, str]]:
    """Convert Terraform's files; return the conversion and the files of the topology by name.

    Their resources are those of the conversion that inlines all modules.
    """
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    (folder / "terraform.tfstate").write_text(json.dumps({"version": 4, "resources": state}))
    conversion = convert_terraform(folder, repeats=True, modules=True)
    declarations = {"topology.yaml": conversion.declarations, **conversion.modules}
    written = {name: render_topology(content) for name, content in declarations.items()}
    (folder / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    for name, content in written.items():
        (folder / name).write_text(content)
    problems = Diagnostics()
    topology = folder / "topology.yaml"
    planned = plan(topology, read_plan_context(topology, None), problems)
    assert not list(problems), written
    inlined = convert_terraform(folder).declarations
    assert sorted(resource.instance.name for resource in planned.resources) == sorted(
        entry.name for entry in inlined.entries
    )
    return conversion, written


def test_a_module_becomes_a_file_with_inputs_and_outputs(tmp_path: Path) -> None:
    root = """
variable "gpus" { default = 16 }
module "train" {
  source = "./pool"
  label  = "train"
  gpus   = var.gpus
}
output "id" { value = module.train.cluster_id }
"""
    state = [
        describe_object("together_beta_cluster", "gpus", "c-0", "module.train"),
        *describe_volumes("module.train.module.store", name="this"),
    ]
    files = {"main.tf": root, "pool/main.tf": POOL, "pool/inner/main.tf": INNER}

    conversion, written = convert_files(tmp_path, files, state)

    assert not conversion.omissions
    assert written == {
        "topology.yaml": """\
include:
  - file: pool.yaml
    name: train
    with: {label: train, gpus: "{{ config.gpus }}", gpus_import: c-0, store_this_import: v-0}

config:
  gpus: {type: integer, default: 16}

outputs:
  id: "{{ modules.train.cluster_id }}"
""",
        "pool.yaml": """\
inputs:
  label: {}
  gpus: {type: integer, default: 8}
  gpus_import: {}
  store_this_import: {}

clusters:
  gpus:
    platform: together
    cluster_name: "cluster-{{ inputs.label }}"
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: "{{ inputs.gpus }}"
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes['store-this'] }}"
    options: {import: "{{ inputs.gpus_import }}", aliases: [{parent: null}]}

shared_volumes:
  store-this:
    platform: together
    volume_name: "volume-{{ inputs.label }}"
    size_tib: 1
    region: us-central-8
    options: {import: "{{ inputs.store_this_import }}", aliases: [{parent: null}]}

outputs:
  cluster_id: "{{ clusters.gpus }}"
""",
    }


@pytest.mark.parametrize(
    ("arguments", "keys", "expected"),
    [
        (
            'for_each = var.teams\n label = "${var.env}-${each.key}"\n size = each.value.size',
            ('"nlp"', '"vision"'),
            """\
    for_each: {nlp: {data_import: v-0}, vision: {data_import: v-1}}
    with:
      label: "{{ config.env }}-{{ each.key }}"
      size: "{{ config.teams[each.key].size }}"
      data_import: "{{ each.value.data_import }}"
""",
        ),
        (
            'for_each = { nlp = 2, vision = 3 }\n label = "fixed"\n size = each.value',
            ('"nlp"', '"vision"'),
            """\
    for_each: {nlp: {size: 2, data_import: v-0}, vision: {size: 3, data_import: v-1}}
    with: {label: fixed, size: "{{ each.value.size }}", data_import: "{{ each.value.data_import }}"}
""",
        ),
        (
            'count = 2\n label = "n${count.index}"',
            ("0", "1"),
            """\
    for_each: {"0": {data_import: v-0}, "1": {data_import: v-1}}
    with: {label: "n{{ each.key }}", data_import: "{{ each.value.data_import }}"}
""",
        ),
    ],
)
def test_the_instances_of_a_module_become_one_entry_with_for_each(
    tmp_path: Path, arguments: str, keys: tuple[str, str], expected: str
) -> None:
    root = f"""
variable "env" {{ default = "x" }}
variable "teams" {{ default = {{ nlp = {{ size = 1 }}, vision = {{ size = 2 }} }} }}
module "team" {{
 source = "./pool"
 {arguments}
}}
output "second" {{ value = "${{module.team[{keys[1]}].id}}!" }}
"""
    state = describe_volumes(*(f"module.team[{key}]" for key in keys))

    _, written = convert_files(tmp_path, {"main.tf": root, "pool/main.tf": VOLUME}, state)

    assert f"  - file: pool.yaml\n    name: team\n{expected}" in written["topology.yaml"]
    key = ".vision" if keys[1] == '"vision"' else "['1']"
    assert f'second: "{{{{ modules.team{key}.id }}}}!"' in written["topology.yaml"]
    assert "unused" not in written["pool.yaml"]


def test_modules_and_resources_keep_the_references_between_them(tmp_path: Path) -> None:
    root = """
resource "together_beta_cluster_storage" "base" {
  region      = "us-central-8"
  size_tib    = 1
  volume_name = "base"
}
module "first" {
  source = "./a/pool"
  label  = together_beta_cluster_storage.base.region
}
module "second" {
  source   = "./b/pool"
  for_each = { x = module.first.region }
  label    = "${each.key}-${module.first.id}"
}
resource "together_beta_cluster_storage" "last" {
  region      = module.second["x"].region
  size_tib    = 1
  volume_name = "last"
}
"""
    state = [
        describe_object("together_beta_cluster_storage", "base", "v-b"),
        describe_object("together_beta_cluster_storage", "last", "v-l"),
        *describe_volumes("module.first", 'module.second["x"]'),
    ]
    files = {"main.tf": root, "a/pool/main.tf": VOLUME, "b/pool/main.tf": VOLUME}

    conversion, written = convert_files(tmp_path, files, state)

    assert not conversion.omissions
    # Two folders of one name become two files.
    assert written.keys() == {"topology.yaml", "pool.yaml", "pool-module.yaml"}
    for line in (
        'with: {label: "{{ shared_volumes.base.region }}", data_import: v-0}',
        'label: "x-{{ modules.first.id }}"',
        'region: "{{ modules.second.x.region }}"',
    ):
        assert line in written["topology.yaml"], written


@pytest.mark.parametrize(
    ("call", "resource", "present"),
    [
        ("providers = { together = together.other }", "", ["", ""]),
        # The instances have different resources.
        ("", 'count = var.label == "a" ? 2 : 1', ["01", "0"]),
    ],
)
def test_a_module_that_a_topology_cannot_express_stays_inlined(
    tmp_path: Path, call: str, resource: str, present: list[str]
) -> None:
    root = f"""
module "team" {{
 source = "./pool"
 for_each = {{ a = 1, b = 2 }}
 label = each.key
 {call}
}}
"""
    pool = VOLUME.replace("  region ", f"  {resource}\n  region ", 1)
    state = describe_volumes('module.team["a"]', 'module.team["b"]')
    for item, keys in zip(state, present, strict=True):
        (instance,) = item["instances"]
        if keys:
            item["instances"] = [{**instance, "index_key": int(key)} for key in keys]

    _, written = convert_files(tmp_path, {"main.tf": root, "pool/main.tf": pool}, state)

    assert written.keys() == {"topology.yaml"}
    assert "include" not in written["topology.yaml"]


def test_a_secret_reaches_a_module_as_configuration(tmp_path: Path) -> None:
    type_ = "samsungcloudplatformv2_multinodegpucluster_gpunode"
    pool = f"""
variable "password" {{ default = "pl4nted-default" }}
variable "other" {{
  sensitive = true
  default   = "pl4nted-other"
}}
resource "{type_}" "train" {{
  cluster_fabric_details = {{ cluster_fabric_name = "train-a", node_pool_id = "POOL001-krw1a" }}
  gpu_node_name_prefix = "train"
  image_id             = "IMAGE"
  os_user_password     = var.password
  region_id            = "kr-west1"
  server_details       = [{{ zone = "kr-west1-a" }}]
  server_type_id       = "SERVER"
  subnet_id            = "ab313c43291e4b678f4bacffe10768ae"
  vpc_id               = "e58348b1bc9148e5af86500fd4ef99ca"
}}
output "password" {{
  value     = var.password
  sensitive = true
}}
"""
    root = """
variable "password" { sensitive = true }
module "own" {
  source   = "./pool"
  password = var.password
}
module "fixed" {
  source   = "./fixed"
  password = "pl4nted-argument"
}
output "password" {
  value     = module.fixed.password
  sensitive = true
}
"""
    attributes = {"server_details": [{"gpu_node_name": "train-001"}]}
    state = [
        {
            "mode": "managed",
            "type": type_,
            "name": "train",
            "module": f"module.{module}",
            "instances": [{"attributes": attributes}],
        }
        for module in ("own", "fixed")
    ]

    files = {"main.tf": root, "pool/main.tf": pool, "fixed/main.tf": pool}

    conversion, written = convert_files(tmp_path, files, state)

    assert 'password: "{{ config.password }}"' in written["topology.yaml"]
    assert 'os_user_password: "{{ inputs.password }}"' in written["pool.yaml"]
    assert 'os_user_password: "{{ inputs.train_os_user_password }}"' in written["fixed.yaml"]
    assert "pl4nted" not in str(written)
    assert "pl4nted-argument" in conversion.secrets.values()
