"""Nodes are removed while jobs of a real Slurm run on them: a scale-down and a rollout.

The platforms and their clock are emulated: an hour of waiting passes at once, while real jobs run
until
a test ends them.
"""

import json
import os
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes.limits import LAST_RESORT
from support.schedulers.real_slurm import MISSING_PROGRAMS, Slurm, run_slurm, wait_until
from support.topologies.declarations import SCP_POOL

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING_PROGRAMS),
        reason=f"needs a real Slurm (apt install slurm-wlm munge): no {MISSING_PROGRAMS}",
    ),
]

NODES = ("slurm-worker-0", "slurm-worker-1", "slurm-worker-2")
EXAMPLE = Path(__file__).parents[2] / "examples" / "06-slurm-scale-down"


POOL = f"""\
config:
  image: {{}}
node_pools:
  train:
{SCP_POOL}    image_id: "{{{{ config.image }}}}"
    cluster_fabric_name: train-a
    gpu_node_name_prefix: train
    count: 6
    drain: {{wait_minutes: 60, slurm: {{via: local}}}}
    rollout: {{max_unavailable: 1}}
"""
POOL_NODES = tuple(f"train-00{number}" for number in range(1, 7))
OLD_IMAGE, NEW_IMAGE = "IMAGE-4mQzWvT9hLxRbYc2NfKpJd", "IMAGE-7XFMaJpLsapKvskFMjCtmm"


class Project:
    """Example 06, or another topology, whose Slurm runs on this machine."""

    def __init__(self, directory: Path, slurm: Slurm, topology: str = "") -> None:
        self.directory = directory
        directory.mkdir()
        for name in ("Pulumi.yaml", "__main__.py", "topology.yaml"):
            (directory / name).write_text((EXAMPLE / name).read_text())
        if topology:
            (directory / "topology.yaml").write_text(topology)
        scripts = sysconfig.get_path("scripts")
        self.environment = {
            **{key: value for key, value in slurm.environment.items() if "TOGETHER" not in key},
            "PATH": f"{scripts}{os.pathsep}{slurm.environment['PATH']}",
            "PULUMI_HOME": str(directory.parent / "home"),
            "PULUMI_CONFIG_PASSPHRASE": "",
            "GPUFORM_ALLOW": "real-schedulers",
        }

    def set_on_busy(self, on_busy: str) -> None:
        topology = (EXAMPLE / "topology.yaml").read_text()
        here = f"{{on_busy: {on_busy}, wait_minutes: 60, slurm: {{via: local}}}}"
        changed = topology.replace("{on_busy: wait, wait_minutes: 240}", here)
        assert changed != topology
        (self.directory / "topology.yaml").write_text(changed)

    def run(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(
            ("gpuform", *command), cwd=self.directory, env=self.environment,
            capture_output=True, text=True, check=False, timeout=LAST_RESORT,
        )  # fmt: skip
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def read_images(self) -> dict[str, str]:
        """Return the images of the nodes in the state, by node."""
        resources = json.loads(self.run("stack", "export"))["deployment"]["resources"]
        nodes = resources[-1]["outputs"]["gpu_nodes"]
        return {name: node["image_id"] for name, node in nodes.items()}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    with run_slurm(NODES) as started:
        yield started


def test_a_scale_down_waits_for_a_job_and_only_evict_ends_it(tmp_path: Path, slurm: Slurm) -> None:
    project = Project(tmp_path / "project", slurm)
    project.set_on_busy("wait")
    project.run("stack", "init", "dev")
    project.run("up", "--emulate", "--yes")
    jobs = [slurm.submit(node=node) for node in NODES]
    for job in jobs:
        wait_until(job.is_running, "a running job")
    newest = jobs[-1]

    project.run("config", "set", "gpus", "16")
    output = project.run("up", "--emulate", "--yes", code=1)
    assert f"removes node training-worker-2: the newest; runs {newest.id} " in output
    assert all(job.is_running() for job in jobs)
    wait_until(
        lambda: all("DRAIN" not in slurm.get_state(node) for node in NODES), "nodes in service"
    )

    newest.end()
    wait_until(lambda: slurm.get_state(NODES[2]) == "IDLE", "an idle node")
    output = project.run("up", "--emulate", "--yes")
    assert "removes node training-worker-2: idle" in output
    assert slurm.get_state(NODES[2]) == "IDLE+DRAIN"
    assert jobs[0].is_running()
    assert jobs[1].is_running()

    project.set_on_busy("evict")
    project.run("config", "set", "gpus", "8")
    slurm.stop("slurmctld")
    output = project.run("up", "--emulate", "--yes", code=1)
    assert "Unable to contact slurm controller" in output
    slurm.start_controller()
    wait_until(jobs[1].is_running, "the job that went on without a controller")

    project.run("up", "--emulate", "--yes")
    wait_until(lambda: slurm.has_job(jobs[1].id, "PENDING"), "the requeued job")
    assert jobs[0].is_running()
    jobs[0].end()


def test_a_rollout_of_six_nodes_kills_no_job(tmp_path: Path) -> None:
    with run_slurm(POOL_NODES) as slurm:
        project = Project(tmp_path / "project", slurm, POOL)
        project.run("stack", "init", "dev")
        project.run("config", "set", "image", OLD_IMAGE)
        project.run("up", "--emulate", "--yes")
        busy = POOL_NODES[:3]
        jobs = {node: slurm.submit(node=node) for node in busy}
        for job in jobs.values():
            wait_until(job.is_running, "a running job")

        project.run("config", "set", "image", NEW_IMAGE)
        for remaining_count in (3, 2, 1):
            output = project.run("up", "--emulate", "--yes", code=1)
            assert (
                f"jobs still run on {busy[-remaining_count]}: {jobs[busy[-remaining_count]].id} "
                in output
            )
            old = [name for name, image in project.read_images().items() if image == OLD_IMAGE]
            assert old == [*busy[-remaining_count:]]
            assert all(jobs[node].is_running() for node in old)
            wait_until(
                lambda: all("DRAIN" not in slurm.get_state(n) for n in POOL_NODES), "in service"
            )
            jobs[busy[-remaining_count]].end()
        project.run("up", "--emulate", "--yes")
        assert set(project.read_images().values()) == {NEW_IMAGE}
        assert all(job.has_ended() for job in jobs.values())
        project.run("preview", "--emulate", "--expect-no-changes")
