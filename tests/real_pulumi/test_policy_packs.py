"""Test that policy packs of Pulumi see gpuform's resources under the Pulumi CLI."""

import shutil
import sys
from pathlib import Path

import pytest
from processes import language_host
from processes.commands import PASSPHRASE, SALT, Result, build_pulumi_environment, pulumi
from processes.pinned_pulumi import find_policy_sdk

from gpuform.providers.emulator.server import environment, serve

POLICY_SDK = find_policy_sdk()
pytestmark = pytest.mark.skipif(POLICY_SDK is None, reason="pulumi-policy is not installed")

EXAMPLES = Path(__file__).parents[2] / "examples"


def preview(tmp_path: Path, gpus: int) -> Result:
    """Run `pulumi preview` of the first example with the example's policy pack."""
    ignored = shutil.ignore_patterns(".*", "Pulumi.*.yaml", "python", "pulumi-yaml")
    project = shutil.copytree(
        EXAMPLES / "01-together-training", tmp_path / "project", ignore=ignored
    )
    pack = shutil.copytree(EXAMPLES / "policy-pack", tmp_path / "pack")
    programs = tmp_path / "programs"
    programs.mkdir()
    host = programs / "pulumi-language-python"
    host.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{language_host.__file__}" "$@"\n')
    host.chmod(0o755)
    settings = f"encryptionsalt: {SALT}\nconfig:\n  together-training:gpus: {gpus}\n"
    (project / "Pulumi.dev.yaml").write_text(settings)
    with serve(seed="policies") as server:
        path = build_pulumi_environment({})["PATH"]
        variables = {
            **environment(server.url),
            "PATH": f"{programs}:{path}",
            "PYTHONPATH": str(POLICY_SDK),
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_BACKEND_URL": f"file://{project}",
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }
        assert pulumi(project, "stack", "init", "dev", **variables).code == 0
        return pulumi(
            *(project, "preview", "--non-interactive", "--policy-pack", str(pack)), **variables
        )


@pytest.mark.parametrize(
    ("gpus", "code"),
    [(16, 0), (40, 1)],
)
def test_a_policy_pack_warns_about_and_stops_a_plan(tmp_path: Path, gpus: int, code: int) -> None:
    done = preview(tmp_path, gpus)
    output = done.stdout + done.stderr
    assert "declare expires or ttl: an on-demand cluster must end by itself" in output
    assert ("the stack would have 40 GPUs: the limit is 32" in output) == (gpus > 32)
    assert (done.code != 0) == (code != 0), output
