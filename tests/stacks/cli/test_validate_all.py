"""`gpuform validate --all`: several stacks by their files alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.stacks.project_folders import build_topology, write_project, write_three_projects


@pytest.fixture
def three_projects(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write three projects into the current folder, without a passphrase or state."""
    monkeypatch.delenv("PULUMI_CONFIG_PASSPHRASE")
    root = tmp_path / "three"
    root.mkdir()
    monkeypatch.chdir(root)
    write_three_projects(root)
    return root


def test_validate_all_lists_stacks_in_order(run: Any, three_projects: Path) -> None:
    ran = run("validate", "--all")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "network/prod is valid: 1 resource",
        "clusters/prod is valid: 1 resource; after network/prod",
        "apps/prod is a Python program; after clusters/prod",
    ]
    assert not list((three_projects / "state").iterdir()), "nothing is written"


def test_validate_all_filter_and_stack_select_stacks(run: Any, three_projects: Path) -> None:
    assert run("validate", "--all", "--filter", "...clusters").out.count("\n") == 2
    write_project(three_projects, "network", stacks=("dev", "prod"))
    assert run("validate", "--all", "--stack", "dev").out == "network/dev is valid: 1 resource\n"
    ran = run("validate", "--all", "--filter", "network", "--stack", "prod")
    assert ran.out == "network/prod is valid: 1 resource\n"
    ran = run("validate", "--all", "--filter", "apps", "--stack", "dev")
    assert (ran.code, ran.out) == (0, "No stack is affected: nothing to check.\n")
    inside = run("--cwd", "apps", "validate", "--all", "--filter", "../network", "--stack", "dev")
    assert inside.out == "network/dev is valid: 1 resource\n"


def test_validate_all_reports_all_problems_with_positions(run: Any, three_projects: Path) -> None:
    (three_projects / "clusters/gates.yaml").write_text("gates: []\n")
    (three_projects / "network/topology.yaml").write_text(build_topology("data") + "clutsers: {}\n")
    (three_projects / "apps/__main__.py").write_text(
        "import pulumi\npulumi.StackReference('none')\n"
    )
    write_project(three_projects, "broken")
    (three_projects / "broken/Pulumi.yaml").write_text("name: broken\nruntime: go\n")
    with (three_projects / "stacks.yaml").open("a") as file:
        file.write("  - folder: broken\n  - folder: none\n")
    ran = run("validate", "--all")
    assert ran.code == 1
    assert [line.split(": ")[0] for line in ran.out.splitlines() if line[0] != " "] == [
        "broken/Pulumi.yaml:2:10",
        "clusters/gates.yaml:1:8",
        "network/topology.yaml:7:1",
        "stacks.yaml:6:13",
    ], "nobody tells whether `none` is what cannot be read"
    assert ran.err == "error: 4 problems\n"


@pytest.mark.parametrize("form", ["json", "sarif", "github"])
def test_validate_all_has_machine_readable_formats(
    run: Any, three_projects: Path, form: str
) -> None:
    ran = run("validate", "--all", "--format", form)
    assert ran.code == 0
    (three_projects / "network/topology.yaml").write_text(build_topology("data"))
    ran = run("validate", "--all", "--format", form)
    assert ran.code == 1
    assert "no output volume" in ran.out
    if form != "github":
        json.loads(ran.out)


def test_validate_all_reports_unreadable_files_without_traceback(
    run: Any, three_projects: Path
) -> None:
    write_project(three_projects, "network", {"topology.yaml": "\0"})
    (three_projects / "clusters/__main__.py").write_text("def")
    (three_projects / "clusters/topology.yaml").unlink()
    (three_projects / "stacks.yaml").write_text("stacks: [{folder: '*'}]\ngates: 5\n")
    ran = run("validate", "--all")
    assert ran.code == 1
    assert ran.out.startswith("stacks.yaml:2:8: gates: ")


def test_validate_all_refuses_contradicting_flags(run: Any, three_projects: Path) -> None:
    for flags in (["--all", "x.yaml"], ["--filter", "network"]):
        ran = run("validate", *flags)
        assert (ran.code, ran.out) == (2, "")
    for flags in (["--filter", "none"], ["--stack", "none"], ["--filter", "[main]"]):
        ran = run("validate", "--all", *flags)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("error: ")


def test_validate_all_without_stacks_is_an_error(
    run: Any, three_projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (three_projects / "empty").mkdir()
    (three_projects / "stacks.yaml").unlink()
    ran = run("--cwd", "empty", "validate", "--all")
    assert (ran.code, ran.out) == (1, "")
    assert "no stacks.yaml, and no project with a stack in" in ran.err
