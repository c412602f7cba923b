"""Exports of the node placement of a stack, through the command line, on emulated platforms."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config
from support.platforms.emulated_scp import build_variables
from support.topologies.declarations import CLUSTER

from gpuform.providers.context import ProviderContext, use_context
from gpuform.providers.context.run_context import EmulatorClock
from gpuform.providers.operations import Settings
from gpuform.providers.scp.client import ScpClient
from gpuform.providers.scp.client.connection import Connection
from gpuform.providers.scp.client.credentials import find_credentials

pytestmark = pytest.mark.slow

SCP = """\
import pulumi
from gpuform.providers.scp import GpuNode, NodePool

settings = dict(
    region_id="kr-west1",
    vpc_id="e58348b1bc9148e5af86500fd4ef99ca",
    subnet_id="ab313c43291e4b678f4bacffe10768ae",
    server_type_id="f90e8ef54cc2451b825608e9f95f7bcb",
    os_user_password="Only4Tests!",
    image_id="IMAGE-7XFMaJpLsapKvskFMjCtmm",
)
train = NodePool(
    "train", node_pool_id="POOL001-krw1a", cluster_fabric_name="train-a",
    gpu_node_name_prefix="train", count=3, **settings,
)
"""
OTHER = """\
NodePool(
    "other", node_pool_id="POOL001-krw1a", cluster_fabric_name="train-b",
    gpu_node_name_prefix="batch", count=2, **settings,
)
"""


@pytest.fixture
def kubernetes_api(project: Any) -> Iterator[client.CoreV1Api]:
    """Yield the official client of the Kubernetes of the only cluster."""
    project.declare(CLUSTER)
    project.up()
    kubeconfig = project.run_ok("stack", "output", "kubeconfig", "--show-secrets").out
    settings = client.Configuration()
    config.load_kube_config_from_dict(yaml.safe_load(kubeconfig), client_configuration=settings)
    with client.ApiClient(settings) as api:
        yield client.CoreV1Api(api)


def read_gpuform_labels(api: client.CoreV1Api) -> dict[str, dict[str, str]]:
    return {
        node.metadata.name: {
            key: value for key, value in node.metadata.labels.items() if "gpuform" in key
        }
        for node in api.list_node().items
    }


def test_labels_are_written_and_removed_with_the_nodes(project: Any, kubernetes_api: Any) -> None:
    labels = {
        "gpuform.dev/stack": "training.dev",
        "gpuform.dev/platform": "together",
        "gpuform.dev/region": "us-central-8",
    }
    apply = ("topology", "--format", "kubernetes-labels", "--apply")
    refused = project.run(*apply)
    assert refused.code == 1
    assert "  + gpuform.dev/region: us-central-8" in refused.out
    assert "add --yes" in refused.err
    assert {len(node_labels) for node_labels in read_gpuform_labels(kubernetes_api).values()} == {0}

    assert "Wrote 6 changes." in project.run_ok(*apply, "--yes").out
    assert read_gpuform_labels(kubernetes_api) == dict.fromkeys(
        ("training-worker-0", "training-worker-1"), labels
    )
    assert "No changes." in project.run_ok(*apply, "--yes").out

    project.declare({**CLUSTER, "num_gpus": 24})
    project.up()
    document = json.loads(project.run_ok(*apply, "--yes", "--json").out)
    assert {change["where"] for change in document["changes"] if change["action"] == "set"} == {
        "node/training-worker-2"
    }
    assert set(read_gpuform_labels(kubernetes_api)) == {
        f"training-worker-{number}" for number in range(3)
    }
    assert all(
        node_labels == labels for node_labels in read_gpuform_labels(kubernetes_api).values()
    )

    name = "training-worker-0"
    kubernetes_api.patch_node(name, {"metadata": {"labels": {"gpuform.dev/region": "mine"}}})
    conflict = project.run(*apply, "--yes")
    assert conflict.code == 1
    assert f"node/{name}: gpuform.dev/region is mine instead of us-central-8" in conflict.err

    removed = project.run_ok("topology", "--format", "kubernetes-labels", "--remove", "--yes").out
    assert f"node/{name}: unchanged, because meanwhile gpuform.dev/region is mine" in removed
    assert read_gpuform_labels(kubernetes_api) == {
        name: {"gpuform.dev/region": "mine"},
        "training-worker-1": {},
        "training-worker-2": {},
    }


def test_the_tree_of_a_cluster_comes_from_its_labels(project: Any, kubernetes_api: Any) -> None:
    bare = project.run_ok("topology", "--format", "slurm-tree")
    assert bare.out.splitlines()[1:] == ["SwitchName=train Nodes=slurm-worker-[0-1]"]
    assert "note: train: together does not report fabrics or switches" in bare.err
    for number in range(2):
        labels = {
            "fabric.topograph.run/tier-0": f"leaf{number}",
            "fabric.topograph.run/tier-1": "spine",
            "nvidia.com/gpu.clique": "8f1c.1",
        }
        kubernetes_api.patch_node(f"training-worker-{number}", {"metadata": {"labels": labels}})
    tree = project.run_ok("topology", "--format", "slurm-tree", "--refresh")
    assert tree.out.splitlines()[1:] == [
        "SwitchName=spine Switches=leaf[0-1]",
        "SwitchName=leaf0 Nodes=slurm-worker-0",
        "SwitchName=leaf1 Nodes=slurm-worker-1",
    ]
    block = project.run_ok("topology", "--format", "slurm-block", "--refresh")
    assert block.out.splitlines()[1:] == [
        "BlockName=8f1c.1 Nodes=slurm-worker-[0-1]",
        "BlockSizes=2",
    ]


def test_objects_of_kueue_and_slinky_are_written_and_removed(
    project: Any, kubernetes_api: Any
) -> None:
    custom = client.CustomObjectsApi(kubernetes_api.api_client)

    def topologies() -> list[dict[str, Any]]:
        return custom.list_cluster_custom_object("kueue.x-k8s.io", "v1beta2", "topologies")["items"]

    project.run_ok("topology", "--format", "kueue", "--apply", "--yes")
    (made,) = topologies()
    assert made["spec"] == {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    flavor = custom.get_cluster_custom_object(
        "kueue.x-k8s.io", "v1beta2", "resourceflavors", made["metadata"]["name"]
    )
    assert flavor["spec"]["topologyName"] == made["metadata"]["name"]
    project.run_ok("topology", "--format", "kueue", "--remove", "--yes")
    assert topologies() == []

    kubernetes_api.create_namespace({"metadata": {"name": "hpc"}})
    slinky = ("topology", "--format", "slinky", "--namespace", "hpc", "--yes")
    project.run_ok(*slinky, "--apply")
    (file,) = kubernetes_api.list_namespaced_config_map("hpc").items
    assert yaml.safe_load(file.data["topology.yaml"])[0]["tree"] == {
        "switches": [{"switch": "train"}]
    }
    node = kubernetes_api.read_node("training-worker-0")
    assert node.metadata.annotations["topology.slinky.slurm.net/spec"] == "topo-tree:train"
    project.run_ok(*slinky, "--remove")
    assert kubernetes_api.list_namespaced_config_map("hpc").items == []
    assert not kubernetes_api.read_node("training-worker-0").metadata.annotations


def test_a_topology_of_scp_has_fabrics_and_names_the_unknown_levels(project: Any) -> None:
    project.write_program(SCP + OTHER)
    project.up()
    tree = project.run_ok("topology", "--format", "slurm-tree")
    assert tree.out.splitlines()[1:] == [
        "SwitchName=train-a Nodes=train-[001-003]",
        "SwitchName=train-b Nodes=batch-[001-002]",
    ]
    assert "note: train: scp does not report switches" in tree.err
    assert "the switches above train-a, train-b are unknown" in tree.err
    result = project.run_ok("topology", "train", "--format", "slurm-tree")
    assert result.out.splitlines()[1:] == ["SwitchName=train-a Nodes=train-[001-003]"]
    document = json.loads(project.run_ok("topology", "--format", "inventory", "--json").out)
    assert {node["pool"] for node in document["nodes"]} == {"POOL001-krw1a"}
    assert {node["fabric"] for node in document["nodes"]} == {"train-a", "train-b"}
    assert any("scp does not report switches" in message for message in document["unknown"])


def test_nodes_of_scp_are_labelled_in_the_declared_kubernetes(project: Any, tmp_path: Path) -> None:
    """The test itself creates the Kubernetes nodes, because SCP servers join a cluster by hand."""
    project.declare(CLUSTER)
    project.up()
    kubeconfig_text = project.run_ok("stack", "output", "kubeconfig", "--show-secrets").out
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(kubeconfig_text)
    settings = client.Configuration()
    config.load_kube_config_from_dict(
        yaml.safe_load(kubeconfig_text), client_configuration=settings
    )
    with client.ApiClient(settings) as api:
        project.run_ok("stack", "init", "pool")
        project.write_program(
            SCP.replace('gpu_node_name_prefix="train"', 'gpu_node_name_prefix="gpu"')
        )
        project.run_ok("up", "--yes", "--skip-preview")
        apply = ("topology", "--format", "kubernetes-labels", "--apply", "--yes")
        refused = project.run(*apply)
        assert "the Kubernetes cluster of the nodes of train is unknown" in refused.err
        absent = project.run(*apply, "--kubeconfig", str(kubeconfig))
        assert absent.code == 1
        assert "node/gpu-001: node not found in the cluster" in absent.err
        assert all(
            not node_labels for node_labels in read_gpuform_labels(client.CoreV1Api(api)).values()
        )

        joined = {"a": {"gpu_node_name": "training-worker-0"}, "b": {}}
        drain = {"kubernetes": {"kubeconfig": str(kubeconfig)}}
        project.write_program(SCP.replace("count=3", f"nodes={joined!r}, drain={drain!r}"))
        project.run_ok("up", "--yes", "--skip-preview")
        partly = project.run(*apply)
        assert "node/train-b: node not found in the cluster" in partly.err
        fabric_id = json.loads(project.run_ok("topology", "--format", "inventory", "--json").out)[
            "nodes"
        ][0]["fabric_id"]
        assert read_gpuform_labels(client.CoreV1Api(api))["training-worker-0"] == {
            "gpuform.dev/stack": "training.pool",
            "gpuform.dev/platform": "scp",
            "gpuform.dev/region": "kr-west1",
            "gpuform.dev/pool": "POOL001-krw1a",
            "gpuform.dev/fabric": "train-a",
            "gpuform.dev/fabric-id": fabric_id,
        }
        project.run_ok(*apply[:-2], "--remove", "--yes")
        assert all(
            not node_labels for node_labels in read_gpuform_labels(client.CoreV1Api(api)).values()
        )


def test_a_pool_in_two_fabrics_is_a_warning(project: Any) -> None:
    project.write_program(SCP + OTHER)
    project.up()
    nodes = project.get_resource("train")["outputs"]["gpu_nodes"]
    others = project.get_resource("other")["outputs"]
    moved = min(nodes.values(), key=lambda node: node["gpu_node_name"])
    move_node(project, moved["id"], moved["cluster_fabric_id"], others["cluster_fabric_id"])
    warning = "train: its nodes are in 2 fabrics: "
    assert warning not in project.run_ok("status").out
    assert warning in project.run_ok("status", "--refresh").out
    assert warning in project.run_ok("drift").out
    project.run_ok("refresh", "--yes", "--skip-preview")
    assert warning in project.run_ok("preview").out
    tree = project.run_ok("topology", "train", "--format", "slurm-tree").out
    assert f"SwitchName=train-b Nodes={moved['gpu_node_name']}" in tree


def move_node(project: Any, node: str, before: str, after: str) -> None:
    """Move a node to another fabric, as on the platform's pages: outside of the stack."""
    settings = Settings(environ=build_variables(project.emulator.url))
    scp = ScpClient(Connection(find_credentials(settings)))
    clock = EmulatorClock(project.emulator.url)
    with closing(scp), closing(clock), use_context(ProviderContext(clock=clock)):
        scp.modify_members(before, after, [node])
    project.send_control_request("POST", "clock", json={"advance": 3600})


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--format", "slurm-tree", "--apply"), 1, "slurm-tree is for files"),
        (
            ("--format", "kueue", "--apply", "--remove"),
            2,
            ("--apply and --remove cannot be combined"),
        ),
        (("--format", "kueue", "--apply", "--output", "x"), 2, "--output cannot be combined"),
        (("--format", "kueue", "--yes"), 2, "--yes requires --apply or --remove"),
        (
            ("--format", "kueue", "--apply", "--json"),
            2,
            "--json cannot ask for a confirmation: add --yes",
        ),
        (("--format", "slurm-tree"), 1, "stack 'dev' has no resources with GPU nodes"),
        ((), 2, "Missing option '--format'"),
    ],
)
def test_an_impossible_topology_export_is_refused(
    project: Any, arguments: tuple[str, ...], code: int, message: str
) -> None:
    project.write_program("")
    result = project.run("topology", *arguments)
    assert result.code == code, result.text
    assert message in result.text


def test_clusters_with_own_schedulers_are_exported_one_by_one(project: Any) -> None:
    two = "\n".join(
        f"Cluster({name!r}, **{ {**CLUSTER, 'cluster_name': name}!r})" for name in ("one", "two")
    )
    project.write_program(f"from gpuform.providers.together import Cluster\n{two}\n")
    project.up()
    refused = project.run("topology", "--format", "slurm-tree")
    assert refused.code == 1
    assert "one has its own scheduler" in refused.err
    assert "gpuform export-topology one --format slurm-tree" in refused.err
    assert "SwitchName=two" in project.run_ok("topology", "two", "--format", "slurm-tree").out
    assert "did you mean one?" in project.run("topology", "onee", "--format", "slurm-tree").err
    hosts = yaml.safe_load(project.run_ok("topology", "--format", "inventory").out)["all"]["hosts"]
    assert len(hosts) == 4
