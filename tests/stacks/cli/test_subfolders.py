"""Commands in a folder of a project: what its files name is relative to the project."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.stacks.planned_project import PlannedProject

Run = Callable[..., Any]

TOPOLOGY = """
include: [parts/volumes.yaml]
clusters:
  train:
    platform:   together
    cluster_name: training
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    cuda_version: "12.6"
    nvidia_driver_version: "560"
    billing_type: ON_DEMAND
    volume: "{{ shared_volumes.data }}"
"""
VOLUMES = """
shared_volumes:
  data: {platform: together, volume_name: training-data, region: us-central-8, size_tib: 5}
"""


@pytest.fixture
def subfolder(project: Path) -> Path:
    folder = project / "a b" / "deep"
    folder.mkdir(parents=True)
    return folder


@pytest.mark.slow
def test_commands_in_a_subfolder_use_the_projects_state(
    applied_project: PlannedProject, subfolder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = applied_project.sent_changes
    for start in (
        lambda *command: applied_project.run(*command, "--cwd", str(subfolder)),
        applied_project.run,
    ):
        if start is applied_project.run:
            monkeypatch.chdir(subfolder)
        assert start("preview", "--expect-no-changes").code == 0
        assert "train" in start("status").out
        assert start("stack", "ls", "--json").json[0]["resourceCount"] == 4
    assert applied_project.run("config", "set", "gpus", "24").code == 0
    assert "gpus" in (applied_project.project / "Pulumi.dev.yaml").read_text()
    assert applied_project.run("up", "--yes").code == 0
    assert len(applied_project.sent_changes) == len(before) + 1
    assert applied_project.run("destroy", "--yes").code == 0
    assert list(subfolder.iterdir()) == []
    # What is given on the command line or in the environment starts at the current folder.
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file://.")
    assert "no stack named 'dev' in file://." in applied_project.run("status", "--stack", "dev").err


def test_commands_in_a_subfolder_find_all_project_files(
    dev: Run, project: Path, subfolder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "__main__.py").unlink()
    (project / "parts").mkdir()
    (project / "topology.yaml").write_text(TOPOLOGY)
    (project / "parts" / "volumes.yaml").write_text(VOLUMES)
    (project / "prices.yaml").write_text(
        "currency: EUR\ngpus:\n  - {platform: together, gpu_type: H100_SXM, per_hour: 2.0}\n"
    )
    (project / "gates.yaml").write_text(
        "gates:\n  budget: {max_hourly_cost: {amount: 8, currency: EUR}}\n"
    )
    monkeypatch.chdir(subfolder)
    assert "2 resources" in dev("validate").out
    files = (project / "topology.yaml", project / "parts" / "volumes.yaml")
    assert dev("fmt").out.splitlines() == [*map(str, files)]
    ran = dev("preview", "--emulate", "--save-plan", "plan.json")
    assert ran.code == 5, ran.out + ran.err
    assert (subfolder / "plan.json").is_file()
    assert "EUR" in ran.out
    reviewed = dev("review", "plan.json", "--detailed-exitcode")
    assert reviewed.code == 5
    assert (project / ".gpuform" / "emulator.db").is_file()
    assert [path.name for path in subfolder.iterdir()] == ["plan.json"]


def test_a_relative_backend_of_login_is_one_folder(
    run: Run, project: Path, subfolder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "Pulumi.yaml").write_text("name: demo\nruntime: python\n")
    assert run("login", "file://.").out == f"Logged in to file://{project}.\n"
    assert run("stack", "init", "dev").code == 0
    monkeypatch.chdir(subfolder)
    assert run("stack", "ls", "--json").json[0]["name"] == "dev"
    os.chdir(project)
    assert run("logout", "file://.").code == 0
