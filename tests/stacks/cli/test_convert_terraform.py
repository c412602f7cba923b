"""`gpuform convert --from terraform`: what Terraform has made is taken over, and not replaced."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuform.providers.emulator.server import environment, serve

Run = Callable[..., Any]

TOGETHER = """
terraform {
  required_providers {
    together = { source = "togethercomputer/together" }
  }
}

variable "gpus" {
  type        = number
  description = "GPUs to train on."
  default     = 8
}

locals {
  region = "us-central-8"
}

resource "together_beta_cluster_storage" "data" {
  region      = local.region
  size_tib    = 5
  volume_name = "training-data"
}

resource "together_beta_cluster" "train" {
  cluster_name   = "training"
  region         = together_beta_cluster_storage.data.region
  gpu_type       = "h100_sxm"
  num_gpus       = var.gpus
  driver_version = "CUDA_12_6_560"
  billing_type   = "ON_DEMAND"
  volume_id      = together_beta_cluster_storage.data.volume_id
  timeouts {
    create = "90m"
  }
  lifecycle {
    prevent_destroy = true
    ignore_changes  = [num_gpus]
  }
}

output "place" {
  value = "${together_beta_cluster.train.cluster_id} in ${local.region}: $${free}"
}
"""

SCP = """
variable "password" {
  type      = string
  ephemeral = true
}

resource "samsungcloudplatformv2_multinodegpucluster_gpunode" "train" {
  cluster_fabric_details = {
    cluster_fabric_name = "train-a"
    node_pool_id        = "POOL001-krw1a"
  }
  gpu_node_name_prefix = "train"
  image_id             = "IMAGE"
  os_user_password     = var.password
  region_id            = "kr-west1"
  server_details       = [for n in range(2) : { zone = "kr-west1-a", state = "RUNNING" }]
  server_type_id       = "SERVER"
  subnet_id            = "ab313c43291e4b678f4bacffe10768ae"
  vpc_id               = "e58348b1bc9148e5af86500fd4ef99ca"
}
"""


@pytest.fixture
def platforms(dev: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    with serve(seed="terraform") as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        yield dev


def build_terraform_state(*resources: tuple[str, str, Any, dict[str, Any]]) -> str:
    """Return a Terraform state with these resources: type, name, key, attributes."""
    state_resources = []
    for type_, name, key, attributes in resources:
        instance = {"attributes": attributes} | ({} if key is None else {"index_key": key})
        state_resources.append(
            {"mode": "managed", "type": type_, "name": name, "instances": [instance]}
        )
    return json.dumps({"version": 4, "resources": state_resources})


def create_other_project(run: Run, project: Path, name: str) -> Path:
    """Create another project with the same settings and another backend; return the folder."""
    folder = project.parent / name
    folder.mkdir()
    for file in ("Pulumi.yaml", "Pulumi.dev.yaml"):
        (folder / file).write_text((project / file).read_text())
    assert run("stack", "init", "dev", "--cwd", str(folder)).code == 0
    return folder


def expect_import_without_changes(run: Run, folder: Path) -> None:
    """Assert that the next run only imports, and the run after the import has no changes."""
    planned = run("preview", "--json", "--cwd", str(folder))
    assert planned.code == 0, planned.out[-900:] + planned.err
    steps = json.loads(planned.out)["steps"]
    made = {step["op"] for step in steps if "gpuform" in step["urn"]}
    assert made == {"import"}, steps
    ran = run("up", "--yes", "--cwd", str(folder))
    assert ran.code == 0, ran.out + ran.err
    ran = run("preview", "--expect-no-changes", "--cwd", str(folder))
    assert ran.code == 0, ran.out + ran.err


def get_ids(run: Run) -> dict[str, str]:
    resources = json.loads(run("stack", "export").out)["deployment"]["resources"]
    return {resource["urn"].rpartition("::")[2]: resource.get("id", "") for resource in resources}


@pytest.mark.slow
def test_together_resources_of_terraform_are_imported_unchanged(
    platforms: Run, project: Path
) -> None:
    assert platforms("up", "--yes", "--skip-preview").code == 0
    made = get_ids(platforms)
    folder = create_other_project(platforms, project, "other")
    (folder / "main.tf").write_text(TOGETHER)
    (folder / "terraform.tfvars").write_text("gpus = 16\n")
    (folder / "terraform.tfstate").write_text(
        build_terraform_state(
            ("together_beta_cluster_storage", "data", None, {"volume_id": made["data"]}),
            ("together_beta_cluster", "train", None, {"cluster_id": made["train"]}),
        )
    )
    ran = platforms("convert", "--from", "terraform", ".", "--cwd", str(folder))
    assert ran.code == 0, ran.err
    content = (folder / "topology.yaml").read_text()
    assert "  gpus: {type: integer, description: GPUs to train on., default: 16}\n" in content
    assert '    region: "{{ shared_volumes.data.region }}"\n' in content
    assert '    volume: "{{ shared_volumes.data }}"\n' in content
    assert f"import: {made['train']}" in content.replace('"', "")
    assert "ignore_changes: [num_gpus]" in content
    assert """place: "{{ clusters.train.id }}{{ ' in us-central-8: ${free}' }}\"""" in content
    expect_import_without_changes(platforms, folder)


