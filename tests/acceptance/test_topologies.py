"""Topologies through the command line: from `stack init` to `destroy`, and refusals."""

from textwrap import dedent

import pytest

pytestmark = pytest.mark.slow

TOPOLOGY = dedent("""
    config:
      gpus: {type: integer, default: 16, multiple_of: 8}
    shared_volumes:
      data:
        platform: together
        volume_name: training-data
        region: us-central-8
        size_tib: 5
        options: {protect: true}
    clusters:
      train:
        platform: together
        for_each: {a: us-central-8, b: us-central-8}
        cluster_name: "train-{{ each.key }}"
        region: "{{ each.value }}"
        gpu_type: H100_SXM
        num_gpus: "{{ config.gpus }}"
        driver_version: CUDA_12_6_560
        billing_type: ON_DEMAND
        volume: "{{ shared_volumes.data }}"
        options: {timeouts: {create: 45m}}
    outputs:
      kubeconfig: "{{ clusters.train.a.kube_config }}"
""").lstrip()
BAD = (
    TOPOLOGY.replace("H100_SXM", "H100")
    .replace("size_tib: 5", "size_tb: 5")
    .replace("clusters.train.a.", "clusters.train.c.")
)


def declare(project, topology=TOPOLOGY):
    (project.directory / "topology.yaml").write_text(topology)


def list_clusters(project):
    """Return the names of the clusters on the platform."""
    return sorted(cluster["name"] for cluster in project.objects["clusters"])


def list_names(project):
    return sorted(
        resource["urn"].rpartition("::")[2] for resource in project.state.get("resources", ())
    )


def test_a_topology_is_created_stays_unchanged_and_is_destroyed(project):
    declare(project)
    assert {name: step["op"] for name, step in project.list_changes().items()} == {
        "training-dev": "create",
        "data": "create",
        "train-a": "create",
        "train-b": "create",
    }
    project.up()
    assert list_names(project) == ["data", "default", "train-a", "train-b", "training-dev"]
    train = project.get_resource("train-a")
    assert train["inputs"]["num_gpus"] == 16
    assert train["customTimeouts"] == {"create": 2700}
    assert train["propertyDependencies"]["volume_id"] == [project.get_resource("data")["urn"]]
    assert list_clusters(project) == ["train-a", "train-b"]
    project.run_ok("preview", "--expect-no-changes")
    project.run_ok("refresh", "--yes")
    project.run_ok("preview", "--expect-no-changes")
    assert "apiVersion" in project.run_ok("stack", "output", "kubeconfig", "--show-secrets").out
    files = (file for file in project.directory.rglob("*") if file.is_file())
    assert not [file for file in files if b"apiVersion" in file.read_bytes()]

    refused = project.run("destroy", "--yes")
    assert refused.code == 1
    assert "protect" in refused.text
    assert len(project.objects["clusters"]) == 2
    declare(project, TOPOLOGY.replace("{protect: true}", "{protect: false}"))
    project.up()
    project.run_ok("destroy", "--yes")
    assert project.objects == {**project.objects, "clusters": [], "volumes": []}
    assert list_names(project) == []


def test_configuration_and_keys_change_only_the_resources_that_use_them(project):
    declare(project)
    project.up()
    project.run_ok("config", "set", "gpus", "24")
    assert {name: step["op"] for name, step in project.list_changes().items()} == {
        "train-a": "update",
        "train-b": "update",
    }
    refused = project.run("config", "set", "gpus", "20")
    assert refused.code == 1
    assert "topology.yaml:2:3: config.gpus: 20 is not a multiple of 8" in refused.text
    project.run_ok("config", "rm", "gpus")
    declare(project, TOPOLOGY.replace(", b: us-central-8}", "}"))
    assert {name: step["op"] for name, step in project.list_changes().items()} == {
        "train-b": "delete"
    }
    project.up()
    assert list_clusters(project) == ["train-a"]


def test_a_program_that_runs_the_topology_has_the_same_plan(project):
    declare(project)
    project.up()
    project.write_program('from gpuform.stacks import run\nrun("topology.yaml")\n')
    project.run_ok("preview", "--expect-no-changes")


@pytest.mark.parametrize("program", ["", "from gpuform.stacks import run\nrun()\n"])
def test_a_bad_topology_changes_nothing_and_all_problems_are_reported(project, program):
    declare(project)
    project.up()
    before, objects = project.state, project.objects
    if program:
        project.write_program(program)
    declare(project, BAD)
    project.forget_requests()
    for command in (["preview"], ["up", "--yes"], ["up", "--yes", "--skip-preview"]):
        result = project.run(*command)
        assert result.code == 1
        for position in ("8:5: shared_vol", "16:15: clusters.train.a.g", "23:19: clusters."):
            assert f"topology.yaml:{position}" in result.text
        assert "Traceback" not in result.text
    assert project.list_requests("POST", "PUT", "PATCH", "DELETE") == []
    assert project.objects == objects
    assert project.state["resources"] == before["resources"]


def test_a_directory_without_topology_and_program_is_an_error(project):
    result = project.run("up", "--yes")
    assert result.code == 1
    assert "no program: " in result.text
    assert "or a topology.yaml" in result.text


def test_a_topology_with_another_name_is_run_only_by_a_program(project):
    (project.directory / "parts").mkdir()
    (project.directory / "parts/train.yml").write_text(TOPOLOGY)
    project.write_program('from gpuform.stacks import run\nrun("parts/train.yml")\n')
    project.up()
    project.write_program('from gpuform.stacks import run\nrun("parts/none.yml")\n')
    result = project.run("preview")
    assert result.code == 1
    assert "parts/none.yml:1:1: cannot be read: No such file or directory" in result.text
