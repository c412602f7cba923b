"""Test which instances of Terraform's resources become one entry with `for_each`."""

from pathlib import Path
from typing import Any

import pytest

from gpuform.stacks.convert.terraform import convert_terraform
from gpuform.stacks.declaration_writer.topology_yaml import render_topology
from gpuform.stacks.document.diagnostics import Diagnostics
from gpuform.stacks.topology.planning import plan, read_plan_context
from tests.stacks.convert.terraform_folder import convert_files

REPEATED = """
locals { pools = { a = { region = "us-a" }, b-c = { region = "us-b" } } }
resource "together_beta_cluster_storage" "data" {
  for_each    = local.pools
  volume_name = "data-${each.key}"
  region      = each.value.region
  size_tib    = SIZE
}
resource "together_beta_cluster" "train" {
  for_each       = local.pools
  cluster_name   = "train"
  region         = each.value.region
  gpu_type       = "H100_SXM"
  num_gpus       = 8
  driver_version = "CUDA_12_6_560"
  billing_type   = "ON_DEMAND"
  volume_id      = together_beta_cluster_storage.data[each.key].volume_id
}
output "first" { value = together_beta_cluster.train["a"].cluster_id }
output "names" { value = [for c in together_beta_cluster.train : c.cluster_name] }
"""


def convert_repeated(folder: Path, files: str) -> str:
    """Return the topology of the volumes and clusters `a` and `b-c`."""

    def list_instances(id_name: str) -> list[dict[str, Any]]:
        return [
            {"index_key": key, "attributes": {id_name: f"{id_name}-{key}"}} for key in ("a", "b-c")
        ]

    convert_files(
        folder,
        files,
        ("together_beta_cluster_storage", "data", list_instances("volume_id")),
        ("together_beta_cluster", "train", list_instances("cluster_id")),
    )
    return render_topology(convert_terraform(folder, repeats=True).declarations)


def list_problems(folder: Path, text: str) -> tuple[list[str], list[str]]:
    """Return the problems of a topology, and the names of its resources."""
    (folder / "topology.yaml").write_text(text)
    problems = Diagnostics()
    planned = plan(
        folder / "topology.yaml", read_plan_context(folder / "topology.yaml", None), problems
    )
    return [str(problem) for problem in problems], [r.instance.name for r in planned.resources]


def test_instances_that_differ_in_plain_values_become_one_entry(tmp_path: Path) -> None:
    text = convert_repeated(tmp_path, REPEATED.replace("SIZE", "5"))
    for line in (
        "  train:",
        "      a: {region: us-a, import: cluster_id-a}",
        "      b-c: {region: us-b, import: cluster_id-b-c}",
        "    cluster_name: train",
        """    region: "{{ each.value.region }}\"""",
        """    volume: "{{ shared_volumes.data[each.key] }}\"""",
        """    options: {import: "{{ each.value.import }}"}""",
        """  first: "{{ clusters.train.a }}\"""",
    ):
        assert line in text.splitlines(), text
    problems, names = list_problems(tmp_path, text)
    assert problems == []
    assert sorted(names) == ["data-a", "data-b-c", "train-a", "train-b-c"]


def test_instances_that_share_one_instance_of_another_entry_refer_to_its_key(
    tmp_path: Path,
) -> None:
    files = REPEATED.replace("SIZE", "5").replace("us-b", "us-a")
    files = files.replace("data[each.key]", 'data["a"]')
    text = convert_repeated(tmp_path, files)
    assert """    volume: "{{ shared_volumes.data.a }}\"""" in text.splitlines(), text
    assert list_problems(tmp_path, text)[0] == []


def test_instances_that_differ_in_references_stay_entries_of_their_own(tmp_path: Path) -> None:
    variables = 'variable "sizes" { default = { a = 1, b-c = 2 } }\n'
    text = convert_repeated(tmp_path, variables + REPEATED.replace("SIZE", "var.sizes[each.key]"))
    assert "  data-a:" in text.splitlines()
    assert '    size_tib: "{{ config.sizes.a }}"' in text.splitlines()
    assert "for_each" not in text, "each cluster refers to a volume of its own"
    problems, names = list_problems(tmp_path, text)
    assert problems == []
    assert sorted(names) == ["data-a", "data-b-c", "train-a", "train-b-c"]


@pytest.mark.parametrize("repeats", [True, False])
def test_a_single_instance_stays_an_entry(tmp_path: Path, repeats: bool) -> None:
    files = (
        REPEATED.split("output", maxsplit=1)[0]
        .replace("SIZE", "5")
        .split('resource "together_beta_cluster" ')[0]
    )
    instances = [{"index_key": "a", "attributes": {"volume_id": "v-a"}}]
    convert_files(tmp_path, files, ("together_beta_cluster_storage", "data", instances))
    conversion = convert_terraform(tmp_path, repeats=repeats)
    assert [entry.address for entry in conversion.declarations.entries] == ["shared_volumes.data-a"]
