"""Test that the typed classes are current, formatted and understood by a type checker."""

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pulumi
import pytest

from gpuform.providers import codegen, shared_types
from gpuform.providers.together import Cluster, resources

ROOT = Path(__file__).parents[2]


def test_the_generated_files_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    assert codegen.main(["--check"]) == 0, capsys.readouterr().err


def test_an_outdated_file_is_named_and_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "together" / "resources.py"
    path.parent.mkdir()
    (_, text), *_ = codegen.generate_files()
    monkeypatch.setattr(codegen, "generate_files", lambda _platforms: [(path, text)])
    assert codegen.main(["--check"]) == 1
    assert capsys.readouterr().err == "together/resources.py is not current\n"
    assert codegen.main([]) == 0
    assert path.read_text() == text
    assert codegen.main(["--check"]) == 0


@pytest.mark.skipif(importlib.util.find_spec("ruff") is None, reason="ruff is not installed")
def test_the_generated_files_are_formatted() -> None:
    for path, _ in codegen.generate_files():
        for command in (["format", "--check"], ["check"]):
            finished = subprocess.run(
                [sys.executable, "-m", "ruff", *command, str(path)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
            )
            assert finished.returncode == 0, finished.stdout


def test_a_field_has_its_description_where_editors_look() -> None:
    text = dict(codegen.generate_files())[ROOT / "providers" / "together" / "resources.py"]
    argument = '    size_tib: pulumi.Input[int]\n    """Size in whole TiB; it can only grow. (in'
    output = '    gpu_worker_nodes: pulumi.Output[list[GpuWorkerNodeValues]]\n    """The nodes with'
    assert argument in text
    assert output in text


def test_pulumi_converts_nested_outputs_as_plain_objects() -> None:
    annotation = Cluster.__annotations__["gpu_worker_nodes"]
    assert annotation == pulumi.Output[list[dict[str, Any]]]


def test_nodes_of_a_batch_job_and_of_a_certification_have_their_own_values() -> None:
    assert get_args(shared_types.Nodes) == ("each", "all")
    assert get_args(resources.Nodes) == ("new", "all")


PROGRAM = """
import pulumi
from gpuform.providers.together import Cluster, SharedVolume

volume = SharedVolume("data", volume_name="data", size_tib=2, region="us-central-8")
cluster = Cluster(
    "train",
    pulumi.ResourceOptions(protect=True),
    cluster_name=pulumi.Output.from_input("train"),
    region=volume.region,
    gpu_type="H100_SXM",
    num_gpus=16,
    billing_type="ON_DEMAND",
    driver_version=None,
    volume_id=volume,
    oidc_config={{
        "client_id": "a",
        "group_claim": "groups",
        "group_prefix": "oidc:",
        "issuer_url": "https://issuer.example",
        "username_claim": "sub",
        "username_prefix": "oidc:",
    }},
    add_ons=[{{"add_on_type": "dashboard", "name": "ui", "config": {{"dashboard": {{}}}}}}],
    {extra}
)
pulumi.export("kubeconfig", cluster.kube_config)
nodes: pulumi.Output[int] = cluster.num_gpus
first: pulumi.Output[str] = cluster.gpu_worker_nodes.apply(lambda nodes: nodes[0]["host_name"])
"""
WRONG = {
    'num_gpus="x"': PROGRAM.replace("num_gpus=16", 'num_gpus="x"'),
    "a misspelt argument": PROGRAM.replace("gpu_type=", "gpu_typ="),
    "a missing argument": PROGRAM.replace("    num_gpus=16,\n", ""),
    "a closed enumeration": PROGRAM.replace('"ON_DEMAND"', '"PREPAID"'),
    "a nested name": PROGRAM.replace('"group_claim"', '"group_claims"'),
    "a member of an output": PROGRAM.replace('["host_name"]', '["hostname"]'),
    "an output": PROGRAM.replace("pulumi.Output[int]", "pulumi.Output[str]"),
}


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_the_type_checker_reports_exactly_the_wrong_lines(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(PROGRAM.format(extra='cluster_type="KUBERNETES",'))
    for number, program in enumerate(WRONG.values()):
        (tmp_path / f"wrong_{number}.py").write_text(program.format(extra=""))
    (tmp_path / "mypy.ini").write_text(
        f"[mypy]\nmypy_path = {ROOT / '.ci' / 'rooms'}\nnamespace_packages = True\n"
        "explicit_package_bases = True\nfollow_imports = silent\n"
    )
    finished = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    errors = [line for line in finished.stdout.splitlines() if ": error:" in line]
    assert not [line for line in errors if line.startswith("right.py")]
    missed = [
        expected_error
        for number, expected_error in enumerate(WRONG)
        if not any(line.startswith(f"wrong_{number}.py") for line in errors)
    ]
    assert missed == [], finished.stdout