MODULE = """
variable "region" {}
resource "together_beta_cluster_storage" "data" {
  region      = var.region
  size_tib    = 5
  volume_name = "training-data"
}
resource "together_beta_cluster" "train" {
  cluster_name   = "training"
  region         = var.region
  gpu_type       = "h100_sxm"
  num_gpus       = 16
  driver_version = "CUDA_12_6_560"
  billing_type   = "ON_DEMAND"
  volume_id      = together_beta_cluster_storage.data.volume_id
}
output "id" { value = together_beta_cluster.train.cluster_id }
"""
CALL = """
module "team" {
  source   = "./pool"
  for_each = { nlp = "us-central-8" }
  region   = each.value
}
output "cluster" { value = module.team["nlp"].id }
"""


@pytest.mark.slow
def test_a_module_of_terraform_is_imported_as_a_module_and_keeps_what_is_imported(
    platforms: Run, project: Path
) -> None:
    assert platforms("up", "--yes", "--skip-preview").code == 0
    made = get_ids(platforms)
    state = json.loads(
        build_terraform_state(
            ("together_beta_cluster_storage", "data", None, {"volume_id": made["data"]}),
            ("together_beta_cluster", "train", None, {"cluster_id": made["train"]}),
        )
    )
    for resource in state["resources"]:
        resource["module"] = 'module.team["nlp"]'
    folder = create_other_project(platforms, project, "other")
    (folder / "pool").mkdir()
    (folder / "pool" / "main.tf").write_text(MODULE)
    (folder / "main.tf").write_text(CALL)
    (folder / "terraform.tfstate").write_text(json.dumps(state))
    convert = ("convert", "--from", "terraform", ".", "--cwd", str(folder))

    # stdout has one file, so the module is inlined as before.
    inlined = platforms(*convert, "--output", "-")
    (folder / "topology.yaml").write_text(inlined.out)
    expect_import_without_changes(platforms, folder)
    extracted = platforms(*convert, "--force")

    assert inlined.code == extracted.code == 0, inlined.err + extracted.err
    assert "include" not in inlined.out
    assert "Wrote pool.yaml.\nWrote topology.yaml." in extracted.out
    content = (folder / "topology.yaml").read_text()
    assert 'cluster: "{{ modules.team.nlp.id }}"' in content
    assert 'region: "{{ inputs.region }}"' in (folder / "pool.yaml").read_text()
    assert platforms("validate", "--cwd", str(folder)).code == 0
    planned = json.loads(platforms("preview", "--json", "--cwd", str(folder)).out)
    operations = {step["urn"].rpartition("::")[2]: step["op"] for step in planned["steps"]}
    assert operations.pop("team-nlp") == "create"
    assert set(operations.values()) == {"same"}, planned
    # A stack without the objects imports them.
    fresh = create_other_project(platforms, project, "fresh")
    for file in ("topology.yaml", "pool.yaml"):
        (fresh / file).write_text((folder / file).read_text())
    ran = platforms("up", "--yes", "--skip-preview", "--cwd", str(fresh))
    assert "= 2 imported" in ran.out, ran.out + ran.err
    assert platforms("preview", "--expect-no-changes", "--cwd", str(fresh)).code == 0


