"""`gpuform manifests`: the claims of a program as YAML, without asking anybody."""

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from gpuform.stacks.cli.app import cli

EXAMPLE = Path(__file__).parents[3] / "examples" / "07-kubernetes-volumes"
Run = Callable[..., Any]


@pytest.fixture(params=[EXAMPLE, EXAMPLE / "python"], ids=["yaml", "python"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Return a function that runs commands in a copy of the example, without a platform."""
    ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml", "python")
    project = shutil.copytree(request.param, tmp_path / "project", ignore=ignored)
    environ = {
        "PULUMI_CONFIG_PASSPHRASE": "",
        "PULUMI_HOME": str(tmp_path / "home"),
        "PULUMI_BACKEND_URL": None,
        "TOGETHER_API_KEY": "key",
        "TOGETHER_BASE_URL": "http://127.0.0.1:1",
    }

    def invoke(*command: str) -> Any:
        with contextlib.chdir(project):
            return CliRunner().invoke(cli, command, env=environ)

    assert invoke("stack", "init", "dev").exit_code == 0
    return invoke


@pytest.mark.slow
def test_manifests_prints_the_claims_as_the_reference_writes_them(run: Run) -> None:
    done = run("manifests")
    assert done.exit_code == 0, done.output
    first, second = yaml.safe_load_all(done.stdout)
    assert first["metadata"] == {"name": "shared-pvc"}
    assert first["spec"]["volumeName"] == "training-data"
    assert second["spec"]["storageClassName"] == "local-storage-class"
    assert "  accessModes: [ReadWriteMany]\n" in done.stdout
    for name in ("train", "training"):
        assert run("manifests", name).stdout == done.stdout


def test_manifests_of_an_unknown_cluster_suggests_the_nearest(run: Run) -> None:
    done = run("manifests", "trian")
    assert done.exit_code == 1
    assert "no cluster 'trian' has volume claims" in done.output
    assert "clusters with claims: train" in done.output


def test_manifests_fails_for_an_invalid_claim(run: Run) -> None:
    assert run("config", "set", "scratch", "50 GB").exit_code == 0
    done = run("manifests")
    assert done.exit_code == 1
    assert "50 GB" in done.output
