"""Where a stack's nodes are, through the command line, on emulated platforms."""

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
from gpuform.providers.context.clock import EmulatorClock
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
def official(project: Any) -> Iterator[client.CoreV1Api]:
    """The official client of the one cluster of Together."""
    project.declare(CLUSTER)
    project.up()
    shown = project.ok("stack", "output", "kubeconfig", "--show-secrets").out
    settings = client.Configuration()
    config.load_kube_config_from_dict(yaml.safe_load(shown), client_configuration=settings)
    with client.ApiClient(settings) as api:
        yield client.CoreV1Api(api)


def ours(api: client.CoreV1Api) -> dict[str, dict[str, str]]:
    return {
        node.metadata.name: {
            key: value for key, value in node.metadata.labels.items() if "gpuform" in key
        }
        for node in api.list_node().items
    }


def test_labels_come_with_nodes_and_go_with_them(project: Any, official: Any) -> None:
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
    assert {len(each) for each in ours(official).values()} == {0}

    assert "6 changes written." in project.ok(*apply, "--yes").out
    assert ours(official) == dict.fromkeys(("training-worker-0", "training-worker-1"), labels)
    assert "No changes." in project.ok(*apply, "--yes").out

    project.declare({**CLUSTER, "num_gpus": 24})
    project.up()
    told = json.loads(project.ok(*apply, "--yes", "--json").out)
    assert {each["where"] for each in told["changes"] if each["action"] == "set"} == {
        "node/training-worker-2"
    }
    assert set(ours(official)) == {f"training-worker-{number}" for number in range(3)}
    assert all(each == labels for each in ours(official).values())

    name = "training-worker-0"
    official.patch_node(name, {"metadata": {"labels": {"gpuform.dev/region": "mine"}}})
    conflict = project.run(*apply, "--yes")
    assert conflict.code == 1
    assert f"node/{name}: gpuform.dev/region is mine instead of us-central-8" in conflict.err

    removed = project.ok("topology", "--format", "kubernetes-labels", "--remove", "--yes").out
    assert f"node/{name}: unchanged, because meanwhile gpuform.dev/region is mine" in removed
    assert ours(official) == {
        name: {"gpuform.dev/region": "mine"},
        "training-worker-1": {},
        "training-worker-2": {},
    }


def test_labels_of_a_cluster_make_its_tree(project: Any, official: Any) -> None:
    bare = project.ok("topology", "--format", "slurm-tree")
    assert bare.out.splitlines()[1:] == ["SwitchName=train Nodes=slurm-worker-[0-1]"]
    assert "note: train: together does not report fabrics or switches" in bare.err
    for number in range(2):
        labels = {
            "fabric.topograph.run/tier-0": f"leaf{number}",
            "fabric.topograph.run/tier-1": "spine",
            "nvidia.com/gpu.clique": "8f1c.1",
        }
        official.patch_node(f"training-worker-{number}", {"metadata": {"labels": labels}})
    tree = project.ok("topology", "--format", "slurm-tree", "--refresh")
    assert tree.out.splitlines()[1:] == [
        "SwitchName=spine Switches=leaf[0-1]",
        "SwitchName=leaf0 Nodes=slurm-worker-0",
        "SwitchName=leaf1 Nodes=slurm-worker-1",
    ]
    block = project.ok("topology", "--format", "slurm-block", "--refresh")
    assert block.out.splitlines()[1:] == [
        "BlockName=8f1c.1 Nodes=slurm-worker-[0-1]",
        "BlockSizes=2",
    ]


def test_kueue_and_slinky_are_written_and_taken_back(project: Any, official: Any) -> None:
    custom = client.CustomObjectsApi(official.api_client)

    def topologies() -> list[dict[str, Any]]:
        return custom.list_cluster_custom_object("kueue.x-k8s.io", "v1beta2", "topologies")["items"]

    project.ok("topology", "--format", "kueue", "--apply", "--yes")
    (made,) = topologies()
    assert made["spec"] == {"levels": [{"nodeLabel": "kubernetes.io/hostname"}]}
    flavor = custom.get_cluster_custom_object(
        "kueue.x-k8s.io", "v1beta2", "resourceflavors", made["metadata"]["name"]
    )
    assert flavor["spec"]["topologyName"] == made["metadata"]["name"]
    project.ok("topology", "--format", "kueue", "--remove", "--yes")
    assert topologies() == []

    official.create_namespace({"metadata": {"name": "hpc"}})
    slinky = ("topology", "--format", "slinky", "--namespace", "hpc", "--yes")
    project.ok(*slinky, "--apply")
    (file,) = official.list_namespaced_config_map("hpc").items
    assert yaml.safe_load(file.data["topology.yaml"])[0]["tree"] == {
        "switches": [{"switch": "train"}]
    }
    node = official.read_node("training-worker-0")
    assert node.metadata.annotations["topology.slinky.slurm.net/spec"] == "topo-tree:train"
    project.ok(*slinky, "--remove")
    assert official.list_namespaced_config_map("hpc").items == []
    assert not official.read_node("training-worker-0").metadata.annotations


