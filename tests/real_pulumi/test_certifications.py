"""Test a failed certification under the real CLI, in both forms: no dependent is created."""

import shutil
from pathlib import Path

import pytest
from conformance.emulated import start_emulated_platform
from processes.commands import PASSPHRASE, SALT, Result, pulumi, run_new_process

from gpuform.providers.emulator.server import environment

EXAMPLE = Path(__file__).parents[2] / "examples" / "09-certified-cluster"
FIGURE = (
    "node training-worker-1: communication/nccl-all-reduce: 250 GB/s is below the floor of 300 GB"
)


@pytest.mark.parametrize(
    "form", ["python", pytest.param("pulumi-yaml", marks=pytest.mark.language_host("yaml"))]
)
def test_a_node_below_the_floor_stops_what_depends_on_it(form: str, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE / form, folder)
    (folder / "Pulumi.dev.yaml").write_text(f"encryptionsalt: {SALT}\n")
    (tmp_path / "state").mkdir()
    with start_emulated_platform(seed="certified") as platform:
        environ = {
            **environment(platform.server.url),
            "PULUMI_BACKEND_URL": f"file://{tmp_path}/state",
            "PULUMI_HOME": str(tmp_path / "home"),
            "PULUMI_CONFIG_PASSPHRASE": PASSPHRASE,
        }

        def run(*arguments: str) -> Result:
            return pulumi(folder, *arguments, "--non-interactive", **environ)

        def slow(**nodes: float) -> None:
            slow_nodes = {name.replace("_", "-"): figure for name, figure in nodes.items()}
            body = {"slow_nodes": slow_nodes}
            platform.http.post("/_emulator/kubernetes/settings", json=body).raise_for_status()

        installed = run_new_process(folder, "plugin", "install", PULUMI_HOME=environ["PULUMI_HOME"])
        assert installed.code == 0, installed.stderr
        run("stack", "init", "dev")
        slow(training_worker_1=250)
        for _ in range(2):  # the second run tests once more
            failed = run("up", "--yes", "--skip-preview")
            assert failed.code != 0
            assert FIGURE in failed.stdout + failed.stderr
            assert "::scratch" not in run("stack", "export").stdout
        slow()
        done = run("up", "--yes", "--skip-preview")
        assert done.code == 0, done.stdout + done.stderr
        assert "2 of 2 nodes proven" in done.stdout
        assert run("preview", "--expect-no-changes").code == 0
