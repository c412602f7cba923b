"""Test example 06 against README: a cluster shrinks when the job of a node has ended."""

import os
import re
import subprocess
import sysconfig
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT

EXAMPLE = Path(__file__).parents[2] / "examples" / "06-slurm-scale-down"


@pytest.mark.slow
def test_the_readmes_commands_shrink_the_cluster_after_the_job_has_ended(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for name in ("Pulumi.yaml", "__main__.py", "topology.yaml", "slurm.py"):
        (project / name).write_text((EXAMPLE / name).read_text())
    readme = (EXAMPLE / "README.md").read_text()
    commands = "\n".join(re.findall(r"```bash\n(.*?)```", readme, re.DOTALL))
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("TOGETHER_")
    }
    scripts = sysconfig.get_path("scripts")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=project,
        env={
            **environment,
            "PATH": f"{scripts}{os.pathsep}{environment['PATH']}",
            "PULUMI_HOME": str(tmp_path / "home"),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=LAST_RESORT,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    plan = re.search(r"```\n(~  train.*?)```", readme, re.DOTALL)
    assert plan is not None
    assert plan[1] in done.stdout
    assert "waiting for training-worker-2: 2 evaluate (root)" in done.stdout
    assert re.search(r"2  alloc slurm-worker-\[0-1\]\n", done.stdout), "the other job goes on"