def test_scp_tells_fabrics_and_says_what_it_does_not_tell(project: Any) -> None:
    project.program(SCP + OTHER)
    project.up()
    tree = project.ok("topology", "--format", "slurm-tree")
    assert tree.out.splitlines()[1:] == [
        "SwitchName=train-a Nodes=train-[001-003]",
        "SwitchName=train-b Nodes=batch-[001-002]",
    ]
    assert "note: train: scp does not report switches" in tree.err
    assert "the switches above train-a, train-b are unknown" in tree.err
    one = project.ok("topology", "train", "--format", "slurm-tree")
    assert one.out.splitlines()[1:] == ["SwitchName=train-a Nodes=train-[001-003]"]
    told = json.loads(project.ok("topology", "--format", "inventory", "--json").out)
    assert {node["pool"] for node in told["nodes"]} == {"POOL001-krw1a"}
    assert {node["fabric"] for node in told["nodes"]} == {"train-a", "train-b"}
    assert any("scp does not report switches" in each for each in told["unknown"])


def test_scps_nodes_are_labelled_where_the_stack_says(project: Any, tmp_path: Path) -> None:
    """Its servers have joined a Kubernetes; here, one whose nodes are made by hand."""
    project.declare(CLUSTER)
    project.up()
    shown = project.ok("stack", "output", "kubeconfig", "--show-secrets").out
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(shown)
    settings = client.Configuration()
    config.load_kube_config_from_dict(yaml.safe_load(shown), client_configuration=settings)
    with client.ApiClient(settings) as api:
        project.ok("stack", "init", "pool")
        project.program(SCP.replace('gpu_node_name_prefix="train"', 'gpu_node_name_prefix="gpu"'))
        project.ok("up", "--yes", "--skip-preview")
        apply = ("topology", "--format", "kubernetes-labels", "--apply", "--yes")
        refused = project.run(*apply)
        assert "the Kubernetes cluster of the nodes of train is unknown" in refused.err
        absent = project.run(*apply, "--kubeconfig", str(kubeconfig))
        assert absent.code == 1
        assert "node/gpu-001: node not found in the cluster" in absent.err
        assert all(not each for each in ours(client.CoreV1Api(api)).values())

        joined = {"a": {"gpu_node_name": "training-worker-0"}, "b": {}}
        drain = {"kubernetes": {"kubeconfig": str(kubeconfig)}}
        project.program(SCP.replace("count=3", f"nodes={joined!r}, drain={drain!r}"))
        project.ok("up", "--yes", "--skip-preview")
        partly = project.run(*apply)
        assert "node/train-b: node not found in the cluster" in partly.err
        fabric_id = json.loads(project.ok("topology", "--format", "inventory", "--json").out)[
            "nodes"
        ][0]["fabric_id"]
        assert ours(client.CoreV1Api(api))["training-worker-0"] == {
            "gpuform.dev/stack": "training.pool",
            "gpuform.dev/platform": "scp",
            "gpuform.dev/region": "kr-west1",
            "gpuform.dev/pool": "POOL001-krw1a",
            "gpuform.dev/fabric": "train-a",
            "gpuform.dev/fabric-id": fabric_id,
        }
        project.ok(*apply[:-2], "--remove", "--yes")
        assert all(not each for each in ours(client.CoreV1Api(api)).values())


def test_a_pool_in_two_fabrics_is_told(project: Any) -> None:
    project.program(SCP + OTHER)
    project.up()
    nodes = project.resource("train")["outputs"]["gpu_nodes"]
    others = project.resource("other")["outputs"]
    moved = min(nodes.values(), key=lambda each: each["gpu_node_name"])
    move(project, moved["id"], moved["cluster_fabric_id"], others["cluster_fabric_id"])
    told = "train: its nodes are in 2 fabrics: "
    assert told not in project.ok("status").out
    assert told in project.ok("status", "--refresh").out
    assert told in project.ok("drift").out
    project.ok("refresh", "--yes", "--skip-preview")
    assert told in project.ok("preview").out
    tree = project.ok("topology", "train", "--format", "slurm-tree").out
    assert f"SwitchName=train-b Nodes={moved['gpu_node_name']}" in tree


def move(project: Any, node: str, before: str, after: str) -> None:
    """As somebody does it on the platform's pages: beside the stack."""
    settings = Settings(environ=build_variables(project.emulator.url))
    scp = ScpClient(Connection(find_credentials(settings)))
    clock = EmulatorClock(project.emulator.url)
    with closing(scp), closing(clock), use_context(ProviderContext(clock=clock)):
        scp.modify_members(before, after, [node])
    project.admin("POST", "clock", json={"advance": 3600})


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
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
def test_what_cannot_be_is_refused(
    project: Any, arguments: tuple[str, ...], code: int, text: str
) -> None:
    project.program("")
    found = project.run("topology", *arguments)
    assert found.code == code, found.text
    assert text in found.text


def test_clusters_with_schedulers_of_their_own_are_named_one_by_one(project: Any) -> None:
    two = "\n".join(
        f"Cluster({name!r}, **{ {**CLUSTER, 'cluster_name': name}!r})" for name in ("one", "two")
    )
    project.program(f"from gpuform.providers.together import Cluster\n{two}\n")
    project.up()
    refused = project.run("topology", "--format", "slurm-tree")
    assert refused.code == 1
    assert "one has a scheduler of its own" in refused.err
    assert "gpuform topology one --format slurm-tree" in refused.err
    assert "SwitchName=two" in project.ok("topology", "two", "--format", "slurm-tree").out
    assert "did you mean one?" in project.run("topology", "onee", "--format", "slurm-tree").err
    hosts = yaml.safe_load(project.ok("topology", "--format", "inventory").out)["all"]["hosts"]
    assert len(hosts) == 4