def test_an_existing_file_of_the_name_of_a_module_is_not_replaced(dev: Run, project: Path) -> None:
    (project / "pool").mkdir()
    (project / "pool" / "main.tf").write_text(MODULE)
    (project / "main.tf").write_text(CALL)
    resource = {"type": "together_beta_cluster_storage", "name": "data", "mode": "managed"}
    instances = [{"attributes": {"volume_id": "v-1"}}]
    module = {"module": 'module.team["nlp"]', "instances": instances}
    state = {"version": 4, "resources": [resource | module]}
    (project / "terraform.tfstate").write_text(json.dumps(state))
    (project / "pool.yaml").write_text("# mine\n")

    refused = dev("convert", "--from", "terraform")
    same = dev("convert", "--from", "terraform", "--force", "--output", "pool.yaml")

    assert "pool.yaml exists; nothing was written" in refused.err
    assert "pool.yaml is also the file of a module; nothing was written" in same.err
    assert refused.code == same.code != 0
    assert (project / "pool.yaml").read_text() == "# mine\n"
    assert not (project / "topology.yaml").exists()


BLOCK = """
resource "together_gpu_cluster" "training" {
  name              = "training-cluster"
  num_gpus          = 8
  instance_type     = "H100-SXM"
  region            = "us-central-8"
  billing_type      = "prepaid"
  reservation_days  = 30

  shared_volume {
    name     = "training-data"
    size_tib = 5
  }
  lifecycle {
    ignore_changes = [reservation_days]
  }
}

output "name" {
  value = together_gpu_cluster.training.name
}
"""


