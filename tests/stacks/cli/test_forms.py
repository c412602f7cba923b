"""`gpuform:form` in a stack's configuration: the same program and topology in either form."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

TOPOLOGY = """
shared_volumes:
  data: {platform: together, volume_name: training-data, region: us-central-8, size_tib: 5}
clusters:
  train:
    platform: together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes.data }}"
outputs: {status: "{{ clusters.train.status }}", kubeconfig: "{{ clusters.train.kube_config }}"}
"""
TYPES = {
    "dynamic": "pulumi-python:dynamic/gpuform.together:{}",
    "plugin": "gpuform:together:{}",
}


def read_resources(project: Path) -> dict[str, Any]:
    """Return the resources of the state by name."""
    state = json.loads((project / ".pulumi/stacks/demo/dev.json").read_text())
    resources = state["checkpoint"]["latest"].get("resources", [])
    return {
        resource["urn"].rpartition("::")[2]: resource
        for resource in resources
        if "together" in resource["type"]
    }


def switch_form(planned_project: PlannedProject, form: str) -> None:
    """Set the form, and assert that only types in the state change."""
    before = read_resources(planned_project.project)
    assert planned_project.run("config", "set", "gpuform:form", form).code == 0
    for command in (
        ("preview", "--expect-no-changes"),
        ("up", "--yes", "--expect-no-changes"),
        ("refresh", "--yes", "--expect-no-changes"),
        ("preview", "--expect-no-changes"),
    ):
        ran = planned_project.run(*command)
        assert ran.code == 0, (command, ran.out, ran.err)
    after = read_resources(planned_project.project)
    for name, kind in (("data", "SharedVolume"), ("train", "Cluster")):
        assert after[name]["type"] == TYPES[form].format(kind)
        assert after[name]["id"] == before[name]["id"]
        assert ("__provider" in after[name]["inputs"]) is (form == "dynamic")


@pytest.mark.slow
def test_a_program_moves_to_the_plugin_form_and_back(applied_project: PlannedProject) -> None:
    requests = applied_project.sent_changes
    switch_form(applied_project, "plugin")
    switch_form(applied_project, "dynamic")
    switch_form(applied_project, "plugin")
    assert applied_project.sent_changes == requests
    assert applied_project.run("destroy", "--yes").code == 0
    assert read_resources(applied_project.project) == {}


@pytest.mark.slow
def test_a_topology_moves_to_the_plugin_form_and_back(applied_project: PlannedProject) -> None:
    """The topology takes over the program's resources in the run that changes the form."""
    (applied_project.project / "__main__.py").unlink()
    (applied_project.project / "topology.yaml").write_text(TOPOLOGY)
    requests = applied_project.sent_changes
    switch_form(applied_project, "plugin")
    switch_form(applied_project, "dynamic")
    assert applied_project.sent_changes == requests


NESTED = """
import pulumi
from gpuform.providers.together import SharedVolume

def volume(name, volume_name, **options):
    opts = pulumi.ResourceOptions(**options)
    return SharedVolume(name, opts, volume_name=volume_name, region="us-central-8", size_tib=1)

"""
BEFORE = NESTED + 'volume("inner", "b", parent=volume("outer", "a"))'
AFTER = NESTED + 'volume("inner", "b", parent=volume("new", "a", aliases=[pulumi.Alias("outer")]))'


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("begin", ["dynamic", "plugin"])
def test_a_resource_with_children_is_renamed_while_its_form_changes(
    planned_project: PlannedProject, begin: str
) -> None:
    program = planned_project.project / "__main__.py"
    program.write_text(BEFORE)
    assert planned_project.run("config", "set", "gpuform:form", begin).code == 0
    assert planned_project.run("up", "--yes", "--skip-preview").code == 0
    ids = {resource["id"] for resource in read_resources(planned_project.project).values()}
    program.write_text(AFTER)
    (other,) = {*TYPES} - {begin}
    assert planned_project.run("config", "set", "gpuform:form", other).code == 0
    ran = planned_project.run("up", "--yes", "--expect-no-changes")
    assert ran.code == 0, ran.out + ran.err
    resources = read_resources(planned_project.project)
    assert set(resources) == {"new", "inner"}
    assert {resource["id"] for resource in resources.values()} == ids


def test_rules_over_several_resources_hold_in_both_forms(planned_project: PlannedProject) -> None:
    program = planned_project.project / "__main__.py"
    elsewhere = program.read_text().replace("region=region, size", 'region="us-central-4", size')
    program.write_text(elsewhere)
    for form in TYPES:
        assert planned_project.run("config", "set", "gpuform:form", form).code == 0
        ran = planned_project.run("preview")
        assert ran.code == 1
        assert "shared volume 'data' is in us-central-4, the cluster in us-central-8" in ran.out


@pytest.mark.parametrize("with_topology", [False, True])
def test_an_unknown_form_is_refused_with_its_line(
    planned_project: PlannedProject, with_topology: bool
) -> None:
    if with_topology:
        (planned_project.project / "__main__.py").unlink()
        (planned_project.project / "topology.yaml").write_text(TOPOLOGY)
    with (planned_project.project / "Pulumi.dev.yaml").open("a") as file:
        file.write("config:\n  gpuform:form: plug-in\n")
    ran = planned_project.run("preview")
    assert ran.code == 1
    assert "gpuform:form is 'plug-in' in the configuration of stack dev: did you mean" in ran.out
    assert "change the line in Pulumi.dev.yaml" in ran.out
    assert "Traceback" not in ran.out + ran.err


@pytest.mark.slow
def test_an_object_is_imported_in_the_stacks_form(applied_project: PlannedProject) -> None:
    ids = {
        name: resource["id"] for name, resource in read_resources(applied_project.project).items()
    }
    for name in ("train", "data"):
        assert applied_project.run("state", "delete", name, "--yes").code == 0
    (applied_project.project / "__main__.py").unlink()
    (applied_project.project / "topology.yaml").write_text("outputs: {}\n")
    assert applied_project.run("config", "set", "gpuform:form", "plugin").code == 0
    ran = applied_project.run("import", "together:SharedVolume", "data", ids["data"], "--yes")
    assert ran.code == 0, ran.out + ran.err
    data = read_resources(applied_project.project)["data"]
    assert (data["id"], data["type"]) == (ids["data"], "gpuform:together:SharedVolume")
