"""Test what local modules and `moved` blocks of Terraform become."""

import json
from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.convert import TerraformNotRead
from gpuform.stacks.convert.terraform import TerraformConversion, convert_terraform
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from tests.stacks.convert.terraform_folder import list_omissions

POOL = """
variable "label" {}
variable "gpus" { default = 8 }
locals { name = "cluster-${var.label}" }
module "store" {
  source = "./inner"
  label  = var.label
}
resource "together_beta_cluster" "gpus" {
  cluster_name   = local.name
  region         = "us-central-8"
  gpu_type       = "H100_SXM"
  num_gpus       = var.gpus
  driver_version = "CUDA_12_6_560"
  billing_type   = "ON_DEMAND"
  volume_id      = module.store.id
}
output "cluster_id" { value = together_beta_cluster.gpus.cluster_id }
"""
INNER = """
variable "label" {}
resource "together_beta_cluster_storage" "this" {
  region      = "us-central-8"
  size_tib    = 1
  volume_name = "volume-${var.label}"
}
output "id" { value = together_beta_cluster_storage.this.volume_id }
"""


def describe_object(type_: str, name: str, id_: str, module: str = "") -> dict[str, Any]:
    id_name = "cluster_id" if type_.endswith("cluster") else "volume_id"
    instances = [{"attributes": {id_name: id_}}]
    resource = {"mode": "managed", "type": type_, "name": name, "instances": instances}
    return resource | ({"module": module} if module else {})


def convert_modules(
    folder: Path, root: str, modules: list[str], inner: str = INNER
) -> TerraformConversion:
    """Convert a root module whose state has both objects of each module's address."""
    (folder / "pool" / "inner").mkdir(parents=True)
    (folder / "pool" / "main.tf").write_text(POOL)
    (folder / "pool" / "inner" / "main.tf").write_text(inner)
    (folder / "main.tf").write_text(root)
    resources = [
        resource
        for at, module in enumerate(modules)
        for resource in (
            describe_object("together_beta_cluster", "gpus", f"c-{at}", module),
            describe_object(
                "together_beta_cluster_storage", "this", f"v-{at}", f"{module}.module.store"
            ),
        )
    ]
    state = {"version": 4, "resources": resources}
    (folder / "terraform.tfstate").write_text(json.dumps(state))
    return convert_terraform(folder)


def test_a_module_in_a_folder_becomes_entries_that_keep_their_references(tmp_path: Path) -> None:
    root = """
variable "gpus" { default = 16 }
module "train" {
  source = "./pool"
  label  = "train"
  gpus   = var.gpus
}
output "id" { value = module.train.cluster_id }
"""
    conversion = convert_modules(tmp_path, root, ["module.train"])

    text = render_topology(conversion.declarations)
    assert not conversion.omissions
    for line in (
        "  train-gpus:",
        "    cluster_name: cluster-train",
        '    num_gpus: "{{ config.gpus }}"',
        """    volume: "{{ shared_volumes['train-store-this'] }}\"""",
        "    options: {import: c-0}",
        "    volume_name: volume-train",
        "    options: {import: v-0}",
        """  id: "{{ clusters['train-gpus'] }}\"""",
    ):
        assert line in text.splitlines(), text


@pytest.mark.parametrize(
    "for_each",
    [
        "{ nlp = { gpus = 8 }, vision = { gpus = 24 } }",
        "local.teams\n}\nlocals {\n  teams = { nlp = { gpus = 8 }, vision = { gpus = 24 } }",
    ],
)
def test_each_instance_of_a_module_has_entries_with_its_own_arguments(
    tmp_path: Path, for_each: str
) -> None:
    root = f"""
module "team" {{
  source   = "./pool"
  label    = "team-${{each.key}}"
  gpus     = each.value.gpus
  for_each = {for_each}
}}
output "nlp" {{ value = module.team["nlp"].cluster_id }}
"""
    addresses = ['module.team["nlp"]', 'module.team["vision"]']
    conversion = convert_modules(tmp_path, root, addresses)

    clusters = [entry for entry in conversion.declarations.entries if entry.section == "clusters"]
    assert not conversion.omissions
    assert [
        (entry.name, entry.properties["cluster_name"], entry.properties["num_gpus"])
        for entry in clusters
    ] == [
        ("team-nlp-gpus", "cluster-team-nlp", 8),
        ("team-vision-gpus", "cluster-team-vision", 24),
    ]
    assert "nlp: \"{{ clusters['team-nlp-gpus'] }}\"" in render_topology(conversion.declarations)


def test_a_counted_module_takes_its_index(tmp_path: Path) -> None:
    root = """
module "pool" {
  source = "./pool"
  count  = 2
  label  = "n${count.index}"
}
"""
    conversion = convert_modules(tmp_path, root, ["module.pool[0]", "module.pool[1]"])
    names = [entry.properties.get("cluster_name") for entry in conversion.declarations.entries]
    assert [name for name in names if name] == ["cluster-n0", "cluster-n1"]


def test_a_module_of_a_registry_is_an_omission(tmp_path: Path) -> None:
    root = 'module "pool" {\n  source = "terraform-aws-modules/vpc/aws"\n}\n'
    conversion = convert_modules(tmp_path, root, [])
    (omission,) = list_omissions(conversion)
    assert omission == (
        "main.tf:1:1: module pool was not converted: copy it into a folder, and name the folder in "
        "`source`"
    )


def test_a_module_that_includes_itself_is_refused(tmp_path: Path) -> None:
    root = 'module "a" {\n  source = "./pool"\n  label = "a"\n}\n'
    inner = 'module "b" {\n  source = "../"\n}\n'
    with pytest.raises(TerraformNotRead, match=r"inner/main.tf:1:1, included at .*itself"):
        convert_modules(tmp_path, root, ["module.a"], inner)


@pytest.mark.parametrize(
    ("moved", "former", "module"),
    [
        ("together_beta_cluster_storage.old", "old", ""),
        ("module.gone.together_beta_cluster_storage.old", "old", "module.gone"),
    ],
)
def test_a_moved_block_finds_the_object_under_its_former_address(
    tmp_path: Path, moved: str, former: str, module: str
) -> None:
    (tmp_path / "main.tf").write_text(f"""
moved {{
  from = {moved}
  to   = together_beta_cluster_storage.data
}}
resource "together_beta_cluster_storage" "data" {{
  region      = "us-central-8"
  size_tib    = 1
  volume_name = "data"
}}
""")
    resources = [describe_object("together_beta_cluster_storage", former, "v-1", module)]
    state = {"version": 4, "resources": resources}
    (tmp_path / "terraform.tfstate").write_text(json.dumps(state))

    conversion = convert_terraform(tmp_path)

    (entry,) = conversion.declarations.entries
    assert (entry.name, entry.options["import"]) == ("data", "v-1")
    assert not conversion.omissions
