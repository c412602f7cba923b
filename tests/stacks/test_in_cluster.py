"""Test the manifests of `examples/in-cluster`, and that their script posts and applies a plan."""

import itertools
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from click.testing import CliRunner
from processes.commands import build_path_with_gpuform
from processes.limits import LAST_RESORT
from support.definitions.schemas import find_schema, find_schema_problems
from support.servers.code_host import TOKEN, serve_code_host

from gpuform.providers.emulator.server import environment, serve
from gpuform.stacks.cli.app import cli

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/in-cluster"
OBJECTS = [
    manifest
    for name in ("cronjob.yaml", "approval.yaml", "flux.yaml", "operator.yaml")
    for manifest in yaml.safe_load_all((FOLDER / name).read_text())
]
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
BUILT_IN = {
    "ServiceAccount",
    "PersistentVolumeClaim",
    "NetworkPolicy",
    "ConfigMap",
    "ClusterRoleBinding",
}
"""Kinds of Kubernetes that have no recorded definition."""


def find_object(kind: str) -> Mapping[str, Any]:
    (found,) = [manifest for manifest in OBJECTS if manifest["kind"] == kind]
    return dict(found)


def get_pod(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the pod of a CronJob, or the one that a Stack adds to its workspace."""
    if manifest["kind"] == "CronJob":
        return dict(manifest["spec"]["jobTemplate"]["spec"]["template"])
    return dict(manifest["spec"]["workspaceTemplate"]["spec"]["podTemplate"])


def list_containers(manifest: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = get_pod(manifest)["spec"]
    return [*spec.get("initContainers", ()), *spec["containers"]]


@pytest.mark.parametrize("kind", ["CronJob", "Stack", "GitRepository", "Kustomization"])
def test_an_object_is_valid_by_its_definition(kind: str) -> None:
    assert find_schema_problems(find_object(kind)) == []


def test_the_pod_of_the_cronjob_is_valid_by_the_definition_of_pods() -> None:
    spec = find_schema("pulumi.com/v1", "Stack")["properties"]["spec"]["properties"]
    workspace = spec["workspaceTemplate"]["properties"]["spec"]["properties"]
    validator = jsonschema.Draft202012Validator(workspace["podTemplate"])
    pod = get_pod(find_object("CronJob"))
    assert [problem.message for problem in validator.iter_errors(pod)] == []
    misspelled = {**pod, "spec": {**pod["spec"], "automountServiceAccountTokens": False}}
    assert [*validator.iter_errors(misspelled)]


def test_every_object_has_a_known_kind() -> None:
    kinds = {manifest["kind"] for manifest in OBJECTS}
    assert kinds == {*BUILT_IN, "CronJob", "Stack", "GitRepository", "Kustomization"}


def test_two_runs_never_overlap_and_none_is_repeated() -> None:
    spec = find_object("CronJob")["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["jobTemplate"]["spec"]["backoffLimit"] == 0
    assert get_pod(find_object("CronJob"))["spec"]["restartPolicy"] == "Never"


def test_the_pod_of_the_cronjob_has_no_rights() -> None:
    pod = get_pod(find_object("CronJob"))["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in list_containers(find_object("CronJob")):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_only_the_apply_has_the_keys_that_may_write() -> None:
    secrets = {
        container["name"]: [
            source["secretRef"]["name"]
            for source in container.get("envFrom", ())
            if "secretRef" in source
        ]
        for container in list_containers(find_object("CronJob"))
    }
    assert secrets == {"source": [], "plan": ["gpuform-read-only"], "apply": ["gpuform"]}


@pytest.mark.parametrize("kind", ["CronJob", "Stack"])
def test_secrets_are_only_named(kind: str) -> None:
    variables = [
        variable
        for container in list_containers(find_object(kind))
        for variable in container.get("env", ())
    ]
    secret_name = re.compile("PASSPHRASE|TOKEN|KEY|PASSWORD|SECRET")
    assert [v["name"] for v in variables if "value" in v and secret_name.search(v["name"])] == []
    references = find_object("Stack")["spec"]["envRefs"].values()
    assert {reference["type"] for reference in references} == {"Secret"}
    assert "Secret" not in {manifest["kind"] for manifest in OBJECTS}


def test_every_configmap_that_the_cronjob_reads_exists() -> None:
    generated = {entry["name"] for entry in KUSTOMIZATION["configMapGenerator"]}
    existing = generated | {find_object("ConfigMap")["metadata"]["name"]}
    used = set(find_names(find_object("CronJob"), "configMapRef", "configMap"))
    assert used == existing
    assert [name for name in KUSTOMIZATION["resources"] if not (FOLDER / name).exists()] == []


def find_names(value: Any, *keys: str) -> Iterator[str]:
    """Yield the names of the objects below the keys, at any depth."""
    if isinstance(value, list):
        yield from itertools.chain.from_iterable(find_names(item, *keys) for item in value)
    elif isinstance(value, dict):
        for key, part in value.items():
            if key in keys:
                yield part["name"]
            yield from find_names(part, *keys)


def test_each_mounted_volume_exists() -> None:
    for kind in ("CronJob", "Stack"):
        volumes = {volume["name"] for volume in get_pod(find_object(kind))["spec"]["volumes"]}
        mounts = {
            mount["name"]
            for container in list_containers(find_object(kind))
            for mount in container["volumeMounts"]
        }
        assert mounts == volumes, kind


def test_deleting_a_stack_object_deletes_no_cluster() -> None:
    assert find_object("Stack")["spec"]["destroyOnFinalize"] is False


def run_job(name: str, folder: Path, variables: Mapping[str, str]) -> str:
    """Run the command of a container of the CronJob in `folder`, and return the output."""
    containers = {c["name"]: c for c in list_containers(find_object("CronJob"))}
    _shell, _flag, command = containers[name]["command"]
    command = command.replace("/checkout", str(folder)).replace("/scripts", str(FOLDER))
    ran = subprocess.run(
        ["sh", "-c", command],
        env={"PATH": build_path_with_gpuform(), "HOME": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=LAST_RESORT,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


@pytest.mark.slow
def test_the_containers_post_a_plan_and_apply_it_once_it_is_approved(tmp_path: Path) -> None:
    project = tmp_path / "source/training"
    project.mkdir(parents=True)
    (tmp_path / "plans").mkdir()
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    volume = "platform: together\n    volume_name: v\n    region: us-central-8\n    size_tib: 5\n"
    (project / "topology.yaml").write_text(f"shared_volumes:\n  data:\n    {volume}")
    approval = tmp_path / "digest"
    with serve(seed="cron", smallest_wait=20.0) as emulator, serve_code_host() as code_host:
        where = f"--forge github --forge-url {code_host.url} --repository o/r --pull-request 12"
        variables = {
            **environment(emulator.url),
            "STACK": "prod",
            "PROJECT": "training",
            "APPROVAL": str(approval),
            "PLANS": str(tmp_path / "plans"),
            "REVIEW_FLAGS": where,
            "GITHUB_TOKEN": TOKEN,
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        }
        created = CliRunner(env=variables).invoke(
            cli, ["stack", "init", "prod", "--cwd", str(project)]
        )
        assert created.exit_code == 0, created.output
        planned = run_job("plan", tmp_path, variables)
        (comment,) = code_host.comments
        assert "1 to create" in comment["body"]
        match = re.search(r"Its digest is `(\w+)`", comment["body"])
        assert match, planned
        approval.write_text(f"{match[1]}\n")

        applied = run_job("apply", tmp_path, variables)

    assert "+ 1 created" in applied
    assert list((tmp_path / "plans").iterdir()) == []


@pytest.mark.parametrize("approved", ["", "no digest", "../prod", "abc123"])
def test_nothing_is_applied_without_an_approval_of_this_plan(tmp_path: Path, approved: str) -> None:
    (tmp_path / "source/training").mkdir(parents=True)
    (tmp_path / "prod.json").write_text('{"basis": {"seal": "abc1234"}}')
    (tmp_path / "digest").write_text(approved)
    variables = {"STACK": "prod", "PROJECT": "training", "PLANS": str(tmp_path)}
    output = run_job("apply", tmp_path, {**variables, "APPROVAL": str(tmp_path / "digest")})
    assert re.search(r"no plan of prod is approved|is another one: abc123$", output.strip())
    assert os.access(FOLDER / "gpuform-cron.sh", os.X_OK)