def create_block_cluster(run: Run, project: Path) -> str:
    (project / "__main__.py").write_text(
        "from gpuform.providers.together import Cluster\n"
        "Cluster('p', cluster_name='training-cluster', num_gpus=8, gpu_type='H100_SXM',\n"
        "    region='us-central-8', billing_type='RESERVED', duration_days=30,\n"
        "    driver_version='CUDA_12_6_560', shared_volume={'volume_name': 'training-data',\n"
        "    'size_tib': 5, 'region': 'us-central-8'})\n"
    )
    ran = run("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    return get_ids(run)["p"]


@pytest.mark.slow
def test_the_block_of_togethers_reference_is_imported_unchanged(
    platforms: Run, project: Path
) -> None:
    made = create_block_cluster(platforms, project)
    folder = create_other_project(platforms, project, "other")
    (folder / "main.tf").write_text(BLOCK)
    block = {"name": "training-cluster", "billing_type": "prepaid", "instance_type": "H100-SXM"}
    volume = {"shared_volume": [{"name": "training-data", "size_tib": 5}]}
    (folder / "terraform.tfstate").write_text(
        build_terraform_state(
            ("together_gpu_cluster", "training", None, {"id": made, **block, **volume})
        )
    )
    ran = platforms("convert", "--from", "terraform", ".", "--cwd", str(folder))
    assert ran.code == 1  # something is to be looked at
    assert "gpuform config set driver_version VALUE" in ran.out + ran.err
    content = (folder / "topology.yaml").read_text()
    for line in (
        "cluster_name: training-cluster",
        "gpu_type: H100_SXM",
        "billing_type: RESERVED",
        "duration_days: 30",
        'driver_version: "{{ config.driver_version }}"',
        "shared_volume: {volume_name: training-data, size_tib: 5, region: us-central-8}",
        'name: "{{ clusters.training.cluster_name }}"',
        f"options: {{import: {made}, ignore_changes: [duration_days]}}",
    ):
        assert f"{line}\n" in content, content
    run = ("config", "set", "driver_version", "CUDA_12_6_560", "--cwd", str(folder))
    assert platforms(*run).code == 0
    expect_import_without_changes(platforms, folder)


@pytest.mark.slow
def test_convert_reads_from_the_state_what_the_block_omits(dev: Run, project: Path) -> None:
    block = BLOCK.replace('"H100-SXM"', "var.type")
    (project / "main.tf").write_text(block + 'variable "type" { default = "H100-SXM" }\n')
    attributes = {
        "id": "c-1",
        "instance_type": "H100-SXM",
        "driver_version": "CUDA_12_6_560",
        "shared_volume": [{"name": "training-data", "size_tib": 5, "volume_id": "v-1"}],
    }
    (project / "terraform.tfstate").write_text(
        build_terraform_state(("together_gpu_cluster", "training", None, attributes))
    )
    ran = dev("convert", "--from", "terraform", ".")
    assert ran.code == 1, ran.err
    content = (project / "topology.yaml").read_text()
    assert "    gpu_type: H100_SXM\n" in content
    assert "    driver_version: CUDA_12_6_560\n" in content
    assert "    volume_id: v-1\n" in content, content
    assert "instance_type has the state's value instead of var.type" in ran.out + ran.err


@pytest.mark.slow
def test_scp_nodes_of_terraform_are_imported_unchanged(platforms: Run, project: Path) -> None:
    from gpuform.providers.scp import images, products

    image, server = images("kr-west1")[0].id, products("SCALE", region="kr-west1")[0].id
    files = SCP.replace("IMAGE", image).replace("SERVER", server)
    (project / "__main__.py").write_text(
        "from gpuform.providers.scp import NodePool\n"
        "NodePool('p', node_pool_id='POOL001-krw1a', cluster_fabric_name='train-a', count=2,\n"
        f"    gpu_node_name_prefix='train', image_id={image!r}, server_type_id={server!r},\n"
        "    region_id='kr-west1', vpc_id='e58348b1bc9148e5af86500fd4ef99ca',\n"
        "    subnet_id='ab313c43291e4b678f4bacffe10768ae', os_user_password='Only4Tests!')\n"
    )
    ran = platforms("up", "--yes", "--skip-preview")
    assert ran.code == 0, ran.out + ran.err
    folder = create_other_project(platforms, project, "other")
    (folder / "main.tf").write_text(files)
    servers = [{"gpu_node_name": f"train-00{n}", "state": "RUNNING"} for n in (1, 2)]
    attributes = {"server_details": servers, "os_user_password": None}
    (folder / "terraform.tfstate").write_text(
        build_terraform_state(
            ("samsungcloudplatformv2_multinodegpucluster_gpunode", "train", None, attributes)
        )
    )
    ran = platforms("convert", "--from", "terraform", "--cwd", str(folder))
    assert ran.code == 0, ran.err
    content = (folder / "topology.yaml").read_text()
    assert "  password: {secret: true}\n" in content
    assert '    os_user_password: "{{ config.password }}"\n' in content
    assert "    count: 2\n" in content
    assert "import: POOL001-krw1a/train-a/train" in content
    run = ("config", "set", "--secret", "password", "Only4Tests!", "--cwd", str(folder))
    assert platforms(*run).code == 0
    expect_import_without_changes(platforms, folder)


@pytest.mark.slow
def test_convert_from_terraform_writes_no_secret(dev: Run, project: Path) -> None:
    """The files have literal secrets, and a variable that is not declared as sensitive."""
    literal = SCP.replace("var.password", '"Only4Tests!"')
    plain = SCP.replace("ephemeral = true", 'default = "Only4Tests!"')
    attributes = {"server_details": [{"gpu_node_name": "train-001"}]}
    (project / "terraform.tfstate").write_text(
        build_terraform_state(
            ("samsungcloudplatformv2_multinodegpucluster_gpunode", "train", None, attributes)
        )
    )
    for files, key in ((literal, "os_user_password"), (plain, "password")):
        (project / "main.tf").write_text(files)
        ran = dev("convert", "--from", "terraform", "--force", "--set-secrets")
        content = (project / "topology.yaml").read_text()
        assert "Only4Tests" not in ran.out + ran.err + content
        assert f'os_user_password: "{{{{ config.{key} }}}}"' in content
        assert dev("config", "get", key).out == "Only4Tests!\n"


SENSITIVE = (
    SCP.replace("ephemeral = true", 'default = "v4r-hidden"')
    .replace("var.password", '"pl4nted-${var.password}"')
    .replace("server_details  ", 'init_script = base64encode("x")\n  server_details  ')
    .replace('"kr-west1"\n', 'lower("KR-WEST1")\n')
    + """
output "a_literal" {
  value     = "pl4nted"
  sensitive = true
}

output "a_text" {
  value     = "pl4nted@${samsungcloudplatformv2_multinodegpucluster_gpunode.train.image_id}"
  sensitive = true
}

output "of_what_is_plain" {
  value     = samsungcloudplatformv2_multinodegpucluster_gpunode.train.image_id
  sensitive = true
}
"""
)


@pytest.mark.slow
@pytest.mark.sampled(1)
def test_values_that_terraform_marks_sensitive_stay_secret(dev: Run, project: Path) -> None:
    """Cover literals inside a secret text, values that only the state has, and outputs."""
    attributes = {
        "server_details": [{"gpu_node_name": "train-001"}],
        "init_script": "pl4nted script",
        "region_id": "pl4nted-region",
        "image_id": "pl4nted-image",
    }
    state = json.loads(
        build_terraform_state(
            ("samsungcloudplatformv2_multinodegpucluster_gpunode", "train", None, attributes)
        )
    )
    hidden = [[{"type": "get_attr", "value": name}] for name in ("region_id", "image_id")]
    state["resources"][0]["instances"][0]["sensitive_attributes"] = hidden
    (project / "terraform.tfstate").write_text(json.dumps(state))
    (project / "main.tf").write_text(SENSITIVE.replace('"IMAGE"', 'lower("X")'))
    ran = dev("convert", "--from", "terraform", "--set-secrets")
    content = (project / "topology.yaml").read_text()
    for written in (ran.out, ran.err, content, (project / "Pulumi.dev.yaml").read_text()):
        assert "pl4nted" not in written
        assert "v4r-hidden" not in written
    assert 'os_user_password: "{{ config.os_user_password }}{{ config.password }}"' in content
    assert 'init_script: "{{ config.init_script }}"' in content
    assert 'region_id: "{{ config.region_id }}"' in content
    assert 'a_literal: "{{ config.a_literal }}"' in content
    reason = "it is sensitive, but its value is not secret"
    assert f"output of_what_is_plain was not converted: {reason}" in ran.err
    assert ran.code == 1
    assert dev("config", "get", "region_id").out == "pl4nted-region\n"


def test_a_required_secret_is_read_from_the_terraform_state(dev: Run, project: Path) -> None:
    lines = [line for line in SCP.splitlines() if "os_user_password" not in line]
    (project / "main.tf").write_text("\n".join(lines))
    attributes = {
        "server_details": [{"gpu_node_name": "train-001"}],
        "os_user_password": "pl4nted",
    }
    (project / "terraform.tfstate").write_text(
        build_terraform_state(
            ("samsungcloudplatformv2_multinodegpucluster_gpunode", "train", None, attributes)
        )
    )
    ran = dev("convert", "--from", "terraform", "--set-secrets")
    assert "pl4nted" not in ran.out + ran.err + (project / "topology.yaml").read_text()
    assert dev("config", "get", "os_user_password").out == "pl4nted\n"


UNSUPPORTED = """
module "network" {
  source = "./network"
}

resource "aws_s3_bucket" "logs" {
  bucket = "logs"
}

resource "together_beta_cluster_storage" "data" {
  for_each    = { a = "us-central-8", b = "us-central-4" }
  region      = each.value
  size_tib    = max(1, 5)
  volume_name = "data-${each.key}"
  color       = "blue"
  provisioner "local-exec" {
    command = "true"
  }
  lifecycle {
    ignore_changes = all
  }
}

resource "together_beta_cluster" "lost" {
  cluster_name   = "lost"
  region         = "us-central-8"
  gpu_type       = upper("h100_sxm")
  num_gpus       = 8
  driver_version = "CUDA_12_6_560"
  billing_type   = "ON_DEMAND"
  volume_id      = together_beta_cluster_storage.data["a"].id
}

resource "together_beta_cluster" "new" {
  cluster_name = "new"
}

output "lost" {
  value = together_beta_cluster.lost.status
}

output "volumes" {
  value = { for k, v in together_beta_cluster_storage.data : k => v.id }
}
"""


def test_convert_from_terraform_lists_what_it_leaves_out(dev: Run, project: Path) -> None:
    (project / "main.tf").write_text(UNSUPPORTED)
    volume = {"size_tib": 5, "region": "us-central-8"}
    (project / "terraform.tfstate").write_text(
        build_terraform_state(
            ("together_beta_cluster_storage", "data", "a", {"volume_id": "v-a", **volume}),
            ("together_beta_cluster_storage", "data", "b", {"volume_id": "v-b", **volume}),
            ("together_beta_cluster", "lost", None, {"cluster_id": "c-1"}),
            ("together_beta_cluster", "gone", None, {"cluster_id": "c-2"}),
        )
    )
    ran = dev("convert", "--from", "terraform")
    assert ran.code == 1
    expected_lines = [
        "main.tf:2:1: module network was not converted",
        "main.tf:6:1: aws_s3_bucket.logs has a type that gpuform does not support",
        (
            'main.tf:13:1: together_beta_cluster_storage.data["a"]: size_tib has '
            "the state's value instead of max(1, 5)"
        ),
        'main.tf:15:1: together_beta_cluster_storage.data["b"]: gpuform has no property for color',
        "main.tf:16:1: together_beta_cluster_storage.data: provisioner was not converted",
        'main.tf:24:1: together_beta_cluster.lost: gpu_type is upper("h100_sxm"), and ',
        "main.tf:20:1: together_beta_cluster_storage.data: ignore_changes was not converted",
        "main.tf:34:1: together_beta_cluster.new has no object in the state",
        "main.tf:38:1: output lost refers to a resource that was not converted",
        "main.tf:42:1: output volumes was not converted: ",
        "terraform.tfstate: together_beta_cluster.gone is in the state but not in these files",
    ]
    for line in expected_lines:
        assert f"  {line}" in ran.err
    content = (project / "topology.yaml").read_text()
    assert "      b: {region: us-central-4, volume_name: data-b, import: " in content
    assert "lost" not in content
    assert dev("validate", "topology.yaml").code == 0


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ({}, "has no .tf files"),
        ({"main.tf": "resource {{{"}, "main.tf:1:11: this is not valid Terraform"),
        ({"main.tf": ""}, "terraform.tfstate does not exist"),
        ({"main.tf": "", "terraform.tfstate": "{}"}, "has version None; gpuform reads version 4"),
        ({"main.tf": "", "terraform.tfstate": "["}, "is not a valid Terraform state"),
        (
            {"main.tf": "", "terraform.tfstate": '{"version": 4, "resources": 3}'},
            "is not a valid Terraform state",
        ),
        (
            {
                "main.tf": "",
                "terraform.tfstate": '{"version": 4, "resources": [{"mode": "data", "type": "a", '
                '"name": "b", "instances": [{"attributes": ["c"]}]}]}',
            },
            "is not a valid Terraform state",
        ),
        (
            {
                "main.tf": "locals {\n  a = local.b\n  b = local.a\n}\n"
                'output "a" {\n  value = local.a\n}\n',
                "terraform.tfstate": '{"version": 4}',
            },
            "a local value refers to itself",
        ),
    ],
)
def test_convert_from_terraform_fails_for_unreadable_files(
    dev: Run, project: Path, files: dict[str, str], why: str
) -> None:
    for name, content in files.items():
        (project / name).write_text(content)
    ran = dev("convert", "--from", "terraform")
    assert (ran.code, ran.out) == (1, "")
    assert why in ran.err
    assert not (project / "topology.yaml").exists()
