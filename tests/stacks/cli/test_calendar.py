"""`gpuform calendar`: one stack and all, as a table, as iCalendar and as JSON."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from icalendar import Calendar
from support.stacks.project_folders import write_three_projects

from gpuform.providers.emulator.server import environment, serve

Run = Any

CLUSTER = """\
clusters:
  train:
    platform: together
    cluster_name: train
    region: us-central-8
    gpu_type: H100_SXM
    num_gpus: 16
    driver_version: CUDA_12_6_560
    billing_type: RESERVED
    duration_days: 30
    expires: 2027-01-31
"""


@pytest.fixture
def stacks(
    run: Run, project: Path, tmp_path: Path, salt: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Create two stacks: one with a volume, and one with a reserved cluster that expires."""
    root = tmp_path / "three"
    root.mkdir()
    monkeypatch.chdir(root)
    write_three_projects(root, salt)
    topology = root / "clusters/topology.yaml"
    topology.write_text(topology.read_text() + CLUSTER)
    with serve(seed="calendar", start=1_800_000_000.0) as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("LENS_URL")
        for folder in ("network", "clusters"):
            assert run("--cwd", folder, "stack", "init", "prod").code == 0
            assert (
                run("--cwd", folder, "up", "--yes", "--skip-preview", "--stack", "prod").code == 0
            )
        yield root


@pytest.mark.slow
def test_the_calendar_of_all_stacks_has_the_lines_of_each(run: Run, stacks: Path) -> None:
    one = run("--cwd", "clusters", "calendar", "--stack", "prod")
    assert one.code == 0
    header, *rows = one.out.splitlines()
    assert header.split() == ["BEGINS", "ENDS", "STACK", "NAME", "WHAT"]
    assert [row.split()[3] for row in rows] == ["train", "train"]
    assert rows[0].endswith("reservation of 16 GPUs for 30 days")
    assert rows[1].split()[:2] == ["-", "2027-02-01T00:00:00Z"]
    everything = run("calendar", "--all", "--format", "json")
    assert everything.code == 0
    entries = everything.json["entries"]
    assert [entry["kind"] for entry in entries] == ["reservation", "expiry"]
    assert {entry["stack"] for entry in entries} == {"clusters/prod"}
    assert run("calendar", "--all", "--format", "ics", "--output", "fleet.ics").code == 0
    assert len(Calendar.from_ical((stacks / "fleet.ics").read_bytes()).walk("VEVENT")) == 2


def test_a_reservation_that_has_ended_is_refused(
    run: Run, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "__main__.py").write_text(
        "from gpuform.providers.together import Cluster\n"
        "Cluster('train', cluster_name='train', region='us-central-8', gpu_type='H100_SXM',\n"
        "    num_gpus=16, driver_version='CUDA_12_6_560', billing_type='SCHEDULED_CAPACITY',\n"
        "    reservation_start_time='2026-03-01T08:00:00Z',\n"
        "    reservation_end_time='2026-03-08T08:00:00Z')\n"
    )
    with serve(seed="calendar", start=1_800_000_000.0) as server:
        for name, value in environment(server.url).items():
            monkeypatch.setenv(name, value)
        assert run("stack", "init", "dev").code == 0
        ran = run("preview")
    assert ran.code != 0
    assert "2026-03-08T08:00:00Z is in the past: declare a later end" in ran.out + ran.err


def test_icalendar_without_its_package_says_how_to_install_it(
    dev: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuform.stacks.cli.commands.report_commands.find_spec", lambda _name: None)
    ran = dev("calendar", "--format", "ics")
    assert ran.code == 1
    assert "requires a package that is not installed: icalendar" in ran.err
    assert "[calendar]" in ran.err


def test_an_empty_stack_has_an_empty_calendar(dev: Run) -> None:
    ran = dev("calendar")
    assert (ran.code, ran.out) == (0, "Nothing begins or ends at a known time.\n")
